#include "pairs.hpp"

namespace larklane::bench {

const std::vector<std::string>& message_way_names() {
  static const std::vector<std::string> names{"shared", "own", "everywhere"};
  return names;
}

std::string refusal_of_pairs(const Options& o, int ranks, const std::string& launcher) {
  const int needed = o.is_everywhere() ? 2 * static_cast<int>(o.threads) : 2;
  if (ranks == needed) return {};
  const std::string asked =
      o.benchmark + (o.is_everywhere() ? " --ways everywhere --threads " + std::to_string(o.threads)
                                       : std::string());
  return asked + " needs " + std::to_string(needed) + " ranks, here " +
         (ranks == 1 ? "is 1: " : "are " + std::to_string(ranks) + ": ") + launcher + " " +
         std::to_string(needed) + " larklane bench " + asked;
}

}  // namespace larklane::bench
