#pragma once
// A client of PMIx. The process opens the library (libpmix.so.2) at run time. The library's name
// fixes the layout of the types, which are the standard's.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/board.hpp"

namespace larklane::boot {
namespace pmix {

inline constexpr const char* kLibrary = "libpmix.so.2";

struct Proc {
  char nspace[256];
  std::uint32_t rank;
};
struct ByteObject {
  char* bytes;
  std::size_t size;
};
struct Value {
  std::uint16_t type;
  union {
    const char* string;
    int integer;
    std::uint32_t number;
    ByteObject object;
    char space[64];  // more than in any version
  } data;
};
struct Info {
  char key[512];
  std::uint32_t flags;
  Value value;
};

inline constexpr std::uint16_t kString = 3, kInteger = 6, kNumber = 14, kByteObject = 27;
inline constexpr std::uint8_t kGlobal = 3;
inline constexpr std::uint32_t kAnyRank = UINT32_MAX - 1;
inline constexpr int kTimedOut = -24, kNotFound = -46;
inline constexpr int kSomeHaveEnded = -52;                  ///< PARTIAL_SUCCESS, of a fence
inline constexpr char kTimeoutKey[] = "pmix.timeout";       ///< kInteger: seconds
inline constexpr char kJobSizeKey[] = "pmix.job.size";      ///< kNumber, of kAnyRank
inline constexpr char kLocalSizeKey[] = "pmix.local.size";  ///< the same, on this host

using Got = void (*)(int status, Value* value, void* of);
using Done = void (*)(int status, void* of);

using Init = int (*)(Proc* self, Info* infos, std::size_t count);
using Finalize = int (*)(const Info* infos, std::size_t count);
using Put = int (*)(std::uint8_t scope, const char* key, Value* value);
using Commit = int (*)();
/// The answer comes on PMIx's own thread. If the call does not return 0, no answer comes.
using GetLater = int (*)(const Proc* proc, const char* key, const Info* infos, std::size_t count,
                         Got got, void* of);
using FenceLater = int (*)(const Proc* procs, std::size_t proc_count, const Info* infos,
                           std::size_t count, Done done, void* of);
using ErrorText = const char* (*)(int status);

}  // namespace pmix

/// Calls return a PMIx status: 0 is success. Thread safety: thread-safe, as far as PMIx is.
class Pmix {
 public:
  struct Answer {
    int status = pmix::kTimedOut;
    Card card;                 ///< of a byte object
    std::uint32_t number = 0;  ///< of a number
  };

  /// @param may_load  false: only a library that the process has already loaded
  /// @param[out] problem  the reason if the result is empty
  static std::optional<Pmix> open(bool may_load, std::string* problem);
  const char* text_of(int status) const { return error_text_(status); }

  int begin(pmix::Proc* self) const { return init_(self, nullptr, 0); }
  /// A process that ends without this call counts as failed.
  void end() const { finalize_(nullptr, 0); }
  int put_card(std::span<const std::byte> card) const;
  int commit() const { return commit_(); }
  /// The cards that these processes have put and committed. One call requests all at once.
  /// @param launcher_ns  the launcher's own limit for each card, rounded up to whole seconds
  /// @return by place; kTimedOut: no answer within `wait_ns`
  std::vector<Answer> cards_of(std::span<const pmix::Proc> procs, std::uint64_t launcher_ns,
                               std::uint64_t wait_ns) const;
  /// A number of the job. @param of  any process of the job
  Answer number_of(const pmix::Proc& of, const char* key, std::uint64_t wait_ns) const;
  int fence(std::uint64_t wait_ns) const;

 private:
  struct Asked;
  struct Handle;
  std::vector<Answer> wait(const std::shared_ptr<Asked>& asked, std::uint64_t wait_ns) const;
  void get(const std::shared_ptr<Asked>& asked, std::size_t place, const char* key,
           bool is_limited) const;

  pmix::Init init_;
  pmix::Finalize finalize_;
  pmix::Put put_;
  pmix::Commit commit_;
  pmix::GetLater get_;
  pmix::FenceLater fence_;
  pmix::ErrorText error_text_;
};

}  // namespace larklane::boot
