#include "ebms.hpp"

#include "suite/payload.hpp"

namespace larklane::bench {

Ebms::Ebms(const Options& options, std::uint64_t bytes, const Crew& crew)
    : bytes_(bytes),
      bands_(options.blocks),
      crew_(crew),
      open_(bytes * bands_ * crew.threads),
      local_(bytes * crew.threads),
      wrong_(crew.threads),
      meeting_(crew.threads) {}

int Ebms::owner_of(std::uint32_t band) const noexcept {
  const auto others = static_cast<std::uint32_t>(crew_.ranks - 1);
  return (crew_.rank + 1 + static_cast<int>(band % others)) % crew_.ranks;
}

std::uint64_t Ebms::key(int owner, std::uint32_t band, std::uint32_t thread) const noexcept {
  const std::uint64_t worker = static_cast<std::uint64_t>(owner) * crew_.threads + thread;
  return (round_ * bands_ + band) * crew_.workers() + worker;
}

void Ebms::begin_round(std::uint64_t round) {
  round_ = round;
  for (std::uint32_t band = 0; band < bands_; ++band)
    for (std::uint32_t thread = 0; thread < crew_.threads; ++thread)
      fill({open_.data() + place(band, thread), bytes_}, 0, key(crew_.rank, band, thread));
}

void Ebms::check(std::uint32_t thread, std::uint32_t band, int owner) {
  wrong_[thread].wrong +=
      wrong_words({local_.data() + thread * bytes_, bytes_}, 0, key(owner, band, thread));
}

std::uint64_t Ebms::wrong() const {
  std::uint64_t wrong = 0;
  for (const OfThread& mine : wrong_) wrong += mine.wrong;
  return wrong;
}

}  // namespace larklane::bench
