#pragma once
// The connections of a listener that have not proven yet where they belong: few, and not for long.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>

namespace larklane {

/// One for each listener, which asks room() before it accepts a connection.
/// Thread safety: single-owner.
// Invariants:
// 1. At most kMost are there once a connection that room() names has been removed.
// 2. A connection has kGraceNs before a later one pushes it out: the hello of a peer is on its way
// by then, so thousands that connect at once wait in the kernel's backlog for their turn.
template <class Connection>
class Unproven {
 public:
  static constexpr std::size_t kMost = 64;
  static constexpr std::uint64_t kHelloNs = 5'000'000'000;
  static constexpr std::uint64_t kGraceNs = 20'000'000;
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  /// @param hello_ns  how long a connection may take to prove itself
  explicit Unproven(std::uint64_t hello_ns = kHelloNs) noexcept : hello_ns_(hello_ns) {}

  struct Room {
    bool is_there;
    Connection* pushed_out;  ///< not null: remove it first
  };
  /// For one more. @param grace_ns  kGraceNs, or 0: nothing may wait in the backlog
  Room room(std::uint64_t now_ns, std::uint64_t grace_ns = kGraceNs) const noexcept {
    if (waiting_.size() < kMost) return {true, nullptr};
    const Waiting& oldest = waiting_.front();
    if (now_ns - oldest.since_ns < grace_ns) return {false, nullptr};
    return {true, oldest.connection};
  }
  void add(Connection& connection, std::uint64_t now_ns) {
    waiting_.push_back({&connection, now_ns});
  }
  /// It has proven itself, or is closed. Nothing happens if it is not there.
  void remove(const Connection& connection) {
    std::erase_if(waiting_, [&](const Waiting& one) { return one.connection == &connection; });
  }
  /// Its time is over; null: none's is.
  Connection* late(std::uint64_t now_ns) const noexcept {
    return now_ns < deadline_ns() ? nullptr : waiting_.front().connection;
  }
  /// When late() has something to say; kNever.
  std::uint64_t deadline_ns() const noexcept {
    return waiting_.empty() ? kNever : waiting_.front().since_ns + hello_ns_;
  }
  bool empty() const noexcept { return waiting_.empty(); }
  std::size_t size() const noexcept { return waiting_.size(); }

 private:
  struct Waiting {
    Connection* connection;
    std::uint64_t since_ns;
  };

  std::uint64_t hello_ns_;
  std::deque<Waiting> waiting_;  // in the order of their coming
};

}  // namespace larklane
