#pragma once
// The objects that peers may name, by numbers that are never used again.

#include <array>
#include <atomic>
#include <cstdint>

#include "base/status.hpp"
#include "msg/completion/object.hpp"

namespace larklane::msg {

// Thread safety: look() and is_still() thread-safe; add() and remove() under the domain's mutex.
// Invariants:
// 1. A number is a slot and a generation of it, from 1 on; a slot whose generations are used up
//    stays empty. So a number that was removed names nothing, for ever.
// 2. What look() has found was registered under that number; if is_still() says so afterwards, it
//    was all the time between.
class Registry {
 public:
  static constexpr std::uint32_t kSlotBits = 12, kGenerationBits = 12;

  struct Seen {
    std::uint64_t word = 0;    ///< 0: nothing
    Object* object = nullptr;  ///< maybe no more
    std::uint32_t index() const noexcept { return static_cast<std::uint32_t>(word); }
  };

  /// @param number  what a peer has sent: anything
  Seen look(RemoteCompletion number) const noexcept {
    const Slot& slot = slots_[number & kSlotMask];
    // acquire: pairs with add()'s release of the object and all that it has.
    const std::uint64_t word = slot.word.load(std::memory_order_acquire);
    if (word >> 32 != number || word == 0) [[unlikely]]
      return {};
    // acquire: who reads a later object sees that the number was withdrawn before.
    return {word, slot.target.load(std::memory_order_acquire)};
  }
  /// seq_cst: after Counts::add_found(); pairs with remove().
  bool is_still(RemoteCompletion number, const Seen& seen) const noexcept {
    return slots_[number & kSlotMask].word.load(std::memory_order_seq_cst) == seen.word;
  }

  /// @errors kNoMemory: every slot is taken, or used up
  Result<RemoteCompletion> add(Object& object) noexcept;
  /// Of add(), and not removed. seq_cst: before Counts::posted(); pairs with is_still().
  void remove(RemoteCompletion number) noexcept;

 private:
  static constexpr std::uint32_t kSlots = 1u << kSlotBits, kSlotMask = kSlots - 1;
  static constexpr std::uint32_t kGenerationsMax = (1u << kGenerationBits) - 1;

  struct Slot {
    std::atomic<std::uint64_t> word{0};  ///< number << 32 | the object's index; 0: empty
    std::atomic<Object*> target{nullptr};
    std::uint32_t generation = 0;  ///< the last that was used
  };

  std::array<Slot, kSlots> slots_;
};

}  // namespace larklane::msg
