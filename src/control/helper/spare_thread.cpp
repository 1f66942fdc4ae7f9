#include "control/helper/spare_thread.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <utility>

#include "control/helper/helper_thread.hpp"

namespace larklane::control {
namespace {

/// A program's threads have 1024 shares of a processor, one that is nicer by 10 has 110
/// (sched_prio_to_weight, Linux); by 19 it has 15, and might never get to the end.
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
  // Linux: of this thread, which begins with its creator's.
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
