#include "crew.hpp"

#include <algorithm>
#include <numeric>

#include "catalogue.hpp"

namespace larklane::bench {

namespace {

std::string refused(const Options& o, int ranks, const std::string& launcher, int needed,
                    const std::string& or_more) {
  const std::string asked =
      o.benchmark + (o.is_everywhere() ? " --ways everywhere --threads " + std::to_string(o.threads)
                                       : std::string());
  return asked + " needs " + std::to_string(needed) + " ranks" + or_more + ", here " +
         (ranks == 1 ? "is 1: " : "are " + std::to_string(ranks) + ": ") + launcher + " " +
         std::to_string(needed) + " larklane bench " + asked;
}

}  // namespace

std::string refusal_of_ways(const Options& o) {
  const std::vector<std::string> names = ways_of(*find_benchmark(o.benchmark));
  for (const std::string& way : o.ways)
    if (std::ranges::find(names, way) == names.end())
      return std::accumulate(
          names.begin(), names.end(), "--ways " + way + ": expected some of",
          [](const std::string& text, const std::string& name) { return text + " " + name; });
  return {};
}

std::string refusal_without_mpi(const Options& o) {
  if (o.operation == "ssend")
    return o.benchmark + " --operation ssend: of an MPI alone: --with native";
  if (std::ranges::count(o.ways, "hints") > 0)
    return o.benchmark + " --ways hints: of an MPI alone: --with native";
  return {};
}

std::string refusal_of_crew(const Options& o, int ranks, const std::string& launcher) {
  const int in_place = o.is_everywhere() ? static_cast<int>(o.threads) : 1;
  const int needed = 2 * in_place;
  if (find_benchmark(o.benchmark)->kind == Kind::application)
    return ranks >= needed && ranks % in_place == 0
               ? std::string()
               : refused(
                     o, ranks, launcher, needed,
                     in_place > 1 ? ", or a multiple of " + std::to_string(in_place) : " or more");
  return ranks == needed ? std::string() : refused(o, ranks, launcher, needed, "");
}

}  // namespace larklane::bench
