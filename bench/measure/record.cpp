#include "record.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string_view>

#include "base/output_file.hpp"
#include "json_text.hpp"

namespace larklane::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;
constexpr std::uint64_t kBootstrapSeed = 20220829;

/// The row of the record's benchmark; parsing has checked the name.
const Benchmark& of(const Record& record) { return *find_benchmark(record.options.benchmark); }

Json json_of(const RoundTrace& trace) {
  Json transfers = Json::array();
  for (const Transfer& t : trace.transfers) transfers.push_back({t.begin_ns, t.end_ns, t.bytes});
  return {
      {"transfers", transfers}, {"arrivals_ns", trace.arrivals_ns}, {"joined_ns", trace.joined_ns}};
}

/// The change from the baseline: a ratio, or for a share a difference in percentage points.
struct Change {
  double value;
  Interval interval;
};

/// @return none if the ratio would divide by 0
std::optional<Change> change_of(const std::vector<double>& values,
                                const std::vector<double>& reference, bool is_share) {
  const double median = quantile(values, 0.5), base = quantile(reference, 0.5);
  if (is_share)
    return Change{median - base, difference_interval(values, reference, kBootstrapSeed)};
  if (std::ranges::min(reference) <= 0) return {};
  return Change{median / base, ratio_interval(values, reference, kBootstrapSeed)};
}

/// The figures of one series in the table.
struct Line {
  Summary summary;
  Interval interval;
  std::optional<Change> change;
};

Line line_of(const Benchmark& benchmark, const Series& series, const Series& baseline) {
  const std::vector<double> values = headline_values(benchmark, series, baseline);
  const std::vector<double> reference = headline_values(benchmark, baseline, baseline);
  return {summary_of(values), median_interval(values, kBootstrapSeed),
          change_of(values, reference, benchmark.is_share)};
}

Json json_of(const Series& series, const Benchmark& benchmark, const Series& baseline) {
  Json json{{"way", series.way}, {"wrong", series.wrong}, {"early", series.is_early}};
  if (!series.refused.empty()) {
    json["refused"] = series.refused;
    return json;
  }
  const Line line = line_of(benchmark, series, baseline);
  json["headline"] = {{"name", benchmark.headline},
                      {"unit", benchmark.unit},
                      {"n", line.summary.n},
                      {"min", line.summary.min},
                      {"p10", line.summary.p10},
                      {"median", line.summary.median},
                      {"p90", line.summary.p90},
                      {"p99", line.summary.p99},
                      {"interval", {line.interval.lower, line.interval.upper}}};
  if (line.change) {
    const std::string name = benchmark.is_share ? "difference" : "ratio";
    const Interval& interval = line.change->interval;
    json["headline"][name] = line.change->value;
    json["headline"][name + "_interval"] = {interval.lower, interval.upper};
  }
  json["samples"] = series.samples;
  if (benchmark.formula != Formula::plain)  // no other sample shows it
    json["samples"][benchmark.name] = headline_values(benchmark, series, baseline);
  json["traces"] = Json::array();
  for (const RoundTrace& trace : series.traces) json["traces"].push_back(json_of(trace));
  return json;
}

std::string without_folder(const std::string& noise) {
  static const std::string trace = "trace:";
  return noise.starts_with(trace) ? trace + base_name(noise.substr(trace.size())) : noise;
}

Json json_of(const Options& o, const Benchmark& benchmark) {
  const char* const orders[] = {"ascending", "descending", "strided", "random"};
  Json json{{"benchmark", o.benchmark},
            {"ways", o.ways},
            {"sizes", o.sizes},
            {"threads", o.threads},
            {"partitions_per_thread", o.partitions_per_thread},
            {"send_partitions", o.send_partitions()},
            {"recv_partitions", o.receive_partitions()},
            {"iterations", o.iterations},
            {"warmup", o.warmup},
            {"compute_ns", o.compute_ns},
            {"compute_split", o.compute_split == ComputeSplit::thread ? "thread" : "partition"},
            {"noise", without_folder(o.noise)},
            {"noise_percent", o.noise_percent},
            {"seed", o.seed},
            {"cache", o.cold ? "cold" : "hot"},
            {"scaling", o.scaling == Scaling::weak ? "weak" : "strong"},
            {"order", orders[static_cast<int>(o.order)]},
            {"neighbours", o.neighbours},
            {"budget_s", o.budget_s}};
  if (benchmark.is_of_messages()) {
    json["operation"] = o.operation;
    json["window"] = o.window;
    json["lanes"] = o.lanes;
    if (!o.count.empty()) json["count"] = o.count;
    if (o.level != "multiple") json["level"] = o.level;
    const bool has_completion = o.variant == "larklane" || o.variant == "lci";
    if (has_completion && !o.completion.empty()) json["completion"] = o.completion;
    if (o.variant == "larklane") {
      if (!o.progress.empty()) json["progress"] = o.progress;
      json["layout"] = o.layout;
      if (!o.completion.empty()) json["more_follow"] = o.more_follow;
    }
  }
  if (benchmark.kind == Kind::steps) {
    json["late_ns"] = o.late_ns;
    json["hold_ns"] = o.hold_ns;
    json["bound"] = o.is_bound;
    json["live"] = o.is_live;
  }
  if (benchmark.kind == Kind::application) json["lanes"] = o.lanes;
  if (o.blocks > 0) json["blocks"] = o.blocks;
  return json;
}

Json json_of(const Environment& e, const std::string& variant) {
  Json json{{"version", LARKLANE_VERSION},
            {"build", LARKLANE_BUILD_TYPE},
            {"variant", variant},
            {"mpi", e.mpi},
            {"ranks", e.ranks},
            {"hosts", e.hosts},
            {"bindings", e.bindings},
            {"oversubscribed", e.is_oversubscribed},
            {"machine", machine()},
            {"environment", e.variables},
            {"timer_ns", e.timer_ns},
            {"clock_error_ns", e.clock_error_ns}};
  if (!e.grid.empty()) {
    json["grid"] = e.grid;
    json["neighbours"] = e.neighbours;
  }
  return json;
}

/// @return why the file was not written; empty if it was
std::string write_whole(const std::string& path, const std::string& text) {
  const int error = write_output_file(path, text);
  return error == 0 ? std::string() : output_file_problem(path, error, "name another file");
}

bool has_figures(const Series& series) { return series.refused.empty() && !series.samples.empty(); }

const Series* baseline_of(const Point& point) {
  for (const Series& series : point.series)
    if (has_figures(series)) return &series;
  return nullptr;
}

std::string number(double value) {
  if (!std::isfinite(value)) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

/// The shortest text that loses no bit.
std::string exact(double value) {
  char text[32];
  return {text, std::to_chars(std::begin(text), std::end(text), value).ptr};
}

/// The threads and their work.
std::string shape_text(const Options& o, const Benchmark& benchmark) {
  std::ostringstream text;
  text << o.threads << " threads, ";
  if (benchmark.is_of_lanes()) {
    text << (o.is_everywhere() ? "each a process; " : "");
    if (benchmark.is_of_messages())
      text << o.operation << " in windows of " << o.window;
    else
      text << "together" << (o.blocks > 0 ? ", --blocks " + std::to_string(o.blocks) : "");
    if (o.lanes > 1) text << ", " << o.lanes << " lanes shared";
    if (o.layout != "own") text << ", lanes " << o.layout;
    if (benchmark.is_of_messages() && o.completion.empty())
      text << ", posts alone";
    else if (benchmark.is_of_messages() && o.variant == "larklane")
      text << ", completion " << o.completion << ", progress by "
           << (o.progress == "workers" ? "workers" : "a dedicated thread")
           << (o.more_follow ? ", each but the last saying that more follow" : "");
    return text.str();
  }
  text << o.send_partitions() << " send and " << o.receive_partitions()
       << " receive partitions, compute " << number(o.compute_ns * 1e-6) << " ms, noise " << o.noise
       << (o.noise == "none" ? "" : " " + number(o.noise_percent) + " %") << ", "
       << (o.cold ? "cold" : "hot") << " caches";
  return text.str();
}

}  // namespace

std::string write_json(const Record& record, const std::string& path) {
  Json json{{"schema", kSchema},
            {"kind", "bench"},
            {"options", json_of(record.options, of(record))},
            {"context", json_of(record.environment, record.options.variant)},
            {"points", Json::array()},
            {"failures", Json::array()}};
  for (const Failure& failure : record.failures)
    json["failures"].push_back(
        {{"way", failure.way}, {"bytes", failure.bytes}, {"what", failure.what}});
  for (const Point& point : record.points) {
    Json series = Json::array();
    const Series* baseline = baseline_of(point);
    for (const Series& s : point.series)
      series.push_back(json_of(s, of(record), baseline != nullptr ? *baseline : s));
    json["points"].push_back({{"bytes", point.bytes},
                              {"send_partitions", point.send_partitions},
                              {"recv_partitions", point.recv_partitions},
                              {"rounds", point.rounds},
                              {"series", series}});
  }
  return write_whole(path, json_text(json));
}

std::string write_csv(const Record& record, const std::string& path) {
  std::ostringstream text;
  text << "benchmark,variant,mpi,bytes,send_partitions,recv_partitions,way,metric,round,value\n";
  for (const Point& point : record.points)
    for (const Series& series : point.series)
      for (const auto& [metric, values] : series.samples)
        for (std::size_t round = 0; round < values.size(); ++round)
          text << record.options.benchmark << ',' << record.options.variant << ",\""
               << record.environment.mpi << "\"," << point.bytes << ',' << point.send_partitions
               << ',' << point.recv_partitions << ',' << series.way << ',' << metric << ',' << round
               << ',' << exact(values[round]) << '\n';
  return write_whole(path, text.str());
}

std::string table_head(const Record& record) {
  const Options& o = record.options;
  const Benchmark& benchmark = of(record);
  const Environment& e = record.environment;
  std::ostringstream text;
  text << "# larklane bench " << o.benchmark << ", " << o.variant << ", " << e.mpi << "\n# "
       << e.ranks << " ranks on " << e.hosts << (e.hosts == 1 ? " host, " : " hosts, ")
       << shape_text(o, benchmark) << "\n# timer " << number(e.timer_ns) << " ns, subtracted";
  if (!e.grid.empty()) {
    text << "; grid of ranks:";
    for (const int side : e.grid) text << ' ' << side;
  } else if (!benchmark.is_of_lanes()) {
    text << "; clocks agree within " << number(e.clock_error_ns) << " ns";
  }
  text << (benchmark.is_share ? "; points: above" : "; ratio: to")
       << " the first way, its own second series (') shows the noise\n# " << benchmark.headline
       << ", " << benchmark.unit << '\n';
  char line[256];
  std::snprintf(line, sizeof line, "%-11s %-13s %5s %10s %10s %10s %10s %10s %-19s %-7s %-15s %s\n",
                "# Size", "way", "n", "min", "p10", "median", "p90", "p99", "median in (95 %)",
                benchmark.is_share ? "points" : "ratio", "in (95 %)", "wrong");
  text << line;
  return text.str();
}

std::string table_lines(const Record& record, const Point& point) {
  const Series* baseline = baseline_of(point);
  std::string text;
  char line[512];
  for (const Series& series : point.series) {
    if (!has_figures(series)) {
      text += std::to_string(point.bytes) + " " + series.way +
              ": no figures: " + (series.refused.empty() ? "not measured" : series.refused) + "\n";
      continue;
    }
    const Line l = line_of(of(record), series, *baseline);
    const auto range = [](const Interval& interval) {
      return number(interval.lower) + " to " + number(interval.upper);
    };
    std::snprintf(line, sizeof line,
                  "%-11llu %-13s %5llu %10s %10s %10s %10s %10s %-19s %-7s %-15s %llu\n",
                  static_cast<unsigned long long>(point.bytes), series.way.c_str(),
                  static_cast<unsigned long long>(l.summary.n), number(l.summary.min).c_str(),
                  number(l.summary.p10).c_str(), number(l.summary.median).c_str(),
                  number(l.summary.p90).c_str(), number(l.summary.p99).c_str(),
                  range(l.interval).c_str(), l.change ? number(l.change->value).c_str() : "-",
                  l.change ? range(l.change->interval).c_str() : "-",
                  static_cast<unsigned long long>(series.wrong));
    text += line;
  }
  return text;
}

}  // namespace larklane::bench
