#pragma once
// Copies of what messages of middle length send, in memory that peers map. Their receivers copy
// from there by themselves: two copies that cost less than one by the kernel, which looks up each
// page of both processes.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/spin_lock.hpp"
#include "base/thread_safety.hpp"
#include "net/provider.hpp"

namespace larklane::msg {

// Thread safety: thread-safe.
// Invariant: a buffer is free, of one copy that lives, or abandoned.
class BounceBuffers {
 public:
  /// @param bytes_max  of one copy; 0: there are none
  BounceBuffers(net::Fabric& fabric, std::uint64_t bytes_max) noexcept
      : fabric_(fabric), bytes_max_(bytes_max) {}
  BounceBuffers(const BounceBuffers&) = delete;
  BounceBuffers& operator=(const BounceBuffers&) = delete;

  struct Copy {
    std::unique_ptr<net::Memory> memory;  ///< gives it back; null: no copy was made
    std::byte* start = nullptr;
  };
  /// None where it is too long, where all buffers are in use, or where there is no memory.
  Copy copy_of(std::span<const std::byte> bytes) noexcept;
  /// Nobody gets its buffer again: a peer may still read it, and would take what is there for this
  /// message. @param memory  of a copy
  static void abandon(net::Memory& memory) noexcept;

 private:
  /// Of one size, made when the first is needed. Those used last are taken first: caches may still
  /// have them.
  struct Size {
    std::uint64_t bytes;
    std::uint32_t count;
    bool is_made = false;
    std::vector<std::byte*> free{};
    std::unique_ptr<net::AllocatedMemory> memory{};
  };
  struct Buffer;
  std::byte* take(Size& size) noexcept;
  void give_back(Size& size, std::byte* start) noexcept;
  void make_slow(Size& size) noexcept;

  net::Fabric& fabric_;
  const std::uint64_t bytes_max_;
  std::mutex making_;  // before lock_
  SpinLock lock_;
  // Guarded by lock_, but for `memory`, which is written once, before any of it is taken.
  std::array<Size, 3> sizes_{{{1u << 14, 128}, {1u << 16, 64}, {1u << 18, 16}}};
};

}  // namespace larklane::msg
