#pragma once
// Messages between the threads of pairs of processes, over any transport: measurement and checks. A
// `World` is Larklane (native.cpp), LCI (lci_exchange.hpp) or an MPI (suite/messages.cpp).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "in_turns.hpp"
#include "measure/clock.hpp"
#include "measure/options.hpp"
#include "measure/series.hpp"
#include "measure/session.hpp"
#include "suite/buffer.hpp"
#include "suite/payload.hpp"
#include "suite/team.hpp"
#include "system_calls.hpp"

namespace larklane::bench {

/// Number of a way's lanes in a process; thread t uses lane t modulo this number.
inline std::uint32_t lanes_of(const std::string& way, const Options& o) {
  const std::uint32_t threads = o.threads_of_process();
  return way == "shared" || way == "nothing" ? std::min(o.lanes, threads) : threads;
}

/// One process's part, the same for all ways of a size.
struct Shape {
  const Options* options;
  std::uint64_t bytes;   ///< bytes of a message
  std::uint64_t stride;  ///< bytes from one message to the next in memory
  std::uint32_t threads;
  int peer;
  bool is_first;                 ///< this side begins: it sends, or sends first
  std::span<std::byte> out, in;  ///< one window for each thread, in order

  std::uint64_t place(std::uint32_t thread, std::uint32_t slot) const noexcept {
    return (std::uint64_t{thread} * options->window + slot) * stride;
  }
  std::byte* out_of(std::uint32_t thread, std::uint32_t slot) const noexcept {
    return out.data() + place(thread, slot);
  }
  std::byte* in_of(std::uint32_t thread, std::uint32_t slot) const noexcept {
    return in.data() + place(thread, slot);
  }
  std::uint32_t lanes(const std::string& way) const { return lanes_of(way, *options); }
};

/// A message begins and ends with its number.
/// @return how many bytes of the number fit
inline std::uint64_t stamp_bytes(std::uint64_t bytes) { return std::min<std::uint64_t>(8, bytes); }

inline void stamp(std::byte* message, std::uint64_t bytes, std::uint64_t number) {
  std::memcpy(message, &number, stamp_bytes(bytes));
  if (bytes >= 16) std::memcpy(message + bytes - 8, &number, 8);
}
inline bool has_stamp(const std::byte* message, std::uint64_t bytes, std::uint64_t number) {
  return std::memcmp(message, &number, stamp_bytes(bytes)) == 0 &&
         (bytes < 16 || std::memcmp(message + bytes - 8, &number, 8) == 0);
}

/// Measures ways in turns, A B A', like the other benchmarks. World has
///   rank(), size(), gather(number): the number of each rank; collective,
///   make_way(name, shape): collective, in the same order on all ranks. A way has begin_round(),
///     end_round(), and an end(thread) for that thread alone:
///     enter(), leave(): called by the thread around its turns of a round
///     post_receives(): posts a window of receives; wait_receives(): until all are complete;
///     message(slot): a received message, valid until release();
///     release(): before post_receives() and at the end
///     post_send(slot); wait_sends(): until the send buffers may be reused
///     answer(), wait_answer(): a message of no bytes.
/// Thread safety: single-owner.
template <class World>
class Exchange {
  using Way = typename World::Way;
  using End = typename World::End;

 public:
  /// @param calls  counts this process's system calls; null: they are not counted
  Exchange(const Options& options, std::uint64_t bytes, World& world, double timer_ns,
           const Watcher& watcher, const SystemCalls* calls = nullptr)
      : o_(options),
        world_(world),
        timer_ns_(timer_ns),
        watcher_(watcher),
        calls_(calls),
        pairs_(world.size() / 2),
        threads_(options.threads_of_process()),
        stride_((bytes + kLineBytes - 1) / kLineBytes * kLineBytes),
        out_(stride_ * threads_ * options.window),
        in_(stride_ * threads_ * options.window),
        shape_{&options,
               bytes,
               stride_,
               threads_,
               world.rank() < pairs_ ? world.rank() + pairs_ : world.rank() - pairs_,
               world.rank() < pairs_,
               out_.span(),
               in_.span()},
        team_(threads_),
        of_thread_(threads_) {}

  Point run(double budget_ns) {
    Point point{shape_.bytes, 1, 1, 0, {}};
    std::vector<std::unique_ptr<Way>> ways;
    std::vector<std::uint64_t> turns;
    for (const std::string& name : o_.ways) {
      feed(name);
      ways.push_back(world_.make_way(name, shape_));
      point.series.push_back({.way = name});
    }
    for (std::size_t w = 0; w < ways.size(); ++w)
      turns.push_back(turns_of_round(*ways[w], point.series[w]));
    measure_in_turns(o_, world_, watcher_, budget_ns, &point,
                     [&](std::size_t w, Series& series, bool counts) {
                       round(*ways[w], turns[w], series, counts);
                     });
    return point;
  }

 private:
  static constexpr std::uint64_t kLineBytes = 64;
  static constexpr double kRoundNs = 5e6;  ///< long enough to hide the start of the threads
  static constexpr std::uint64_t kTurnsMax = 1u << 20;

  struct alignas(64) OfThread {
    std::uint64_t sent = 0, received = 0;  ///< numbers of messages
    std::uint64_t wrong = 0;
    double began_ns = 0, ended_ns = 0;
    std::uint64_t calls = 0;  ///< system calls of the process in this thread's turns
  };

  bool is_latency() const { return o_.benchmark == "message-latency"; }
  bool receives() const { return is_latency() || !shape_.is_first; }

  void feed(const std::string& way) const {
    if (world_.rank() == 0) watcher_.before_round(way);
  }

  void send(End& end, std::uint32_t thread) {
    OfThread& mine = of_thread_[thread];
    for (std::uint32_t slot = 0; slot < o_.window; ++slot) {
      stamp(shape_.out_of(thread, slot), shape_.bytes, ++mine.sent);
      end.post_send(slot);
    }
    end.wait_sends();
  }
  void receive(End& end, std::uint32_t thread) {
    OfThread& mine = of_thread_[thread];
    end.wait_receives();
    for (std::uint32_t slot = 0; slot < o_.window; ++slot) {
      const std::span<const std::byte> message = end.message(slot);
      ++mine.received;
      mine.wrong +=
          message.size() != shape_.bytes || !has_stamp(message.data(), shape_.bytes, mine.received);
    }
  }
  void next_receives(End& end, bool is_last) {
    if (is_last) return;  // keep the last window: wrong_inside() checks all its bytes
    end.release();
    end.post_receives();
  }

  /// The receives of a turn are posted before the other side may send it.
  void take_turns(End& end, std::uint32_t thread, std::uint64_t turns) {
    for (std::uint64_t turn = 1; turn <= turns; ++turn) {
      if (shape_.is_first) {
        send(end, thread);
        if (is_latency()) {
          receive(end, thread);
          next_receives(end, turn == turns);
        } else {
          end.wait_answer();
        }
      } else {
        receive(end, thread);
        next_receives(end, turn == turns);
        if (is_latency())
          send(end, thread);
        else
          end.answer();
      }
    }
  }

  /// Unique for each rank, thread and slot of each round.
  std::uint64_t key(int rank, std::uint32_t thread, std::uint32_t slot) const {
    const auto ranks = static_cast<std::uint64_t>(world_.size());
    return ((round_ * ranks + static_cast<std::uint64_t>(rank)) * threads_ + thread) * o_.window +
           slot;
  }
  template <class Each>
  void for_each_message(Each&& each) const {
    for (std::uint32_t thread = 0; thread < threads_; ++thread)
      for (std::uint32_t slot = 0; slot < o_.window; ++slot) each(thread, slot);
  }
  /// Checks the bytes between the two numbers.
  std::uint64_t wrong_inside(Way& way) {
    std::uint64_t wrong = 0;
    for_each_message([&](std::uint32_t thread, std::uint32_t slot) {
      const std::span<const std::byte> message = way.end(thread).message(slot);
      if (message.size() != shape_.bytes || message.size() <= 16) return;
      wrong +=
          wrong_words(message.subspan(8, message.size() - 16), 8, key(shape_.peer, thread, slot));
    });
    return wrong;
  }

  /// @return time on the side that begins: from the first thread's begin to the last thread's end,
  ///     the longest of all pairs
  double round(Way& way, std::uint64_t turns, Series& series, bool counts) {
    feed(series.way);
    ++round_;
    if (is_latency() || shape_.is_first)
      for_each_message([&](std::uint32_t thread, std::uint32_t slot) {
        fill({shape_.out_of(thread, slot), shape_.bytes}, 0, key(world_.rank(), thread, slot));
      });
    way.begin_round();
    if (receives())
      for (std::uint32_t thread = 0; thread < threads_; ++thread) way.end(thread).post_receives();
    (void)world_.gather(0);
    team_.run([&](std::uint32_t thread) {
      of_thread_[thread].wrong = 0;
      End& end = way.end(thread);
      end.enter();
      const std::uint64_t calls = calls_ != nullptr ? calls_->now() : 0;
      of_thread_[thread].began_ns = now_ns();
      take_turns(end, thread, turns);
      of_thread_[thread].ended_ns = now_ns();
      if (calls_ != nullptr) of_thread_[thread].calls = calls_->now() - calls;
      end.leave();
    });
    std::uint64_t wrong = 0;
    if (receives()) {
      wrong = wrong_inside(way);
      for (std::uint32_t thread = 0; thread < threads_; ++thread) way.end(thread).release();
    }
    way.end_round();
    const double mine_ns = shape_.is_first ? span_ns(of_thread_) - timer_ns_ : 0;
    const double took_ns = std::ranges::max(world_.gather(mine_ns));
    for (const OfThread& mine : of_thread_) wrong += mine.wrong;
    series.wrong += sum_of_ranks(world_, static_cast<double>(wrong)) > 0;
    if (counts) add_samples(took_ns, turns, series);
    return took_ns;
  }

  void add_samples(double took_ns, std::uint64_t turns, Series& series) {
    const auto windows = static_cast<double>(turns);
    if (calls_ != nullptr) add_calls(windows * o_.window * (is_latency() ? 2 : 1) * pairs_, series);
    if (is_latency()) {
      series.samples["half_round_trip_ns"].push_back(took_ns / (2 * windows));
      series.samples["message_ns"].push_back(took_ns / (2 * windows * o_.window));
    } else {
      const double messages = windows * o_.window * threads_ * pairs_;
      series.samples["rate_per_s"].push_back(messages / took_ns * 1e9);
      series.samples["message_ns"].push_back(took_ns * o_.threads / messages);
    }
    series.samples["round_ns"].push_back(took_ns);
  }

  /// Adds the system calls for a message: of the beginning side, the other side, and both.
  /// Collective.
  void add_calls(double messages, Series& series) {
    double first = 0, second = 0;
    const std::vector<double> of_ranks = world_.gather(static_cast<double>(of_thread_[0].calls));
    for (std::size_t rank = 0; rank < of_ranks.size(); ++rank)
      (rank < static_cast<std::size_t>(pairs_) ? first : second) += of_ranks[rank] / messages;
    series.samples["first_system_calls"].push_back(first);
    series.samples["second_system_calls"].push_back(second);
    series.samples["system_calls"].push_back(first + second);
  }

  /// Number of turns for which a round takes kRoundNs. Collective.
  std::uint64_t turns_of_round(Way& way, Series& series) {
    std::uint64_t turns = 1;
    (void)round(way, turns, series, false);  // the first round connects the lanes
    for (;;) {
      const double took_ns = std::max(round(way, turns, series, false), 1.0);
      if (took_ns >= kRoundNs || turns >= kTurnsMax) return turns;
      const auto wanted =
          static_cast<std::uint64_t>(static_cast<double>(turns) * kRoundNs / took_ns * 1.2);
      turns = std::min(std::clamp(wanted, turns + 1, 8 * turns), kTurnsMax);
    }
  }

  const Options& o_;
  World& world_;
  const double timer_ns_;
  const Watcher& watcher_;
  const SystemCalls* const calls_;
  const int pairs_;
  const std::uint32_t threads_;
  const std::uint64_t stride_;
  Buffer out_, in_;
  const Shape shape_;
  Team team_;
  std::vector<OfThread> of_thread_;
  std::uint64_t round_ = 0;
};

}  // namespace larklane::bench
