#pragma once
// A lane, or virtual communication interface: one endpoint, one completion queue, one lock, one
// queue of posts that wait for the lock. Threads that use different lanes never contend.
// (Zambre et al., ICS'20.)

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/status.hpp"
#include "base/thread_safety.hpp"
#include "net/provider.hpp"
#include "vci/lane_lock.hpp"
#include "vci/switches.hpp"
#include "vci/work.hpp"

namespace larklane::vci {

inline constexpr std::size_t kLineBytes = 64;

/// Counts of a lane's events, by reason. Thread safety: immutable.
struct VciCounts {
  std::uint64_t posts;        ///< works
  std::uint64_t queued;       ///< of these: because a thread held the lock
  std::uint64_t retries;      ///< by the provider: its queue was full
  std::uint64_t chunks;       ///< operations of works that had to be cut
  std::uint64_t chunk_waits;  ///< for a chunk operation: all were in use
  std::uint64_t polls;
  std::uint64_t empty_polls;  ///< of these: found nothing
  std::uint64_t contended;    ///< calls of progress() that found the lock held
  /// Operations that the provider has accepted, by Work::Kind; of a cut work each chunk.
  std::array<std::uint64_t, Work::kKindCount> operations;
  std::uint64_t operations_of(Work::Kind kind) const noexcept {
    return operations[static_cast<std::size_t>(kind)];
  }
};

// Thread safety: thread-safe.
// Invariants:
// 1. Every Work that was posted is completed exactly once, after post() has begun, maybe before it
//    has returned; with an error if the link or the endpoint is dead.
// 2. The queue is empty while no thread holds the lock. A work that the provider has refused with
//    `retry`, or that waits for the completion of chunks, goes out with the progress() that finds
//    room. All works posted after it on the same link follow it. Other links do not wait.
// 3. Operation::complete and on_immediate run with the lock held. They may post(): it queues, and
//    goes out before the lock is released.
// 4. The provider gets the works of a link in the order in which their posters took the lock or
//    queued on it. Of a cut write_immediate it gets the last chunk when the others are complete;
//    later works do not wait for that.
// 5. A work that waits for others to join it (coalesce()) is posted before anything that is posted
//    later, and in each turn: so a work behind it never waits for another post.
class Vci final {
 public:
  /// @param receiver  outlives the lane
  static Result<std::unique_ptr<Vci>> create(net::Fabric& fabric, net::Receiver& receiver);
  ~Vci() = default;  ///< its links are closed, and no posted work is pending

  /// Never allocates, never returns retry. Waits for no lock: the lock's holder posts the works
  /// that others have queued meanwhile. Of a lane that another thread owns: waits for one turn of
  /// that thread.
  void post(Work& work) noexcept;
  /// An operation that completes at once, or is not posted, needs no Work. post() runs with the
  /// lock held, unless another thread holds it, a work of `link` waits, or the endpoint is dead. It
  /// returns the kind of operation that it has posted, if any. False: it did not run. @pre nothing
  /// of this lane waits in coalesce()
  template <class Post>
  bool post_directly(const net::Link& link, Post&& post) LARKLANE_NOT_FOLLOWED {
    const ProcessSection section;
    if (!lock_.try_lock()) return false;
    const bool does_run = dead_.ok() && !deferred_.has_some_of(link);
    if (does_run) {
      if (const std::optional<Work::Kind> posted = post()) {
        count(counters_.posts);
        count_operation(*posted);
      }
    }
    unlock_or_leave();
    return does_run;
  }
  /// For a work that others may join until another post, or the next turn. coalesce() runs with the
  /// lock held, unless another thread holds it or the endpoint is dead. It is given the work that
  /// waits for others, or null, and returns the one that waits from now on; a work that stops
  /// waiting is posted. False: it did not run. @pre nothing prepared is posted on this lane
  template <class Coalesce>
  bool coalesce(Coalesce&& coalesce) LARKLANE_NOT_FOLLOWED {
    const ProcessSection section;
    if (!lock_.try_lock()) return false;
    const bool does_run = dead_.ok();
    if (does_run) {
      Work* const before = joinable_;
      Work* const after = coalesce(before);
      if (after != before) post_joinable_slow();
      joinable_ = after;
      // relaxed: a hint for posters
      has_joinable_.store(after != nullptr, std::memory_order_relaxed);
    }
    unlock_or_leave();
    return does_run;
  }
  /// Does a work wait for others? Exact in the thread that has posted last. relaxed: a hint
  bool has_joinable() const noexcept { return has_joinable_.load(std::memory_order_relaxed); }
  /// One turn, unless another thread holds the lock. @return completions and immediates served
  std::uint32_t progress() noexcept { return progress(kPollMost); }
  /// The same, of at most `most` completions, and as many records of each watched link.
  std::uint32_t progress(std::uint32_t most) noexcept;
  /// Would a turn find nothing? Without the lock: a hint. False also where only a turn knows.
  bool looks_idle() const noexcept LARKLANE_NOT_FOLLOWED {
    // relaxed: hints
    return !has_deferred_.load(std::memory_order_relaxed) && !has_joinable() &&
           owned_endpoint_->looks_empty() && receiver_.looks_empty();
  }
  /// The same, but waits for the lock: leaves no arrival to a thread that is about to release it.
  std::uint32_t progress_patiently() noexcept;
  /// Its endpoint is dead: each post fails, and nothing more arrives. acquire: pairs with
  /// turn_locked()'s release; earlier arrivals are served.
  bool is_dead() const noexcept { return is_dead_.load(std::memory_order_acquire); }
  /// Serves all that is there, even if other threads do so, too: waits for the lock.
  void drain() noexcept;

  /// One turn of a lane that another thread owns: asks the kernel to interrupt that thread
  /// (membarrier(2)), then waits until it has left its turn. Takes microseconds.
  std::uint32_t progress_by_asking() noexcept;
  /// From now on the calling thread owns it without a lock. In other threads progress() does
  /// nothing; post_directly() and coalesce() return false. Other calls take microseconds, or wait
  /// until this thread has left its turn. @pre no thread owns it
  /// @return false: this kernel can't do that (membarrier(2)); all threads share it as before
  bool own() noexcept;
  /// All threads share it again. By any thread. @pre no thread posts or makes progress on it
  void disown() noexcept;
  /// Another thread owns it.
  bool is_anothers() const noexcept LARKLANE_NOT_FOLLOWED { return lock_.is_anothers(); }

  // To set up and to sleep: these wait for the lock, so not from Operation::complete or
  // on_immediate.
  Result<std::unique_ptr<net::Link>> open_link();
  Status connect(net::Link& link, std::span<const std::byte> peer_offer);
  /// Its peer is gone: serves its earlier writes, then ends all pending operations.
  void end_link(net::Link& link, Status status);
  /// @pre it has no pending operation
  void close_link(std::unique_ptr<net::Link> link);
  Status reserve_immediates(std::uint32_t count);
  void release_immediates(std::uint32_t count);
  /// Run `change` with the lock held: no callback runs meanwhile.
  template <class Change>
  void exclusively(Change&& change) LARKLANE_NOT_FOLLOWED {
    const ProcessSection section;
    lock_.lock();
    change();
    post_joinable_locked();
    unlock();
  }
  /// The same, unless another thread holds the lock. False: `change` did not run.
  template <class Change>
  bool try_exclusively(Change&& change) LARKLANE_NOT_FOLLOWED {
    const ProcessSection section;
    if (!lock_.try_lock()) return false;
    change();
    post_joinable_locked();
    unlock_or_leave();
    return true;
  }
  /// As net::Endpoint's.
  int wait_fd() noexcept;
  /// As net::Endpoint's: before a sleep. False: do not sleep, call progress().
  bool arm(net::Wake wake);
  /// As net::Endpoint's. Takes no lock: create() sets the endpoint, and it never changes.
  bool does_all_wake() const noexcept { return owned_endpoint_->does_all_wake(); }

  /// Turns of all threads so far, and calls that found the lock held.
  std::uint64_t turns() const noexcept {
    return counters_.polls.load(std::memory_order_relaxed) +  // relaxed: statistics
           contended_.load(std::memory_order_relaxed);
  }

  /// Works so far.
  std::uint64_t posts() const noexcept {
    return counters_.posts.load(std::memory_order_relaxed);  // relaxed: statistics
  }

  VciCounts counts() const noexcept;

 private:
  /// An operation of a work that had to be cut.
  struct Chunk : net::Operation {
    Vci* vci = nullptr;
    Work* work = nullptr;
    Chunk* next = nullptr;  // while it is free
  };
  /// Of all works together: enough for several large transfers to overlap, few enough to cost a
  /// lane that cuts no work little memory.
  static constexpr std::size_t kChunkCount = 16;
  /// Completions and immediates of one turn: bounds how long posts of others wait in the queue.
  static constexpr std::uint32_t kPollMost = 32;

  class Guard;
  friend class Guard;
  /// Written by the lock's holder only.
  struct alignas(kOwnLineBytes) Counters {
    std::atomic<std::uint64_t> posts{0}, queued{0}, retries{0}, chunks{0}, chunk_waits{0}, polls{0},
        empty_polls{0};
    std::array<std::atomic<std::uint64_t>, Work::kKindCount> operations{};
  };
  void count_operation(Work::Kind kind) noexcept {
    count(counters_.operations[static_cast<std::size_t>(kind)]);
  }
  static void count(std::atomic<std::uint64_t>& counter) noexcept {
    // relaxed: statistics. No read-modify-write: the lock has one holder.
    counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  Vci(const net::Limits& limits, net::Receiver& receiver) noexcept;

  /// Works that others have queued go out first.
  void unlock() noexcept LARKLANE_RELEASE(lock_) LARKLANE_NOT_FOLLOWED {
    if (Work* const queued = lock_.try_unlock()) [[unlikely]]
      unlock_slow(queued);
  }
  void unlock_or_leave() noexcept LARKLANE_RELEASE(lock_) LARKLANE_NOT_FOLLOWED {
    if (Work* const queued = lock_.try_unlock_or_leave()) [[unlikely]]
      unlock_slow(queued);
  }
  void unlock_slow(Work* queued) noexcept LARKLANE_NOT_FOLLOWED;
  std::uint32_t look_again_locked(std::uint32_t most) noexcept LARKLANE_REQUIRES(lock_);
  std::uint32_t turn_locked(std::uint32_t most = kPollMost) noexcept LARKLANE_REQUIRES(lock_);
  void accept_locked(Work& work) noexcept LARKLANE_REQUIRES(lock_);
  void defer_locked(Work& work) noexcept LARKLANE_REQUIRES(lock_) {
    deferred_.push_back(work);
    has_deferred_.store(true, std::memory_order_relaxed);  // relaxed: a hint
  }
  /// Before all that is posted after it.
  void post_joinable_locked() noexcept LARKLANE_REQUIRES(lock_) {
    if (joinable_ != nullptr) [[unlikely]]
      post_joinable_slow();
  }
  void post_joinable_slow() noexcept LARKLANE_REQUIRES(lock_);
  void send_deferred_locked() noexcept LARKLANE_REQUIRES(lock_);
  void send_deferred_slow() noexcept LARKLANE_REQUIRES(lock_);
  /// False: `work` has to wait. True: it is none of the caller's business any more, maybe gone.
  bool send_locked(Work& work) noexcept LARKLANE_REQUIRES(lock_);
  bool is_answered_locked(Work& work, Result<net::Post> answer) noexcept LARKLANE_REQUIRES(lock_);
  std::uint64_t bytes_max(const Work& work) const noexcept {
    return work.kind == Work::Kind::read ? read_bytes_max_ : write_bytes_max_;
  }

  // Works that are longer than one operation may be: cut.cpp.
  bool send_cut_slow(Work& work) noexcept LARKLANE_REQUIRES(lock_);
  bool send_chunks_locked(Work& work) noexcept LARKLANE_REQUIRES(lock_);
  bool send_chunk_locked(Work& work, std::uint64_t bytes) noexcept LARKLANE_REQUIRES(lock_);
  bool send_last_locked(Work& work) noexcept LARKLANE_REQUIRES(lock_);
  void free_chunk_locked(Chunk& chunk) noexcept LARKLANE_REQUIRES(lock_);
  static void chunk_complete(net::Operation& operation, Status status);

  // The cache line that all posters write.
  alignas(kOwnLineBytes) LaneLock lock_;

  // The cache line that only the lock's holder needs.
  alignas(kOwnLineBytes) net::Endpoint* endpoint_ LARKLANE_GUARDED_BY(lock_) = nullptr;
  net::Receiver& receiver_ LARKLANE_GUARDED_BY(lock_);
  WaitingWorks deferred_ LARKLANE_GUARDED_BY(lock_);  // each link's first one waits for a poll
  std::atomic<bool> is_dead_{false};
  std::atomic<bool> has_joinable_{false}, has_deferred_{false};
  const bool do_polls_move_;                             // Limits::is_progress_manual
  Status dead_ LARKLANE_GUARDED_BY(lock_);               // why the endpoint is dead
  Work* joinable_ LARKLANE_GUARDED_BY(lock_) = nullptr;  // waits for others
  Chunk* free_chunks_ LARKLANE_GUARDED_BY(lock_) = nullptr;
  const std::uint64_t write_bytes_max_;
  const std::uint64_t read_bytes_max_;

  Counters counters_;
  alignas(kOwnLineBytes) std::atomic<std::uint64_t> contended_{0};  // by threads without the lock

  Chunk chunks_[kChunkCount];
  std::unique_ptr<net::Endpoint> owned_endpoint_;
};

}  // namespace larklane::vci
