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
};

}  // namespace

std::uint64_t siphash(const Secret& secret, std::span<const std::byte> text) noexcept {
  std::uint64_t key[2];
  std::memcpy(key, secret.data(), sizeof key);
  State state{key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d, key[0] ^ 0x6c7967656e657261,
              key[1] ^ 0x7465646279746573};
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
  state.v2 ^= 0xff;
  state.rounds(4);
  return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

}  // namespace larklane
