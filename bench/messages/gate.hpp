#pragma once
// Two sides of threads, in several processes of one host, that work in turns: the side that does
// not work sleeps in the kernel.

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

namespace larklane::bench {

/// Phases 0, 1, 2, ... one after the other: in 3 k and 3 k + 2 the receivers work, in 3 k + 1 the
/// senders. The word of the phase is in memory that rank 0 creates without the library that is
/// measured. Thread safety: thread-safe, apart from construction, which is collective.
class Gate {
 public:
  enum Side : std::uint8_t { receivers, senders };
  static constexpr std::uint32_t kWorkersMax = 256;  ///< of a side
  static constexpr std::uint32_t kTurns = 8;         ///< with kept times

  struct alignas(64) Times {
    double began_ns, ended_ns;
  };

  /// @param workers  threads of each side, in all processes
  template <class World>
  Gate(World& world, std::uint32_t workers) : workers_(workers) {
    int file = -1;
    if (world.rank() == 0) {
      file = ::memfd_create("larklane-bench", MFD_CLOEXEC);
      if (::ftruncate(file, sizeof(Shared)) != 0) fail("memfd_create");
    }
    const double process = world.gather(static_cast<double>(::getpid()))[0];
    const double number = world.gather(static_cast<double>(file))[0];
    const std::string path = "/proc/" + std::to_string(static_cast<int>(process)) + "/fd/" +
                             std::to_string(static_cast<int>(number));
    const int opened = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    void* const mapped =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
    if (opened < 0 || mapped == MAP_FAILED) fail("all ranks have to be on one host: mmap");
    ::close(opened);
    shared_ = static_cast<Shared*>(mapped);
    (void)world.gather(0);
    if (file >= 0) ::close(file);
  }
  ~Gate() { ::munmap(shared_, sizeof(Shared)); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  /// Sleeps until `phase` begins.
  /// @param limit_ms  0: no limit
  /// @return false if it has not begun within the limit
  bool await(std::uint32_t phase, std::uint32_t limit_ms) {
    const timespec limit{static_cast<time_t>(limit_ms / 1000),
                         static_cast<long>(limit_ms % 1000) * 1000000};
    for (;;) {
      const std::uint32_t now = shared_->phase.load(std::memory_order_acquire);  // with finish()
      if (now >= phase) return true;
      const long woken = ::syscall(SYS_futex, &shared_->phase, FUTEX_WAIT, now,
                                   limit_ms > 0 ? &limit : nullptr, nullptr, 0);
      if (woken != 0 && errno == ETIMEDOUT)
        return shared_->phase.load(std::memory_order_acquire) >= phase;  // with finish()
    }
  }

  /// Returns when all workers of the side have called it, in the same phase.
  void start_together(Side side) {
    auto& started = shared_->of_side[side].started;
    const std::uint64_t mine = started.fetch_add(1, std::memory_order_acq_rel);  // with the loads
    const std::uint64_t all = (mine / workers_ + 1) * workers_;
    for (unsigned looks = 0; started.load(std::memory_order_acquire) < all; ++looks)
      if (looks > kLooksBeforeYield) ::sched_yield();
  }

  /// The last worker of the side begins the next phase, when this phase has begun.
  void finish(Side side, std::uint32_t worker, std::uint32_t phase, double began_ns,
              double ended_ns) {
    OfSide& own = shared_->of_side[side];
    own.times[worker] = {began_ns, ended_ns};
    // Releases the times to the last worker.
    const std::uint64_t nth = own.finished.fetch_add(1, std::memory_order_acq_rel) + 1;
    if (nth % workers_ != 0) return;
    double first_ns = own.times[0].began_ns, last_ns = own.times[0].ended_ns;
    for (std::uint32_t w = 1; w < workers_; ++w) {
      first_ns = std::min(first_ns, own.times[w].began_ns);
      last_ns = std::max(last_ns, own.times[w].ended_ns);
    }
    shared_->spans[phase / 3 % kTurns][phase % 3] = {first_ns, last_ns};
    while (shared_->phase.load(std::memory_order_acquire) < phase) ::sched_yield();  // with below
    shared_->phase.store(phase + 1, std::memory_order_release);                      // with await()
    ::syscall(SYS_futex, &shared_->phase, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }

  /// First begin and last end of the workers of a phase's side. Read between rounds.
  const Times& span(std::uint32_t phase) const {
    return shared_->spans[phase / 3 % kTurns][phase % 3];
  }

 private:
  static constexpr unsigned kLooksBeforeYield = 200;

  struct OfSide {
    alignas(64) std::atomic<std::uint64_t> started;
    alignas(64) std::atomic<std::uint64_t> finished;
    std::array<Times, kWorkersMax> times;
  };
  struct Shared {  // zeroed
    alignas(64) std::atomic<std::uint32_t> phase;
    std::array<OfSide, 2> of_side;
    std::array<std::array<Times, 3>, kTurns> spans;
  };

  [[noreturn]] static void fail(const char* what) {
    std::perror(what);
    std::exit(1);
  }

  const std::uint32_t workers_;
  Shared* shared_ = nullptr;
};

}  // namespace larklane::bench
