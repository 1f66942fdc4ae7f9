#include "mpi/world/summary.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/printable.hpp"

namespace larklane::mpi {
namespace {

constexpr std::size_t kPeerLinesMax = 4;
constexpr std::size_t kWarningLinesMax = 2;
constexpr std::size_t kLineBytesMax = 1000;

}  // namespace

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

std::string summary_text(const part::Summary& summary, std::uint64_t forwarded,
                         const Identity& identity, const OrdinaryMessages& ordinary) {
  std::string text;
  const std::string prefix = "larklane: rank " + std::to_string(identity.rank) + ": ";
  const auto line = [&](const std::string& what) {
    text += prefix + printable(what, kLineBytesMax) + "\n";
  };
  const auto n = [](std::uint64_t value) { return std::to_string(value); };

  const bool is_all = summary.sends + summary.receives + forwarded == 0 &&
                      (ordinary.had_none || ordinary.text.empty());
  if (is_all) {
    line(ordinary.had_none
             ? ordinary.text + "; there was none, and no partitioned request: nothing to speed up"
             : "nothing to speed up: no partitioned requests, and point-to-point messages are left "
               "to the MPI (option p2p)");
  } else if (summary.sends + summary.receives == 0) {
    line("no partitioned requests" + std::string(forwarded == 0 ? "" : " of ours"));
  } else {
    line("sends: " + n(summary.sends) + ", rounds " + n(summary.send_rounds) + ", " +
         bytes_text(summary.bytes_sent) + "; receives: " + n(summary.receives) + ", rounds " +
         n(summary.receive_rounds) + ", " + bytes_text(summary.bytes_received));
    const double moved = static_cast<double>(std::max<std::uint64_t>(summary.bytes_moved, 1));
    char percent[16];
    std::snprintf(percent, sizeof percent, "%.1f",
                  100.0 * static_cast<double>(summary.early_bytes) / moved);
    line("moved by this process: " + bytes_text(summary.bytes_moved) + ", of it " +
         bytes_text(summary.early_bytes) + " (" + percent +
         " %) before all of their round was ready");
    line("partitions moved as sender " + n(summary.moved_by_sender) + ", as receiver " +
         n(summary.moved_by_receiver) + ", by the helper " + n(summary.moved_by_helper) +
         "; helper woken " + n(summary.control.helper_wakeups) + " times");
  }
  if (forwarded != 0) line(n(forwarded) + " requests left to the MPI");
  const std::string own = address_of({identity.job, identity.rank});
  for (std::size_t i = 0; i < summary.peers.size(); ++i) {
    if (i + 1 == kPeerLinesMax && summary.peers.size() > kPeerLinesMax) {
      line("and " + n(summary.peers.size() - i) + " more peers");
      break;
    }
    const auto& peer = summary.peers[i];
    const auto name = peer.address.substr(peer.address.rfind('/') + 1);  // without its hosts
    const auto rank_at = name.rfind('.') + 1;
    const bool is_own = name.substr(0, rank_at) == own.substr(0, own.rfind('.') + 1);
    line("peer rank " + name.substr(rank_at) + (is_own ? ": " : " of another world: ") +
         peer.provider + (peer.policy.empty() ? "" : ", policy " + peer.policy) + ", " +
         n(peer.channels) + " channels");
  }
  for (std::size_t i = 0; i < std::min(kWarningLinesMax, summary.warnings.size()); ++i) {
    line("warning: " + summary.warnings[i]);
  }
  if (!is_all && !ordinary.text.empty())
    line(ordinary.text + (ordinary.had_none ? "; there was none" : ""));
  return text;
}

void print_summary(const part::Summary& summary, std::uint64_t forwarded, const Identity& identity,
                   const OrdinaryMessages& ordinary) {
  const std::string text = summary_text(summary, forwarded, identity, ordinary);
  // One write(2): lines of several ranks don't mix. A closed standard error leaves no place to
  // report it.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace larklane::mpi
