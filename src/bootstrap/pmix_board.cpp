// A board through a launcher that speaks PMIx (Open MPI's, Slurm's). The launcher has the ranks,
// and serves each card at a process's first request for it.

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include "base/clock.hpp"
#include "bootstrap/boards.hpp"
#include "bootstrap/launcher.hpp"
#include "bootstrap/pmix.hpp"
#include "bootstrap/wait_text.hpp"

namespace larklane::boot {
namespace {

constexpr long kAgainNs = 10'000'000;
/// The launcher's deadline is so much later than ours.
constexpr std::uint64_t kLaterNs = 1'000'000'000;
/// The launcher knows the local size when the job begins, or never.
constexpr std::uint64_t kLocalSizeNs = 2'000'000'000;

class PmixBoard final : public Board {
 public:
  PmixBoard(const Pmix& pmix, const pmix::Proc& self, int size, std::uint64_t wait_ns)
      : Board(static_cast<int>(self.rank), size), pmix_(pmix), self_(self), wait_ns_(wait_ns) {}
  ~PmixBoard() override { pmix_.end(); }

 private:
  Status refuse(const char* call, int status, std::string* problem) const {
    *problem = std::string(call) + ": " + pmix_.text_of(status);
    return Status(Errc::kSystem, status);
  }

  Status publish_locked(std::span<const std::byte> card, std::string* problem) override {
    int status = pmix_.put_card(card);
    if (status == 0) status = pmix_.commit();
    return status == 0 ? Status() : refuse("PMIx_Put", status, problem);
  }

  Result<Card> fetch_locked(int rank, std::string* problem) override {
    pmix::Proc of = self_;
    of.rank = static_cast<std::uint32_t>(rank);
    const std::uint64_t deadline_ns = now_ns() + wait_ns_;
    const auto ask = [&](std::uint64_t wait_ns) {
      return pmix_.cards_of(std::span(&of, 1), wait_ns + kLaterNs, wait_ns)[0];
    };
    Pmix::Answer answer = ask(wait_ns_);
    // A launcher may know the process before it has the card. It then answers without waiting.
    while (answer.status == pmix::kNotFound) {
      const timespec pause{0, kAgainNs};
      ::nanosleep(&pause, nullptr);
      const std::uint64_t now = now_ns();
      answer = now < deadline_ns ? ask(deadline_ns - now) : Pmix::Answer{};
    }
    if (answer.status == pmix::kTimedOut) {
      *problem = unpublished_text(rank, wait_ns_);
      return Status(Errc::kUnreachable, ETIMEDOUT);
    }
    if (answer.status != 0) return refuse("PMIx_Get", answer.status, problem);
    return std::move(answer.card);
  }

  Result<bool> is_one_host_locked(std::string*) override {
    const std::uint64_t wait_ns = std::min(wait_ns_, kLocalSizeNs);
    return pmix_.number_of(self_, pmix::kLocalSizeKey, wait_ns).number ==
           static_cast<std::uint32_t>(size());
  }

  /// PMIx neither waits for a process that has ended well nor reports its end.
  Status fence_locked(std::string* problem) override {
    const int status = pmix_.fence(wait_ns_);
    if (status == pmix::kTimedOut) {
      *problem = "not all processes came to the fence within " + seconds_text(wait_ns_);
      return Status(Errc::kUnreachable, ETIMEDOUT);
    }
    if (status == pmix::kSomeHaveEnded) {
      *problem = "a process has ended before the fence; PMIx does not say which";
      return Errc::kPeerDown;
    }
    return status == 0 ? Status() : refuse("PMIx_Fence", status, problem);
  }

  const Pmix pmix_;
  const pmix::Proc self_;
  const std::uint64_t wait_ns_;
};

}  // namespace

Result<std::unique_ptr<Board>> open_pmix_board(const Member& member, std::string* problem) {
  const auto refuse = [problem](Status status, const std::string& why) {
    *problem = "PMIX_NAMESPACE is set, but " + why + kJoinRemedy;
    return status;
  };
  std::string reason;
  const auto pmix = Pmix::open(/*may_load=*/true, &reason);
  if (!pmix) return refuse(Errc::kBadOption, reason);
  pmix::Proc self{};
  if (const int status = pmix->begin(&self); status != 0)
    return refuse({Errc::kSystem, status}, std::string("PMIx_Init: ") + pmix->text_of(status));
  const auto [status, card, size] = pmix->number_of(self, pmix::kJobSizeKey, member.wait_ns);
  if (size == 0 || size > INT32_MAX || self.rank >= size) {
    pmix->end();
    return refuse({Errc::kSystem, status},
                  std::string("the launcher does not say how many processes there are: ") +
                      pmix->text_of(status));
  }
  return std::unique_ptr<Board>(
      std::make_unique<PmixBoard>(*pmix, self, static_cast<int>(size), member.wait_ns));
}

}  // namespace larklane::boot
