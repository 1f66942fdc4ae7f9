#pragma once
// Which completions raise an event, for a thread that sleeps on the completion channel.

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "base/status.hpp"
#include "net/provider.hpp"
#include "net/verbs/handles.hpp"

namespace larklane::verbs {

/// Thread safety: vci-serial, but is_for_all(): thread-safe.
/// Invariants:
/// 1. While it is set for needed events alone, only peers' solicited posts raise an event, and no
///    completion is awaited.
/// 2. An operation that begins to be awaited meanwhile is posted after want_all(), and signalled:
///    so a completion that no poll has seen yet raises an event.
class Alarm {
 public:
  /// The next completion raises an event; earlier ones are not reported.
  Status set(ibv_cq* completions, net::Wake wake) noexcept {
    const bool is_lazy = wake == net::Wake::needed && awaited_ == 0;
    const int error = ibv_req_notify_cq(completions, is_lazy ? 1 : 0);
    if (error != 0) return {Errc::kSystem, error};
    lazy_.store(is_lazy ? completions : nullptr, std::memory_order_relaxed);
    return {};
  }
  /// Before a post. @return true: not every completion before it has raised, or will raise, an
  /// event
  bool want_all() noexcept {
    ibv_cq* const completions = lazy_.load(std::memory_order_relaxed);
    if (completions == nullptr) return false;
    static_cast<void>(ibv_req_notify_cq(completions, 0));  // refused: as set() was not
    lazy_.store(nullptr, std::memory_order_relaxed);
    return true;
  }
  /// Each arrival raises an event, or there is none to be raised. A hint.
  bool is_for_all() const noexcept { return lazy_.load(std::memory_order_relaxed) == nullptr; }
  void await() noexcept { ++awaited_; }
  void no_longer() noexcept { --awaited_; }

 private:
  /// The queue whose solicited completions alone raise an event; null: all, or none. relaxed: with
  /// the lane's lock held, or a hint.
  std::atomic<ibv_cq*> lazy_{nullptr};
  std::uint32_t awaited_ = 0;  ///< operations that wake, and queues that fill up
};

}  // namespace larklane::verbs
