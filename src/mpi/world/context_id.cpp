#include "mpi/world/context_id.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace larklane::mpi {
namespace {

/// The finaliser of MurmurHash3: each input bit flips each output bit with probability near 1/2.
std::uint64_t mix(std::uint64_t word) noexcept {
  word = (word ^ (word >> 33)) * 0xFF51AFD7ED558CCDu;
  word = (word ^ (word >> 33)) * 0xC4CEB9FE1A85EC53u;
  return word ^ (word >> 33);
}

}  // namespace

ContextHash& ContextHash::add(std::uint64_t word) noexcept {
  // The body of MurmurHash3_x64_128, with one word for both halves and separate constants for each.
  high_ ^= std::rotl(word * 0x87C37B91114253D5u, 31) * 0x4CF5AD432745937Fu;
  high_ = (std::rotl(high_, 27) + low_) * 5 + 0x52DCE729u;
  low_ ^= std::rotl(word * 0x4CF5AD432745937Fu, 33) * 0x87C37B91114253D5u;
  low_ = (std::rotl(low_, 31) + high_) * 5 + 0x38495AB5u;
  return *this;
}

ContextHash& ContextHash::add(std::string_view text) noexcept {
  add(text.size());
  for (std::size_t i = 0; i < text.size(); i += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    for (std::size_t k = i; k < std::min(text.size(), i + sizeof word); ++k) {
      word = word << 8 | static_cast<unsigned char>(text[k]);
    }
    add(word);
  }
  return *this;
}

ContextHash& ContextHash::add(std::span<const int> ranks) noexcept {
  add(ranks.size());
  for (const int rank : ranks) add(static_cast<std::uint64_t>(rank));
  return *this;
}

ContextId ContextHash::id() const noexcept {
  const std::uint64_t high = high_ + low_;
  return {mix(high), mix(low_ + high)};
}

ContextId group_id(std::span<const int> ranks) noexcept {
  return ContextHash(Origin::group).add(ranks).id();
}

void add_unordered(ContextHash& hash, const ContextId& a, const ContextId& b) noexcept {
  hash.add(std::min(a, b)).add(std::max(a, b));
}

}  // namespace larklane::mpi
