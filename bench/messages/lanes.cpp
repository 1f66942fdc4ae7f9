// `larklane bench lanes`: the library with each separation of lanes turned off, way by way.

#include <cerrno>
#include <map>

#include "injection.hpp"
#include "msg/protocol/message_lane.hpp"
#include "program.hpp"
#include "vci/switches.hpp"
#include "vci/vci_pool.hpp"

namespace larklane::bench {
namespace {

using vci::Switches;
using Progress = Switches::Progress;

constexpr const char* kSingleThreaded = "single-threaded";

const std::map<std::string, Switches> kWays{
    {"own", {}},
    {kSingleThreaded, {}},
    {"shared", {}},
    {"process-lock", {.has_own_locks = false}},
    {"one-pool", {.has_own_requests = false}},
    {"progress-all", {.progress = Progress::all_lanes}},
    {"progress-own", {.progress = Progress::own_lane}},
    {"nothing",
     {.progress = Progress::all_lanes, .has_own_locks = false, .has_own_requests = false}},
};

/// As in Context::create_vci(), but the lanes are the same for all ways.
void enter(const std::string& way, Vci& vci) {
  if (way == kSingleThreaded && !vci.inside().vci().own())
    give_up("membarrier(2)", Status(Errc::kSystem, ENOSYS));
}
void leave(const std::string& way, Vci& vci) {
  if (way == kSingleThreaded) vci.inside().vci().disown();
}

}  // namespace
}  // namespace larklane::bench

int main(int argc, char** argv) {
  using namespace larklane::bench;
  const Program program{
      .around = {.before_round =
                     [](const std::string& way) { larklane::vci::switches = kWays.at(way); },
                 .enter = enter,
                 .leave = leave},
      .measure_alone = measure_injection,
      .lanes_max = larklane::vci::VciPool::kCountMax};
  return run_messages(argc, argv, program);
}
