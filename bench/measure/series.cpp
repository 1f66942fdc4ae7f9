#include "series.hpp"

#include <algorithm>

#include "metrics.hpp"

namespace larklane::bench {
namespace {

std::vector<double> scaled(std::vector<double> values, double factor) {
  for (double& value : values) value *= factor;
  return values;
}

}  // namespace

void add_metrics(const RoundTrace& trace, Samples* samples) {
  const auto add = [&](const char* name, double value) { (*samples)[name].push_back(value); };
  add("total_ns", total_ns(trace));
  add("exposed_ns", exposed_ns(trace));
  add("communication_ns", communication_ns(trace));
  add("before_join_ns", before_join_ns(trace));
  add("after_join_ns", after_join_ns(trace));
  add("perceived_bandwidth_bps", perceived_bandwidth(trace));
  add("early_bird_share", early_bird_share(trace));
  add("early_bytes_share", early_bytes_share(trace));
  add("extra_compute_ns", extra_compute_ns(trace));
}

Headline headline_of(const std::string& benchmark) {
  if (benchmark == "overhead") return {"overhead", "x"};
  if (benchmark == "perceived-bandwidth") return {"perceived bandwidth", "MB/s"};
  if (benchmark == "availability") return {"availability", "%", true};
  if (benchmark == "early-bird") return {"early-bird share", "%", true};
  if (benchmark == "latency") return {"half round trip", "us"};
  if (benchmark == "prtt") return {"round trip of one message", "us"};
  if (benchmark == "call-cost") return {"cost of a call", "ns"};
  if (benchmark == "sweep3d" || benchmark == "halo3d") return {"throughput", "MB/s"};
  if (benchmark == "message-rate" || benchmark == "lanes") return {"message rate", "million/s"};
  if (benchmark == "message-latency") return {"half round trip", "us"};
  if (benchmark == "stencil") return {"halo exchange", "us"};
  if (benchmark == "ebms") return {"time of a fetch", "us"};
  if (benchmark == "bspmm") return {"time of the product", "us"};
  return {"extra compute time", "us"};
}

std::vector<double> headline_values(const std::string& benchmark, const Series& series,
                                    const Series& baseline) {
  const Samples& samples = series.samples;
  const auto pt2pt = [&] { return quantile(baseline.samples.at("total_ns"), 0.5); };
  if (benchmark == "perceived-bandwidth")
    return scaled(samples.at("perceived_bandwidth_bps"), 1e-6);
  if (benchmark == "early-bird") return scaled(samples.at("early_bird_share"), 100);
  if (benchmark == "recv-compute") return scaled(samples.at("extra_compute_ns"), 1e-3);
  if (benchmark == "message-rate" || benchmark == "lanes")
    return scaled(samples.at("rate_per_s"), 1e-6);
  if (benchmark == "latency" || benchmark == "message-latency")
    return scaled(samples.at("half_round_trip_ns"), 1e-3);
  if (benchmark == "stencil") return scaled(samples.at("exchange_ns"), 1e-3);
  if (benchmark == "ebms") return scaled(samples.at("fetch_ns"), 1e-3);
  if (benchmark == "bspmm") return scaled(samples.at("time_ns"), 1e-3);
  if (benchmark == "prtt") return scaled(samples.at("round_trip_ns"), 1e-3);
  if (benchmark == "call-cost") return samples.at("call_ns");
  if (benchmark == "sweep3d" || benchmark == "halo3d")
    return scaled(samples.at("throughput_bps"), 1e-6);
  std::vector<double> values = samples.at(benchmark == "overhead" ? "total_ns" : "after_join_ns");
  for (double& value : values)
    value = benchmark == "overhead" ? overhead(value, pt2pt()) : 100 * availability(value, pt2pt());
  return values;
}

}  // namespace larklane::bench
