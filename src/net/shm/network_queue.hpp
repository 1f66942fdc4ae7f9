#pragma once
// The queue of immediates of one endpoint, from both ends.
//
// All senders share one ring. So a poll that finds nothing is one load, for any number of peers, of
// a line that no sender writes. A sender claims a slot and fills it by the same
// compare-and-swap. A sender that is killed leaves no slot that is taken and never filled, as it
// would with tickets, and no sender waits for another. A sender that is alone knows where the tail
// is and touches no other line of senders; with several, the shared tail leads close to it.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "net/shm/network_layout.hpp"

namespace larklane::shm {

/// The line will be written soon: it is fetched for that, meanwhile.
inline void fetch_for_write(const void* line) noexcept {
#ifdef __x86_64__
  // The builtin fetches it for reading where the compiler may not assume this instruction, which
  // does nothing on processors that have none.
  asm("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

/// Thread safety: single-owner.
/// Invariants:
/// 1. No slot is reused before the immediate in it is heard: the receiver's head was seen beyond.
class QueueSender {
 public:
  QueueSender() noexcept = default;
  /// @param area  stays mapped @param endpoint  its expected owner
  QueueSender(QueueArea& area, std::uint64_t endpoint) noexcept : area_(&area), id_(endpoint) {
    (void)look_slow();
  }

  /// The endpoint is still there. relaxed: a late immediate is not heard, or as a stray.
  bool is_open() const noexcept { return area_->endpoint.load(std::memory_order_relaxed) == id_; }
  bool has_room() noexcept { return next_ - head_ < QueueArea::kSlots || look_slow(); }
  /// The receiver's polls hold the line of the next slot: it comes while bytes are written.
  void prepare_slot() const noexcept { fetch_for_write(&area_->at(next_)); }
  /// False: there is no room. Earlier writes are there when the immediate is heard.
  bool push(std::uint32_t immediate) noexcept {
    while (has_room()) {
      std::atomic<std::uint64_t>& slot = area_->at(next_);
      // relaxed: the exchange compares it.
      std::uint64_t before = slot.load(std::memory_order_relaxed);
      // release: pairs with poll()'s acquire.
      if (QueueArea::lap_in(before) == QueueArea::lap_before(next_) &&
          slot.compare_exchange_strong(before, QueueArea::slot_of(next_, immediate),
                                       std::memory_order_release, std::memory_order_relaxed))
          [[likely]] {
        ++next_;
        area_->tail.store(next_, std::memory_order_relaxed);  // relaxed: a hint
        fetch_for_write(&area_->at(next_ + kFetchAhead));
        return true;
      }
      if (!is_open()) return false;  // the queue may be another endpoint's by now
      pass_slow();
    }
    return false;
  }

 private:
  /// A line of slots further.
  static constexpr std::uint32_t kFetchAhead = 8;

  /// Another sender has filled the slot.
  void pass_slow() noexcept {
    const std::uint64_t tail = area_->tail.load(std::memory_order_relaxed);  // relaxed: a hint
    ++next_;
    if (tail - next_ < QueueArea::kSlots) next_ = tail;
  }
  [[gnu::noinline]] bool look_slow() noexcept {
    // acquire: pairs with poll()'s release; immediates before it are heard.
    head_ = area_->head.load(std::memory_order_acquire);
    // Behind: others were here. Far ahead: the tail that led there made no sense.
    if (next_ - head_ > QueueArea::kSlots) {
      next_ = head_;
      const std::uint64_t tail = area_->tail.load(std::memory_order_relaxed);  // relaxed: a hint
      if (tail - next_ < QueueArea::kSlots) next_ = tail;
    }
    return is_open() && next_ - head_ < QueueArea::kSlots;
  }

  QueueArea* area_ = nullptr;
  std::uint64_t id_ = 0;
  std::uint64_t next_ = 0;  // no slot before it is free
  std::uint64_t head_ = 0;  // of the receiver, as last seen
};

/// Thread safety: single-owner.
class QueueReceiver {
 public:
  /// Begins at a lap of its own: a sender that was stopped in a push to the endpoint before, in the
  /// same place, compares in vain.
  QueueReceiver(QueueArea& area, std::uint64_t endpoint) noexcept
      : area_(area), head_(first_position(endpoint)) {
    // relaxed, here and below: an offer follows
    for (std::atomic<std::uint64_t>& slot : area_.slots)
      slot.store(std::uint64_t{QueueArea::lap_before(head_)} << 32, std::memory_order_relaxed);
    area_.tail.store(head_, std::memory_order_relaxed);
    area_.head.store(head_, std::memory_order_relaxed);
    area_.endpoint.store(endpoint, std::memory_order_relaxed);
  }
  /// Before the area is used for anything else.
  void close() noexcept { area_.endpoint.store(0, std::memory_order_relaxed); }  // as is_open()

  /// hear(immediate), of up to `most`. @return how many
  template <class Hear>
  std::uint32_t poll(std::uint32_t most, Hear&& hear) {
    std::uint32_t served = 0;
    for (; served < most; ++served) {
      // acquire: pairs with push()'s release.
      const std::uint64_t slot = area_.at(head_).load(std::memory_order_acquire);
      if (QueueArea::lap_in(slot) != QueueArea::lap_before(head_) + 1) break;
      ++head_;
      hear(static_cast<std::uint32_t>(slot));
    }
    // release: the slots have been read; pairs with look_slow()'s acquire.
    if (served != 0) area_.head.store(head_, std::memory_order_release);
    return served;
  }

  /// Would poll() hear nothing now? Thread-safe: a hint. relaxed, both: poll() looks again.
  bool looks_empty() const noexcept {
    const std::uint64_t head = area_.head.load(std::memory_order_relaxed);
    const std::uint64_t slot = area_.at(head).load(std::memory_order_relaxed);
    return QueueArea::lap_in(slot) != QueueArea::lap_before(head) + 1;
  }

 private:
  /// Of a lap that is another one's with any other endpoint, but for one in 2^31. (The golden
  /// ratio.)
  static std::uint64_t first_position(std::uint64_t endpoint) noexcept {
    return (endpoint * 0x9e37'79b9'7f4a'7c15u >> 33) << QueueArea::kSlotBits;
  }

  QueueArea& area_;
  std::uint64_t head_;
};

}  // namespace larklane::shm
