#pragma once
// One-sided communication: memory for the peers' puts, and marks that show which parts have
// arrived.

#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace larklane::bench {

/// Rounds count from 1. Thread safety: different threads may call put() and arrived() for different
/// parts, and look(); everything else is single-owner.
class PutWindow {
 public:
  /// Collective over `comm`.
  /// @param memory  of this rank, for the peers' puts; may be empty
  /// @param parts   number of marks, the same on all ranks of `comm`
  PutWindow(MPI_Comm comm, std::span<std::byte> memory, std::size_t parts)
      : comm_(comm), outgoing_(parts) {
    const auto bytes = static_cast<MPI_Aint>(memory.size());
    void* marks = nullptr;
    MPI_Win_create(memory.data(), bytes, 1, MPI_INFO_NULL, comm, &data_);
    MPI_Win_allocate(static_cast<MPI_Aint>(parts * sizeof(std::uint64_t)), sizeof(std::uint64_t),
                     MPI_INFO_NULL, comm, &marks, &flags_);
    marks_ = {static_cast<std::uint64_t*>(marks), parts};
    std::ranges::fill(marks_, 0);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, data_);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, flags_);
    MPI_Barrier(comm);
  }
  ~PutWindow() {
    MPI_Win_unlock_all(flags_);
    MPI_Win_unlock_all(data_);
    MPI_Win_free(&flags_);
    MPI_Win_free(&data_);
  }
  PutWindow(const PutWindow&) = delete;
  PutWindow& operator=(const PutWindow&) = delete;

  /// Puts `bytes` to place `at` of the peer's memory, then the mark of `part`.
  void put(std::span<const std::byte> bytes, std::size_t at, int peer, std::size_t part,
           std::uint64_t round) {
    const auto count = static_cast<int>(bytes.size());
    MPI_Put(bytes.data(), count, MPI_BYTE, peer, static_cast<MPI_Aint>(at), count, MPI_BYTE, data_);
    MPI_Win_flush(peer, data_);
    outgoing_[part] = round;
    MPI_Accumulate(&outgoing_[part], 1, MPI_UINT64_T, peer, static_cast<MPI_Aint>(part), 1,
                   MPI_UINT64_T, MPI_REPLACE, flags_);
    MPI_Win_flush(peer, flags_);
  }

  /// Call this before arrived().
  void look() {
    int unused = 0;  // without hardware puts, a library makes progress only in a call of the target
    MPI_Iprobe(MPI_ANY_SOURCE, kUnusedTag, comm_, &unused, MPI_STATUS_IGNORE);
    MPI_Win_sync(flags_);
  }
  bool arrived(std::size_t part, std::uint64_t round) {
    // acquire: the put's bytes before the mark; the partner is the library's store.
    if (std::atomic_ref(marks_[part]).load(std::memory_order_acquire) != round) return false;
    MPI_Win_sync(data_);
    return true;
  }

 private:
  static constexpr int kUnusedTag = 13;

  const MPI_Comm comm_;
  MPI_Win data_ = MPI_WIN_NULL, flags_ = MPI_WIN_NULL;
  std::span<std::uint64_t> marks_;
  std::vector<std::uint64_t> outgoing_;
};

}  // namespace larklane::bench
