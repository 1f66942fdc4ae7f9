// The metrics that python/larklane/profile/rounds.py also computes, on the traces that its test
// reads too.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "measure/metrics.hpp"

namespace larklane::bench {
namespace {

RoundTrace trace_of(const nlohmann::json& json) {
  RoundTrace trace{{}, json.at("arrivals_ns"), json.at("joined_ns")};
  for (const nlohmann::json& each : json.at("transfers"))
    trace.transfers.push_back({each.at(0), each.at(1), each.at(2)});
  return trace;
}

TEST(Traces, MatchTheReaderOfProfiles) {
  const auto all = nlohmann::json::parse(std::ifstream(LARKLANE_TRACES));
  ASSERT_GE(all.size(), 5u);
  for (const nlohmann::json& each : all) {
    const RoundTrace trace = trace_of(each);
    EXPECT_EQ(exposed_ns(trace), each.at("exposed_ns").get<double>()) << each.at("name");
    EXPECT_DOUBLE_EQ(early_bytes_share(trace), each.at("early_bytes_share").get<double>())
        << each.at("name");
  }
}

}  // namespace
}  // namespace larklane::bench
