#pragma once
// Words that peers write over the network, in registered memory. It lives as long as the process's
// networks, so that a late store never hits other data. The generation in a word identifies its
// channel.

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/status.hpp"
#include "net/provider.hpp"

namespace larklane::part {

/// The words of one side of one channel.
struct NetWords {
  std::uint64_t* words = nullptr;
  std::uint32_t room = 0;  ///< a power of two
  std::uint32_t generation = 0;
  net::RemoteMemory remote{};

  /// acquire: pairs with the network's store, and acquires the peer's accesses before it.
  std::uint64_t read(std::uint32_t index) const noexcept {
    return std::atomic_ref(words[index]).load(std::memory_order_acquire);
  }
};

/// Thread safety: single-owner (the network's mutex).
class NetWordPool {
 public:
  explicit NetWordPool(net::Fabric& fabric) : fabric_(fabric) {}
  /// Takes `count` words with a generation of their own; they may hold old stores of other
  /// generations.
  /// @errors kNoMemory, and those of register_memory
  Result<NetWords> take(std::uint32_t count);
  void give_back(const NetWords& words) { free_[words.room].push_back(words); }

 private:
  struct Slab {
    std::unique_ptr<std::uint64_t[]> words;
    std::unique_ptr<net::Memory> memory;
  };
  static constexpr std::uint32_t kSlabWords = 8192;

  net::Fabric& fabric_;
  std::vector<Slab> slabs_;
  std::uint32_t used_ = kSlabWords;  // of the last slab
  std::uint32_t last_generation_ = 0;
  std::map<std::uint32_t, std::vector<NetWords>> free_;  // by room
};

}  // namespace larklane::part
