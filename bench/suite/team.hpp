#pragma once
// The threads of one rank; the calling thread is thread 0.

#include <barrier>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace larklane::bench {

/// Thread safety: single-owner. A thread that waits for the next round sleeps.
class Team {
 public:
  explicit Team(std::uint32_t threads) : go_(threads), done_(threads) {
    for (std::uint32_t t = 1; t < threads; ++t) members_.emplace_back([this, t] { work(t); });
  }
  ~Team() {
    job_ = nullptr;
    go_.arrive_and_wait();
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  /// Every thread calls job(thread); run() returns after all calls have returned.
  void run(const std::function<void(std::uint32_t)>& job) {
    job_ = &job;
    go_.arrive_and_wait();
    job(0);
    done_.arrive_and_wait();
  }

 private:
  void work(std::uint32_t thread) {
    for (;;) {
      go_.arrive_and_wait();
      if (job_ == nullptr) return;
      (*job_)(thread);
      done_.arrive_and_wait();
    }
  }

  std::barrier<> go_, done_;
  const std::function<void(std::uint32_t)>* job_ = nullptr;  // written before go_, read after it
  std::vector<std::jthread> members_;                        // last: joined before their data ends
};

}  // namespace larklane::bench
