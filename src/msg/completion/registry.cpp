#include "msg/completion/registry.hpp"

namespace larklane::msg {

Result<RemoteCompletion> Registry::add(Object& object) noexcept {
  for (std::uint32_t index = 0; index < kSlots; ++index) {
    Slot& slot = slots_[index];
    // relaxed: the mutex orders writers.
    if (slot.word.load(std::memory_order_relaxed) != 0 || slot.generation == kGenerationsMax)
      continue;
    const RemoteCompletion number = ++slot.generation << kSlotBits | index;
    // release: of the previous number's removal; pairs with look()'s second acquire.
    slot.target.store(&object, std::memory_order_release);
    // release: of the object; pairs with look()'s first acquire.
    slot.word.store(std::uint64_t{number} << 32 | object.index, std::memory_order_release);
    return number;
  }
  return Errc::kNoMemory;
}

void Registry::remove(RemoteCompletion number) noexcept {
  slots_[number & kSlotMask].word.exchange(0, std::memory_order_seq_cst);
}

}  // namespace larklane::msg
