// A board through a launcher that speaks PMI-1. Processes put their cards before a barrier and get
// cards after it.

#include <dlfcn.h>

#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "bootstrap/boards.hpp"
#include "bootstrap/launcher.hpp"
#include "bootstrap/pmi.hpp"
#include "bootstrap/wait_text.hpp"

namespace larklane::boot {
namespace {

constexpr std::uint64_t kLeaveNs = 2'000'000'000;

/// An MPI in this process uses the same socket, and finalizes PMI there itself.
bool has_mpi() {
  const auto is_initialized =
      reinterpret_cast<int (*)(int*)>(::dlsym(RTLD_DEFAULT, "MPI_Initialized"));
  int answer = 0;
  return is_initialized != nullptr && is_initialized(&answer) == 0 && answer != 0;
}

class PmiBoard final : public Board {
 public:
  PmiBoard(const Member& member, Pmi pmi)
      : Board(member.rank, member.size),
        wait_ns_(member.wait_ns),
        is_one_host_(member.is_one_host),
        pmi_(std::move(pmi)),
        cards_(static_cast<std::size_t>(member.size)) {}
  ~PmiBoard() override {
    if (!has_mpi()) pmi_.finalize(now_ns() + kLeaveNs);
  }

 private:
  Status publish_locked(std::span<const std::byte> card, std::string* problem) override {
    const std::scoped_lock lock(mutex_);
    const std::uint64_t deadline_ns = now_ns() + wait_ns_;
    const Status put = pmi_.put(rank(), card, deadline_ns, problem);
    if (!put.ok()) return explained(put, problem);
    has_published_ = true;
    return pass(deadline_ns, problem);
  }

  Result<Card> fetch_locked(int rank, std::string* problem) override {
    const std::scoped_lock lock(mutex_);
    auto& card = cards_[static_cast<std::size_t>(rank)];
    if (!card) LARKLANE_TRY(fetch(rank, now_ns() + wait_ns_, problem));
    return *card;
  }

  /// Fetches all cards first. Another thread may need a card while this thread is at the barrier,
  /// where the launcher answers no request.
  Status fence_locked(std::string* problem) override {
    {
      const std::scoped_lock lock(mutex_);
      const std::uint64_t deadline_ns = now_ns() + wait_ns_;
      for (int other = 0; has_published_ && other < size(); ++other)
        if (other != rank() && !cards_[static_cast<std::size_t>(other)])
          LARKLANE_TRY(fetch(other, deadline_ns, problem));
    }
    // All cards are here, so fetch_locked() sends no request to the launcher.
    return pass(now_ns() + wait_ns_, problem);
  }

  Result<bool> is_one_host_locked(std::string*) override { return is_one_host_; }

  Status fetch(int rank, std::uint64_t deadline_ns, std::string* problem) {
    auto card = pmi_.get(rank, deadline_ns, problem);
    if (!card) return explained(card.error(), problem);
    if (!*card) {
      *problem = "rank " + std::to_string(rank) + " has put no card before the launcher's barrier";
      return Errc::kUnreachable;
    }
    cards_[static_cast<std::size_t>(rank)] = std::move(**card);
    return {};
  }

  Status pass(std::uint64_t deadline_ns, std::string* problem) {
    const Status passed = pmi_.barrier(deadline_ns, problem);
    if (passed.code() != Errc::kUnreachable) return explained(passed, problem);
    *problem = "PMI_FD: not all processes came to the launcher's barrier within " +
               seconds_text(wait_ns_) + "; LARKLANE_BOOT_WAIT_NS is the time to wait";
    return passed;
  }

  static Status explained(Status status, std::string* problem) {
    if (!status.ok()) *problem += kJoinRemedy;
    return status;
  }

  const std::uint64_t wait_ns_;
  const bool is_one_host_;
  std::mutex mutex_;  // held by publish_locked, fetch_locked and the first part of fence_locked
  Pmi pmi_;
  bool has_published_ = false;
  std::vector<std::optional<Card>> cards_;  ///< by rank; none until fetched
};

}  // namespace

Result<std::unique_ptr<Board>> open_pmi_board(const Member& member, std::string* problem) {
  auto pmi = Pmi::open(now_ns() + member.wait_ns, problem);
  if (!pmi) {
    *problem += kJoinRemedy;
    return pmi.error();
  }
  return std::unique_ptr<Board>(std::make_unique<PmiBoard>(member, std::move(pmi).value()));
}

}  // namespace larklane::boot
