#pragma once
// Something else that the helper sleeps on: the wait object of a network's completion queue.

#include <atomic>
#include <cstdint>

namespace larklane::control {

class Bell;

/// Off at first: then the helper sleeps without it. Thread safety: thread-safe; the virtual
/// functions are called by the helper only, with no lock of the plane held.
class Watched {
 public:
  Watched() = default;
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  virtual ~Watched() = default;

  /// The same from watch() to unwatch(); readable when there is something to serve, at the latest
  /// when before_sleep() has said true and something has come since.
  virtual int fd() const noexcept = 0;
  /// Before each sleep. False: do not sleep, call serve() at once.
  virtual bool before_sleep() = 0;
  /// Threads of the application have looked after it since the helper last asked, or served it:
  /// then no event is wanted, of which each would wake the helper beside them. It asks again soon.
  virtual bool is_served_by_others() { return false; }
  /// What before_sleep() goes by has changed: the helper calls it anew. A ring of its bell; from
  /// watch() to unwatch().
  void look_again() noexcept;
  /// By a thread of the application that looks after it in a loop: the helper, which sleeps on it,
  /// need not wake when something comes. A ring of its bell, once for each sleep, before there is
  /// anything to be late for. From watch() to unwatch().
  void take_over() noexcept;
  /// relaxed: a hint.
  bool is_slept_on() const noexcept { return is_slept_on_.load(std::memory_order_relaxed); }
  /// There may be something. Leaves nothing that before_sleep() would not find.
  virtual void serve() = 0;
  /// While it is on: when on_time() is due, by now_ns(). kNever: not at all.
  virtual std::uint64_t next_time_ns() const noexcept { return kNever; }
  virtual void on_time(std::uint64_t) {}
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  /// On while it has been turned on more often than off. One read-modify-write, and a ring of the
  /// helper's bell where it may be asleep without this one: not when it has been on since the
  /// helper last served it. Before watch() no bell is needed; not at the same time as watch(),
  /// and not during or after unwatch().
  void turn_on() noexcept;
  /// One read-modify-write, no bell: the helper finds out when this one wakes it.
  void turn_off() noexcept;

 private:
  friend class Watches;
  static constexpr std::uint32_t kArmed = 1;
  static constexpr std::uint32_t kUse = 2;

  // kArmed, written by the helper only, and kUse for every turn_on without its turn_off.
  std::atomic<std::uint32_t> state_{0};
  std::atomic<bool> is_slept_on_{false};
  const Bell* bell_ = nullptr;  // the plane's; before the first watch() there is none
};

}  // namespace larklane::control
