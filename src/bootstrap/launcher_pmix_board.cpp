// PMIx (Open MPI, Slurm). It can't be initialised before the MPI does it (Open MPI does not find
// its own rank then), so what this process has to say is put in between: the stub stands before
// PMIx_Commit.

#include <dlfcn.h>

#include <condition_variable>
#include <cstring>
#include <mutex>

#include "base/config.hpp"
#include "bootstrap/launcher_board.hpp"
#include "bootstrap/pmix.hpp"

namespace larklane::mpi {
namespace {

namespace pmix = boot::pmix;

constexpr char kKey[] = "larklane";

template <class Function>
Function find(const char* name) {
  void* const library = ::dlopen(pmix::kLibrary, RTLD_NOLOAD | RTLD_LAZY);
  return library == nullptr ? nullptr : reinterpret_cast<Function>(::dlsym(library, name));
}

/// What is to be put, and whether it has been. Thread safety: thread-safe through its mutex.
struct Pending {
  std::mutex mutex;
  std::string text;
  bool is_put = false;

  static Pending& get() noexcept {
    static Pending* const pending = new Pending;
    return *pending;
  }
};

/// Answers that come on PMIx's own thread. Shared with answers that come too late.
/// Thread safety: thread-safe through its mutex.
struct Answers {
  std::mutex mutex;
  std::condition_variable all_there;
  std::vector<std::string> texts;
  std::size_t missing = 0;
};
struct Question {
  std::shared_ptr<Answers> answers;
  std::size_t rank;
  pmix::Proc proc;
  pmix::Info timeout;
};

void answered(int status, pmix::Value* value, void* of) {
  const std::unique_ptr<Question> question(static_cast<Question*>(of));
  Answers& answers = *question->answers;
  const std::scoped_lock lock(answers.mutex);
  if (status == 0 && value != nullptr && value->type == pmix::kString &&
      value->data.string != nullptr)
    answers.texts[question->rank] = value->data.string;
  --answers.missing;
  answers.all_there.notify_all();
}

class PmixBoard final : public LauncherBoard {
 public:
  bool put(const std::string& text) override {
    Pending& pending = Pending::get();
    const std::scoped_lock lock(pending.mutex);
    pending.text = text;
    return true;
  }

  std::vector<std::string> get_all(int ranks, std::uint64_t wait_ns) override {
    const auto get = find<pmix::GetLater>("PMIx_Get_nb");
    Pending& pending = Pending::get();
    const std::scoped_lock pending_lock(pending.mutex);
    const auto count = static_cast<std::size_t>(ranks);
    if (!pending.is_put || get == nullptr) return std::vector<std::string>(count);
    const auto answers = std::make_shared<Answers>();
    answers->texts.resize(count);
    answers->missing = count;
    constexpr std::uint64_t kNsPerS = 1'000'000'000;
    const int seconds = static_cast<int>((wait_ns + kNsPerS - 1) / kNsPerS);
    // All at once: a process that has put nothing is waited for as long as the launcher is told.
    for (std::size_t rank = 0; rank < count; ++rank) ask(get, answers, rank, seconds);
    std::unique_lock lock(answers->mutex);
    answers->all_there.wait_for(lock, std::chrono::seconds(seconds + 1),
                                [&] { return answers->missing == 0; });
    return answers->texts;
  }

 private:
  void ask(pmix::GetLater get, const std::shared_ptr<Answers>& answers, std::size_t rank,
           int seconds) {
    auto question = std::make_unique<Question>(Question{answers, rank, {}, {}});
    nspace_.copy(question->proc.nspace, sizeof question->proc.nspace - 1);
    question->proc.rank = static_cast<std::uint32_t>(rank);
    std::strcpy(question->timeout.key, pmix::kTimeoutKey);
    question->timeout.value.type = pmix::kInteger;
    question->timeout.value.data.integer = seconds;
    Question* const asked = question.release();
    if (get(&asked->proc, kKey, &asked->timeout, 1, answered, asked) != 0)
      answered(-1, nullptr, asked);
  }

  const std::string nspace_ = environment("PMIX_NAMESPACE");
};

}  // namespace

void put_before_commit() {
  Pending& pending = Pending::get();
  const std::scoped_lock lock(pending.mutex);
  const auto put = find<pmix::Put>("PMIx_Put");
  if (pending.text.empty() || pending.is_put || put == nullptr) return;
  pmix::Value value{};
  value.type = pmix::kString;
  value.data.string = pending.text.c_str();
  pending.is_put = put(pmix::kGlobal, kKey, &value) == 0;
}

std::unique_ptr<LauncherBoard> open_pmix_board() { return std::make_unique<PmixBoard>(); }

}  // namespace larklane::mpi
