#include "metrics.hpp"

#include <algorithm>
#include <limits>
#include <span>

namespace larklane::bench {
namespace {

double first_begin(const RoundTrace& trace) {
  return std::ranges::min(trace.transfers, {}, &Transfer::begin_ns).begin_ns;
}

double last_end(const RoundTrace& trace) {
  return std::ranges::max(trace.transfers, {}, &Transfer::end_ns).end_ns;
}

std::uint64_t bytes_of(const std::vector<Transfer>& transfers) {
  std::uint64_t bytes = 0;
  for (const Transfer& transfer : transfers) bytes += transfer.bytes;
  return bytes;
}

/// Length of the union of the transfers, counting only the part after `from`.
double union_length(std::vector<Transfer> transfers, double from) {
  std::ranges::sort(transfers, {}, &Transfer::begin_ns);
  double length = 0;
  for (const Transfer& transfer : transfers) {
    const double begin = std::max(transfer.begin_ns, from);
    if (transfer.end_ns <= begin) continue;
    length += transfer.end_ns - begin;
    from = transfer.end_ns;
  }
  return length;
}

std::vector<Transfer> arrived_by(const RoundTrace& trace, double time_ns) {
  std::vector<Transfer> found;
  std::ranges::copy_if(trace.transfers, std::back_inserter(found),
                       [&](const Transfer& transfer) { return transfer.end_ns <= time_ns; });
  return found;
}

/// Arrivals of the receive partitions that share a byte with send partition `p` of `sends`.
std::span<const double> arrivals_of(std::uint64_t p, std::uint64_t sends,
                                    std::span<const double> arrived_ns) {
  const std::uint64_t receives = arrived_ns.size();
  const std::uint64_t first = p * receives / sends;
  const std::uint64_t end = ((p + 1) * receives + sends - 1) / sends;
  return arrived_ns.subspan(first, end - first);
}

constexpr double kBeginning = -std::numeric_limits<double>::infinity();

}  // namespace

std::vector<Transfer> transfers_of(const std::vector<double>& ready_ns,
                                   const std::vector<double>& arrived_ns, std::uint64_t bytes) {
  const std::uint64_t sends = ready_ns.size();
  std::vector<Transfer> transfers;
  transfers.reserve(sends);
  for (std::uint64_t p = 0; p < sends; ++p)
    transfers.push_back(
        {ready_ns[p], std::ranges::max(arrivals_of(p, sends, arrived_ns)), bytes / sends});
  return transfers;
}

bool arrives_before_ready(const std::vector<double>& ready_ns,
                          const std::vector<double>& arrived_ns, double offset_ns) {
  for (std::uint64_t p = 0; p < ready_ns.size(); ++p)
    if (std::ranges::min(arrivals_of(p, ready_ns.size(), arrived_ns)) < ready_ns[p] + offset_ns)
      return true;
  return false;
}

double total_ns(const RoundTrace& trace) { return last_end(trace) - first_begin(trace); }

double exposed_ns(const RoundTrace& trace) { return last_end(trace) - trace.joined_ns; }

double perceived_bandwidth(const RoundTrace& trace) {
  return static_cast<double>(bytes_of(trace.transfers)) / exposed_ns(trace) * 1e9;
}

double communication_ns(const RoundTrace& trace) {
  return union_length(trace.transfers, kBeginning);
}

double after_join_ns(const RoundTrace& trace) {
  return union_length(trace.transfers, trace.joined_ns);
}

double before_join_ns(const RoundTrace& trace) {
  return union_length(arrived_by(trace, trace.joined_ns), kBeginning);
}

double early_bird_share(const RoundTrace& trace) {
  return before_join_ns(trace) / communication_ns(trace);
}

double early_bytes_share(const RoundTrace& trace) {
  const std::uint64_t bytes = bytes_of(trace.transfers);
  if (bytes == 0) return 0;
  return static_cast<double>(bytes_of(arrived_by(trace, trace.joined_ns))) /
         static_cast<double>(bytes);
}

double extra_compute_ns(const RoundTrace& trace) {
  const std::size_t each = trace.arrivals_ns.size() / trace.receivers;
  double sum = 0;
  for (std::size_t r = 0; r < trace.receivers; ++r) {
    const auto of_one = std::span(trace.arrivals_ns).subspan(r * each, each);
    const auto [first, last] = std::ranges::minmax(of_one);
    sum += last - first;
  }
  return sum / static_cast<double>(trace.receivers);
}

double overhead(double part_ns, double pt2pt_ns) { return part_ns / pt2pt_ns; }

double availability(double after_join_ns, double pt2pt_ns) { return 1 - after_join_ns / pt2pt_ns; }

}  // namespace larklane::bench
