#include "bootstrap/pmix.hpp"

#include <dlfcn.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <type_traits>
#include <utility>

namespace larklane::boot {
namespace {

constexpr char kKey[] = "larklane.card";
constexpr std::uint64_t kNsPerS = 1'000'000'000;

}  // namespace

/// Requests and their answers. Answers come on PMIx's own thread, perhaps after the caller has
/// returned. Thread safety: thread-safe through its mutex; PMIx reads `procs` and `limit` until it
/// answers.
struct Pmix::Asked {
  Asked(std::span<const pmix::Proc> of, std::uint64_t launcher_ns)
      : procs(of.begin(), of.end()), answers(of.size()), missing(of.size()) {
    std::strcpy(limit.key, pmix::kTimeoutKey);
    limit.value.type = pmix::kInteger;
    limit.value.data.integer = static_cast<int>((launcher_ns + kNsPerS - 1) / kNsPerS);
  }

  std::vector<pmix::Proc> procs;
  pmix::Info limit{};
  std::mutex mutex;
  std::condition_variable all_there;
  std::vector<Answer> answers;
  std::size_t missing;
};

/// The context that PMIx hands back with an answer.
struct Pmix::Handle {
  std::shared_ptr<Asked> asked;
  std::size_t place;

  static void give(void* of, int status, const pmix::Value* value) {
    const std::unique_ptr<Handle> handle(static_cast<Handle*>(of));
    Asked& asked = *handle->asked;
    const std::scoped_lock lock(asked.mutex);
    Answer& answer = asked.answers[handle->place];
    answer.status = status;
    if (status == 0 && value != nullptr && value->type == pmix::kNumber)
      answer.number = value->data.number;
    if (status == 0 && value != nullptr && value->type == pmix::kByteObject) {
      const auto* const bytes = reinterpret_cast<const std::byte*>(value->data.object.bytes);
      answer.card.assign(bytes, bytes + value->data.object.size);
    }
    if (--asked.missing == 0) asked.all_there.notify_all();
  }
  static void got(int status, pmix::Value* value, void* of) { give(of, status, value); }
  static void done(int status, void* of) { give(of, status, nullptr); }
};

std::optional<Pmix> Pmix::open(bool may_load, std::string* problem) {
  // Never closed: the library's thread may run until the process ends.
  void* const handle =
      ::dlopen(pmix::kLibrary, may_load ? RTLD_NOW | RTLD_LOCAL : RTLD_NOLOAD | RTLD_LAZY);
  if (handle == nullptr) {
    const char* const error = ::dlerror();
    *problem = error != nullptr ? error : std::string(pmix::kLibrary) + " is not loaded";
    return std::nullopt;
  }
  Pmix library{};
  const auto find = [handle, problem](const char* name, auto* function) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(::dlsym(handle, name));
    if (*function == nullptr) *problem = std::string(pmix::kLibrary) + " has no " + name;
    return *function != nullptr;
  };
  const bool is_whole =
      find("PMIx_Init", &library.init_) && find("PMIx_Finalize", &library.finalize_) &&
      find("PMIx_Put", &library.put_) && find("PMIx_Commit", &library.commit_) &&
      find("PMIx_Get_nb", &library.get_) && find("PMIx_Fence_nb", &library.fence_) &&
      find("PMIx_Error_string", &library.error_text_);
  return is_whole ? std::optional(library) : std::nullopt;
}

int Pmix::put_card(std::span<const std::byte> card) const {
  Card copy(card.begin(), card.end());
  pmix::Value value{};
  value.type = pmix::kByteObject;
  value.data.object = {reinterpret_cast<char*>(copy.data()), copy.size()};
  return put_(pmix::kGlobal, kKey, &value);
}

void Pmix::get(const std::shared_ptr<Asked>& asked, std::size_t place, const char* key,
               bool is_limited) const {
  auto* const handle = new Handle{asked, place};
  const int status = get_(&asked->procs[place], key, is_limited ? &asked->limit : nullptr,
                          is_limited ? 1 : 0, Handle::got, handle);
  if (status != 0) Handle::give(handle, status, nullptr);
}

std::vector<Pmix::Answer> Pmix::wait(const std::shared_ptr<Asked>& asked,
                                     std::uint64_t wait_ns) const {
  std::unique_lock lock(asked->mutex);
  asked->all_there.wait_for(lock, std::chrono::nanoseconds(wait_ns),
                            [&] { return asked->missing == 0; });
  return asked->answers;
}

std::vector<Pmix::Answer> Pmix::cards_of(std::span<const pmix::Proc> procs,
                                         std::uint64_t launcher_ns, std::uint64_t wait_ns) const {
  const auto asked = std::make_shared<Asked>(procs, launcher_ns);
  for (std::size_t place = 0; place < procs.size(); ++place) get(asked, place, kKey, true);
  return wait(asked, wait_ns);
}

Pmix::Answer Pmix::number_of(const pmix::Proc& of, const char* key, std::uint64_t wait_ns) const {
  pmix::Proc job = of;
  job.rank = pmix::kAnyRank;
  const auto asked = std::make_shared<Asked>(std::span(&job, 1), wait_ns);
  get(asked, 0, key, false);
  return wait(asked, wait_ns)[0];
}

int Pmix::fence(std::uint64_t wait_ns) const {
  const pmix::Proc none{};
  const auto asked = std::make_shared<Asked>(std::span(&none, 1), wait_ns + kNsPerS);
  auto* const handle = new Handle{asked, 0};
  const int status = fence_(nullptr, 0, &asked->limit, 1, Handle::done, handle);
  if (status != 0) Handle::give(handle, status, nullptr);
  return wait(asked, wait_ns)[0].status;
}

}  // namespace larklane::boot
