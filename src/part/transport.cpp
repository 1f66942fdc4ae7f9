#include "part/transport.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "base/log.hpp"
#include "part/error_text.hpp"

namespace larklane::part {
namespace {

/// Longest wait for operations in flight at the end of a process; then it abandons them.
constexpr std::chrono::seconds kDrainWait{2};

}  // namespace

void Transport::settle(std::span<Transport* const> transports) {
  const auto deadline = std::chrono::steady_clock::now() + kDrainWait;
  const auto left_count = [&] {  // asks each one: is_settled() also sends CLOSE records
    return std::count_if(transports.begin(), transports.end(),
                         [](Transport* transport) { return !transport->is_settled(); });
  };
  while (left_count() != 0 && std::chrono::steady_clock::now() < deadline) {
    std::uint32_t found = 0;
    for (Transport* const transport : transports) found += transport->progress();
    if (found == 0) ::sched_yield();
  }
}

void Transport::note_locked(PeerState& peer, const InitArgs& args, Kind kind,
                            const std::string& how) const {
  ++peer.use.channels;
  if (report_.logs_info)
    log_info("%s with %s: %s", describe(args, kind).c_str(), args.peer.c_str(), how.c_str());
}

}  // namespace larklane::part
