#pragma once
// Writes the file of a profiled process. The chunks that threads write to are mapped: a record is
// in the file at once, and stays there however the process ends. Full ones are copied: to map each
// would cost more, since file systems account for each mapped page.

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.hpp"
#include "profile/format.hpp"

namespace larklane::profile {

/// Facts that do not change while the process runs.
struct Facts {
  int rank = 0;
  int size = 1;
  bool is_native = false;   ///< the MPI's own partitioned communication
  bool has_writes = false;  ///< threads are asked for by the kernel's ids of them
  std::string job, mpi, program, larklane;
  std::string ordinary;  ///< the carrier of ordinary messages
};

/// Thread safety: thread-safe.
/// Invariants:
/// 1. A chunk belongs to one thread at a time, and a thread's number to one thread that lives.
/// 2. The blocks of a chunk exist before it is written to, so that a full disk is an error: of a
///    mapped one not a signal, of a copied one not only when it has been forgotten.
/// 3. After the first record that was dropped, full_since_ns is set: later records are not
///    complete.
class Recorder {
 public:
  /// @param bytes_max  of the file
  /// @errors kSystem: detail is the errno; EEXIST: there is a file of that name; EFBIG: the process
  /// may not write files of that length (ulimit -f)
  static Result<std::unique_ptr<Recorder>> create(const std::string& path, const Facts& facts,
                                                  std::uint64_t bytes_max);
  ~Recorder();  ///< no thread writes any more; in an MPI process that can't be known
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Appends to the calling thread's records. Never blocks but when a chunk is full, once in 1364.
  void write(const Record& record) noexcept {
    ThreadChunk& mine = thread_chunk;
    if (mine.owner != this || mine.used == Chunk::kRecords) [[unlikely]] {
      if (!take_chunk_slow()) return;
    }
    mine.chunk->records[mine.used] = record;
    // release: a reader of the count, perhaps after our end, reads whole records
    mine.chunk->count.store(++mine.used, std::memory_order_release);
  }
  /// A number that no other request of this process has, beginning with 1.
  std::uint32_t number_request() noexcept {
    return requests_.fetch_add(1, std::memory_order_relaxed) + 1;  // relaxed: a counter
  }
  /// The number of a thread in the file, or that which it will have. @param id  the kernel's
  std::uint32_t number_of_thread(int id);
  void set_clock(const ClockSample& at_begin, const ClockSample& at_end) noexcept;
  /// In a forked child, whose copy of the mutex may be locked for ever: the thread gives its chunk
  /// to no other thread when it ends.
  static void forget_thread() noexcept;
  /// The program has come to its end in order.
  void finish() noexcept;

  std::uint64_t clock_id() const noexcept { return header_->clock_id; }
  std::uint64_t dropped_count() const noexcept;
  /// Why something was dropped: errno (EFBIG: the limit of the process), or 0 for bytes_max.
  int dropped_errno() const noexcept;

 private:
  struct ThreadChunk {
    Recorder* owner;
    Chunk* chunk;
    std::uint32_t used;
  };
  struct Leaver;
  static thread_local constinit ThreadChunk thread_chunk;

  Recorder(int fd, void* memory, std::uint64_t chunks_max, bool has_writes) noexcept;
  bool take_chunk_slow() noexcept;
  bool drop() noexcept;
  Chunk* first_chunk_locked();
  std::uint64_t end_locked() const noexcept;  ///< where the next chunk goes
  /// @return false: there is no room for it
  bool reserve_locked() noexcept;
  Chunk* new_chunk_locked(std::uint32_t thread) noexcept;
  /// Copies a full chunk behind the others. @return false: there is no room
  bool copy_locked(const Chunk& full) noexcept;
  void give_back(Chunk* chunk) noexcept;

  FileHeader* const header_;
  Chunk* const chunks_;
  const std::uint64_t chunks_max_;
  const int fd_;
  dev_t device_ = 0;  ///< of the file
  ino_t inode_ = 0;
  int limit_errno_ = 0;  ///< why there are no more chunks: EFBIG, or 0 for bytes_max
  std::atomic<std::uint32_t> requests_{0};
  mutable std::mutex mutex_;
  std::uint64_t chunks_used_ = 0;  // guarded by mutex_, as the following members
  std::uint32_t threads_ = 0;
  int full_errno_ = 0;
  std::vector<Chunk*> left_;  ///< by threads that have ended
  struct Named {
    std::uint32_t number;
    bool is_kept;  ///< for a thread that has not recorded anything yet
  };
  const bool has_writes_;
  std::unordered_map<int, Named> named_;  ///< by the kernel's id, also of threads that have ended
};

/// Identity of the clock that now_ns() reads: host since its last start, and time namespace.
std::uint64_t clock_identity();

}  // namespace larklane::profile
