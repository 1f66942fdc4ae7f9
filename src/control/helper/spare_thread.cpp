#include "control/helper/spare_thread.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <utility>

#include "control/helper/helper_thread.hpp"

namespace larklane::control {
namespace {

/// Shares of a processor (sched_prio_to_weight, Linux): a program's thread has 1024, a thread nicer
/// by 10 has 110. A thread nicer by 19 has 15, and might never finish.
constexpr int kNice = 10;

}  // namespace

SpareThread::~SpareThread() {
  if (process_ != ::getpid()) return;
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  news_.release();
  ::pthread_join(thread_, nullptr);
}

Status SpareThread::post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (process_ == 0) {
      const auto body = [](void* spare) -> void* {
        static_cast<SpareThread*>(spare)->run();
        return nullptr;
      };
      auto thread = start_helper_thread(body, this);
      if (!thread) return thread.error();
      thread_ = *thread;
      process_ = ::getpid();
    }
    work_.push_back(std::move(work));
  }
  news_.release();
  return {};
}

void SpareThread::run() {
  // Linux: the niceness of this thread alone, which begins with its creator's.
  const auto thread = static_cast<id_t>(::gettid());
  (void)::setpriority(PRIO_PROCESS, thread, ::getpriority(PRIO_PROCESS, thread) + kNice);
  while (true) {
    news_.acquire();
    std::function<void()> work;
    {
      const std::lock_guard lock(mutex_);
      if (is_ending_) return;
      work = std::move(work_.front());
      work_.pop_front();
    }
    work();
  }
}

}  // namespace larklane::control
