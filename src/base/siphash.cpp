#include "base/siphash.hpp"

#include <bit>
#include <cstring>

namespace larklane {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read as they lie in memory");

struct State {
  std::uint64_t v0, v1, v2, v3;

  void rounds(int count) noexcept {
    for (int i = 0; i < count; ++i) {
      v0 += v1;
      v1 = std::rotl(v1, 13) ^ v0;
      v0 = std::rotl(v0, 32);
      v2 += v3;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3;
      v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1;
      v1 = std::rotl(v1, 17) ^ v2;
      v2 = std::rotl(v2, 32);
    }
  }
  void add(std::uint64_t word) noexcept {
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  }
  std::uint64_t finished() noexcept {
    rounds(4);
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

/// All of `text` is added, and no finalisation has been made.
/// @param mark  distinguishes the variant of 16 bytes from that of 8
State absorbed(const Secret& secret, std::span<const std::byte> text, std::uint64_t mark) noexcept {
  std::uint64_t key[2];
  std::memcpy(key, secret.data(), sizeof key);
  State state{key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d ^ mark,
              key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573};
  std::uint64_t last = std::uint64_t{text.size()} << 56;
  for (; text.size() >= sizeof last; text = text.subspan(sizeof last)) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data(), sizeof word);
    state.add(word);
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    last |= std::to_integer<std::uint64_t>(text[i]) << (8 * i);
  }
  state.add(last);
  return state;
}

}  // namespace

std::uint64_t siphash(const Secret& secret, std::span<const std::byte> text) noexcept {
  State state = absorbed(secret, text, 0);
  state.v2 ^= 0xff;
  return state.finished();
}

std::array<std::byte, 16> siphash_128(const Secret& secret,
                                      std::span<const std::byte> text) noexcept {
  State state = absorbed(secret, text, 0xee);
  std::uint64_t words[2];
  state.v2 ^= 0xee;
  words[0] = state.finished();
  state.v1 ^= 0xdd;
  words[1] = state.finished();
  std::array<std::byte, 16> hash;
  std::memcpy(hash.data(), words, sizeof words);
  return hash;
}

}  // namespace larklane
