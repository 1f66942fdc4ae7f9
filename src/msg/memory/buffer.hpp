#pragma once
// Buffers for bytes that arrive before their destination is known: active messages, and messages
// without a posted receive.

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/status.hpp"
#include "msg/completion/node.hpp"
#include "msg/memory/pool.hpp"

namespace larklane::msg {

/// A buffer of one size. Its leading Node names its home, so its bytes alone suffice to give it
/// back.
template <std::size_t kBytes>
struct SizedBuffer : Node {
  std::byte bytes[kBytes];
};

/// A buffer from the heap. Null: memory ran out. Thread-safe.
std::byte* take_heap_buffer(std::uint64_t bytes) noexcept;
/// Returns bytes of a take() to their pool or the heap. Null is legal. Thread-safe.
void give_back_buffer(void* bytes) noexcept;

// Thread safety: vci-serial.
/// Buffers for the payload of one record, in three sizes.
class BufferPool {
 public:
  static constexpr std::uint32_t kSmallBytes = 192, kMiddleBytes = 1984, kLargeBytes = 8192;

  /// @param most  buffers of each size @errors kNoMemory
  static Result<BufferPool> create(std::uint32_t most) noexcept;

  /// The smallest size that holds `bytes`. @pre bytes <= kLargeBytes
  static std::uint32_t size_of(std::uint32_t bytes) noexcept {
    if (bytes <= kSmallBytes) return kSmallBytes;
    return bytes <= kMiddleBytes ? kMiddleBytes : kLargeBytes;
  }
  /// Null: all buffers of `size` are in use, or memory ran out. @param size  one of the three
  std::byte* take(std::uint32_t size) noexcept {
    if (size == kSmallBytes) return bytes_of(small_.get());
    if (size == kMiddleBytes) return bytes_of(middle_.get());
    return bytes_of(large_.get());
  }

 private:
  using Small = SizedBuffer<kSmallBytes>;
  using Middle = SizedBuffer<kMiddleBytes>;
  using Large = SizedBuffer<kLargeBytes>;

  template <class Sized>
  static std::byte* bytes_of(Sized* buffer) noexcept {
    return buffer == nullptr ? nullptr : buffer->bytes;
  }
  BufferPool(Pool<Small> small, Pool<Middle> middle, Pool<Large> large) noexcept
      : small_(std::move(small)), middle_(std::move(middle)), large_(std::move(large)) {}

  Pool<Small> small_;
  Pool<Middle> middle_;
  Pool<Large> large_;
};

// Thread safety: vci-serial.
/// Buffers of any length, for active messages that are fetched. The pool keeps up to kKeptBytes of
/// each of three sizes. Other buffers come from the heap, which returns freed memory to the system
/// and so faults in each page anew.
class LongBufferPool {
 public:
  static constexpr std::uint32_t kKeptBytes = 4u << 20;

  /// @errors kNoMemory
  static Result<LongBufferPool> create() noexcept;
  /// Null: memory ran out.
  std::byte* take(std::uint64_t bytes) noexcept;

 private:
  static constexpr std::uint32_t kShortBytes = 16u << 10, kMiddleBytes = 64u << 10,
                                 kLongBytes = 256u << 10;
  using Short = SizedBuffer<kShortBytes>;
  using Middle = SizedBuffer<kMiddleBytes>;
  using Long = SizedBuffer<kLongBytes>;

  LongBufferPool(Pool<Short> s, Pool<Middle> middle, Pool<Long> l) noexcept
      : short_(std::move(s)), middle_(std::move(middle)), long_(std::move(l)) {}

  Pool<Short> short_;
  Pool<Middle> middle_;
  Pool<Long> long_;
};

}  // namespace larklane::msg
