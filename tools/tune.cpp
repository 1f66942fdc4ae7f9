#include "tune.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/config.hpp"
#include "base/input_file.hpp"
#include "base/output_file.hpp"
#include "base/printable.hpp"
#include "bench.hpp"
#include "fit.hpp"
#include "model/tuning_file.hpp"
#include "run.hpp"

namespace larklane::tools {
namespace {

namespace fs = std::filesystem;
namespace model = larklane::model;
using larklane::model::HostType;
using larklane::model::Tuning;
using nlohmann::json;

constexpr int kFailed = 1;
constexpr std::string_view kStatic = "static:";
constexpr std::string_view kVerbs = "verbs";
constexpr const char* kSearch = "perceived-bandwidth";
constexpr const char* kWay = "partitioned";

int refuse(const std::string& why, int status = kRefused) {
  std::fprintf(stderr, "larklane tune: %s\n", why.c_str());
  return status;
}

/// @return why `path` may not be written; empty: it may
std::string foreign(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return {};
  if (!fs::is_regular_file(status)) return path + " is no file";
  std::string text;
  if (const int problem = read_input_file(path, kTextFileBytesMax, &text); problem != 0)
    return path + ": can't be read: " + input_file_problem(problem, kTextFileBytesMax);
  if (text.empty() || model::is_tuning(text)) return {};
  return path + " is there and no tuning file: name another one with --out, or remove it";
}

/// @return why it was not written; empty: it was
std::string write_whole(const fs::path& path, const std::string& text) {
  std::error_code problem;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), problem);
  const int error = problem ? problem.value() : write_output_file(path.string(), text);
  if (error == 0) return {};
  return output_file_problem(path.string(), error, "name another file with --out");
}

/// "2026-11-23 larklane 0.1.0, bench prtt, MPICH 5.0.2": when and how a file was written.
std::string about(const std::string& path, const json& run) {
  struct stat status {};
  ::stat(path.c_str(), &status);
  std::tm day{};
  ::gmtime_r(&status.st_mtime, &day);
  char date[16];
  std::strftime(date, sizeof date, "%Y-%m-%d", &day);
  std::string text = std::string(date) + " larklane " +
                     run.at("context").at("version").get<std::string>() + ", bench " +
                     run.at("options").at("benchmark").get<std::string>() + ", " +
                     run.at("context").at("mpi").get<std::string>();
  return printable(text);  // of one line of the tuning file
}

bool is_of(const json& run, const char* benchmark) {
  return run.at("options").at("benchmark") == benchmark &&
         run.at("context").at("variant") == "larklane";
}

/// The tried numbers of groups and of queue pairs; 0: the fabric has none.
using Tried = std::pair<std::uint32_t, std::uint32_t>;
/// Samples of one number of partitions and one size.
using Trials = std::map<Tried, std::vector<double>>;
using Search = std::map<std::pair<std::uint32_t, std::uint64_t>, Trials>;

/// The first way of a benchmark has two series, which are alike.
bool is_searched(const std::string& way) { return way == kWay || way == std::string(kWay) + "'"; }

std::string variable_of(const json& run, const char* name) {
  return run.at("context").at("environment").value(name, "");
}

/// The fabric of a launch: its provider, without the device.
std::string fabric_of(const json& run) {
  const std::string provider = variable_of(run, "LARKLANE_PROVIDER");
  return provider.empty() ? std::string(model::kShmFabric) : provider.substr(0, provider.find(':'));
}

/// @throws json::exception if something is missing
void add_trials(const json& run, Search* search) {
  const std::string policy = variable_of(run, "LARKLANE_POLICY");
  if (!policy.starts_with(kStatic)) return;
  const auto number = [](const char* text) {
    return static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
  };
  const Tried tried{number(policy.c_str() + kStatic.size()),
                    number(variable_of(run, "LARKLANE_VERBS_CHANNEL_QUEUES").c_str())};
  for (const json& point : run.at("points"))
    for (const json& series : point.at("series")) {
      const std::string way = series.at("way");
      if (!is_searched(way) || series.at("wrong") != 0 || series.contains("refused")) continue;
      auto& samples = (*search)[{point.at("send_partitions"), point.at("bytes")}][tried];
      for (const json& sample : series.at("samples").at("exposed_ns"))
        if (sample.is_number()) samples.push_back(sample);
    }
}

double median_us(const std::vector<double>& samples) {
  return model::median_of(0, samples).y / 1e3;
}

/// "4", or with queue pairs "4x2".
std::string text_of(const Tried& tried) {
  std::string text = std::to_string(tried.first);
  if (tried.second != 0) text += "x" + std::to_string(tried.second);
  return text;
}

void show(const Tuning::Entry& entry, const Trials& trials) {
  std::printf("  %10u %12llu %7s  ", entry.partitions, static_cast<unsigned long long>(entry.bytes),
              text_of({entry.groups, entry.queues}).c_str());
  for (const auto& [tried, samples] : trials)
    std::printf(" %s: %.1f", text_of(tried).c_str(), median_us(samples));
  std::printf("\n");
}

/// @return nothing: it has no figures
std::vector<Tuning::Entry> best_of(Search* search) {
  std::vector<Tuning::Entry> entries;
  for (auto& [place, trials] : *search) {
    std::erase_if(trials, [](const auto& trial) { return trial.second.empty(); });
    if (trials.empty()) continue;
    const auto best = std::ranges::min_element(
        trials, {}, [](const auto& trial) { return median_us(trial.second); });
    const auto [groups, queues] = best->first;
    if (groups < 1 || groups > place.first || queues > Tuning::kQueuesMax) continue;
    if (entries.empty())
      std::printf(
          "# microseconds from the last partition's readiness to the end, by number of groups%s\n"
          "  %10s %12s %7s\n",
          queues != 0 ? " x queue pairs" : "", "partitions", "bytes", "best");
    entries.push_back({place.first, place.second, groups, queues});
    show(entries.back(), trials);
  }
  return entries;
}

/// Of a machine that does other things, too, two series of the same are apart.
/// @throws json::exception if something is missing
void warn_if_busy(const json& run) {
  constexpr double kApart = 1.5;
  std::size_t apart = 0;
  for (const json& point : run.at("points")) {
    std::vector<double> medians;
    for (const json& series : point.at("series"))
      if (series.at("wrong") == 0 && !series.at("samples").empty())
        medians.push_back(median_us(series.at("samples").at("round_trip_ns")));
    const auto [least, most] = std::ranges::minmax_element(medians);
    apart += !medians.empty() && *most > kApart * *least;
  }
  if (apart != 0)
    std::fprintf(stderr,
                 "larklane tune: at %zu of %zu sizes two series of the same are more than %g times "
                 "apart: measure again when the machine is left alone\n",
                 apart, run.at("points").size(), kApart);
}

void show(const std::vector<Tuning::Range>& ranges) {
  std::printf("# %18s %9s %9s %9s %9s  %s\n", "bytes", "L, ns", "o_s, ns", "o_r, ns", "g, ns",
              "ns a byte: G, of o_s, of o_r");
  for (const auto& [first, last, network] : ranges)
    std::printf("  %8llu to %8llu %9.4g %9.4g %9.4g %9.4g  %.4g, %.4g, %.4g\n",
                static_cast<unsigned long long>(first), static_cast<unsigned long long>(last),
                network.latency_ns, network.send_overhead_ns, network.recv_overhead_ns,
                network.gap_ns, network.gap_per_byte_ns, network.send_overhead_per_byte_ns,
                network.recv_overhead_per_byte_ns);
}

/// The figures of `path` replace those of the same kind in `tuning`.
/// @return the problem; empty: none @throws json::exception if something is missing
std::string take_over(const std::string& path, const json& root, Tuning* tuning) {
  Search search;
  std::string searched;
  bool is_measured = false;
  for (const json& run : root.at("runs")) {
    const std::string cpu = run.at("context").at("machine").at("cpu");
    if (!tuning->host.cpu.starts_with(cpu))
      return path + ": measured on another host: " + cpu + "; here: " + tuning->host.cpu;
    if (const std::string fabric = fabric_of(run); fabric != tuning->fabric)
      return path + ": measured over " + printable(fabric) + ": name it with --provider";
    if (is_of(run, "prtt")) {
      warn_if_busy(run);
      auto segments = model::fit_loggp(trains_of(run, kWay));
      if (!segments)
        return path + ": no LogGP: that takes " + std::to_string(model::kSizesMin) + " sizes of " +
               std::to_string(model::kSamplesMin) + " rounds, and a machine that is left alone";
      tuning->measured = about(path, run);
      tuning->ranges.clear();
      for (const model::Segment& segment : *segments)
        tuning->ranges.push_back({segment.first_bytes, segment.last_bytes, segment.parameters()});
      show(tuning->ranges);
      is_measured = true;
    } else if (is_of(run, kSearch)) {
      add_trials(run, &search);
      searched = about(path, run);
    }
  }
  if (std::vector<Tuning::Entry> entries = best_of(&search); !entries.empty()) {
    tuning->searched = std::move(searched);
    tuning->entries = std::move(entries);
    is_measured = true;
  }
  return is_measured ? "" : path + ": no figures of larklane tune in it";
}

/// @return the exit status, after a message
int write_from(const std::string& from, const std::string& out, const std::string& fabric,
               const HostType& host) {
  std::string text;
  if (const int error = read_input_file(from, kRecordFileBytesMax, &text); error != 0)
    return refuse(from + ": can't be read: " + input_file_problem(error, kRecordFileBytesMax));
  auto before = model::find_tuning(out, fabric, host);
  Tuning tuning = before.tuning.value_or(Tuning{});
  tuning.fabric = fabric;
  tuning.host = host;
  std::string problem;
  try {
    problem = take_over(from, json::parse(text), &tuning);
  } catch (const json::exception& error) {
    problem = from + ": not what larklane tune has measured: " + printable(error.what());
  }
  if (problem.empty() && !Tuning::parse(tuning.print(), &problem))
    problem = from + ": gives no tuning: " + problem;
  if (!problem.empty()) return refuse(problem);
  if (fs::exists(out) && !before.tuning)
    std::fprintf(stderr, "larklane tune: %s is replaced: what was in it could not be used\n",
                 out.c_str());
  problem = write_whole(out, tuning.print());
  if (!problem.empty()) return refuse(problem, kFailed);
  std::printf("%s: for policies %s on %s, %u cores\n", out.c_str(),
              tuning.entries.empty()  ? "ploggp"
              : tuning.ranges.empty() ? "table"
                                      : "ploggp and table",
              host.cpu.c_str(), host.cores);
  return 0;
}

bool asks_help(const std::vector<std::string>& words) {
  return std::ranges::any_of(
      words, [](const std::string& word) { return word == "--help" || word == "-h"; });
}

}  // namespace

int tune(const std::vector<std::string>& given) {
  std::vector<std::string> words = given;
  if (asks_help(words)) return run_python("larklane.tune", words);
  std::vector<Config::Problem> problems;
  auto config = Config::load(&problems);
  for (const Config::Problem& problem : problems)
    if (problem.fatal) return refuse(problem.text);
  const HostType host = model::this_host();
  const std::string from = take(words, "--from");
  std::string out = take(words, "--out");
  const std::string provider = take(words, "--provider");
  if (!provider.empty() && provider != model::kShmFabric && provider != kVerbs)
    return refuse("--provider " + provider + ": expected shm or verbs");
  const std::string fabric(provider.empty() ? model::kShmFabric : std::string_view(provider));
  if (const std::string& named = config->tuning; out.empty())
    out = named.empty() || named == "off" ? model::default_tuning_path(fabric, host) : named;
  if (out.empty()) return refuse("neither HOME nor XDG_CONFIG_HOME is set: name a file with --out");
  if (const std::string why = foreign(out); !why.empty()) return refuse(why);
  if (from.empty()) {
    words.insert(words.end(), {"--out", out, "--provider", fabric});
    return run_python("larklane.tune", words);
  }
  if (!words.empty())
    return refuse("with --from there is only --out and --provider, not " + words.front());
  return write_from(from, out, fabric, host);
}

}  // namespace larklane::tools
