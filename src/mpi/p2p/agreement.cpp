#include "mpi/p2p/agreement.hpp"

#include <algorithm>
#include <chrono>

#include "base/parse.hpp"

namespace larklane::mpi::p2p {
namespace {

const char* text_of(Objection objection) noexcept {
  switch (objection) {
    case Objection::without_larklane:
      return " runs without this Larklane, or has ended; remedy: start all ranks by larklane run "
             "of one "
             "version";
    case Objection::without_p2p:
      return " has option p2p off; remedy: LARKLANE_P2P alike on all ranks";
    case Objection::version:
      return " runs another version of Larklane; remedy: start all ranks by larklane run of one "
             "version";
    case Objection::family:
      return " runs an MPI of another ABI; remedy: one MPI for all ranks";
    case Objection::options:
      return " has other values of vci_count_max or vci_mapping; remedy: set them alike on all "
             "ranks";
    case Objection::ended:
      return " has ended in MPI_Init";
    case Objection::unusable:
      return " can't run Larklane's engine, and has warned why";
    case Objection::no_communicator:
      return " got no private communicator from the MPI";
    case Objection::unreadable:
      return " and another rank can't attach to each other (process_vm_readv); remedy: "
             "kernel.yama.ptrace_scope at most 1, a container with SYS_PTRACE, processes that are "
             "dumpable";
    case Objection::devices:
      return " has a GPU's driver loaded, whose memory Larklane does not copy yet; the messages of "
             "programs without GPUs are carried";
    case Objection::not_in_auto:
      return " has p2p = auto, which owns no world of this MPI at its thread level: larklane info "
             "lists those that it owns; p2p = on carries the messages of others";
    default:
      return " objects";
  }
}

}  // namespace

std::string text_of(const Reason& reason, std::uint64_t wait_ns) {
  if (reason.objection == Objection::several_hosts)
    return "the ranks run on several hosts, between which Larklane carries no ordinary messages "
           "yet";
  const std::string rank = "rank " + std::to_string(reason.rank);
  if (reason.objection == Objection::late)
    return rank + " has not come within " + number_text(wait_ns, kTimeUnits) +
           " (option control_connect_ns)";
  return rank + text_of(reason.objection);
}

Agreement::Agreement(int rank, int size, const Terms& terms, Lines& lines, int rounds)
    : rank_(rank), terms_(terms), lines_(lines), rounds_(rounds) {
  for (int child = kChildren * rank + 1; child <= kChildren * (rank + 1) && child < size; ++child)
    children_.push_back({.rank = child});
  if (rank == 0) waiting_.resize(static_cast<std::size_t>(size));
}

void Agreement::agree(int round, std::uint8_t offers) {
  const std::scoped_lock lock(mutex_);
  if (!is_open_locked() || round != round_) return;
  has_agreed_ = true;
  if (round == 1) {
    offers_ = offers;
    for (const Child& child : children_) {
      if (child.is_met) continue;
      if (const Objection absence = lines_.absence(child.rank); absence != Objection::none)
        return refuse_locked({absence, child.rank});
    }
  }
  step_locked();
}

void Agreement::object(Reason reason) {
  const std::scoped_lock lock(mutex_);
  if (is_open_locked() && !has_said_yes_) refuse_locked(reason);
}

void Agreement::expire() {
  const std::scoped_lock lock(mutex_);
  if (round_ != 1 || !is_open_locked() || has_said_yes_) return;
  const auto missing =
      std::ranges::find_if(children_, [](const Child& child) { return !child.has_voted; });
  refuse_locked({Objection::late, missing == children_.end() ? rank_ : missing->rank});
}

void Agreement::on_ballot(BallotKind kind, const Ballot& ballot) {
  const std::scoped_lock lock(mutex_);
  if (ballot.round < 1 || ballot.round > rounds_) return;
  switch (kind) {
    case BallotKind::vote:
      return on_vote_locked(ballot);
    case BallotKind::question:
      return on_question_locked(ballot);
    case BallotKind::answer:
      if (rank_ != 0 && ballot.from == parent_of(rank_)) on_decision_locked(ballot);
      return;
    case BallotKind::reply:
      if (rank_ != 0 && ballot.from == 0) on_decision_locked(ballot);
      return;
  }
}

bool Agreement::on_ended(int rank) {
  const std::scoped_lock lock(mutex_);
  bool is_relied_on = false;
  for (Child& child : children_) {
    if (child.rank != rank) continue;
    child.has_ended = true;
    is_relied_on = child.has_agreed && is_open_locked();
  }
  if (rank_ != 0 && rank == 0) has_root_ended_ = true;
  if (rank_ != 0 && rank == parent_of(rank_)) has_parent_ended_ = true;
  step_locked();
  return is_relied_on;
}

void Agreement::on_vote_locked(const Ballot& vote) {
  const auto child =
      std::ranges::find_if(children_, [&](const Child& one) { return one.rank == vote.from; });
  if (child == children_.end()) return;
  child->is_met = true;
  if (is_no_) return send_locked(child->rank, BallotKind::answer, round_, false, reason_);
  // A vote after the yes would contradict the child's own: the peer is not of this protocol.
  if (!is_open_locked() || has_said_yes_) return;
  if (vote.is_yes == 0)
    return refuse_locked({static_cast<Objection>(vote.objection), vote.objector});
  if (const Objection other = compare(vote.terms); other != Objection::none)
    return refuse_locked({other, child->rank});
  if (const Objection obstacle = lines_.obstacle(child->rank); obstacle != Objection::none)
    return refuse_locked({obstacle, child->rank});
  if (vote.round != round_) return;
  if (round_ == 1) child->offers = vote.offers;
  child->has_voted = child->has_agreed = true;
  step_locked();
}

Objection Agreement::compare(const Terms& theirs) const noexcept {
  if (theirs.byte_order != terms_.byte_order || theirs.version != terms_.version)
    return Objection::version;
  if (theirs.family != terms_.family) return Objection::family;
  return theirs.options == terms_.options ? Objection::none : Objection::options;
}

void Agreement::on_question_locked(const Ballot& question) {
  const auto from = static_cast<std::size_t>(question.from);
  if (rank_ != 0 || question.from < 1 || from >= waiting_.size()) return;
  if (const auto& final = finals_[question.round])
    return send_locked(question.from, BallotKind::reply, question.round, *final, reason_);
  waiting_[from] = question.round;
}

void Agreement::on_decision_locked(const Ballot& ballot) {
  if (!is_open_locked() || ballot.round != round_) return;
  if (ballot.is_yes != 0 && !has_said_yes_) return;  // the peer is not of this protocol
  if (round_ == 1) offers_ = ballot.offers;
  decide_locked(ballot.is_yes != 0, {static_cast<Objection>(ballot.objection), ballot.objector});
}

void Agreement::decide_locked(bool is_yes, Reason reason) {
  const int round = round_;
  if (is_yes) {
    ++round_;
    has_agreed_ = has_said_yes_ = has_asked_ = false;
  } else {
    is_no_ = true;
    reason_ = reason;
  }
  if (rank_ == 0) {
    finals_[static_cast<std::size_t>(round)] = is_yes;
    for (std::size_t rank = 0; rank < waiting_.size(); ++rank) {
      if (waiting_[rank] != round) continue;
      waiting_[rank] = 0;
      send_locked(static_cast<int>(rank), BallotKind::reply, round, is_yes, reason);
    }
  }
  for (Child& child : children_) {
    child.has_voted = false;
    if (child.is_met && !child.has_ended)
      send_locked(child.rank, BallotKind::answer, round, is_yes, reason);
  }
  changed_.notify_all();
}

void Agreement::refuse_locked(Reason reason) {
  const int round = round_;
  decide_locked(false, reason);
  if (rank_ != 0 && !has_parent_ended_ && lines_.connect(parent_of(rank_)))
    send_locked(parent_of(rank_), BallotKind::vote, round, false, reason);
}

void Agreement::step_locked() {
  if (!is_open_locked()) return;
  if (has_said_yes_) {
    if (has_parent_ended_) ask_locked();
    return;
  }
  for (const Child& child : children_)
    if (child.has_ended && !child.has_voted) return refuse_locked({Objection::ended, child.rank});
  const bool have_all =
      std::ranges::all_of(children_, [](const Child& child) { return child.has_voted; });
  if (has_agreed_ && have_all) vote_locked();
}

void Agreement::vote_locked() {
  if (round_ == 1)
    for (const Child& child : children_) offers_ &= child.offers;
  if (rank_ == 0) return decide_locked(true, {});
  const int parent = parent_of(rank_);
  for (const int needed : {0, parent}) {
    if (needed == parent && is_parent_met_) continue;
    Objection absence = is_parent_met_ ? Objection::none : lines_.absence(needed);
    // A connection to the root, too, would be one of each rank there.
    if (absence == Objection::none && needed == parent && !lines_.connect(needed))
      absence = Objection::ended;
    if (absence == Objection::none) absence = lines_.obstacle(needed);
    if (absence != Objection::none) return refuse_locked({absence, needed});
  }
  is_parent_met_ = true;
  has_said_yes_ = true;
  send_locked(parent, BallotKind::vote, round_, true);
  if (has_parent_ended_) ask_locked();
}

void Agreement::ask_locked() {
  const bool is_root_there = !(has_asked_ && has_root_ended_) && (has_asked_ || lines_.connect(0));
  if (!is_root_there) {
    is_aborted_ = true;
    changed_.notify_all();
  } else if (!has_asked_) {
    has_asked_ = true;
    has_root_ended_ = false;
    send_locked(0, BallotKind::question, round_, false);
  }
}

void Agreement::send_locked(int to, BallotKind kind, int round, bool is_yes, Reason reason) {
  lines_.send(to, kind,
              {.terms = terms_,
               .from = rank_,
               .objector = reason.rank,
               .round = static_cast<std::uint8_t>(round),
               .is_yes = is_yes,
               .objection = static_cast<std::uint8_t>(reason.objection),
               .offers = offers_});
}

Agreement::Outcome Agreement::outcome(int round) const {
  const std::scoped_lock lock(mutex_);
  if (round < round_) return Outcome::yes;
  if (is_no_) return Outcome::no;
  return is_aborted_ ? Outcome::aborted : Outcome::open;
}

Agreement::Outcome Agreement::await(int round, std::uint64_t wait_ns) {
  const auto is_over = [&] { return round < round_ || is_no_ || is_aborted_; };
  std::unique_lock lock(mutex_);
  if (wait_ns != 0 && !changed_.wait_for(lock, std::chrono::nanoseconds(wait_ns), is_over)) {
    lock.unlock();
    expire();
    lock.lock();
  }
  changed_.wait(lock, is_over);
  lock.unlock();
  return outcome(round);
}

Reason Agreement::reason() const {
  const std::scoped_lock lock(mutex_);
  return reason_;
}

std::uint8_t Agreement::offers() const {
  const std::scoped_lock lock(mutex_);
  return offers_;
}

}  // namespace larklane::mpi::p2p
