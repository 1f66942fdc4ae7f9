#pragma once
// A thread for long work without a deadline: neither the helper's sockets nor the program's threads
// wait for it.

#include <pthread.h>
#include <sys/types.h>

#include <deque>
#include <functional>
#include <mutex>
#include <semaphore>

#include "base/status.hpp"

namespace larklane::control {

/// The first work starts the thread. On busy processors it gets about a tenth of one.
/// Thread safety: thread-safe, but for the destructor.
class SpareThread {
 public:
  SpareThread() = default;
  /// Waits for the running work and drops the rest. In a child that has been forked since the
  /// thread started, it waits for nothing.
  ~SpareThread();
  SpareThread(const SpareThread&) = delete;
  SpareThread& operator=(const SpareThread&) = delete;

  /// Runs works one after the other, in order. @errors kNoThread
  Status post(std::function<void()> work);

 private:
  void run();

  std::mutex mutex_;
  std::counting_semaphore<> news_{0};       // no condition variable: it hangs in a child
  std::deque<std::function<void()>> work_;  // this and is_ending_: guarded by mutex_
  bool is_ending_ = false;
  pthread_t thread_{};
  pid_t process_ = 0;  ///< the process that has the thread; 0: none
};

}  // namespace larklane::control
