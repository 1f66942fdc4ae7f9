#include "payload.hpp"

#include <algorithm>
#include <cstring>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace larklane::bench {
namespace {

constexpr std::size_t kLineBytes = 64;

std::byte byte_of(std::uint64_t index, std::uint64_t round) {
  const std::uint64_t word =
      (index / 8) * 0x9e3779b97f4a7c15u + round * 0xd1342543de82ef95u + 0x632be59bd9b4e019u;
  return static_cast<std::byte>(word >> (index % 8 * 8));
}

std::uint64_t word_of(std::uint64_t index, std::uint64_t round) {
  return index * 0x9e3779b97f4a7c15u + round * 0xd1342543de82ef95u + 0x632be59bd9b4e019u;
}

}  // namespace

void fill(std::span<std::byte> buffer, std::uint64_t offset, std::uint64_t round) {
  std::size_t at = 0;
  for (; at < buffer.size() && (offset + at) % 8 != 0; ++at)
    buffer[at] = byte_of(offset + at, round);
  for (; at + 8 <= buffer.size(); at += 8) {
    const std::uint64_t word = word_of((offset + at) / 8, round);
    std::memcpy(&buffer[at], &word, 8);
  }
  for (; at < buffer.size(); ++at) buffer[at] = byte_of(offset + at, round);
}

std::uint64_t wrong_words(std::span<const std::byte> buffer, std::uint64_t offset,
                          std::uint64_t round) {
  std::uint64_t wrong = 0;
  std::size_t at = 0;
  for (; at < buffer.size() && (offset + at) % 8 != 0; ++at)
    wrong += buffer[at] != byte_of(offset + at, round);
  for (; at + 8 <= buffer.size(); at += 8) {
    const std::uint64_t word = word_of((offset + at) / 8, round);
    wrong += std::memcmp(&buffer[at], &word, 8) != 0;
  }
  for (; at < buffer.size(); ++at) wrong += buffer[at] != byte_of(offset + at, round);
  return wrong;
}

bool flush(std::span<const std::byte> buffer) {
#ifdef __x86_64__
  for (std::size_t at = 0; at < buffer.size(); at += kLineBytes) _mm_clflush(&buffer[at]);
  if (!buffer.empty()) _mm_clflush(&buffer.back());
  _mm_mfence();
  return true;
#elif defined(__aarch64__)
  for (std::size_t at = 0; at < buffer.size(); at += kLineBytes)
    asm volatile("dc civac, %0" : : "r"(&buffer[at]) : "memory");
  asm volatile("dsb ish" : : : "memory");
  return true;
#else
  return buffer.empty();
#endif
}

}  // namespace larklane::bench
