#pragma once
// Moves bytes of a piece so that the thread sanitizer sees the accesses of a network: words that a
// peer may read meanwhile as atomics, everything else as plain bytes.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace larklane::loop {

inline constexpr std::uint64_t kWordBytes = sizeof(std::uint64_t);
/// Bytes at the beginning of a write that come last, one by one, where words are not whole.
inline constexpr std::uint32_t kStreamedLast = 4;

/// Thread safety: immutable.
struct Piece {
  std::byte* local;
  std::byte* remote;
  std::uint64_t bytes;
};

inline std::uint64_t misalignment(const std::byte* at) {
  return reinterpret_cast<std::uintptr_t>(at) % kWordBytes;
}

inline std::atomic_ref<std::uint64_t> word_at(std::byte* at) {
  return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(at));
}

inline void store_word(const Piece& piece) {
  std::uint64_t value = 0;
  std::memcpy(&value, piece.local, kWordBytes);
  // release: pairs with the acquire load by which the peer looks at the word
  word_at(piece.remote).store(value, std::memory_order_release);
}

/// As Limits::first_word_last_bytes_max wants it.
inline void write(const Piece& piece) {
  if (piece.bytes < kWordBytes || misalignment(piece.remote) != 0) {
    std::memcpy(piece.remote, piece.local, piece.bytes);
    return;
  }
  std::memcpy(piece.remote + kWordBytes, piece.local + kWordBytes, piece.bytes - kWordBytes);
  store_word(piece);
}

inline void read(const Piece& piece) {
  std::uint64_t done =
      std::min(piece.bytes, (kWordBytes - misalignment(piece.remote)) % kWordBytes);
  std::memcpy(piece.local, piece.remote, done);
  for (; piece.bytes - done >= kWordBytes; done += kWordBytes) {
    // acquire: pairs with the release store of a word by its owner
    const std::uint64_t value = word_at(piece.remote + done).load(std::memory_order_acquire);
    std::memcpy(piece.local + done, &value, kWordBytes);
  }
  std::memcpy(piece.local + done, piece.remote + done, piece.bytes - done);
}

}  // namespace larklane::loop
