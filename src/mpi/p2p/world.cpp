#include "mpi/p2p/world.hpp"

#include <sched.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/siphash.hpp"
#include "mpi/abi/handles.hpp"
#include "mpi/abi/next.hpp"
#include "mpi/p2p/agreement.hpp"
#include "mpi/p2p/auto_worlds.hpp"
#include "mpi/p2p/buffered.hpp"
#include "mpi/p2p/call.hpp"
#include "mpi/p2p/hints.hpp"
#include "mpi/p2p/left.hpp"
#include "mpi/p2p/matched_probe.hpp"
#include "mpi/p2p/message_request.hpp"
#include "mpi/p2p/messages.hpp"
#include "mpi/p2p/progress_hook.hpp"
#include "mpi/p2p/tally.hpp"
#include "mpi/partitioned/device_memory.hpp"
#include "mpi/world/process.hpp"

namespace larklane::mpi::p2p {

namespace detail {
std::atomic<bool> is_owned{false};
}

namespace {

constexpr std::uint16_t kFirstBallot = part::Engine::kKindsEnd;
constexpr std::uint16_t kFirstOfMesh = kFirstBallot + 8;

#if defined(LARKLANE_FAMILY_MPICH)
constexpr std::uint16_t kFamily = 1;
#elif defined(LARKLANE_FAMILY_OMPI)
constexpr std::uint16_t kFamily = 2;
#else
constexpr std::uint16_t kFamily = 3;
#endif

constexpr int kLeastTagMax = 32767;  // MPI 5.0, 9.1.2
constexpr const char* kOwnedText = "point-to-point messages are carried by Larklane";
constexpr const char* kWithHook = ", with the MPI's progress hook";
constexpr const char* kWithoutHook = ", without a progress hook in the MPI";
constexpr const char* kByTag = ", each tag on its lane";

/// Less for each level of the tree, so the parent of a missing rank objects first, and names it.
std::uint64_t patience(int rank, std::uint64_t wait_ns) {
  constexpr std::uint64_t kLevels = 32;  // of 32-bit ranks
  std::uint64_t level = 0;
  for (; rank > 0; rank = Agreement::parent_of(rank)) ++level;
  return wait_ns / kLevels * (kLevels - level);
}

std::string own_title() {
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  next_pmpi().Get_library_version(version, &length);
  return mpi_title(version);
}

bool is_in_auto() {
  int level = 0;
  next_pmpi().Query_thread(&level);
  return auto_owns(own_title(), level == MPI_THREAD_MULTIPLE);
}

/// Of the options by which both sides of a link choose alike. Objection::options names them.
std::uint64_t digest_of(const Config& config) {
  const std::string text = std::to_string(config.vci_count_max) + " " + config.vci_mapping;
  return siphash(Secret{}, std::as_bytes(std::span(text)));
}

/// Thread safety: thread-safe. Invariant: records that come before the agreement exists wait for
/// it.
class World final : public control::Handler {
 public:
  static World& get() {
    static World* const world = new World;
    return *world;
  }

  void on_record(control::Peer& from, const control::Record& record) override;
  void on_peer_down(control::Peer& peer) override;

  void open(Process& process);
  void drain();
  void close();
  void end_messages();
  msg::Engine& engine() noexcept { return messages_->engine(); }
  void open_record(Communicator& made, const Communicator::Members& members,
                   const msg::Hints& hints);
  OrdinaryMessages ordinary();

 private:
  void add_counts();
  struct Early {
    control::Peer* from;
    std::uint16_t kind;  // 0: the peer is down
    std::vector<std::byte> payload;
  };
  static constexpr std::size_t kEarlyMax = 64;  // ballots that a rank gets are at most a few

  void begin(Process& process, control::Plane& plane);
  void pass_locked(control::Peer& from, const control::Record& record);
  void note_end_locked(int rank);
  bool decide(Process& process);
  bool wants_lanes_by_tag(const Config& config) const;
  bool make_communicator();
  void stay_native(const std::string& why, bool says_so);
  void set_text(std::string text);

  std::mutex mutex_;  // guards the pointers; their objects have locks of their own
  std::vector<Early> early_;
  bool is_closed_ = false;
  std::unique_ptr<BallotLines> lines_;
  std::unique_ptr<Agreement> agreement_;
  std::unique_ptr<Messages> messages_;
  OrdinaryMessages ordinary_;
  MPI_Comm private_comm_{};
  bool has_lanes_by_tag_ = false;  // as all ranks have agreed
  int rank_ = 0, size_ = 1;
};

void World::on_record(control::Peer& from, const control::Record& record) {
  const std::scoped_lock lock(mutex_);
  if (agreement_) return pass_locked(from, record);
  if (!is_closed_ && early_.size() < kEarlyMax)
    early_.push_back({&from, record.kind, {record.payload.begin(), record.payload.end()}});
}

void World::on_peer_down(control::Peer& peer) {
  const std::scoped_lock lock(mutex_);
  if (!agreement_) {
    if (!is_closed_ && early_.size() < kEarlyMax) early_.push_back({&peer, 0, {}});
    return;
  }
  if (const auto rank = lines_->rank_at(peer.address())) note_end_locked(*rank);
  if (messages_) messages_->handler().on_peer_down(peer);
}

void World::pass_locked(control::Peer& from, const control::Record& record) {
  if (record.kind >= kFirstOfMesh) {
    if (messages_) messages_->handler().on_record(from, record);
    return;
  }
  if (const auto ballot = lines_->read(from, record))
    agreement_->on_ballot(ballot->first, ballot->second);
}

/// The launcher may end the job now, and then no other process says why.
void World::note_end_locked(int rank) {
  if (agreement_->on_ended(rank))
    log_error(
        "rank %d has ended in MPI_Init, after its yes to Larklane's messages: the job can't go on",
        rank);
}

void World::begin(Process& process, control::Plane& plane) {
  const Terms terms{.family = kFamily, .options = digest_of(process.config())};
  std::string problem;
  auto messages = Messages::create(process.config(), plane, process.identity().job, rank_, size_,
                                   kFirstOfMesh, &problem);
  if (!messages)
    log_warn_once("p2p engine", "no engine for ordinary messages: %s", problem.c_str());
  const std::scoped_lock lock(mutex_);
  lines_ = std::make_unique<BallotLines>(plane, process.identity().job, rank_, size_, kFirstBallot);
  agreement_ = std::make_unique<Agreement>(rank_, size_, terms, *lines_);
  if (messages) messages_ = std::move(messages).value();
  for (Early& early : std::exchange(early_, {})) {
    if (early.kind != 0) {
      pass_locked(*early.from, {early.kind, early.payload, {}});
    } else if (const auto rank = lines_->rank_at(early.from->address())) {
      note_end_locked(*rank);
    }
  }
}

void World::open(Process& process) {
  is_closed_ = false;
  next_pmpi().Comm_rank(handles().comm_world, &rank_);
  next_pmpi().Comm_size(handles().comm_world, &size_);
  part::Engine* const engine = process.engine();
  if (engine == nullptr) return stay_native(process.why_unusable(), false);  // it has warned
  begin(process, engine->plane());
  if (!decide(process)) {
    close_all_communicators();  // the records of before the second vote
    return end_messages();
  }
  // relaxed: see is_owned()
  find_completed_send();
  int* tag_bound = nullptr;
  int flag = 0;
  next_pmpi().Comm_get_attr(handles().comm_world, MPI_TAG_UB, &tag_bound, &flag);
  set_tag_max(flag != 0 ? *tag_bound : kLeastTagMax);
  take_message_calls();
  detail::is_owned.store(true, std::memory_order_relaxed);
  const bool has_hook = process.config().p2p_hook && start_hook(messages_->engine());
  const std::string text = kOwnedText + std::string(has_hook ? kWithHook : kWithoutHook) +
                           (has_lanes_by_tag_ ? kByTag : "");
  set_text(text);
  log_info("%s", text.c_str());
}

/// False: messages stay with the MPI.
bool World::decide(Process& process) {
  using Outcome = Agreement::Outcome;
  const std::uint64_t wait_ns = process.config().control_connect_ns;
  if (process.spans_hosts())
    agreement_->object({Objection::several_hosts, rank_});
  else if (!messages_)
    agreement_->object({Objection::unusable, rank_});
  else if (has_device_driver())
    agreement_->object({Objection::devices, rank_});
  else if (process.config().p2p == "auto" && !is_in_auto())
    agreement_->object({Objection::not_in_auto, rank_});
  else
    agreement_->agree(1, wants_lanes_by_tag(process.config()) ? Agreement::kLanesByTag : 0);
  Outcome outcome = agreement_->await(1, patience(rank_, wait_ns));
  if (outcome == Outcome::yes) {
    has_lanes_by_tag_ = (agreement_->offers() & Agreement::kLanesByTag) != 0;
    if (has_lanes_by_tag_) messages_->engine().use_lanes_by_tag();
    if (make_communicator()) {
      // Before this rank's yes: messages may come as soon as another rank knows the answer.
      const msg::Creation creation(messages_->engine());
      for (const MPI_Comm comm : {handles().comm_world, handles().comm_self})
        open_record(*find_communicator(comm), find_communicator(comm)->members(), {});
      agreement_->agree(2);
    } else
      agreement_->object({Objection::no_communicator, rank_});
    outcome = agreement_->await(2, 0);
  }
  if (outcome == Outcome::yes) return true;
  if (outcome == Outcome::aborted) {
    log_error(
        "rank %d and rank 0 have ended in MPI_Init after this rank's yes to Larklane's messages, "
        "so the other ranks' decision is not known: the job is aborted",
        Agreement::parent_of(rank_));
    next_pmpi().Abort(handles().comm_world, 1);
    std::abort();  // MPICH's may return
  }
  const Reason reason = agreement_->reason();
  const bool was_asked_for = process.config().p2p == "on";
  stay_native(text_of(reason, wait_ns), was_asked_for && lines_->speaks(reason));
  return false;
}

/// Only threads gain by them; and the stamp that they add costs a thread 25 ns.
bool World::wants_lanes_by_tag(const Config& config) const {
  int level = MPI_THREAD_SINGLE;
  return config.p2p_lanes_by_tag && next_pmpi().Query_thread(&level) == MPI_SUCCESS &&
         level == MPI_THREAD_MULTIPLE && messages_->engine().can_use_lanes_by_tag();
}

/// On each live rank: the MPI waits until all have called. False: the MPI refuses it.
bool World::make_communicator() {
  const Next& real = next_pmpi();
  const MPI_Comm world = handles().comm_world;
  MPI_Errhandler handler;
  if (real.Comm_get_errhandler(world, &handler) != MPI_SUCCESS) return false;
  real.Comm_set_errhandler(world, handles().errors_return);
  const int code = real.Comm_dup(world, &private_comm_);
  real.Comm_set_errhandler(world, handler);
  real.Errhandler_free(&handler);
  return code == MPI_SUCCESS &&
         real.Comm_set_errhandler(private_comm_, handles().errors_return) == MPI_SUCCESS;
}

void World::stay_native(const std::string& why, bool says_so) {
  const std::string text = "point-to-point messages are left to the MPI: " + why;
  set_text(text);
  if (says_so)
    log_warn_once("p2p", "%s", text.c_str());
  else
    log_info("%s", text.c_str());
}

void World::set_text(std::string text) {
  const std::scoped_lock lock(mutex_);
  ordinary_ = {.text = std::move(text)};
}

void World::open_record(Communicator& made, const Communicator::Members& members,
                        const msg::Hints& hints) {
  std::vector<int> ranks;
  for (const Member& member : members.peers) ranks.push_back(member.rank);
  msg::Hints all = hints;
  if (has_lanes_by_tag_) all.lanes_by_tag = msg::Hints::LanesByTag::by_visibility;
  auto opened = messages_->engine().open(made.recipe(), ranks, members.rank, all);
  if (opened) return open_ordinary(made, **opened);
  log_error("no memory for a communicator's messages: the job is aborted");  // not native alone
  next_pmpi().Abort(handles().comm_world, 1);
}

/// The lanes, the records that each has read, and the turns that found another thread on it.
std::string lanes_text(const msg::Engine& engine) {
  std::string records;
  std::uint64_t busy = 0;
  for (std::uint32_t index = 0; index < engine.lane_count_max(); ++index) {
    msg::MessageLane* const lane = engine.find_lane(index);
    if (lane == nullptr) continue;
    records += (records.empty() ? "" : " + ") + std::to_string(lane->packets().counts().delivered);
    busy += lane->vci().counts().contended;
  }
  return std::to_string(engine.lane_count()) + (engine.lane_count() == 1 ? " lane (" : " lanes (") +
         records + " records, " + std::to_string(busy) + " turns found one busy)";
}

void World::add_counts() {
  const TallyTotal total = tally_total();
  const msg::Communicators::Totals matching = messages_->engine().communicators().totals();
  const auto n = [](std::uint64_t value) { return std::to_string(value); };
  const std::uint64_t left = left_count();
  const std::scoped_lock lock(mutex_);
  if (left != 0)
    ordinary_.text += ", except on " + n(left) + (left == 1 ? " communicator" : " communicators") +
                      " with processes of other worlds, or of a session";
  if (total.sent + total.received == 0) {
    ordinary_.had_none = left == 0;
    if (left != 0) ordinary_.text += "; there was none on others";
    return;
  }
  ordinary_.text += "; sent " + n(total.sent) + " of " + bytes_text(total.sent_bytes) +
                    ", received " + n(total.received) + " of " + bytes_text(total.received_bytes) +
                    " on " + lanes_text(messages_->engine()) + "; " + n(matching.unexpected) +
                    " came before their receive, longest chain of a match " +
                    n(matching.longest_chain);
}

void World::drain() {
  if (!is_owned()) return;
  messages_->drain([] { Process::get().poke_native(); });
  free_spare_carriers();
  free_spare_message_handles();
  messages_->serve_by_helper();  // until close(): the native call runs without the hook
  stop_hook();
}

void World::close() {
  if (is_owned()) {
    end_buffers();
    close_all_communicators();
    add_counts();
  }
  end_messages();
  // relaxed: see is_owned()
  detail::is_owned.store(false, std::memory_order_relaxed);
  const std::scoped_lock lock(mutex_);
  is_closed_ = true;
  agreement_.reset();
  lines_.reset();
  early_.clear();
}

/// Holds no lock while the helper may pass records.
void World::end_messages() {
  if (!messages_) return;
  messages_->close();
  std::unique_ptr<Messages> ended;
  const std::scoped_lock lock(mutex_);
  messages_.swap(ended);
}

OrdinaryMessages World::ordinary() {
  const std::scoped_lock lock(mutex_);
  return ordinary_;
}

}  // namespace

void opened() {
  Process& process = Process::get();
  if (process.wants_messages()) World::get().open(process);
}

void closing() { World::get().drain(); }

void closed() { World::get().close(); }

msg::Engine& engine() noexcept { return World::get().engine(); }

void finish_all(MPI_Comm comm) {
  if (!is_owned()) return;
  msg::Communicator* const ours = find_ordinary(comm);
  while (ours != nullptr && !ours->are_sends_over()) {
    if (ours->progress() != 0) continue;
    Process::get().poke_native();
    ::sched_yield();
  }
}

Creation::Creation(const Communicator* parent) {
  // relaxed: see `ordinary`
  if (parent != nullptr && parent->ordinary.load(std::memory_order_relaxed) != nullptr)
    creation_.emplace(engine());
}

void Creation::open(Communicator& made, Communicator* like, MPI_Info info) const {
  if (!creation_) return;
  const Communicator::Members& members = (like != nullptr ? *like : made).members();
  if (!members.known) return;
  const msg::Hints hints = hints_of(info);
  World::get().open_record(made, members, hints);
  log_info("communicator %s: messages carried by Larklane, this process is rank %d, %zu %s%s%s%s",
           mpi::text_of(made.recipe()).c_str(), members.rank, members.peers.size(),
           members.inter ? "remote processes" : "processes",
           hints.no_any_source ? ", no any source" : "", hints.no_any_tag ? ", no any tag" : "",
           hints.allow_overtaking ? ", overtaking" : "");
}

bool may_be_owned(const Config& config) {
  return config.p2p == "on" || (config.p2p == "auto" && auto_may_own(own_title()));
}

OrdinaryMessages ordinary_messages() { return World::get().ordinary(); }

control::Handler& handler() noexcept { return World::get(); }

}  // namespace larklane::mpi::p2p
