#pragma once
// The payload of messages between threads: each message has a number at both ends, and words of its
// own between them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "shape.hpp"
#include "suite/payload.hpp"

namespace larklane::bench {

/// A message begins and ends with its number.
/// @return how many bytes of the number fit
inline std::uint64_t stamp_bytes(std::uint64_t bytes) { return std::min<std::uint64_t>(8, bytes); }

inline void stamp(std::byte* message, std::uint64_t bytes, std::uint64_t number) {
  std::memcpy(message, &number, stamp_bytes(bytes));
  if (bytes >= 16) std::memcpy(message + bytes - 8, &number, 8);
}
inline bool has_stamp(const std::byte* message, std::uint64_t bytes, std::uint64_t number) {
  return std::memcmp(message, &number, stamp_bytes(bytes)) == 0 &&
         (bytes < 16 || std::memcmp(message + bytes - 8, &number, 8) == 0);
}

/// Numbers the messages that the threads of a process send, and checks the received ones. All
/// threads send the same number of whole windows in a round, and receive as many. Thread safety:
/// stamp_next() and check() by different threads for different `thread`; the others are
/// single-owner, between the rounds.
class Numbers {
 public:
  /// Messages of all threads have one tag: a thread may receive those of any, in the order of each.
  static bool is_mixed(const std::string& way) { return way == "one-tag"; }

  Numbers(const Shape& shape, int rank, int ranks)
      : shape_(shape),
        rank_(static_cast<std::uint64_t>(rank)),
        ranks_(static_cast<std::uint64_t>(ranks)),
        of_thread_(shape.threads) {
    for (OfThread& mine : of_thread_) mine.last.resize(shape.threads);
  }

  /// @param sends  this process sends in the round
  void begin_round(bool sends, bool is_mixed) {
    ++round_;
    is_mixed_ = is_mixed;
    for (OfThread& mine : of_thread_) {
      mine.wrong = 0;
      mine.sum = 0;
      mine.began = mine.received;
      std::ranges::fill(mine.last, 0);
    }
    if (!sends) return;
    for_each_message([&](std::uint32_t thread, std::uint32_t slot) {
      fill({shape_.out_of(thread, slot), shape_.bytes}, 0, key(rank_, thread, slot));
    });
  }

  void stamp_next(std::uint32_t thread, std::uint32_t slot) {
    stamp(shape_.out_of(thread, slot), shape_.bytes, number(thread, ++of_thread_[thread].sent));
  }

  /// Checks the number of the next message that `thread` has received.
  void check(std::uint32_t thread, std::span<const std::byte> message) {
    OfThread& mine = of_thread_[thread];
    ++mine.received;
    if (message.size() != shape_.bytes) {
      ++mine.wrong;
      return;
    }
    const std::uint64_t expected = is_mixed_ ? number_of(message) : number(thread, mine.received);
    mine.wrong += !has_stamp(message.data(), shape_.bytes, expected);
    if (!is_mixed_) return;
    mine.sum += expected;
    const std::uint64_t from = expected >> kThreadShift;
    if (from >= shape_.threads) {
      ++mine.wrong;
      return;
    }
    std::uint64_t& last = mine.last[from];
    mine.wrong += expected <= last;
    last = expected;
  }

  /// Checks all that the process has received in the round. The last window is still in place.
  /// @return wrong messages, or numbers; 0 if nothing is wrong
  template <class Way>
  std::uint64_t wrong(Way& way) const {
    std::uint64_t wrong = 0;
    for (const OfThread& mine : of_thread_) wrong += mine.wrong;
    if (is_mixed_) wrong += sum_received() != sum_sent();
    for_each_message([&](std::uint32_t thread, std::uint32_t slot) {
      const std::span<const std::byte> message = way.end(thread).message(slot);
      if (message.size() != shape_.bytes || message.size() <= 16) return;
      std::uint32_t from = thread, place = slot;
      if (is_mixed_) {
        from = static_cast<std::uint32_t>(number_of(message) >> kThreadShift);
        const std::uint64_t count = number_of(message) % (std::uint64_t{1} << kThreadShift);
        place = static_cast<std::uint32_t>((count - 1) % shape_.options->window);
      }
      wrong += wrong_words(message.subspan(8, message.size() - 16), 8,
                           key(static_cast<std::uint64_t>(shape_.peer), from, place));
    });
    return wrong;
  }

 private:
  static constexpr int kThreadShift = 40;

  struct alignas(64) OfThread {
    std::uint64_t sent = 0, received = 0;  ///< messages so far
    std::uint64_t began = 0;               ///< `received` before the round
    std::uint64_t wrong = 0;
    std::uint64_t sum = 0;            ///< of received numbers
    std::vector<std::uint64_t> last;  ///< received number, by sending thread
  };

  static std::uint64_t number(std::uint64_t thread, std::uint64_t count) {
    return thread << kThreadShift | count;
  }
  static std::uint64_t number_of(std::span<const std::byte> message) {
    std::uint64_t number = 0;
    std::memcpy(&number, message.data(), stamp_bytes(message.size()));
    return number;
  }
  std::uint64_t sum_received() const {
    std::uint64_t sum = 0;
    for (const OfThread& mine : of_thread_) sum += mine.sum;
    return sum;
  }
  std::uint64_t sum_sent() const {
    std::uint64_t sum = 0;
    for (std::uint32_t thread = 0; thread < shape_.threads; ++thread)
      for (std::uint64_t count = of_thread_[thread].began; count < of_thread_[thread].received;)
        sum += number(thread, ++count);
    return sum;
  }
  /// Unique for each rank, thread and slot of each round.
  std::uint64_t key(std::uint64_t rank, std::uint32_t thread, std::uint32_t slot) const {
    return ((round_ * ranks_ + rank) * shape_.threads + thread) * shape_.options->window + slot;
  }
  template <class Each>
  void for_each_message(Each&& each) const {
    for (std::uint32_t thread = 0; thread < shape_.threads; ++thread)
      for (std::uint32_t slot = 0; slot < shape_.options->window; ++slot) each(thread, slot);
  }

  const Shape& shape_;
  const std::uint64_t rank_, ranks_;
  std::vector<OfThread> of_thread_;
  std::uint64_t round_ = 0;
  bool is_mixed_ = false;
};

}  // namespace larklane::bench
