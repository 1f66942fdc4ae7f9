#pragma once
// Threads that begin together.

#include <atomic>
#include <thread>
#include <vector>

namespace larklane {

/// Runs body(thread) on `count` threads that begin together.
template <class Count, class Body>
void together(Count count, Body&& body) {
  std::atomic<Count> there{0};
  std::vector<std::thread> threads;
  for (Count t = 0; t < count; ++t)
    threads.emplace_back([&, t] {
      there.fetch_add(1, std::memory_order_acq_rel);  // pairs with the loads of the others
      while (there.load(std::memory_order_acquire) != count) std::this_thread::yield();
      body(t);
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace larklane
