#include "delay_trace.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

namespace larklane::bench {

std::vector<std::vector<double>> read_delay_trace(const std::string& path, std::string* error) {
  std::ifstream file(path);
  if (!file) {
    *error = path + ": can't be read";
    return {};
  }
  std::vector<std::vector<double>> delays;
  try {
    nlohmann::json::parse(file).at("delays_ns").get_to(delays);
  } catch (const nlohmann::json::exception& problem) {
    *error = path + ": expected {\"delays_ns\": [[number, ...], ...]}: " + problem.what();
    return {};
  }
  const auto usable = [](const std::vector<double>& round) {
    return !round.empty() && std::ranges::all_of(round, [](double delay) {
      return std::isfinite(delay) && delay >= 0;
    });
  };
  if (delays.empty() || !std::ranges::all_of(delays, usable)) {
    *error = path + ": expected at least one round, each of at least one delay of 0 or more ns";
    return {};
  }
  return delays;
}

}  // namespace larklane::bench
