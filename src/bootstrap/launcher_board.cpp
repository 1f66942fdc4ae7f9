#include "bootstrap/launcher_board.hpp"

#include <cstring>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "base/clock.hpp"
#include "base/config.hpp"
#include "base/log.hpp"
#include "bootstrap/launcher.hpp"
#include "bootstrap/pmi.hpp"
#include "bootstrap/pmix.hpp"

namespace larklane::boot {
namespace {

constexpr std::uint64_t kNsPerS = 1'000'000'000;
constexpr std::uint64_t kAnswerNs = 10 * kNsPerS;

std::string text_of(const Card& card) {
  return {reinterpret_cast<const char*>(card.data()), card.size()};
}

/// PMI-1: after the MPI's barrier every process can get each text that was put before it.
class PmiLauncherBoard final : public LauncherBoard {
 public:
  PmiLauncherBoard(Pmi pmi, int rank) : pmi_(std::move(pmi)), rank_(rank) {}

  std::string world() const override { return "hydra-" + pmi_.job(); }
  bool put(const std::string& text) override {
    return is_good(
        pmi_.put(rank_, std::as_bytes(std::span(text)), now_ns() + kAnswerNs, &problem_));
  }
  bool meet() override { return is_good(pmi_.barrier(now_ns() + kAnswerNs, &problem_)); }

  std::vector<std::string> get_all(int ranks, std::uint64_t) override {
    std::vector<std::string> texts(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      auto card = pmi_.get(rank, now_ns() + kAnswerNs, &problem_);
      if (!is_good(card.error())) break;
      if (const auto& found = card.value()) texts[static_cast<std::size_t>(rank)] = text_of(*found);
    }
    return texts;
  }

 private:
  bool is_good(Status status) {
    if (!status.ok()) log_warn_once("launcher", "%s", problem_.c_str());
    return status.ok();
  }

  Pmi pmi_;
  const int rank_;
  std::string problem_;
};

/// The text to put, and whether it has been put. Thread safety: thread-safe through its mutex.
struct Pending {
  std::mutex mutex;
  std::string text;
  bool is_put = false;

  static Pending& get() noexcept {
    static Pending* const pending = new Pending;
    return *pending;
  }
};

/// PMIx can't be initialised before the MPI initialises it: Open MPI then does not find its own
/// rank. So the stub puts the card in between, before PMIx_Commit.
class PmixLauncherBoard final : public LauncherBoard {
 public:
  bool put(const std::string& text) override {
    Pending& pending = Pending::get();
    const std::scoped_lock lock(pending.mutex);
    pending.text = text;
    return true;
  }

  std::vector<std::string> get_all(int ranks, std::uint64_t wait_ns) override {
    std::vector<std::string> texts(static_cast<std::size_t>(ranks));
    std::string problem;
    const auto pmix = Pmix::open(/*may_load=*/false, &problem);
    Pending& pending = Pending::get();
    const std::scoped_lock lock(pending.mutex);
    if (!pending.is_put || !pmix) return texts;
    std::vector<pmix::Proc> procs(texts.size());
    const std::string nspace = environment("PMIX_NAMESPACE");
    for (std::size_t rank = 0; rank < procs.size(); ++rank) {
      nspace.copy(procs[rank].nspace, sizeof procs[rank].nspace - 1);
      procs[rank].rank = static_cast<std::uint32_t>(rank);
    }
    // The launcher's deadline comes first, so no request stays open.
    const auto answers = pmix->cards_of(procs, wait_ns, wait_ns + 2 * kNsPerS);
    for (std::size_t rank = 0; rank < texts.size(); ++rank)
      texts[rank] = text_of(answers[rank].card);
    return texts;
  }
};

std::unique_ptr<LauncherBoard> open_pmi(int rank) {
  std::string problem;
  auto pmi = Pmi::open(now_ns() + kAnswerNs, &problem);
  if (pmi) return std::make_unique<PmiLauncherBoard>(std::move(pmi).value(), rank);
  if (pmi.error().code() != Errc::kProtocol) log_warn("%s", problem.c_str());
  return nullptr;
}

}  // namespace

bool LauncherBoard::spans_hosts() { return Launcher::of_environment().spans_hosts == true; }

std::unique_ptr<LauncherBoard> LauncherBoard::open() {
  const Launcher launcher = Launcher::of_environment();
  const bool spans_hosts = launcher.spans_hosts == true;
  // On one host PMIx itself requires one user and one network namespace, so cards add nothing.
  if (launcher.speech == Launcher::Speech::pmix)
    return spans_hosts ? std::make_unique<PmixLauncherBoard>() : nullptr;
  if (launcher.speech != Launcher::Speech::pmi || launcher.size <= 1) return nullptr;
  const bool is_told = launcher.is_hydra || (launcher.is_flux && spans_hosts);
  return is_told ? open_pmi(launcher.rank) : nullptr;
}

void put_before_commit() {
  Pending& pending = Pending::get();
  const std::scoped_lock lock(pending.mutex);
  if (pending.text.empty() || pending.is_put) return;
  std::string problem;
  const auto pmix = Pmix::open(/*may_load=*/false, &problem);
  pending.is_put = pmix && pmix->put_card(std::as_bytes(std::span(pending.text))) == 0;
}

}  // namespace larklane::boot
