#pragma once
// The word of a message that its sender may withdraw. It lies in memory that both processes map.
// (docs/design/protocols/ordinary_messages.md, "Cancel"; model: tests/protocol/cancel.pml)

#include <atomic>
#include <cstdint>

namespace larklane::msg {

// Thread safety: thread-safe; its fields are immutable.
// Invariants:
// 1. A word is `offered` until one compare-and-swap changes it, by either side.
// 2. It is used again, with another number of its use, after the receiver's answer; or at once, if
//    the receiver has dropped the message.
class MatchOffer {
 public:
  enum class State : std::uint32_t {
    dropped,    ///< by the receiver: it will not match, and no answer follows
    offered,    ///< by the sender, with the record
    withdrawn,  ///< by the sender's cancel: the receiver drops the message, and says so
    taken,      ///< by the receiver: the message has matched, or a probe has shown it
  };

  MatchOffer() noexcept = default;  ///< can't be withdrawn
  /// @param use  number of the word's use; its upper two bits are lost
  MatchOffer(std::uint32_t* word, std::uint32_t use) noexcept : word_(word), use_(use << 2) {}

  bool has_word() const noexcept { return word_ != nullptr; }
  /// By the sender, before the record. release: pairs with the receiver's change.
  void begin() const noexcept {
    if (word_ != nullptr)
      std::atomic_ref(*word_).store(value(State::offered), std::memory_order_release);
  }
  /// The receiver's match or probe. False: the sender has withdrawn it.
  bool take() const noexcept {
    return word_ == nullptr || change_to(State::taken) != State::withdrawn;
  }
  /// The receiver drops the message. False: the sender has withdrawn it, and waits for the answer.
  bool drop() const noexcept { return change_to(State::dropped) != State::withdrawn; }
  /// The sender's cancel. @return the state before: offered: it is withdrawn; dropped: it is over,
  ///   too; else too late
  State withdraw() const noexcept { return change_to(State::withdrawn); }

 private:
  std::uint32_t value(State state) const noexcept {
    return use_ | static_cast<std::uint32_t>(state);
  }
  /// From offered. @return the state before
  State change_to(State state) const noexcept {
    std::uint32_t before = value(State::offered);
    // acq_rel: of the message; the other side's change comes before or after.
    if (word_ != nullptr)
      std::atomic_ref(*word_).compare_exchange_strong(before, value(state),
                                                      std::memory_order_acq_rel);
    // Of another use: the sender's fault. No receive gets such a message.
    return (before ^ use_) >> 2 == 0 ? static_cast<State>(before & 3) : State::withdrawn;
  }

  std::uint32_t* word_ = nullptr;
  std::uint32_t use_ = 0;
};

}  // namespace larklane::msg
