#pragma once
// The file of a profiled process: a header, then chunks of records, all of fixed size.
// docs/user/profile.md owns the layout and says what each field holds;
// python/larklane/profile/profile.py reads it.

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace larklane::profile {

static_assert(std::endian::native == std::endian::little);

inline constexpr char kMagic[8] = {'L', 'A', 'R', 'K', 'P', 'R', 'O', 'F'};
inline constexpr std::uint32_t kVersion = 2;

/// The values are in files: never renumber.
enum class Kind : std::uint8_t {
  request = 1,  ///< a request was made; its other half is `pair`
  pair = 2,
  start = 3,
  ready = 4,
  arrived = 5,
  wait = 6,
  freed = 7,
  send = 8,
  receive = 9,
  region = 10,
  member = 11,
  barrier = 12,
  thread = 13,
  join = 14,
  write = 15,
  buffer = 16,  ///< the bytes that the request, or the message of the next record, sends
};

/// Of Kind::request.
enum RequestFlags : std::uint8_t {
  kIsSend = 1,
  kIsPartitioned = 2,
  kIsNative = 4,  ///< the MPI's own, not Larklane's
};

/// Of Kind::arrived: the call that saw it.
enum class SeenBy : std::uint8_t {
  parrived = 0,  ///< the program asked
  waiting = 1,   ///< Larklane, while the program waited
  entry = 2,     ///< Larklane, as the program began to wait: it may have come long before
};

/// One event. Times are CLOCK_MONOTONIC of the process's host.
struct Record {
  std::uint64_t begin_ns = 0;
  std::uint64_t end_ns = 0;
  std::uint64_t value = 0;
  std::uint64_t handle = 0;
  std::int32_t a = 0;
  std::int32_t b = 0;
  std::uint32_t request = 0;
  Kind kind = Kind::request;
  std::uint8_t flags = 0;
  std::uint16_t reserved = 0;
};
static_assert(sizeof(Record) == 48);

/// Records of one thread at a time, in the order in which they were written. A thread has one that
/// it writes to; when that is full it is copied behind the others, and begun anew.
struct Chunk {
  static constexpr std::uint32_t kMagicNumber = 0x4B4E4843;  // "CHNK"
  static constexpr std::uint32_t kRecords = 1364;

  std::uint32_t magic;
  std::uint32_t thread;
  std::atomic<std::uint32_t> count;     ///< records that are whole
  std::atomic<std::uint32_t> sequence;  ///< full chunks of the thread before this one
  std::uint32_t reserved[12];
  Record records[kRecords];
};
static_assert(sizeof(Chunk) == 65536 && std::atomic<std::uint32_t>::is_always_lock_free);

/// Where the clock of rank 0's host stood: there it was local_ns + offset_ns, give or take
/// error_ns.
struct ClockSample {
  std::uint64_t local_ns = 0;  ///< 0: not measured
  std::int64_t offset_ns = 0;
  std::uint64_t error_ns = 0;
};

/// Texts end with a zero byte.
struct FileHeader {
  char magic[8];
  std::uint32_t version, header_bytes, chunk_bytes, record_bytes;
  std::int32_t rank, size;
  std::uint32_t pid, is_native;
  std::uint64_t begin_ns;
  std::uint64_t begin_unix_ns;
  std::atomic<std::uint64_t> end_ns;         ///< 0: the process has not come to MPI_Finalize
  std::atomic<std::uint64_t> full_since_ns;  ///< 0: nothing was dropped
  std::atomic<std::uint64_t> dropped_count;
  std::uint64_t bytes_max;
  std::uint64_t clock_id;  ///< equal: the same clock
  ClockSample at_begin, at_end;
  char host[64];
  char job[64];
  char larklane[32];
  char mpi[128];
  char program[256];
  char cores[512];     ///< that the process may use, as "0-3,8"; empty: not known
  char ordinary[256];  ///< the carrier of ordinary messages; empty: the MPI, without option `p2p`
};
inline constexpr std::size_t kHeaderBytes = 4096;
static_assert(sizeof(FileHeader) <= kHeaderBytes);

}  // namespace larklane::profile
