// `larklane bench lanes`: the library with each of what keeps lanes apart turned off, way by way.

#include <map>

#include "injection.hpp"
#include "program.hpp"
#include "vci/switches.hpp"

namespace larklane::bench {
namespace {

using vci::Switches;
using Progress = Switches::Progress;

const std::map<std::string, Switches> kWays{
    {"own", {}},
    {"shared", {}},
    {"process-lock", {.has_own_locks = false}},
    {"one-pool", {.has_own_requests = false}},
    {"progress-all", {.progress = Progress::all_lanes}},
    {"progress-own", {.progress = Progress::own_lane}},
    {"nothing",
     {.progress = Progress::all_lanes, .has_own_locks = false, .has_own_requests = false}},
};

}  // namespace
}  // namespace larklane::bench

int main(int argc, char** argv) {
  using namespace larklane::bench;
  Program program{
      .before_round = [](const std::string& way) { larklane::vci::switches = kWays.at(way); },
      .measure_alone = measure_injection};
  for (const auto& [name, switches] : kWays) program.ways.push_back(name);
  return run_messages(argc, argv, program);
}
