#pragma once
// A thread for what takes long and has time: neither the helper's sockets nor the program's threads
// wait for it.

#include <pthread.h>
#include <sys/types.h>

#include <deque>
#include <functional>
#include <mutex>
#include <semaphore>

#include "base/status.hpp"

namespace larklane::control {

/// It is started with the first work; on busy processors it gets about a tenth of one.
/// Thread safety: thread-safe, but for the destructor.
class SpareThread {
 public:
  SpareThread() = default;
  /// Waits for the work that has begun; the rest is dropped. In a child that has been forked since
  /// the thread started there is nothing to wait for.
  ~SpareThread();
  SpareThread(const SpareThread&) = delete;
  SpareThread& operator=(const SpareThread&) = delete;

  /// One after the other, in order. @errors kNoThread
  Status post(std::function<void()> work);

 private:
  void run();

  std::mutex mutex_;
  std::counting_semaphore<> news_{0};       // no condition variable: it hangs in a child
  std::deque<std::function<void()>> work_;  // this and the next: guarded by mutex_
  bool is_ending_ = false;
  pthread_t thread_{};
  pid_t process_ = 0;  ///< that has the thread; 0: there is none
};

}  // namespace larklane::control
