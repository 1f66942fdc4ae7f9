#pragma once
// As much of PMIx as is used here, whose library (libpmix.so.2) is opened at run time: the types of
// its standard, whose layout the library's name stands for. Thread safety: immutable.

#include <cstddef>
#include <cstdint>

namespace larklane::boot::pmix {

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
    char space[64];  // more than any version's
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
/// The answer comes on PMIx's own thread; not if what is returned is not 0.
using GetLater = int (*)(const Proc* proc, const char* key, const Info* infos, std::size_t count,
                         Got got, void* of);
using FenceLater = int (*)(const Proc* procs, std::size_t proc_count, const Info* infos,
                           std::size_t count, Done done, void* of);
using ErrorText = const char* (*)(int status);

}  // namespace larklane::boot::pmix
