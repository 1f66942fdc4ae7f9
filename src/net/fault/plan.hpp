#pragma once
// Plans of faults, as a test writes them down. Thread safety: immutable.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.hpp"

namespace larklane::fault {

/// Where a fault can hit. Calls of an endpoint and of its links are counted by the endpoint.
enum class Call : std::uint8_t {
  write,
  write_immediate,
  write_small,
  write_small_immediate,
  probe,
  read,
  register_memory,
  open_endpoint,
  open_link,
  connect,
  reserve,
  poll,
  post,  ///< any of the first six, which are counted together here
};
inline constexpr std::size_t kCalls = 13;

enum class What : std::uint8_t {
  retry,  ///< a post has to be made again
  /// The call returns `status`. After a post the link is of no use, after a poll the endpoint:
  /// pending operations complete with `status` first.
  refuse,
  fail,  ///< the operation completes with `status`
  kill,  ///< so it does, and all operations that are pending on its link or posted to it later
  /// The peer gets other data: of a post with an immediate another one, of a small write other
  /// bytes. Others go on as they are.
  garble,
};
inline constexpr std::size_t kWhats = 5;

/// Of the bytes of an operation that fails: legal is everything.
enum class Moved : std::uint8_t {
  nothing,
  half,  ///< the last half, and no immediate
  all,   ///< the immediate, too: the peer sees no failure
};

/// Hits the n-th call, or each one by chance.
struct Fault {
  Call call;
  What what;
  std::uint64_t nth = 0;    ///< from 1; 0: by chance
  std::uint64_t times = 1;  ///< so many calls in a row
  std::uint32_t one_in = 0;
  Status status = Errc::kTransfer;
  Moved moved = Moved::nothing;
  std::optional<std::uint32_t> endpoint{};  ///< only the n-th opened one, from 0
};

enum class WaitFd : std::uint8_t {
  good,
  never,   ///< fires never
  always,  ///< fires with and without a cause
};

struct Plan {
  std::uint64_t seed = 1;
  std::vector<Fault> faults{};
  // So that a network with order has none: posts are held back, completions and immediates come
  // late, each one in so many (0: none), for up to so many polls.
  std::uint32_t held_one_in = 0;
  std::uint32_t held_polls_max = 8;
  std::uint32_t late_one_in = 0;
  std::uint32_t late_polls_max = 8;
  WaitFd wait_fd = WaitFd::good;
};

}  // namespace larklane::fault
