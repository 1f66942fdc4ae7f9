#pragma once
// Decides which call is hit.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <random>
#include <utility>

#include "net/fault/plan.hpp"

namespace larklane::fault {

/// The plan, and how often it has hit. Thread safety: thread-safe.
class Hits {
 public:
  explicit Hits(Plan plan) : plan_(std::move(plan)) {}

  const Plan& plan() const noexcept { return plan_; }
  void add(What what) noexcept {
    hits_[static_cast<std::size_t>(what)].fetch_add(1, std::memory_order_relaxed);  // statistics
  }
  std::uint64_t count(What what) const noexcept {
    return hits_[static_cast<std::size_t>(what)].load(std::memory_order_relaxed);  // statistics
  }

 private:
  const Plan plan_;
  std::array<std::atomic<std::uint64_t>, kWhats> hits_{};
};

/// Of one endpoint, or of the fabric's own calls. Thread safety: single-owner.
class Chance {
 public:
  Chance(Hits& hits, std::uint32_t endpoint)
      : hits_(hits), endpoint_(endpoint), random_(hits.plan().seed + 0x9e3779b9u * endpoint) {}

  /// One more call. @return the fault that hits it, or null
  const Fault* next(Call call) {
    const bool is_post = call <= Call::read;
    ++count(call);
    if (is_post) ++count(Call::post);
    for (const Fault& fault : hits_.plan().faults) {
      if (fault.call != call && !(is_post && fault.call == Call::post)) continue;
      if (fault.endpoint.value_or(endpoint_) != endpoint_) continue;
      const std::uint64_t number = count(fault.call);
      const bool is_hit = fault.nth != 0 ? number >= fault.nth && number - fault.nth < fault.times
                                         : one_in(fault.one_in);
      if (!is_hit) continue;
      hits_.add(fault.what);
      return &fault;
    }
    return nullptr;
  }
  /// A post that the network below could not take will be counted when it is made again.
  void forget_post(Call call) noexcept {
    --count(call);
    --count(Call::post);
  }

  bool one_in(std::uint32_t n) { return n != 0 && below(n) == 0; }
  /// 0 to bound - 1
  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }

 private:
  std::uint64_t& count(Call call) noexcept { return counts_[static_cast<std::size_t>(call)]; }

  Hits& hits_;
  const std::uint32_t endpoint_;
  std::mt19937_64 random_;
  std::array<std::uint64_t, kCalls> counts_{};
};

/// State that all endpoints of a fabric share. Thread safety: thread-safe.
class Score {
 public:
  explicit Score(Plan plan) : hits_(std::move(plan)), own_(hits_, kNoEndpoint) {}

  const Plan& plan() const noexcept { return hits_.plan(); }
  Hits& hits() noexcept { return hits_; }
  std::uint32_t next_endpoint() noexcept {
    return endpoints_.fetch_add(1, std::memory_order_relaxed);  // relaxed: a number, no order
  }
  /// A call of the fabric.
  const Fault* next(Call call) {
    const std::lock_guard lock(mutex_);
    return own_.next(call);
  }

 private:
  static constexpr std::uint32_t kNoEndpoint = ~0u;

  Hits hits_;
  std::atomic<std::uint32_t> endpoints_{0};
  std::mutex mutex_;
  Chance own_;  // under the mutex
};

}  // namespace larklane::fault
