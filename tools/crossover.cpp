#include "crossover.hpp"

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>

namespace larklane::tools {
namespace {

constexpr std::size_t kBytesMin = 1 << 10, kBytesMax = 1 << 20;
constexpr auto kTimePerPoint = std::chrono::milliseconds(20);
constexpr std::size_t kSamplesMax = 2000;
constexpr std::uint32_t kStop = 0;

/// Shared by the two processes. Thread safety: thread-safe.
struct Board {
  alignas(64) std::atomic<std::uint32_t> handed{
      ~kStop};  // bytes to copy out; kStop ends the second process
  alignas(64) std::atomic<std::uint32_t> turn{0};   // counts the partitions handed over
  alignas(64) std::atomic<std::uint32_t> taken{0};  // counts the partitions taken
  alignas(64) std::byte slot[kBytesMax];
};

/// Polls, then yields: both processes may share a core.
void wait_for(const std::atomic<std::uint32_t>& word, std::uint32_t value) {
  for (int spins = 0; word.load(std::memory_order_acquire) != value;
       ++spins) {  // pairs with the other's release
    if (spins > 1000) ::sched_yield();
  }
}

/// The receiving process. `out` is its own buffer.
[[noreturn]] void receive(Board* board, std::byte* out) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (std::uint32_t turn = 1;; ++turn) {
    wait_for(board->turn, turn);
    const std::uint32_t bytes = board->handed.load(std::memory_order_relaxed);  // ordered by turn
    if (bytes == kStop) ::_exit(0);
    if (bytes <= kBytesMax) std::memcpy(out, board->slot, bytes);
    board->taken.store(turn, std::memory_order_release);  // pairs with wait_for in hand_over
  }
}

class Sender {
 public:
  Sender(Board* board, std::byte* in, std::byte* out, pid_t receiver)
      : board_(board), in_(in), out_(out), receiver_(receiver) {}

  /// Median of the samples, in nanoseconds; 0 if the kernel refuses.
  double time(std::size_t bytes, bool attach) {
    using Clock = std::chrono::steady_clock;
    std::vector<double> samples;
    const auto end = Clock::now() + kTimePerPoint;
    while (samples.size() < kSamplesMax &&
           (samples.size() < kCrossoverSamplesMin || Clock::now() < end)) {
      const auto start = Clock::now();
      if (!(attach ? by_attach(bytes) : by_slot(bytes))) return 0;
      samples.push_back(std::chrono::duration<double, std::nano>(Clock::now() - start).count());
    }
    const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
    std::nth_element(samples.begin(), middle, samples.end());
    return *middle;
  }

  void stop() {
    board_->handed.store(kStop, std::memory_order_relaxed);  // ordered by turn
    board_->turn.store(++turn_, std::memory_order_release);  // pairs with wait_for in receive
  }

 private:
  bool by_slot(std::size_t bytes) {
    std::memcpy(board_->slot, in_, bytes);
    hand_over(static_cast<std::uint32_t>(bytes));
    return true;
  }

  bool by_attach(std::size_t bytes) {
    const iovec local{in_, bytes}, remote{out_, bytes};
    const ssize_t moved = ::process_vm_writev(receiver_, &local, 1, &remote, 1, 0);
    if (moved != static_cast<ssize_t>(bytes)) return false;
    hand_over(~kStop);  // nothing to copy out
    return true;
  }

  void hand_over(std::uint32_t bytes) {
    board_->handed.store(bytes, std::memory_order_relaxed);  // ordered by turn
    board_->turn.store(++turn_, std::memory_order_release);  // pairs with wait_for in receive
    wait_for(board_->taken, turn_);
  }

  Board* board_;
  std::byte* in_;
  std::byte* out_;  // the receiver's, at the same address in both processes
  pid_t receiver_;
  std::uint32_t turn_ = 0;
};

}  // namespace

std::optional<std::size_t> Crossover::crossover_bytes() const {
  std::optional<std::size_t> bytes;
  for (auto point = points.rbegin(); point != points.rend(); ++point) {
    if (point->attach_ns <= 0 || point->attach_ns >= point->slots_ns) break;
    bytes = point->bytes;
  }
  return bytes;
}

Crossover measure_crossover() {
  Crossover crossover;
  void* shared =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) {
    crossover.problem = std::string("mmap: ") + std::strerror(errno);
    return crossover;
  }
  auto* const board = new (shared) Board;
  std::vector<std::byte> in(kBytesMax, std::byte{1}), out(kBytesMax);
  const pid_t receiver = ::fork();
  if (receiver == 0) receive(board, out.data());
  if (receiver > 0) {
    Sender sender(board, in.data(), out.data(), receiver);
    sender.time(kBytesMax, false);  // touch everything once
    for (std::size_t bytes = kBytesMin; bytes <= kBytesMax; bytes *= 2) {
      crossover.points.push_back({bytes, sender.time(bytes, false), sender.time(bytes, true)});
    }
    sender.stop();
    ::waitpid(receiver, nullptr, 0);
  } else {
    crossover.problem = std::string("fork: ") + std::strerror(errno);
  }
  ::munmap(shared, sizeof(Board));
  return crossover;
}

}  // namespace larklane::tools
