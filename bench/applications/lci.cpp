// The applications over LCI v2, for comparison, from any launcher that LCI supports.
// LCI_ATTR_OFI_PROVIDER_NAME selects libfabric's provider. LCI has no atomic operations: an active
// message's handler counts and sums, and the thread that makes progress at the target answers.

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <lci.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "applications.hpp"
#include "measure/catalogue.hpp"
#include "measure/crew.hpp"
#include "measure/machine.hpp"
#include "measure/session.hpp"
#include "messages/environment.hpp"
#include "messages/lci_exchange.hpp"

namespace larklane::bench {
namespace {

class LciPort;

struct Ask {
  std::uint64_t offset;
  LciPort* asker;
  std::uint32_t lane, count;  ///< number of doubles that follow; 0: count up by one
};
struct Answer {
  LciPort* asker;
  std::uint64_t before;  ///< value of the counter before the increment
};

/// Lanes are devices; all processes create them in the same order. Creating one is collective.
/// Thread safety: single-owner, but turn(): thread-safe.
class LciWorld {
 public:
  LciWorld()
      : asked_(lci::alloc_handler(&LciWorld::on_ask)),
        answered_(lci::alloc_handler(&LciWorld::on_answer)),
        told_(lci::alloc_counter()),
        on_ask_(lci::register_rcomp(asked_)),
        on_answer_(lci::register_rcomp(answered_)) {
    here_ = this;
    lane(0);
  }
  ~LciWorld() {
    lci::barrier();
    for (auto& lane : lanes_) lci::free_device(&lane->device);
    lci::deregister_rcomp(on_ask_);
    lci::deregister_rcomp(on_answer_);
    lci::free_comp(&asked_);
    lci::free_comp(&answered_);
    lci::free_comp(&told_);
  }
  LciWorld(const LciWorld&) = delete;
  LciWorld& operator=(const LciWorld&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// The same number in every process, since all register in one order.
  lci::rcomp_t on_ask() const { return on_ask_; }
  lci::device_t lane(std::size_t index) {
    while (lanes_.size() <= index) {
      lanes_.push_back(std::make_unique<Lane>());
      lanes_.back()->device = lci::alloc_device();
    }
    return lanes_[index]->device;
  }
  /// Peers' requests change this memory.
  /// @pre no request is in flight
  void open(std::span<std::byte> memory) { open_ = memory; }

  template <class T>
  std::vector<T> gather(const T& mine) {
    std::vector<T> all(static_cast<std::size_t>(size_), mine);
    const lci::tag_t tag = kGatherTag + gathers_++ % kGatherTags;
    for (int rank = 0; rank < size_; ++rank) {
      if (rank == rank_) continue;
      T& of_rank = all[static_cast<std::size_t>(rank)];
      post([&] {
        return lci::post_recv_x(rank, &of_rank, sizeof of_rank, tag, told_).device(lane(0))();
      });
      post([&] {
        return lci::post_send_x(rank, const_cast<T*>(&mine), sizeof mine, tag, told_)
            .device(lane(0))();
      });
    }
    while (lci::counter_get(told_) < posted_) turn_all();
    return all;
  }

  /// Makes progress on one lane and sends its answers.
  bool turn(std::size_t index) {
    Lane& lane = *lanes_[index];
    const bool found = !lci::progress_x().device(lane.device)().is_retry();
    if (!lane.has_answers.load(std::memory_order_acquire)) return found;  // pairs with on_ask()
    const std::scoped_lock guard(lane.mutex);
    while (!lane.answers.empty()) {
      auto& [rank, answer] = lane.answers.front();
      // The answer is short enough for LCI to copy it during the call.
      if (lci::post_am_x(rank, &answer, sizeof answer, lci::COMP_NULL, on_answer_)
              .device(lane.device)()
              .is_retry())
        return found;
      lane.answers.pop_front();
    }
    lane.has_answers.store(false, std::memory_order_relaxed);  // under the lock
    return true;
  }
  void turn_all() {
    bool found = false;
    for (std::size_t index = 0; index < lanes_.size(); ++index) found |= turn(index);
    if (!found) sched_yield();
  }

 private:
  /// Tags of gathers, used in a circle, apart from those of streams: LCI keeps no order.
  static constexpr lci::tag_t kGatherTag = 1u << 30, kGatherTags = 1u << 10;

  struct Lane {
    lci::device_t device;
    std::mutex mutex;
    std::deque<std::pair<int, Answer>> answers;
    std::atomic<bool> has_answers{false};
  };

  template <class Call>
  void post(Call&& call) {
    posted_ += is_posted(call, [this] { turn_all(); });
  }

  /// Runs within lci::progress(), so it posts nothing.
  static void on_ask(lci::status_t status) {
    Ask ask;
    const auto* const bytes = static_cast<const std::byte*>(status.buffer);
    std::memcpy(&ask, bytes, sizeof ask);
    std::byte* const to = here_->open_.data() + ask.offset;
    Answer answer{ask.asker, 0};
    if (ask.count == 0) {
      answer.before = std::atomic_ref(*reinterpret_cast<std::uint64_t*>(to))
                          .fetch_add(1, std::memory_order_relaxed);  // relaxed: a number
    } else {
      const std::scoped_lock guard(here_->sums_);
      auto* const sums = reinterpret_cast<double*>(to);
      for (std::uint32_t i = 0; i < ask.count; ++i) {
        double value = 0;
        std::memcpy(&value, bytes + sizeof ask + i * sizeof value, sizeof value);
        sums[i] += value;
      }
    }
    std::free(status.buffer);
    Lane& lane = *here_->lanes_[ask.lane];
    const std::scoped_lock guard(lane.mutex);
    lane.answers.emplace_back(status.rank, answer);
    lane.has_answers.store(true, std::memory_order_release);  // pairs with turn()
  }
  static void on_answer(lci::status_t status);

  static inline LciWorld* here_ = nullptr;
  const int rank_ = lci::get_rank_me(), size_ = lci::get_rank_n();
  std::deque<std::unique_ptr<Lane>> lanes_;
  std::span<std::byte> open_;
  std::mutex sums_;
  lci::comp_t asked_, answered_, told_;
  lci::rcomp_t on_ask_, on_answer_;
  std::int64_t posted_ = 0;
  lci::tag_t gathers_ = 0;
};

/// A thread's calls. Thread safety: single-owner, but answer(): any thread.
class LciPort {
 public:
  LciPort(LciWorld& world, std::uint32_t lane, std::uint32_t lanes, std::span<std::byte> open,
          std::span<std::byte> local)
      : world_(world), lane_(lane), lanes_(lanes), device_(world.lane(lane)) {
    if (!open.empty()) {
      open_ = lci::register_memory_x(open.data(), open.size()).device(device_)();
      open_of_ = world.gather(lci::get_rmr(open_));
    }
    if (!local.empty())
      local_ = lci::register_memory_x(local.data(), local.size()).device(device_)();
  }
  ~LciPort() {
    if (!open_.is_empty()) lci::deregister_memory(&open_);
    if (!local_.is_empty()) lci::deregister_memory(&local_);
    lci::free_comp(&told_);
  }
  LciPort(const LciPort&) = delete;
  LciPort& operator=(const LciPort&) = delete;

  void get(int rank, std::uint64_t offset, void* to, std::uint64_t bytes) {
    post([&] {
      return lci::post_get_x(rank, to, bytes, told_, offset,
                             open_of_[static_cast<std::size_t>(rank)])
          .device(device_)
          .mr(local_)();
    });
  }
  void accumulate(int rank, std::uint64_t offset, const double* values, std::uint32_t count) {
    ask(rank, {offset, this, lane_, count}, values);
  }
  std::uint64_t count_up(int rank, std::uint64_t offset) {
    ask(rank, {offset, this, lane_, 0}, nullptr);
    wait();
    return before_;
  }
  void receive(const Stream& stream, void* to, std::uint64_t bytes) {
    post([&] {
      return lci::post_recv_x(stream.rank, to, bytes, stream.tag, told_)
          .device(device_)
          .mr(local_)();
    });
  }
  void send(const Stream& stream, const void* from, std::uint64_t bytes) {
    post([&] {
      return lci::post_send_x(stream.rank, const_cast<void*>(from), bytes, stream.tag, told_)
          .device(device_)
          .mr(local_)();
    });
  }
  void wait() {
    do turn();
    while (lci::counter_get(told_) < posted_ ||
           answers_.load(std::memory_order_acquire) < asks_.size());  // pairs with answer()
    asks_.clear();
    answers_.store(0, std::memory_order_relaxed);  // relaxed: no answer is outstanding
  }
  void answer(const Answer& answer) {
    before_ = answer.before;
    answers_.fetch_add(1, std::memory_order_release);  // pairs with wait()
  }

 private:
  static constexpr unsigned kMissesMax = 200;  ///< before it turns to all lanes and yields

  template <class Call>
  void post(Call&& call) {
    posted_ += is_posted(call, [this] { turn(); });
  }
  void ask(int rank, const Ask& ask, const double* values) {
    auto& bytes = asks_.emplace_back(sizeof ask + ask.count * sizeof(double));
    std::memcpy(bytes.data(), &ask, sizeof ask);
    if (ask.count != 0) std::memcpy(bytes.data() + sizeof ask, values, ask.count * sizeof(double));
    post([&] {
      return lci::post_am_x(rank, bytes.data(), bytes.size(), told_, world_.on_ask())
          .device(device_)();
    });
  }
  void turn() {
    if (world_.turn(lane_)) {
      misses_ = 0;
    } else if (++misses_ == kMissesMax) {
      misses_ = 0;
      for (std::uint32_t lane = 0; lane < lanes_; ++lane) (void)world_.turn(lane);
      sched_yield();
    }
  }

  LciWorld& world_;
  const std::uint32_t lane_, lanes_;
  const lci::device_t device_;
  lci::mr_t open_ = lci::MR_HOST, local_ = lci::MR_HOST;
  std::vector<lci::rmr_t> open_of_;  ///< by rank
  lci::comp_t told_ = lci::alloc_counter();
  std::int64_t posted_ = 0;
  std::deque<std::vector<std::byte>> asks_;  ///< kept until their answers arrive
  std::uint64_t before_ = 0;
  std::atomic<std::uint64_t> answers_{0};
  unsigned misses_ = 0;
};

void LciWorld::on_answer(lci::status_t status) {
  Answer answer;
  std::memcpy(&answer, status.buffer, sizeof answer);
  std::free(status.buffer);
  answer.asker->answer(answer);
}

/// Creating it is collective.
class LciPorts {
 public:
  LciPorts(LciWorld& world, const PortsShape& shape) : world_(world) {
    world.open(shape.open);
    for (std::uint32_t lane = 0; lane < shape.lanes; ++lane) (void)world.lane(lane);
    for (std::uint32_t thread = 0; thread < shape.threads; ++thread)
      ports_.push_back(std::make_unique<LciPort>(world, thread % shape.lanes, shape.lanes,
                                                 shape.open, shape.local));
  }
  ~LciPorts() { (void)world_.gather(0.0); }
  LciPorts(const LciPorts&) = delete;
  LciPorts& operator=(const LciPorts&) = delete;

  LciPort& port(std::uint32_t thread) { return *ports_[thread]; }
  void begin_round() {}
  void end_round() {}

 private:
  LciWorld& world_;
  std::vector<std::unique_ptr<LciPort>> ports_;
};

struct Lci {
  using World = LciWorld;
  using Ports = LciPorts;
};

[[noreturn]] void end_launch() {
  std::fflush(nullptr);
  _exit(1);
}

int measure(LciWorld& world, Record& record, const SystemCalls* calls) {
  Options& options = record.options;
  const bool is_application = find_benchmark(options.benchmark)->kind == Kind::application;
  std::string problem = refusal_of_ways(options);
  if (problem.empty()) problem = refusal_of_crew(options, world.size(), "the launcher");
  if (problem.empty() && !is_application) problem = refusal_of_lci(options);
  if (!problem.empty()) {
    if (world.rank() == 0) std::fprintf(stderr, "larklane bench: %s\n", problem.c_str());
    return 2;
  }
  record.environment = environment_of(world.gather(card_of_this(options)));
  record.environment.mpi = "none";
  options.yields = record.environment.is_oversubscribed;
  return measure_sizes(
      {&record, world.rank() == 0, end_launch},
      [&](std::uint64_t size, double budget_ns, const Watcher& watcher) {
        const double timer_ns = record.environment.timer_ns;
        if (is_application)
          return measure_application<Lci>(options, size, world, timer_ns, budget_ns, watcher);
        LciRanks ranks(world);
        return Exchange(options, size, ranks, timer_ns, watcher, calls).run(budget_ns);
      });
}

}  // namespace
}  // namespace larklane::bench

int main(int argc, char** argv) {
  using namespace larklane::bench;
  Record record;
  int status = parse_options(argc, argv, false, &record.options);
  std::string no_count;
  const auto calls = count_system_calls(record.options, &no_count);  // of LCI's threads, too
  lci::g_runtime_init();
  const bool tells = lci::get_rank_me() == 0;
  if (status >= 0) {
    parse_options(argc, argv, tells, &record.options);
  } else if (!no_count.empty()) {
    if (tells) std::fprintf(stderr, "larklane bench: %s\n", no_count.c_str());
    status = 2;
  } else {
    LciWorld world;
    status = measure(world, record, calls ? &*calls : nullptr);
  }
  lci::g_runtime_fina();
  return status;
}
