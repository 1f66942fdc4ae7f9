#include "model/loggp.hpp"

#include <algorithm>
#include <array>

namespace larklane::model {

double LogGP::injection_ns() const noexcept {
  return std::max({gap_ns, send_overhead_ns, recv_overhead_ns});
}

double LogGP::period_ns(std::uint64_t bytes) const noexcept {
  const double further = bytes > 1 ? static_cast<double>(bytes - 1) : 0;
  return std::max({injection_ns() + gap_per_byte_ns * further,
                   send_overhead_ns + send_overhead_per_byte_ns * further,
                   recv_overhead_ns + recv_overhead_per_byte_ns * further});
}

double LogGP::message_ns(std::uint64_t bytes) const noexcept {
  const double further = bytes > 1 ? static_cast<double>(bytes - 1) : 0;
  return send_overhead_ns + latency_ns + recv_overhead_ns +
         (gap_per_byte_ns + send_overhead_per_byte_ns + recv_overhead_per_byte_ns) * further;
}

double LogGP::round_trip_ns(int messages, double delay_ns, std::uint64_t bytes) const noexcept {
  const double further = bytes > 1 ? static_cast<double>(bytes - 1) : 0;
  const double computing = delay_ns + send_overhead_ns + send_overhead_per_byte_ns * further;
  return 2 * message_ns(bytes) + (messages - 1) * std::max(period_ns(bytes), computing);
}

LogGP Segment::parameters() const noexcept {
  // If one side's overhead contains a part of the other's or of the wire, the others shrink by it.
  const auto settled = [](std::array<double, 3> values) {
    double sum = 0, positive = 0;
    for (const double value : values) sum += value, positive += std::max(value, 0.0);
    for (double& value : values)
      value = positive > 0 ? std::max(value, 0.0) * std::max(sum, 0.0) / positive : 0;
    return values;
  };
  const auto [latency, send, recv] =
      settled({latency_ns.value, send_overhead_ns.value, recv_overhead_ns.value});
  const auto [gap_per_byte, send_per_byte, recv_per_byte] = settled(
      {gap_per_byte_ns.value, send_overhead_per_byte_ns.value, recv_overhead_per_byte_ns.value});
  return {.latency_ns = latency,
          .send_overhead_ns = send,
          .recv_overhead_ns = recv,
          .gap_ns = std::max(injection_ns.value, 0.0),
          .gap_per_byte_ns = gap_per_byte,
          .send_overhead_per_byte_ns = send_per_byte,
          .recv_overhead_per_byte_ns = recv_per_byte};
}

}  // namespace larklane::model
