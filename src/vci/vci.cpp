#include "vci/vci.hpp"

#include <utility>

namespace larklane::vci {

class LARKLANE_SCOPED_CAPABILITY Vci::Guard {
 public:
  explicit Guard(Vci& vci) noexcept LARKLANE_ACQUIRE(vci.lock_) : vci_(vci) { vci_.lock_.lock(); }
  ~Guard() LARKLANE_RELEASE() {
    vci_.post_joinable_locked();
    vci_.unlock();
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  const ProcessSection section_;
  Vci& vci_;
};

Vci::Vci(const net::Limits& limits, net::Receiver& receiver) noexcept
    : receiver_(receiver),
      do_polls_move_(limits.is_progress_manual),
      write_bytes_max_(limits.write_bytes_max),
      read_bytes_max_(limits.read_bytes_max) {
  for (Chunk& chunk : chunks_) {
    chunk.vci = this;
    chunk.complete = &Vci::chunk_complete;
    chunk.next = std::exchange(free_chunks_, &chunk);
  }
}

Result<std::unique_ptr<Vci>> Vci::create(net::Fabric& fabric, net::Receiver& receiver) {
  std::unique_ptr<Vci> vci(new Vci(fabric.limits(), receiver));
  auto endpoint = fabric.open_endpoint(receiver);
  if (!endpoint) return endpoint.error();
  vci->owned_endpoint_ = std::move(endpoint).value();
  const Guard guard(*vci);
  vci->endpoint_ = vci->owned_endpoint_.get();
  return vci;
}

/// False: `work` has to wait.
bool Vci::send_locked(Work& work) noexcept {
  if (work.post_prepared != nullptr) return is_answered_locked(work, work.post_prepared(work));
  std::span<const std::byte> small(work.small, work.small_bytes);
  if (work.small_bytes == Work::kSmallOfTransfer)
    small = {work.transfer.local, work.transfer.bytes};
  switch (work.kind) {
    case Work::Kind::small:
      return is_answered_locked(work, work.link->write_small(small, work.transfer.remote, work));
    case Work::Kind::small_immediate:
      return is_answered_locked(work, work.link->write_small_immediate(small, work.transfer.remote,
                                                                       work.immediate, work));
    case Work::Kind::small_wide:
      return is_answered_locked(work, work.link->write_small_wide(small, work.transfer.remote,
                                                                  work.wide_immediate(), work));
    case Work::Kind::probe:
      return is_answered_locked(work, work.link->probe(work));
    case Work::Kind::settle:
      return is_answered_locked(work, work.link->settle(work.transfer.remote, work));
    default:
      break;
  }
  if (work.transfer.bytes > bytes_max(work)) return send_cut_slow(work);
  if (work.kind == Work::Kind::write)
    return is_answered_locked(work, work.link->write(work.transfer, work));
  if (work.kind == Work::Kind::read)
    return is_answered_locked(work, work.link->read(work.transfer, work));
  return is_answered_locked(work, work.link->write_immediate(work.transfer, work.immediate, work));
}

bool Vci::is_answered_locked(Work& work, Result<net::Post> answer) noexcept {
  if (!answer) {
    work.complete(work, answer.error());
    return true;
  }
  switch (*answer) {
    case net::Post::posted:
      count_operation(work.kind);
      return true;
    case net::Post::done:
      count_operation(work.kind);
      work.complete(work, {});
      return true;
    case net::Post::retry:
      break;
  }
  count(counters_.retries);
  return false;
}

void Vci::accept_locked(Work& work) noexcept {
  count(counters_.posts);
  work.cut = {};
  if (!deferred_.has_some_of(*work.link) && dead_.ok() && send_locked(work)) return;
  if (dead_.ok())
    defer_locked(work);
  else
    work.complete(work, dead_);
}

[[gnu::noinline]] void Vci::post_joinable_slow() noexcept {
  if (Work* const work = std::exchange(joinable_, nullptr)) {
    has_joinable_.store(false, std::memory_order_relaxed);  // relaxed: a hint
    accept_locked(*work);
  }
}

/// Posts works that the provider had no room for.
void Vci::send_deferred_slow() noexcept {
  deferred_.send_each([this](Work& work) {
    lock_.assert_held();
    if (dead_.ok()) return send_locked(work);
    work.complete(work, dead_);  // none of its chunks is pending: the endpoint has ended them
    return true;
  });
  if (deferred_.empty()) has_deferred_.store(false, std::memory_order_relaxed);  // a hint
}

[[gnu::always_inline]] inline void Vci::send_deferred_locked() noexcept {
  if (!deferred_.empty()) [[unlikely]]
    send_deferred_slow();
}

void Vci::unlock_slow(Work* queued) noexcept {
  post_joinable_locked();
  for (; queued != nullptr; queued = lock_.try_unlock())
    while (queued != nullptr) {
      Work& work = *std::exchange(queued, queued->next);
      count(counters_.queued);
      accept_locked(work);
    }
}

void Vci::post(Work& work) noexcept {
  const ProcessSection section;
  if (!lock_.lock_or_queue(work)) return;
  // Where the endpoint is dead the provider says so.
  if (work.post_prepared != nullptr && deferred_.empty()) [[likely]] {
    if (!is_answered_locked(work, work.post_prepared(work))) defer_locked(work);
    count(counters_.posts);
  } else {
    post_joinable_locked();
    accept_locked(work);
  }
  unlock();
}

/// The poll may have moved watched data without reporting it.
[[gnu::always_inline]] inline std::uint32_t Vci::look_again_locked(std::uint32_t most) noexcept {
  return do_polls_move_ && receiver_.has_watched ? receiver_.look(most) : 0;
}

[[gnu::always_inline]] inline std::uint32_t Vci::turn_locked(std::uint32_t most) noexcept {
  std::uint32_t served = 0;
  post_joinable_locked();
  if (dead_.ok()) {
    send_deferred_locked();
    count(counters_.polls);
    if (receiver_.has_watched) served = receiver_.look(most);
    auto polled = endpoint_->poll(most);
    if (!polled) {
      dead_ = polled.error();
      is_dead_.store(true, std::memory_order_release);  // pairs with is_dead()
    } else if ((served += *polled) == 0 && (served = look_again_locked(most)) == 0)
      count(counters_.empty_polls);
  }
  send_deferred_locked();
  return served;
}

std::uint32_t Vci::progress(std::uint32_t most) noexcept {
  const ProcessSection section;
  if (!lock_.try_lock()) {
    contended_.fetch_add(1, std::memory_order_relaxed);  // relaxed: statistics
    return 0;
  }
  const std::uint32_t served = turn_locked(most);
  unlock_or_leave();
  return served;
}

std::uint32_t Vci::progress_patiently() noexcept {
  const ProcessSection section;
  lock_.lock();
  const std::uint32_t served = turn_locked();
  unlock();
  return served;
}

std::uint32_t Vci::progress_by_asking() noexcept LARKLANE_NOT_FOLLOWED {
  const ProcessSection section;
  lock_.lock_word();
  const std::uint32_t served = turn_locked();
  unlock();
  return served;
}

void Vci::drain() noexcept {
  // Where progress is manual a turn may move bytes and complete nothing: several have to be empty.
  constexpr int kEmptyTurns = 8, kTurnsMost = 100'000;
  for (int turns = 0, empty = 0; empty < kEmptyTurns && turns < kTurnsMost; ++turns) {
    const ProcessSection section;
    lock_.lock();
    empty = turn_locked() == 0 ? empty + 1 : 0;
    unlock();
  }
}

bool Vci::own() noexcept {
  const Guard guard(*this);
  return lock_.own();
}

void Vci::disown() noexcept LARKLANE_NOT_FOLLOWED {
  const ProcessSection section;
  lock_.lock_word();
  lock_.disown();
  unlock();
}

Result<std::unique_ptr<net::Link>> Vci::open_link() {
  const Guard guard(*this);
  return endpoint_->open_link();
}

Status Vci::connect(net::Link& link, std::span<const std::byte> peer_offer) {
  const Guard guard(*this);
  return link.connect(peer_offer);
}

void Vci::end_link(net::Link& link, Status status) {
  drain();
  const Guard guard(*this);
  link.end(status);
  send_deferred_locked();
}

void Vci::close_link(std::unique_ptr<net::Link> link) {
  const Guard guard(*this);
  link.reset();
}

Status Vci::reserve_immediates(std::uint32_t count) {
  const Guard guard(*this);
  return endpoint_->reserve_immediates(count);
}

void Vci::release_immediates(std::uint32_t count) {
  const Guard guard(*this);
  endpoint_->release_immediates(count);
}

int Vci::wait_fd() noexcept {
  const Guard guard(*this);
  return endpoint_->wait_fd();
}

bool Vci::arm(net::Wake wake) {
  {
    const Guard guard(*this);
    post_joinable_locked();
    if (!dead_.ok()) return true;  // it has nothing more to say
    // A deferred work waits for a poll, and not every refusal ends with an event that wakes us.
    if (!deferred_.empty() || !endpoint_->arm(wake)) return false;
  }
  // A provider may complete operations meanwhile. Posts of their callbacks go out as the lock is
  // released, and may be refused.
  const Guard again(*this);
  return deferred_.empty();
}

VciCounts Vci::counts() const noexcept {
  const auto value = [](const std::atomic<std::uint64_t>& counter) {
    return counter.load(std::memory_order_relaxed);  // relaxed: statistics
  };
  VciCounts counts{value(counters_.posts),
                   value(counters_.queued),
                   value(counters_.retries),
                   value(counters_.chunks),
                   value(counters_.chunk_waits),
                   value(counters_.polls),
                   value(counters_.empty_polls),
                   value(contended_),
                   {}};
  for (std::size_t kind = 0; kind < Work::kKindCount; ++kind)
    counts.operations[kind] = value(counters_.operations[kind]);
  return counts;
}

}  // namespace larklane::vci
