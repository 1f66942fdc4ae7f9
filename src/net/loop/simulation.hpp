#pragma once
// A discrete-event simulation in one thread: virtual threads run real code, and a cost table
// charges each of its steps. Exact and repeatable: the same seed gives the same run.
//
// It shows sequentially consistent interleavings, chosen by time. Memory orders are accepted and
// not simulated; they are the thread sanitizer's business.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "net/loop/costs.hpp"
#include "net/loop/fiber.hpp"
#include "net/loop/random.hpp"

namespace larklane::loop {

/// Thread safety: single-owner, one running simulation in a process.
/// Invariants:
/// 1. Of the threads that can run, the one with the smallest virtual time does; the seed breaks
/// ties.
/// 2. A thread that has found nothing to do since the last effect sleeps until the next one.
/// Effects are a changed value, copied bytes, the end of a wait or of a thread. When all threads
/// sleep, nothing can change any more.
class Simulation {
 public:
  struct Options {
    std::uint64_t seed = 1;
    /// Draw the time of each step at random, with long stalls, in place of the cost table: to meet
    /// many interleavings. Otherwise the cost table alone decides.
    bool explore = false;
    std::uint64_t deadline_ps = 1'000'000'000'000;
    Costs costs{};
  };

  explicit Simulation(Options options);
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  /// A virtual thread that starts at the present time; before run() or from a virtual thread.
  void spawn(std::string name, std::function<void()> body) {
    spawn(std::move(name), std::move(body), static_cast<std::uint32_t>(threads_.size()));
  }
  /// @param core  the core with its cache: two cores with the same number modulo 64 share fetched
  /// lines
  void spawn(std::string name, std::function<void()> body, std::uint32_t core);

  /// Run until every thread has ended.
  /// @return  empty, or why it gave up: the text of fail(), a deadlock, the deadline; with each
  /// thread's state. Threads that have not ended then never go on, and objects on their stacks are
  /// not destroyed.
  std::string run();

  /// The one that is running; null outside run(), where atomics are free.
  static Simulation* running() noexcept { return running_; }

  // For virtual threads.

  std::uint64_t now_ps() const noexcept { return self().time_ps; }
  /// Time passes, others may run.
  void spend(std::uint64_t ps);
  /// Bytes are written piece by piece, and others may run between.
  void copy(std::byte* to, const std::byte* from, std::size_t bytes);
  /// Poll until `predicate` holds.
  /// @param what  the awaited condition, for the diagnosis
  template <class Predicate>
  void wait(std::string what, Predicate&& predicate) {
    begin_wait(std::move(what));
    for (;;) {
      const std::uint64_t seen = effects_;
      if (predicate()) break;
      pause(seen);
    }
    end_wait();
  }
  /// Give up: run() returns `why`.
  [[noreturn]] void fail(const std::string& why);
  /// For choices of the program under test.
  Random& random() noexcept { return random_; }
  const Costs& costs() const noexcept { return options_.costs; }

  /// An event for which virtual threads sleep without a poll: for hardware, and for steps outside
  /// the timed part. Thread safety: single-owner.
  class Event {
   private:
    friend class Simulation;
    std::vector<std::uint32_t> sleepers_;
  };
  /// Until the next wake(). A thread that sleeps for an event does not keep run() from ending.
  void sleep(Event& event, std::string what);
  /// Sleeping threads go on now.
  void wake(Event& event);

  // For Atomic.
  void charge_load(const void* address);
  void charge_modify(const void* address);
  /// Something changed that a wait may be for.
  void effect();
  /// May a weak compare-and-exchange fail for no reason now?
  bool spurious_failure() { return options_.explore && random_.one_in(16); }

 private:
  struct Thread {
    std::string name;
    std::uint32_t core = 0;
    std::unique_ptr<Fiber> fiber;
    std::uint64_t time_ps = 0;
    std::uint64_t stall_one_in =
        1;                  // when exploring: some threads hardly get on, others hardly stall
    std::string waits_for;  // empty: runs
    bool ended = false;
  };
  struct Turn {
    std::uint64_t time_ps;
    std::uint64_t tie;
    std::uint32_t thread;
    friend bool operator>(const Turn& a, const Turn& b) noexcept {
      return a.time_ps != b.time_ps ? a.time_ps > b.time_ps : a.tie > b.tie;
    }
  };
  struct Line {
    std::uint64_t sharers = 0;  ///< its holders: bit = core modulo 64
    std::uint64_t free_ps = 0;  ///< a line goes from core to core, to one at a time
  };
  static constexpr std::uint32_t kNobody = ~0u;

  Thread& self() noexcept { return *threads_[self_]; }
  const Thread& self() const noexcept { return *threads_[self_]; }
  std::uint64_t my_bit() const noexcept { return std::uint64_t{1} << (self().core % 64); }
  Line& line_of(const void* address);
  std::uint64_t transfer_ps(Line& line);
  std::uint64_t step_ps(std::uint64_t table_ps);
  void add_turn(std::uint32_t thread);
  void go_on();
  void leave(Fiber& from);
  void begin_wait(std::string what);
  void end_wait();
  void pause(std::uint64_t seen_effects);
  std::string states() const;

  static inline Simulation* running_ = nullptr;

  const Options options_;
  Random random_;
  Fiber outside_;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<Turn> turns_;              // a heap, the earliest first
  std::vector<std::uint32_t> sleepers_;  // wait for an effect
  std::uint32_t self_ = kNobody;
  std::uint64_t effects_ = 0;
  std::unordered_map<std::uintptr_t, Line> lines_;  // by address / 64
  std::string diagnosis_;
};

}  // namespace larklane::loop
