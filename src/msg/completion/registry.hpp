#pragma once
// Registry of the objects that peers may name, by numbers that are never reused.

#include <array>
#include <atomic>
#include <cstdint>

#include "base/status.hpp"
#include "msg/completion/object.hpp"

namespace larklane::msg {

// Thread safety: look() and is_still() are thread-safe; the domain's mutex guards add() and
// remove().
// Invariants:
// 1. A number is a slot and the slot's generation, from 1 on. A slot that has used all its
//    generations stays empty. So a removed number never names an object again.
// 2. An object found by look() was registered under that number. If is_still() then returns true,
//    it was registered during the whole interval.
class Registry {
 public:
  static constexpr std::uint32_t kSlotBits = 12, kGenerationBits = 12;

  struct Seen {
    std::uint64_t word = 0;    ///< 0: nothing
    Object* object = nullptr;  ///< may be deleted until is_still() returns true
    std::uint32_t index() const noexcept { return static_cast<std::uint32_t>(word); }
  };

  /// @param number  as a peer sent it: any value
  Seen look(RemoteCompletion number) const noexcept {
    const Slot& slot = slots_[number & kSlotMask];
    // acquire: pairs with add()'s release of the object and its members.
    const std::uint64_t word = slot.word.load(std::memory_order_acquire);
    if (word >> 32 != number || word == 0) [[unlikely]]
      return {};
    // acquire: a thread that reads a later object also sees the earlier number's removal.
    return {word, slot.target.load(std::memory_order_acquire)};
  }
  /// seq_cst: after Counts::add_found(); pairs with remove().
  bool is_still(RemoteCompletion number, const Seen& seen) const noexcept {
    return slots_[number & kSlotMask].word.load(std::memory_order_seq_cst) == seen.word;
  }

  /// @errors kNoMemory: each slot is taken, or has used all its generations
  Result<RemoteCompletion> add(Object& object) noexcept;
  /// @pre `number` is from add(), and not removed. seq_cst: before Counts::posted(); pairs with
  ///   is_still().
  void remove(RemoteCompletion number) noexcept;

 private:
  static constexpr std::uint32_t kSlots = 1u << kSlotBits, kSlotMask = kSlots - 1;
  static constexpr std::uint32_t kGenerationsMax = (1u << kGenerationBits) - 1;

  struct Slot {
    std::atomic<std::uint64_t> word{0};  ///< number << 32 | the object's index; 0: empty
    std::atomic<Object*> target{nullptr};
    std::uint32_t generation = 0;  ///< the last used
  };

  std::array<Slot, kSlots> slots_;
};

}  // namespace larklane::msg
