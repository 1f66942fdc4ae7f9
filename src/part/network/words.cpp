#include "part/network/words.hpp"

#include <bit>
#include <new>

#include "part/network/records.hpp"

namespace larklane::part {

Result<NetWords> NetWordPool::take(std::uint32_t count) {
  const std::uint32_t room = std::max(std::bit_ceil(count), 8u);
  NetWords words;
  if (auto& free = free_[room]; !free.empty()) {
    words = free.back();
    free.pop_back();
    // relaxed: no peer knows these words yet. Generations repeat after 16 million.
    for (std::uint32_t i = 0; i < room; ++i)
      std::atomic_ref(words.words[i]).store(0, std::memory_order_relaxed);
  } else {
    if (kSlabWords - used_ < room) {
      Slab slab{std::unique_ptr<std::uint64_t[]>(new (std::nothrow) std::uint64_t[kSlabWords]{}),
                nullptr};
      if (!slab.words) return Errc::kNoMemory;
      auto memory = fabric_.register_memory(slab.words.get(), kSlabWords * sizeof(std::uint64_t));
      if (!memory) return memory.error();
      slab.memory = std::move(memory).value();
      slabs_.push_back(std::move(slab));
      used_ = 0;
    }
    const Slab& slab = slabs_.back();
    words.words = slab.words.get() + used_;
    words.room = room;
    words.remote = slab.memory->remote();
    words.remote.address += used_ * sizeof(std::uint64_t);
    used_ += room;
  }
  last_generation_ = last_generation_ % (net_word::kGenerations - 1) + 1;
  words.generation = last_generation_;
  return words;
}

}  // namespace larklane::part
