// Cards through the launcher, where that speaks PMIx (Open MPI's, Slurm's): it has the processes'
// ranks and serves what they say of themselves, each when it is first asked for.

#include <dlfcn.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/clock.hpp"
#include "bootstrap/boards.hpp"
#include "bootstrap/launcher.hpp"
#include "bootstrap/pmix.hpp"
#include "bootstrap/wait_text.hpp"

namespace larklane::boot {
namespace {

constexpr char kKey[] = "larklane.card";
constexpr long kAgainNs = 10'000'000;
/// The launcher knows it when the job begins, or not at all.
constexpr std::uint64_t kLocalSizeNs = 2'000'000'000;

struct Library {
  pmix::Init init;
  pmix::Finalize finalize;
  pmix::Put put;
  pmix::Commit commit;
  pmix::GetLater get;
  pmix::FenceLater fence;
  pmix::ErrorText error_text;

  /// @param[out] problem  why there is none
  static std::optional<Library> open(std::string* problem) {
    // Never closed: its thread may run till the process ends.
    void* const handle = ::dlopen(pmix::kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      *problem = ::dlerror();
      return std::nullopt;
    }
    Library library{};
    const auto find = [handle, problem](const char* name, auto* function) {
      *function =
          reinterpret_cast<std::remove_pointer_t<decltype(function)>>(::dlsym(handle, name));
      if (*function == nullptr) *problem = std::string(pmix::kLibrary) + " has no " + name;
      return *function != nullptr;
    };
    const bool is_whole =
        find("PMIx_Init", &library.init) && find("PMIx_Finalize", &library.finalize) &&
        find("PMIx_Put", &library.put) && find("PMIx_Commit", &library.commit) &&
        find("PMIx_Get_nb", &library.get) && find("PMIx_Fence_nb", &library.fence) &&
        find("PMIx_Error_string", &library.error_text);
    return is_whole ? std::optional(library) : std::nullopt;
  }
};

/// One answer, which comes on PMIx's own thread, perhaps when nobody waits any more.
/// Thread safety: thread-safe through its mutex.
struct Answer {
  std::mutex mutex;
  std::condition_variable is_there;
  bool has_come = false;
  int status = 0;
  // Of the question: PMIx looks at them until it answers.
  pmix::Proc proc{};
  pmix::Info limit{};
  Card card;  // of a byte object
  std::uint32_t number = 0;

  static void give(void* of, int status, const pmix::Value* value) {
    const std::unique_ptr<std::shared_ptr<Answer>> held(static_cast<std::shared_ptr<Answer>*>(of));
    Answer& answer = **held;
    const std::scoped_lock lock(answer.mutex);
    answer.status = status;
    if (status == 0 && value != nullptr && value->type == pmix::kNumber)
      answer.number = value->data.number;
    if (status == 0 && value != nullptr && value->type == pmix::kByteObject) {
      const auto* const bytes = reinterpret_cast<const std::byte*>(value->data.object.bytes);
      answer.card.assign(bytes, bytes + value->data.object.size);
    }
    answer.has_come = true;
    answer.is_there.notify_all();
  }
  static void got(int status, pmix::Value* value, void* of) { give(of, status, value); }
  static void done(int status, void* of) { give(of, status, nullptr); }
};

class PmixBoard final : public Board {
 public:
  PmixBoard(const Library& library, const pmix::Proc& self, int size, std::uint64_t wait_ns)
      : Board(static_cast<int>(self.rank), size),
        library_(library),
        self_(self),
        wait_ns_(wait_ns) {}
  ~PmixBoard() override { library_.finalize(nullptr, 0); }  // or the launcher takes it for a death

  /// Of a question that begin(of) asks. @return a PMIx status
  template <class Begin>
  static int ask(std::uint64_t wait_ns, Begin begin, std::shared_ptr<Answer>* result) {
    const auto answer = std::make_shared<Answer>();
    *result = answer;
    auto held = std::make_unique<std::shared_ptr<Answer>>(answer);
    if (const int status = begin(held.get()); status != 0) return status;
    held.release();  // give() has it
    std::unique_lock lock(answer->mutex);
    const bool has_come = answer->is_there.wait_for(lock, std::chrono::nanoseconds(wait_ns),
                                                    [&] { return answer->has_come; });
    return has_come ? answer->status : pmix::kTimedOut;
  }

  /// Of the job. @return a PMIx status; the number, 0 if there is none
  static std::pair<int, std::uint32_t> number_of(const Library& library, const pmix::Proc& self,
                                                 const char* key, std::uint64_t wait_ns) {
    std::shared_ptr<Answer> answer;
    const auto begin = [&](void* held) {
      Answer& asked = **static_cast<std::shared_ptr<Answer>*>(held);
      asked.proc = self;
      asked.proc.rank = pmix::kAnyRank;
      return library.get(&asked.proc, key, nullptr, 0, Answer::got, held);
    };
    const int status = ask(wait_ns, begin, &answer);
    return {status, status == 0 ? answer->number : 0};
  }

 private:
  Status refuse(const char* call, int status, std::string* problem) const {
    *problem = std::string(call) + ": " + library_.error_text(status);
    return Status(Errc::kSystem, status);
  }
  /// In whole seconds, and later than our own deadline.
  pmix::Info timeout() const {
    pmix::Info info{};
    std::strcpy(info.key, pmix::kTimeoutKey);
    info.value.type = pmix::kInteger;
    info.value.data.integer = static_cast<int>(wait_ns_ / 1'000'000'000) + 1;
    return info;
  }

  Status publish_locked(std::span<const std::byte> card, std::string* problem) override {
    Card copy(card.begin(), card.end());
    pmix::Value value{};
    value.type = pmix::kByteObject;
    value.data.object = {reinterpret_cast<char*>(copy.data()), copy.size()};
    int status = library_.put(pmix::kGlobal, kKey, &value);
    if (status == 0) status = library_.commit();
    return status == 0 ? Status() : refuse("PMIx_Put", status, problem);
  }

  Result<Card> fetch_locked(int rank, std::string* problem) override {
    pmix::Proc of = self_;
    of.rank = static_cast<std::uint32_t>(rank);
    std::shared_ptr<Answer> answer;
    const std::uint64_t deadline_ns = now_ns() + wait_ns_;
    const auto begin = [&](void* held) {
      Answer& asked = **static_cast<std::shared_ptr<Answer>*>(held);
      asked.proc = of;
      asked.limit = timeout();
      return library_.get(&asked.proc, kKey, &asked.limit, 1, Answer::got, held);
    };
    int status = ask(wait_ns_, begin, &answer);
    // A launcher may know the process before it knows the card: then it does not wait for that.
    while (status == pmix::kNotFound) {
      const timespec pause{0, kAgainNs};
      ::nanosleep(&pause, nullptr);
      const std::uint64_t now = now_ns();
      status = now < deadline_ns ? ask(deadline_ns - now, begin, &answer) : pmix::kTimedOut;
    }
    if (status == pmix::kTimedOut) {
      *problem = unpublished_text(rank, wait_ns_);
      return Status(Errc::kUnreachable, ETIMEDOUT);
    }
    if (status != 0) return refuse("PMIx_Get", status, problem);
    return std::move(answer->card);
  }

  Result<bool> is_one_host_locked(std::string*) override {
    const std::uint64_t wait_ns = std::min(wait_ns_, kLocalSizeNs);
    return number_of(library_, self_, pmix::kLocalSizeKey, wait_ns).second ==
           static_cast<std::uint32_t>(size());
  }

  /// PMIx does not wait for a process that has ended well, and does not tell of it.
  Status fence_locked(std::string* problem) override {
    std::shared_ptr<Answer> answer;
    const auto begin = [&](void* held) {
      Answer& asked = **static_cast<std::shared_ptr<Answer>*>(held);
      asked.limit = timeout();
      return library_.fence(nullptr, 0, &asked.limit, 1, Answer::done, held);
    };
    const int status = ask(wait_ns_, begin, &answer);
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

  const Library library_;
  const pmix::Proc self_;
  const std::uint64_t wait_ns_;
};

}  // namespace

Result<std::unique_ptr<Board>> open_pmix_board(const Member& member, std::string* problem) {
  const std::string begin = "PMIX_NAMESPACE is set, but ";
  const std::string end = kJoinRemedy;
  std::string reason;
  const auto library = Library::open(&reason);
  if (!library) {
    *problem = begin + reason + end;
    return Errc::kBadOption;
  }
  pmix::Proc self{};
  if (const int status = library->init(&self, nullptr, 0); status != 0) {
    *problem = begin + "PMIx_Init: " + library->error_text(status) + end;
    return Status(Errc::kSystem, status);
  }
  const auto [status, size] =
      PmixBoard::number_of(*library, self, pmix::kJobSizeKey, member.wait_ns);
  if (size == 0 || size > INT32_MAX || self.rank >= size) {
    *problem = begin + "the launcher does not say how many processes there are: " +
               library->error_text(status) + end;
    library->finalize(nullptr, 0);
    return Status(Errc::kSystem, status);
  }
  return std::unique_ptr<Board>(
      std::make_unique<PmixBoard>(*library, self, static_cast<int>(size), member.wait_ns));
}

}  // namespace larklane::boot
