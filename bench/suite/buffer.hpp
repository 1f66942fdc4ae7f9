#pragma once
// Memory of messages.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

namespace larklane::bench {

/// Page-aligned, like programs' arrays, and touched.
class Buffer {
 public:
  explicit Buffer(std::uint64_t bytes)
      : bytes_(bytes), data_(static_cast<std::byte*>(std::aligned_alloc(kPage, whole(bytes)))) {
    std::fill_n(data_, whole(bytes), std::byte{});
  }
  ~Buffer() { std::free(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  /// Rounds up to whole pages.
  static std::uint64_t whole(std::uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

  std::byte* data() const noexcept { return data_; }
  std::span<std::byte> span() const noexcept { return {data_, bytes_}; }

 private:
  static constexpr std::uint64_t kPage = 4096;

  const std::uint64_t bytes_;
  std::byte* const data_;
};

}  // namespace larklane::bench
