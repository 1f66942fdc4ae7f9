#include "series.hpp"

#include "metrics.hpp"

namespace larklane::bench {
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

std::vector<double> headline_values(const Benchmark& benchmark, const Series& series,
                                    const Series& baseline) {
  std::vector<double> values = series.samples.at(benchmark.sample);
  for (double& value : values) value *= benchmark.scale;
  if (benchmark.formula == Formula::plain) return values;
  const double pt2pt = quantile(baseline.samples.at("total_ns"), 0.5);
  for (double& value : values)
    value = benchmark.formula == Formula::overhead ? overhead(value, pt2pt)
                                                   : 100 * availability(value, pt2pt);
  return values;
}

}  // namespace larklane::bench
