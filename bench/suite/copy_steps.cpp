// Costs of single steps of a round over shared memory, for `larklane simulate --costs`. The sender
// has two threads, each on its own core; the receiver shares the second one's. The sender's threads
// have just written the data that they copy, and the receiver has read it in the round before.

#include <mpi.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <span>

#include "benchmarks.hpp"
#include "buffer.hpp"
#include "channel.hpp"
#include "clock.hpp"
#include "cores.hpp"
#include "payload.hpp"
#include "shared_memory.hpp"
#include "team.hpp"
#include "work.hpp"

namespace larklane::bench {
namespace {

constexpr std::uint64_t kPieceBytesMin = 2 << 10, kPieceSizes = 5, kSharedBytesMin = 32 << 10;
constexpr std::uint64_t kSliceBytes = 4 << 20;
constexpr int kTurns = 500;
constexpr double kPauseNs = 1e6, kSettleNs = 3e5, kBusyNs = 1e5, kLeaveNs = 1e7;

/// The calls that a sample measures. Alone: the sender's first thread, or its second one on the
/// receiver's core. In pairs: either thread beside the other, or the first thread and the receiver,
/// which copy together.
enum Column {
  kFirst,
  kSecond,
  kFirstOfTwo,
  kSecondOfTwo,
  kSenderOfBoth,
  kReceiverOfBoth,
  kColumns
};

class Steps {
 public:
  Steps(const Options& options, std::uint64_t bytes, const Watcher& watcher)
      : o_(options), watcher_(watcher), buffer_(bytes), memory_(bytes), scratch_(scratch_memory()) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    const int peer = 1 - rank_;
    const std::array<std::uint64_t, 2> mine{static_cast<std::uint64_t>(::getpid()),
                                            reinterpret_cast<std::uintptr_t>(buffer_.data())};
    std::array<std::uint64_t, 2> theirs{};
    MPI_Sendrecv(mine.data(), 2, MPI_UINT64_T, peer, 5, theirs.data(), 2, MPI_UINT64_T, peer, 5,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    peer_ = static_cast<pid_t>(theirs[0]);
    peer_buffer_ = reinterpret_cast<std::byte*>(theirs[1]);
  }

  void run(Series& series) {
    if (is_sender()) watcher_.before_round(series.way);
    team_.emplace(is_sender() && (series.way == "copy" || series.way == "switch") ? 2 : 1);
    const bool is_bare = series.way == "push" || series.way == "pull";
    if (!is_bare)
      team_->run(
          [&](std::uint32_t thread) { bind_to(is_sender() ? static_cast<int>(thread) : 1); });
    std::optional<Channel> channel;
    const bool is_moved = series.way == "move" || series.way == "first";
    if (is_moved || series.way == "turn") channel.emplace(o_, buffer_.span().size());
    if (series.way == "turn") begin_turns(*channel);
    for (std::uint32_t i = 0; i < o_.warmup + o_.iterations; ++i) {
      ++round_;
      // Counts whole cycles of the columns and piece sizes, so the warm-up has its own count.
      at_ = i < o_.warmup ? i : i - o_.warmup;
      if (is_sender()) watcher_.before_round(series.way);
      const OfRound found = is_bare                  ? one_copy(series.way == "push")
                            : series.way == "copy"   ? copy()
                            : series.way == "switch" ? leave()
                            : series.way == "line"   ? line()
                            : series.way == "turn"   ? turn(*channel)
                                                     : moved(*channel, series.way == "first");
      if (series.way != "turn") series.wrong += sum_of_both(found).wrong > 0;
      if (is_sender() && i >= o_.warmup) series.samples["step_ns"].push_back(found.value);
    }
    if (series.way == "turn") series.wrong += end_turns(*channel);
    team_.reset();
    unbind();
  }

 private:
  bool is_sender() const { return rank_ == 0; }

  // Words in shared memory: each side writes its own.
  std::atomic<std::uint64_t>& taken() { return memory_.line(0).words[0]; }
  std::atomic<std::uint64_t>& left_at() { return memory_.line(0).words[1]; }
  std::atomic<std::uint64_t>& called() { return memory_.line(0).words[2]; }
  std::atomic<std::uint64_t>& answered() { return memory_.line(1).words[0]; }

  std::uint64_t turn_of_round() const { return at_ % (kColumns * kPieceSizes); }
  Column column() const { return static_cast<Column>(turn_of_round() / kPieceSizes); }
  std::uint64_t piece_bytes() const { return kPieceBytesMin << turn_of_round() % kPieceSizes; }
  bool is_of_both() const { return column() >= kSenderOfBoth; }
  bool is_of_two() const { return column() == kFirstOfTwo || column() == kSecondOfTwo; }

  /// Waits until both threads of the sender have arrived in this round.
  void meet() {
    met_.fetch_add(1, std::memory_order_acq_rel);
    while (met_.load(std::memory_order_acquire) < 2 * round_) {
    }
  }

  void attach_copy(std::uint64_t offset, std::uint64_t bytes) const {
    const iovec ours{buffer_.data() + offset, bytes}, theirs{peer_buffer_ + offset, bytes};
    const ssize_t moved = is_sender() ? ::process_vm_writev(peer_, &ours, 1, &theirs, 1, 0)
                                      : ::process_vm_readv(peer_, &ours, 1, &theirs, 1, 0);
    if (moved == static_cast<ssize_t>(bytes)) return;
    std::perror("larklane bench: process_vm_readv, process_vm_writev");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }

  /// Copies piece `first`, and then the next pieces that are not taken.
  /// @return time of one call
  double copy_pieces(std::uint64_t first) {
    const std::uint64_t bytes = piece_bytes(), count = buffer_.span().size() / bytes;
    const double began = now_ns();
    int calls = 0;
    for (std::uint64_t i = first; i < count;
         i = taken().fetch_add(1, std::memory_order_relaxed), ++calls)
      attach_copy(i * bytes, bytes);
    return (now_ns() - began) / calls;
  }

  /// Copies the half that thread `index` has written itself.
  /// @return time of one call
  double copy_half(std::uint64_t index) const {
    const std::uint64_t bytes = piece_bytes(), half = buffer_.span().size() / 2;
    const double began = now_ns();
    for (std::uint64_t at = 0; at < half; at += bytes) attach_copy(index * half + at, bytes);
    return (now_ns() - began) * static_cast<double>(bytes) / static_cast<double>(half);
  }

  /// Pieces of a shared copy have at least kSharedBytesMin bytes. Smaller calls copy a thread's own
  /// partitions.
  double copy_as_sender(std::uint64_t index) {
    if (piece_bytes() >= kSharedBytesMin) return copy_pieces(is_of_two() ? index : 0);
    const double cost_ns = copy_half(index);
    if (!is_of_two()) copy_half(1 - index);
    return cost_ns;
  }

  void copy_share(std::uint32_t index) {
    const std::uint64_t half = buffer_.span().size() / 2;
    fill(buffer_.span().subspan(index * half, half), index * half, round_);
    if (index == 0) taken().store(is_of_both() || is_of_two() ? 2 : 1, std::memory_order_relaxed);
    meet();
    if (is_of_two()) {
      cost_ns_[index] = copy_as_sender(index);
      return;
    }
    if (index != (column() == kSecond ? 1 : 0)) return;  // the receiver uses the second core
    compute_until(now_ns() + kSettleNs, scratch_);
    if (is_of_both()) {
      called().store(round_, std::memory_order_release);
      while (answered().load(std::memory_order_acquire) != round_) {
      }
    }
    cost_ns_[index] = is_of_both() ? copy_pieces(0) : copy_as_sender(index);
  }

  OfRound copy() {
    OfRound found;
    MPI_Barrier(MPI_COMM_WORLD);
    if (is_sender()) {
      team_->run([&](std::uint32_t thread) { copy_share(thread); });
      called().store(round_, std::memory_order_release);  // if no thread has stored it before
      const double of_receiver_ns = memory_.hear(round_);
      found.value = column() == kReceiverOfBoth                       ? of_receiver_ns
                    : column() == kSecond || column() == kSecondOfTwo ? cost_ns_[1]
                                                                      : cost_ns_[0];
    } else {
      double cost_ns = 0;
      // If the copy takes longer than a time slice, the scheduler gives a yielding receiver its
      // share of the core. So it sleeps for large buffers.
      const bool yields = is_of_both() || buffer_.span().size() < kSliceBytes;
      while (called().load(std::memory_order_acquire) != round_)
        yields ? static_cast<void>(sched_yield()) : static_cast<void>(::usleep(200));
      if (is_of_both()) {
        answered().store(round_, std::memory_order_release);
        cost_ns = copy_pieces(1);
      }
      memory_.tell(round_, cost_ns);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (!is_sender()) found.wrong = static_cast<double>(wrong_words(buffer_.span(), 0, round_));
    return found;
  }

  /// Lower bound of the last partition's cost if buffers are not shared: one copy between two idle
  /// cores. The sender copies into the receiver's memory, or the receiver out of the sender's. No
  /// MPI, no other partitions, no wait for a core.
  OfRound one_copy(bool is_pushed) {
    const std::span<std::byte> own =
        buffer_.span().first(buffer_.span().size() / o_.send_partitions());
    const std::span<std::byte> shared{memory_.data(), own.size()};
    OfRound found;
    MPI_Barrier(MPI_COMM_WORLD);
    if (is_sender()) {
      fill(is_pushed ? own : shared, 0, round_);
      const double ready_ns = now_ns();
      if (is_pushed) std::ranges::copy(own, shared.begin());
      called().store(round_, std::memory_order_release);
      found.value = memory_.hear(round_) - ready_ns;
      return found;
    }
    while (called().load(std::memory_order_acquire) != round_) sched_yield();
    if (!is_pushed) std::ranges::copy(shared, own.begin());
    const double arrived_ns = now_ns();
    found.wrong = static_cast<double>(wrong_words(is_pushed ? shared : own, 0, round_));
    memory_.tell(round_, arrived_ns);
    return found;
  }

  /// The sender's second thread sleeps and so leaves its core to the receiver, which yields; the
  /// first thread keeps its own core.
  OfRound leave() {
    OfRound found;
    if (is_sender()) left_at().store(0, std::memory_order_relaxed);
    MPI_Barrier(MPI_COMM_WORLD);
    if (is_sender()) {
      team_->run([&](std::uint32_t thread) {
        meet();
        if (thread == 0) {
          const double end_ns = now_ns() + kBusyNs + kLeaveNs;
          while (answered().load(std::memory_order_acquire) != round_ && now_ns() < end_ns) {
          }
        } else {
          for (const double end_ns = now_ns() + kBusyNs; now_ns() < end_ns;) {
          }
          left_at().store(static_cast<std::uint64_t>(now_ns()), std::memory_order_release);
        }
      });
      found.value = memory_.hear(round_);
    } else {
      double now = 0, left_ns = 0;
      for (;; sched_yield()) {
        now = now_ns();
        left_ns = static_cast<double>(left_at().load(std::memory_order_acquire));
        if (left_ns != 0 && now > left_ns) break;
      }
      answered().store(round_, std::memory_order_release);
      memory_.tell(round_, now - left_ns);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return found;
  }

  /// A flag goes to the other core and another one comes back. Each flag's line moves twice: to the
  /// writer and to the reader.
  OfRound line() {
    std::atomic<std::uint64_t>& out = is_sender() ? called() : answered();
    std::atomic<std::uint64_t>& in = is_sender() ? answered() : called();
    MPI_Barrier(MPI_COMM_WORLD);
    double began = 0;
    for (int turn = -1; turn < kTurns; ++turn) {  // in turn -1 both sides meet
      if (turn == 0) began = now_ns();
      ++word_;
      if (is_sender()) out.store(word_, std::memory_order_release);
      while (in.load(std::memory_order_acquire) != word_) {
      }
      if (!is_sender()) out.store(word_, std::memory_order_release);
    }
    return {.value = (now_ns() - began) / kTurns / 4};
  }

  /// Cost of a Pready of partitions that are groups of their own, above that of its copying call;
  /// in every other round the calls alone come first. `is_first`: the first Pready after a pause;
  /// in every other round, the second of two copying calls instead. The receiver waits in the MPI.
  OfRound moved(Channel& channel, bool is_first) {
    channel.begin();
    MPI_Start(&channel.request());
    MPI_Barrier(MPI_COMM_WORLD);
    OfRound found;
    if (is_sender()) {
      found.value = is_first ? first_ns(channel) : move_ns(channel);
      channel.mark(channel.partitions() - 1, channel.partitions() - 1);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    channel.wait();
    found.wrong = static_cast<double>(channel.wrong_in_all());
    return found;
  }
  double move_ns(Channel& channel) const {
    const std::uint64_t bytes = channel.part_bytes();
    const int last = channel.partitions() - 1;
    double cost_ns = 0;
    for (std::uint32_t part = 0; part < 2; ++part) {
      const bool calls_alone = (at_ + part) % 2 == 0;
      const double began = now_ns();
      for (int p = 0; p < last; ++p)
        if (calls_alone)
          attach_copy(static_cast<std::uint64_t>(p) * bytes, bytes);
        else
          channel.mark(p, p);
      cost_ns += calls_alone ? began - now_ns() : now_ns() - began;
    }
    return cost_ns / last;
  }
  double first_ns(Channel& channel) {
    const std::uint64_t bytes = channel.part_bytes();
    const bool is_call_alone = at_ % 2 != 0;
    compute_until(now_ns() + kPauseNs, scratch_);
    if (is_call_alone) attach_copy(0, bytes);
    const double began = now_ns();
    is_call_alone ? attach_copy(bytes, bytes) : channel.mark(0, 0);
    const double cost_ns = now_ns() - began;
    channel.mark(is_call_alone ? 0 : 1, channel.partitions() - 2);
    return cost_ns;
  }

  /// A wait polls, lets the MPI make progress and yields; a test does the first two.
  void begin_turns(Channel& channel) {
    channel.begin();
    MPI_Start(&channel.request());
    MPI_Barrier(MPI_COMM_WORLD);
  }
  OfRound turn(Channel& channel) {
    OfRound found;
    if (is_sender()) {
      found.value = memory_.hear(round_);
      called().store(round_, std::memory_order_release);
      return found;
    }
    const double began = now_ns();
    for (int turn = 0, flag = 0; turn < kTurns; ++turn) {
      MPI_Test(&channel.request(), &flag, MPI_STATUS_IGNORE);
      sched_yield();
    }
    memory_.tell(round_, (now_ns() - began) / kTurns);
    while (called().load(std::memory_order_acquire) != round_) sched_yield();
    return found;
  }
  std::uint64_t end_turns(Channel& channel) {
    if (is_sender()) channel.mark(0, channel.partitions() - 1);
    channel.wait();
    return static_cast<std::uint64_t>(
        sum_of_both({.wrong = static_cast<double>(channel.wrong_in_all())}).wrong);
  }

  const Options& o_;
  const Watcher& watcher_;
  Buffer buffer_;
  SharedMemory memory_;
  std::vector<double> scratch_;
  std::optional<Team> team_;
  int rank_ = 0;
  pid_t peer_ = 0;
  std::byte* peer_buffer_ = nullptr;
  std::atomic<std::uint64_t> met_{0};
  std::array<double, 2> cost_ns_{};  ///< of a call, by thread
  std::uint64_t round_ = 0;          ///< of all ways
  std::uint64_t at_ = 0;             ///< of this way
  std::uint64_t word_ = 0;
};

}  // namespace

Point measure_copy_steps(const Options& o, std::uint64_t size, const std::vector<Link>&, double,
                         double, const Watcher& watcher) {
  Point point{o.bytes_of(size), o.send_partitions(), o.send_partitions(), o.iterations, {}};
  constexpr std::uint64_t kUnit = kPieceBytesMin << kPieceSizes;
  for (const std::string& way : o.ways) {
    Series& series = point.series.emplace_back(Series{.way = way, .refused = missing(way)});
    if (way == "copy" && point.bytes % kUnit != 0)
      series.refused = "the bytes have to be a multiple of " + std::to_string(kUnit);
    else if (series.refused.empty())
      Steps(o, point.bytes, watcher).run(series);
  }
  return point;
}

}  // namespace larklane::bench
