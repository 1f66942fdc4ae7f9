#pragma once
// Bounce buffers: copies of messages of middle length, in memory that peers map. The receiver
// copies from there by itself. These two copies cost less than one by the kernel, which looks up
// each page of both processes.

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
// Invariant: a buffer is free, in use by one live Copy, or abandoned.
class BounceBuffers {
 public:
  /// @param bytes_max  longest copy; 0: no copies
  BounceBuffers(net::Fabric& fabric, std::uint64_t bytes_max) noexcept
      : fabric_(fabric), bytes_max_(bytes_max) {}
  BounceBuffers(const BounceBuffers&) = delete;
  BounceBuffers& operator=(const BounceBuffers&) = delete;

  struct Copy {
    std::unique_ptr<net::Memory> memory;  ///< its end frees the buffer; null: no copy made
    std::byte* start = nullptr;
  };
  /// No copy if `bytes` is too long, all buffers of its size are in use, or memory ran out.
  Copy copy_of(std::span<const std::byte> bytes) noexcept;
  /// Takes the buffer out of use. A peer may still read it, and would take the bytes of a later
  /// message for those of this one. @param memory  of a Copy
  static void abandon(net::Memory& memory) noexcept;

 private:
  /// The buffers of one size, allocated at the first use. The last freed is taken first: caches may
  /// still hold it.
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
  std::mutex making_;  // lock order: before lock_
  SpinLock lock_;
  // lock_ guards all fields; `memory` is written once, before take() returns any part of it.
  std::array<Size, 3> sizes_{{{1u << 14, 128}, {1u << 16, 64}, {1u << 18, 16}}};
};

}  // namespace larklane::msg
