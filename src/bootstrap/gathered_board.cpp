// A board on the program's own all-gather. publish() gathers all cards, since no process answers
// later.

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/host.hpp"
#include "bootstrap/boards.hpp"

namespace larklane::boot {
namespace {

class GatheredBoard final : public Board {
 public:
  explicit GatheredBoard(Peers peers)
      : Board(peers.rank, peers.size), all_gather_(std::move(peers.all_gather)) {}

 private:
  Status publish_locked(std::span<const std::byte> card, std::string* problem) override {
    const auto count = static_cast<std::size_t>(size());
    const auto own = static_cast<std::uint32_t>(card.size());
    lengths_.resize(count);
    LARKLANE_TRY(gather(&own, sizeof own, lengths_.data(), problem));
    most_ = *std::ranges::max_element(lengths_);
    if (most_ > kCardBytesMax) {
      *problem = "the peers' all-gather has mixed up what it was given";
      return Errc::kProtocol;
    }
    Card padded(card.begin(), card.end());
    padded.resize(most_);
    cards_.resize(count * most_);
    return gather(padded.data(), most_, cards_.data(), problem);
  }

  Result<Card> fetch_locked(int rank, std::string*) override {
    const auto index = static_cast<std::size_t>(rank);
    const auto begin = cards_.begin() + static_cast<std::ptrdiff_t>(index * most_);
    return Card(begin, begin + lengths_[index]);
  }

  Status fence_locked(std::string* problem) override {
    const char own = 0;
    std::string all(static_cast<std::size_t>(size()), '\0');
    return gather(&own, sizeof own, all.data(), problem);
  }

  Result<bool> is_one_host_locked(std::string* problem) override {
    std::array<char, 96> own{};
    const std::string host = memory_id();
    std::copy_n(host.begin(), std::min(host.size(), own.size()), own.begin());
    std::vector<std::array<char, 96>> all(static_cast<std::size_t>(size()));
    LARKLANE_TRY(gather(own.data(), own.size(), all.data(), problem));
    return std::ranges::all_of(all, [&](const auto& each) { return each == own; });
  }

  Status gather(const void* own, std::size_t bytes, void* all, std::string* problem) {
    if (bytes == 0 || all_gather_(own, bytes, all)) return {};
    *problem = "the peers' all-gather has failed";
    return Status(Errc::kSystem, EIO);
  }

  const decltype(Peers::all_gather) all_gather_;
  std::vector<std::uint32_t> lengths_;
  std::size_t most_ = 0;
  Card cards_;  ///< by rank, `most_` bytes each
};

}  // namespace

std::unique_ptr<Board> make_gathered_board(Peers peers) {
  return std::make_unique<GatheredBoard>(std::move(peers));
}

}  // namespace larklane::boot
