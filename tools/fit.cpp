#include "fit.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/input_file.hpp"
#include "base/printable.hpp"
#include "run.hpp"

namespace larklane::tools {
namespace {

using larklane::model::Estimate;
using larklane::model::Segment;
using larklane::model::Trains;
using nlohmann::json;

/// @throws json::exception if something is missing
Trains trains_of_size(std::uint64_t bytes, const json& samples) {
  const auto values = [&](const std::string& name) {
    return samples.at(name).get<std::vector<double>>();
  };
  Trains made{bytes, {{1, 0, values("round_trip_ns")}}, values("receive_ns")};
  for (const int messages : {2, 4, 8, 16})
    made.trains.push_back({messages, 0, values("train_" + std::to_string(messages) + "_ns")});
  made.trains.push_back({16, values("delay_ns").at(0), values("delayed_16_ns")});
  return made;
}

std::string text_of(const Estimate& estimate) {
  char text[80];
  std::snprintf(text, sizeof text, "%.4g (%.4g to %.4g)", estimate.value, estimate.low,
                estimate.high);
  return text;
}

void print(const std::vector<Segment>& segments) {
  std::printf("  %21s  %-30s %-30s %-30s %-30s %-32s %-32s %s\n", "bytes", "L, ns", "o_s, ns",
              "o_r, ns", "g, ns", "G, ns a byte", "o_s, ns a byte", "o_r, ns a byte");
  for (const Segment& segment : segments)
    std::printf("  %8llu to %9llu  %-30s %-30s %-30s %-30s %-32s %-32s %s\n",
                static_cast<unsigned long long>(segment.first_bytes),
                static_cast<unsigned long long>(segment.last_bytes),
                text_of(segment.latency_ns).c_str(), text_of(segment.send_overhead_ns).c_str(),
                text_of(segment.recv_overhead_ns).c_str(),
                ((segment.is_gap_known ? "" : "at most ") + text_of(segment.injection_ns)).c_str(),
                text_of(segment.gap_per_byte_ns).c_str(),
                text_of(segment.send_overhead_per_byte_ns).c_str(),
                text_of(segment.recv_overhead_per_byte_ns).c_str());
}

/// @return false if it is of another benchmark @throws json::exception if something is missing
bool fit_run(const json& run) {
  if (run.at("options").at("benchmark") != "prtt") return false;
  const json& context = run.at("context");
  std::vector<std::string> ways;
  for (const json& series : run.at("points").at(0).at("series"))
    if (const std::string way = series.at("way"); !way.ends_with("'")) ways.push_back(way);
  for (const std::string& way : ways) {
    const std::vector<Trains> sizes = trains_of(run, way);
    std::printf("%s, %s, %s\n", context.at("mpi").get<std::string>().c_str(),
                context.at("variant").get<std::string>().c_str(), way.c_str());
    if (auto segments = larklane::model::fit_loggp(sizes))
      print(*segments);
    else
      std::printf(
          "  nothing: that takes %zu sizes of %zu rounds at least, ascending, and times that are "
          "some; here are %zu\n",
          larklane::model::kSizesMin, larklane::model::kSamplesMin, sizes.size());
  }
  return true;
}

}  // namespace

std::vector<Trains> trains_of(const json& run, const std::string& way) {
  std::vector<Trains> sizes;
  for (const json& point : run.at("points"))
    for (const json& series : point.at("series"))
      if (series.at("way") == way && series.at("wrong") == 0 && !series.at("samples").empty())
        sizes.push_back(trains_of_size(point.at("bytes"), series.at("samples")));
  return sizes;
}

int fit(const std::string& path) {
  std::string text;
  if (const int error = read_input_file(path, kRecordFileBytesMax, &text); error != 0) {
    std::fprintf(stderr, "larklane model: %s: can't be read: %s\n", path.c_str(),
                 input_file_problem(error, kRecordFileBytesMax).c_str());
    return kRefused;
  }
  try {
    const json root = json::parse(text);
    bool has_any = false;
    if (root.contains("runs"))
      for (const json& run : root.at("runs")) has_any |= fit_run(run);
    else
      has_any = fit_run(root);
    if (has_any) return 0;
    std::fprintf(stderr, "larklane model: %s: no run of `larklane bench prtt` in it\n",
                 path.c_str());
  } catch (const json::exception& error) {
    std::fprintf(stderr, "larklane model: %s: not a record of `larklane bench`: %s\n", path.c_str(),
                 printable(error.what()).c_str());
  }
  return kRefused;
}

}  // namespace larklane::tools
