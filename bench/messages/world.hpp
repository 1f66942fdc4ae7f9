#pragma once
// The processes of a native job, and their lanes.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "larklane/context.hpp"
#include "larklane/message.hpp"

namespace larklane::bench {

struct Shape;
class NativeEnd;
class NativeWay;

/// Reports the error of an operation or a call and ends the process, and so the job.
[[noreturn]] void give_up(const char* what, Status status);

template <class T>
T must(Result<T> result, const char* what) {
  if (!result) give_up(what, result.error());
  return std::move(result).value();
}

/// A waiting thread's progress on one lane. Thread safety: single-owner.
class Waiter {
 public:
  /// @param yields    the thread yields to others: there are more threads than cores
  /// @param progresses  false: another thread makes progress
  Waiter(Vci& vci, bool yields, bool progresses)
      : vci_(vci), yields_(yields), progresses_(progresses) {}

  /// One step between two checks.
  void turn();
  template <class Done>
  void until(Done&& done) {
    while (!done()) turn();
  }
  /// Calls `post()` until it does not return `retry`.
  /// @return true if it was posted
  template <class Call>
  bool post(Call&& call, const char* what) {
    for (;;) {
      const Post answer = must(call(), what);
      if (answer != Post::retry) return answer == Post::posted;
      turn();
    }
  }
  Vci& vci() const noexcept { return vci_; }

 private:
  static constexpr unsigned kMissesMax = 200;  ///< before it yields

  Vci& vci_;
  const bool yields_, progresses_;
  unsigned misses_ = 0;
};

/// Differences between ways besides their lanes. Each may be empty.
struct Around {
  /// Called on each process before a round begins; no operation is in flight.
  std::function<void(const std::string& way)> before_round{};
  /// Called by a thread before and after its turns on a lane.
  std::function<void(const std::string&way, Vci&)> enter{}, leave{};
};

/// Thread safety: single-owner.
class NativeWorld {
 public:
  using Way = NativeWay;
  using End = NativeEnd;

  NativeWorld(Context& context, Around around);

  void before_round(const std::string& way) const {
    if (around_.before_round) around_.before_round(way);
  }
  void enter(const std::string& way, Vci& vci) const {
    if (around_.enter) around_.enter(way, vci);
  }
  void leave(const std::string& way, Vci& vci) const {
    if (around_.leave) around_.leave(way, vci);
  }
  Context& context() noexcept { return context_; }
  int rank() const noexcept { return context_.rank(); }
  int size() const noexcept { return context_.size(); }
  /// Lane `index` of this process, created at the first call.
  Vci& lane(std::size_t index);

  /// Gathers `bytes` bytes of each rank, by rank. Collective.
  void gather(const void* mine, std::size_t bytes, void* all);
  std::vector<double> gather(double mine);
  /// Exchanges bytes with one other process, which also calls swap().
  void swap(int peer, const void* mine, std::size_t bytes, void* theirs);

  std::unique_ptr<NativeWay> make_way(const std::string& name, const Shape& shape);

 private:
  void send(int rank, const void* bytes, std::size_t count);
  void receive(int rank, void* bytes, std::size_t count);

  Context& context_;
  const Around around_;
  std::deque<Vci> lanes_;  ///< a deque: lanes keep their addresses
  CompletionQueue told_;
};

}  // namespace larklane::bench
