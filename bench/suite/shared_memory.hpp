#pragma once
// Memory of ranks 0 and 1 of one host, created without the MPI, so that measurements contain none
// of its work.

#include <fcntl.h>
#include <mpi.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

namespace larklane::bench {

/// A cache line that one rank writes and the other reads.
struct alignas(64) SharedLine {
  std::array<std::atomic<std::uint64_t>, 8> words;
};

/// Zeroed. Construction is collective over both ranks, destruction is not. Thread safety:
/// single-owner; its words are atomic.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t bytes = 0) : bytes_(sizeof(Head) + bytes) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int place[2] = {static_cast<int>(::getpid()), -1};
    if (rank == 0) {
      place[1] = ::memfd_create("larklane-bench", MFD_CLOEXEC);
      if (::ftruncate(place[1], static_cast<off_t>(bytes_)) != 0) fail("memfd_create");
    }
    MPI_Bcast(place, 2, MPI_INT, 0, MPI_COMM_WORLD);
    const std::string path =
        "/proc/" + std::to_string(place[0]) + "/fd/" + std::to_string(place[1]);
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    void* const mapped = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file < 0 || mapped == MAP_FAILED) fail("both ranks have to be on one host: mmap");
    ::close(file);
    head_ = static_cast<Head*>(mapped);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) ::close(place[1]);
  }
  ~SharedMemory() { ::munmap(head_, bytes_); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// The line that rank `rank` writes.
  SharedLine& line(int rank) { return head_->lines[static_cast<std::size_t>(rank)]; }
  std::byte* data() { return reinterpret_cast<std::byte*>(head_ + 1); }

  /// Called by rank 1 with a figure of round `round`, from 1. The other side sleeps meanwhile, so
  /// that it takes no core from the measured threads.
  void tell(std::uint64_t round, double value) {
    head_->told = value;
    head_->round.store(round, std::memory_order_release);
  }
  double hear(std::uint64_t round) {
    while (head_->round.load(std::memory_order_acquire) != round) ::usleep(20);
    return head_->told;
  }

 private:
  struct Head {
    std::array<SharedLine, 2> lines;
    alignas(64) std::atomic<std::uint64_t> round;
    double told;
  };

  [[noreturn]] static void fail(const char* what) {
    std::perror(what);
    MPI_Abort(MPI_COMM_WORLD, 1);
    std::abort();
  }

  const std::size_t bytes_;
  Head* head_ = nullptr;
};

}  // namespace larklane::bench
