#pragma once
// Ends a program that hangs, after saving the results so far.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace larklane::bench {

/// Thread safety: one thread calls feed(). on_hang runs on the watchdog's own thread, while the
/// feeding thread hangs.
class Watchdog {
 public:
  Watchdog(double limit_s, std::function<void(const std::string& what)> on_hang)
      : limit_(limit_s),
        on_hang_(std::move(on_hang)),
        thread_([this](const std::stop_token& stop) { watch(stop); }) {}

  /// `what` begins now; the previous activity has ended.
  void feed(const std::string& what) {
    const std::scoped_lock lock(mutex_);
    what_ = what;
    fed_ = std::chrono::steady_clock::now();
  }

 private:
  void watch(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      wake_.wait_for(lock, stop, std::chrono::milliseconds(200), [] { return false; });
      if (what_.empty() || std::chrono::steady_clock::now() - fed_ < limit_) continue;
      on_hang_(what_);
      return;
    }
  }

  const std::chrono::duration<double> limit_;
  const std::function<void(const std::string&)> on_hang_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::string what_;  // guarded by mutex_
  std::chrono::steady_clock::time_point fed_;
  std::jthread thread_;  // last: joined before the members that it uses are destroyed
};

}  // namespace larklane::bench
