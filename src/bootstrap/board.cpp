#include "bootstrap/board.hpp"

#include <utility>

#include "bootstrap/boards.hpp"
#include "bootstrap/member.hpp"

namespace larklane::boot {
namespace {

/// The board of a process without peers.
class AloneBoard final : public Board {
 public:
  AloneBoard() noexcept : Board(0, 1) {}

 private:
  Status publish_locked(std::span<const std::byte>, std::string*) override { return {}; }
  Result<Card> fetch_locked(int, std::string*) override { return Errc::kInvalidArgument; }
  Status fence_locked(std::string*) override { return {}; }
  Result<bool> is_one_host_locked(std::string*) override { return true; }
};

}  // namespace

Result<std::unique_ptr<Board>> Board::open(const Config& config, std::string* problem) {
  const auto member = Member::of(config, problem);
  if (!member) return Errc::kBadOption;
  switch (member->way) {
    case Member::Way::alone:
      break;
    case Member::Way::served:
      return open_served_board(*member, problem);
    case Member::Way::folder:
      return open_file_board(*member, problem);
    case Member::Way::pmi:
      return open_pmi_board(*member, problem);
    case Member::Way::pmix:
      return open_pmix_board(*member, problem);
  }
  return std::unique_ptr<Board>(std::make_unique<AloneBoard>());
}

Result<std::unique_ptr<Board>> Board::open(Peers peers, std::string* problem) {
  if (peers.size < 1 || peers.rank < 0 || peers.rank >= peers.size || !peers.all_gather) {
    *problem = "peers: rank " + std::to_string(peers.rank) + " of " + std::to_string(peers.size) +
               (peers.all_gather ? "" : ", no all-gather") +
               "; accepted: a rank below the size, and an all-gather";
    return Errc::kInvalidArgument;
  }
  return make_gathered_board(std::move(peers));
}

Status Board::end(Status status, const std::string& problem) {
  const std::scoped_lock lock(mutex_);
  if (end_.ok()) {
    end_ = status;
    why_ = problem;
  }
  return status;
}

Status Board::ended_locked(std::string* problem) const {
  if (!end_.ok()) *problem = why_;
  return end_;
}

Status Board::ended(std::string* problem) {
  const std::scoped_lock lock(mutex_);
  return ended_locked(problem);
}

Status Board::publish(std::span<const std::byte> card, std::string* problem) {
  const std::scoped_lock alone(fence_mutex_, fetch_mutex_);
  {
    const std::scoped_lock lock(mutex_);
    LARKLANE_TRY(ended_locked(problem));
    if (card.size() > kCardBytesMax) {
      *problem = "a card of " + std::to_string(card.size()) +
                 " bytes; accepted: " + std::to_string(kCardBytesMax) + " at most";
      return Errc::kInvalidArgument;
    }
    if (is_published_) {
      *problem = "the card of rank " + std::to_string(rank_) + " is published already";
      return Errc::kAlreadyActive;
    }
  }
  const Status status = publish_locked(card, problem);
  if (!status.ok()) return end(status, *problem);
  const std::scoped_lock lock(mutex_);
  own_.assign(card.begin(), card.end());
  is_published_ = true;
  return {};
}

Result<Card> Board::card_of(int rank, std::string* problem) {
  const std::scoped_lock one(fetch_mutex_);
  {
    const std::scoped_lock lock(mutex_);
    LARKLANE_TRY(ended_locked(problem));
    if (rank < 0 || rank >= size_) {
      *problem = "there is no rank " + std::to_string(rank) + "; accepted: 0.." +
                 std::to_string(size_ - 1);
      return Errc::kInvalidArgument;
    }
    if (!is_published_) {
      *problem =
          "rank " + std::to_string(rank_) + " asks for a card before it has published its own";
      return Errc::kNotActive;
    }
    if (rank == rank_) return own_;
  }
  auto card = fetch_locked(rank, problem);
  const Errc code = card.error().code();
  if (code != Errc::kOk && code != Errc::kUnreachable && code != Errc::kPeerDown)
    return end(card.error(), *problem);
  return card;
}

Status Board::fence(std::string* problem) {
  const std::scoped_lock one(fence_mutex_);
  LARKLANE_TRY(ended(problem));
  const Status status = fence_locked(problem);
  return status.ok() ? status : end(status, *problem);
}

Result<bool> Board::is_one_host(std::string* problem) {
  const std::scoped_lock one(fence_mutex_);
  LARKLANE_TRY(ended(problem));
  if (size_ == 1) return true;
  auto answer = is_one_host_locked(problem);
  return answer ? answer : end(answer.error(), *problem);
}

}  // namespace larklane::boot
