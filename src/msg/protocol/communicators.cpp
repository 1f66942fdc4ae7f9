#include "msg/protocol/communicators.hpp"

#include <algorithm>
#include <memory>
#include <new>

#include "msg/protocol/by_tag.hpp"
#include "msg/protocol/engine.hpp"

namespace larklane::msg {

Communicators::~Communicators() {
  for (const auto& [id, communicator] : known_) delete communicator;
}

Result<Communicator*> Communicators::open(const ContextId& id, std::span<const int> members,
                                          int own_rank, const Hints& hints) noexcept {
  const std::scoped_lock lock(mutex_);
  const auto found = known_.find(id);
  const auto sighted = std::find_if(sighted_.begin(), sighted_.end(), [&](const Sighted& one) {
    return found != known_.end() && one.communicator == found->second;
  });
  if (found != known_.end() && sighted == sighted_.end()) return Errc::kAlreadyActive;
  std::unique_ptr<Communicator, void (*)(Communicator*)> made(
      nullptr, [](Communicator* communicator) { delete communicator; });
  Communicator* communicator = found == known_.end() ? nullptr : found->second;
  try {
    if (communicator == nullptr) {
      made.reset(communicator = new Communicator(engine_, id));
      LARKLANE_TRY(communicator->prepare(members, own_rank, hints, false));
      known_.emplace(id, communicator);
      (void)made.release();
    } else {
      LARKLANE_TRY(communicator->prepare(members, own_rank, hints, true));
      sighted_.erase(sighted);
    }
  } catch (const std::bad_alloc&) {
    return Errc::kNoMemory;
  }
  return communicator;
}

Result<Communicator*> Communicators::sight(const ContextId& id, bool is_by_tag) noexcept {
  const std::scoped_lock lock(mutex_);
  if (const auto found = known_.find(id); found != known_.end()) {
    if (is_by_tag != (found->second->by_tag() != nullptr)) return Errc::kProtocol;
    // relaxed: the registry has a use
    found->second->uses_.fetch_add(1, std::memory_order_relaxed);
    return found->second;
  }
  if (running_.empty()) return static_cast<Communicator*>(nullptr);
  std::unique_ptr<Communicator, void (*)(Communicator*)> made(
      nullptr, [](Communicator* communicator) { delete communicator; });
  try {
    made.reset(new Communicator(engine_, id));
    if (is_by_tag) made->go_by_tag();
    sighted_.reserve(sighted_.size() + 1);
    closed_.reserve(closed_.size() + 1);
    known_.emplace(id, made.get());
  } catch (const std::bad_alloc&) {
    return Errc::kNoMemory;
  }
  sighted_.push_back({made.get(), next_creation_});
  made->uses_.store(2, std::memory_order_relaxed);  // the registry's, and the number's
  return made.release();
}

void Communicators::end_use(Communicator& communicator) noexcept {
  // acq_rel: the delete comes after all other uses.
  if (communicator.uses_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  Communicators& all = communicator.engine_.communicators();
  const MatchCounts counts = communicator.match_counts();
  all.ended_unexpected_.fetch_add(counts.unexpected, std::memory_order_relaxed);
  std::uint64_t longest = all.ended_longest_.load(std::memory_order_relaxed);
  while (counts.longest_chain > longest &&
         !all.ended_longest_.compare_exchange_weak(longest, counts.longest_chain,
                                                   std::memory_order_relaxed)) {
  }
  delete &communicator;
}

Communicators::Totals Communicators::totals() noexcept {
  Totals totals{ended_unexpected_.load(std::memory_order_relaxed),
                ended_longest_.load(std::memory_order_relaxed)};
  const std::scoped_lock lock(mutex_);
  for (const auto& [id, communicator] : known_) {
    const MatchCounts counts = communicator->match_counts();
    totals.unexpected += counts.unexpected;
    totals.longest_chain = std::max(totals.longest_chain, counts.longest_chain);
  }
  return totals;
}

std::uint64_t Communicators::begin_creation() noexcept {
  const std::scoped_lock lock(mutex_);
  running_.insert(next_creation_);
  return next_creation_++;
}

void Communicators::end_creation(std::uint64_t number) noexcept {
  Communicator* dropped = nullptr;
  do {
    {
      const std::scoped_lock lock(mutex_);
      running_.erase(number);
      const std::uint64_t least = running_.empty() ? next_creation_ : *running_.begin();
      const auto found = std::find_if(sighted_.begin(), sighted_.end(),
                                      [&](const Sighted& one) { return one.before <= least; });
      dropped = found == sighted_.end() ? nullptr : found->communicator;
      if (dropped != nullptr) {
        sighted_.erase(found);
        known_.erase(dropped->id_);
      }
    }
    if (dropped != nullptr) {
      drop_messages(*dropped);
      end_use(*dropped);
    }
  } while (dropped != nullptr);
}

/// From now on a message that matches no receive is dropped, as are those that wait.
void Communicators::drop_messages(Communicator& communicator) noexcept {
  // relaxed: the lanes' locks order it. A lane's holder that has not seen it has kept its message.
  communicator.is_closed_.store(true, std::memory_order_relaxed);
  engine_.with_each_lane_idle();
  if (communicator.by_tag() != nullptr) return communicator.by_tag()->drop_messages();
  MatchingEngine* const matching = communicator.matching_.load(std::memory_order_acquire);
  if (matching == nullptr) return;
  MatchingEngine::Sweep sweep;
  while (MatchMessage* const message = matching->take_message(sweep))
    Connection::drop(Connection::whole_of(*message));
}

void Communicators::close(Communicator& communicator) noexcept {
  drop_messages(communicator);
  const std::scoped_lock lock(mutex_);
  closed_.push_back(&communicator);
  forget_idle_locked();
}

/// Forgets the closed communicators without posted receives. Others may still get a message, also
/// of a member that has not sent to them yet.
void Communicators::forget_idle_locked() noexcept {
  std::erase_if(closed_, [this](Communicator* communicator) {
    if (communicator->match_counts().waiting != 0) return false;
    known_.erase(communicator->id_);
    end_use(*communicator);
    return true;
  });
}

void Communicators::lose(int rank, Status status) noexcept {
  const std::scoped_lock lock(mutex_);
  for (const auto& [id, communicator] : known_) {
    MatchingEngine* const matching = communicator->matching_.load(std::memory_order_acquire);
    if (ByTag* const by_tag = communicator->by_tag()) {  // by a turn: this thread may hold a lane
      by_tag->note_lost();
      engine_.wake_by_all(*communicator);
    }
    if (matching == nullptr) continue;
    for (std::size_t at = 0; at < communicator->members_.size(); ++at) {
      if (communicator->members_[at] != rank) continue;
      MatchingEngine::Sweep sweep;
      while (MatchReceive* const receive =
                 matching->take_receive_of(static_cast<std::uint32_t>(at), sweep)) {
        Operation& operation = Connection::whole_of(*receive);
        operation.lane->finish(operation, status);
      }
    }
  }
}

Creation::Creation(Engine& engine) noexcept
    : engine_(engine), number_(engine.communicators().begin_creation()) {}
Creation::~Creation() { engine_.communicators().end_creation(number_); }

}  // namespace larklane::msg
