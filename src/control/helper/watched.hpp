#pragma once
// A further descriptor that the helper sleeps on: the wait object of a network's completion queue.

#include <atomic>
#include <cstdint>

namespace larklane::control {

class Bell;

/// Off at first: then the helper sleeps without it. Thread safety: thread-safe; only the helper
/// calls the virtual functions, with no lock of the plane held.
class Watched {
 public:
  Watched() = default;
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  virtual ~Watched() = default;

  /// The same from watch() to unwatch(). Readable when there is something to serve. At the latest
  /// it becomes so for events after before_sleep() has returned true.
  virtual int fd() const noexcept = 0;
  /// Comes before each sleep. False: the helper does not sleep and calls serve() at once.
  virtual bool before_sleep() = 0;
  /// True: since the helper last asked, threads of the application have polled or served it. The
  /// helper then wants no event, since each would wake it beside those threads. It asks again soon.
  virtual bool is_served_by_others() { return false; }
  /// The state that before_sleep() reads has changed, so the helper calls it anew. Rings the
  /// helper's bell; from watch() to unwatch().
  void look_again() noexcept;
  /// Called by a thread of the application that polls in a loop: the helper, which sleeps on it,
  /// need not wake for events. Rings the helper's bell once for each sleep, before any event can be
  /// late. From watch() to unwatch().
  void take_over() noexcept;
  /// relaxed: a hint.
  bool is_slept_on() const noexcept { return is_slept_on_.load(std::memory_order_relaxed); }
  /// There may be events. Leaves none that before_sleep() would not find.
  virtual void serve() = 0;
  /// While it is on: when on_time() is due, by now_ns(). kNever: not at all.
  virtual std::uint64_t next_time_ns() const noexcept { return kNever; }
  virtual void on_time(std::uint64_t) {}
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  /// It is on while turn_on() calls outnumber turn_off() calls. One read-modify-write, and a ring
  /// of the helper's bell where the helper may sleep without it. It does not ring if it has been on
  /// since the helper last served it. Before watch() it needs no bell. No thread calls it at the
  /// same time as watch(), or during or after unwatch().
  void turn_on() noexcept;
  /// One read-modify-write, no bell: the helper notices when this descriptor wakes it.
  void turn_off() noexcept;

 private:
  friend class Watches;
  static constexpr std::uint32_t kArmed = 1;
  static constexpr std::uint32_t kUse = 2;

  // kArmed, which only the helper writes, and kUse for every turn_on() without its turn_off().
  std::atomic<std::uint32_t> state_{0};
  std::atomic<bool> is_slept_on_{false};
  const Bell* bell_ = nullptr;  // the plane's; none before the first watch()
};

}  // namespace larklane::control
