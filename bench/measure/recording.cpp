#include "recording.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <system_error>

namespace larklane::bench {
namespace {

/// A detour takes about 20 bytes: room for more than ten million.
constexpr std::uintmax_t kRecordingBytesMax = std::uintmax_t{1} << 28;

/// The parser's message quotes the file.
/// @return a short line that is safe to print on a terminal
std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 200;
  std::string line(text.substr(0, kMost));
  std::ranges::replace_if(
      line, [](char c) { return c < ' ' || c > '~'; }, '?');
  return text.size() > kMost ? line + "..." : line;
}

bool is_time(double value) { return std::isfinite(value) && value >= 0; }

std::string problem_of(const std::vector<std::vector<double>>& delays) {
  const auto usable = [](const std::vector<double>& round) {
    return !round.empty() && std::ranges::all_of(round, is_time);
  };
  if (!delays.empty() && std::ranges::all_of(delays, usable)) return {};
  return "expected at least one round, each of at least one delay of 0 or more ns";
}

std::string problem_of(const Detours& detours) {
  if (!is_time(detours.span_ns)) return "expected a finite span_ns";
  for (const std::vector<Detour>& core : detours.cores) {
    double free_from_ns = 0, detours_ns = 0;
    for (const Detour& detour : core) {
      if (!is_time(detour.begin_ns) || !is_time(detour.length_ns) ||
          detour.begin_ns < free_from_ns || detour.begin_ns + detour.length_ns > detours.span_ns)
        return "expected detours in order, without overlap, within span_ns";
      free_from_ns = detour.begin_ns + detour.length_ns;
      detours_ns += detour.length_ns;
    }
    if (detours_ns > kDetoursShareMax * detours.span_ns || detours.span_ns == 0)
      return "a core has less than 1 % of the time to compute";
  }
  return detours.cores.empty() ? "expected at least one core" : "";
}

}  // namespace

double Detours::disturbed_ns(double compute_ns, std::size_t core, double begin_ns) const {
  const std::vector<Detour>& all = cores[core];
  double at_ns = begin_ns, left_ns = compute_ns;
  double before_ns = 0, left_before_ns = 0;  // time of the earlier passes; work left after them
  auto next = std::ranges::upper_bound(all, begin_ns, {}, &Detour::begin_ns);
  if (next != all.begin()) {
    const Detour& last = *std::prev(next);
    at_ns = std::max(at_ns, last.begin_ns + last.length_ns);  // it may begin in a detour
  }
  for (;;) {
    const bool is_pass_over = next == all.end();
    const double until_ns = is_pass_over ? span_ns : next->begin_ns;
    if (left_ns <= until_ns - at_ns) return before_ns + at_ns + left_ns - begin_ns;
    left_ns -= until_ns - at_ns;
    if (is_pass_over) {
      const double pass_ns = left_before_ns - left_ns;  // of work; the first is partial
      const double more = left_before_ns > 0 ? std::ceil(left_ns / pass_ns) - 1 : 0;
      before_ns += (1 + more) * span_ns;
      left_ns -= more * pass_ns;
      left_before_ns = left_ns;
      at_ns = 0;
      next = all.begin();
    } else {
      at_ns = until_ns + next->length_ns;
      ++next;
    }
  }
}

Recording parse_recording(const std::string& text, const std::string& name, std::string* error) {
  Recording recording;
  std::string problem;
  try {
    const nlohmann::json found = nlohmann::json::parse(text);
    if (found.contains("detours_ns")) {
      found.at("span_ns").get_to(recording.detours.span_ns);
      for (const nlohmann::json& core : found.at("detours_ns")) {
        std::vector<Detour>& detours = recording.detours.cores.emplace_back();
        for (const nlohmann::json& detour : core)
          detours.push_back({detour.at(0).get<double>(), detour.at(1).get<double>()});
      }
      problem = problem_of(recording.detours);
    } else {
      found.at("delays_ns").get_to(recording.delays);
      problem = problem_of(recording.delays);
    }
  } catch (const nlohmann::json::exception& exception) {
    problem =
        std::string("expected {\"delays_ns\": [[number, ...], ...]} or {\"span_ns\": number, ") +
        "\"detours_ns\": [[[number, number], ...], ...]}: " + shown(exception.what());
  }
  *error = problem.empty() ? "" : name + ": " + problem;
  return problem.empty() ? recording : Recording{};
}

Recording read_recording(const std::string& path, std::string* error) {
  // A pipe or a device may have no end.
  std::error_code why;
  const bool is_file = std::filesystem::is_regular_file(path, why);
  const std::uintmax_t bytes = is_file ? std::filesystem::file_size(path, why) : 0;
  if (!is_file || why || bytes > kRecordingBytesMax) {
    *error = path + ": " +
             (why       ? why.message()
              : is_file ? "it has more than " + std::to_string(kRecordingBytesMax) + " bytes"
                        : "it is no regular file");
    return {};
  }
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    *error = path + ": can't be read";
    return {};
  }
  return parse_recording(text.str(), path, error);
}

}  // namespace larklane::bench
