// The files that a run writes, made of a record written by hand.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "measure/record.hpp"

namespace larklane::bench {
namespace {

Record by_hand() {
  Record record;
  record.options.benchmark = "overhead";
  record.environment.mpi = "Model MPI 1.0";
  Point point{64, 2, 2, 3, {}};
  point.series.push_back({.way = "join", .samples = {{"total_ns", {10, 20, 30}}}});
  Series partitioned{.way = "partitioned", .wrong = 1, .samples = {{"total_ns", {40, 60, 80}}}};
  partitioned.traces.push_back({{{1, 5, 32}, {2, 7, 32}}, {5, 7}, 3});
  point.series.push_back(partitioned);
  point.series.push_back({.way = "rma", .refused = "it says too much"});
  record.points.push_back(point);
  record.failures.push_back({"threads", 128, "a round was not over"});
  return record;
}

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// Without blanks and line ends, which have no meaning in JSON.
std::string json_of(const Record& record) {
  const std::string path = testing::TempDir() + "bench_record.json";
  EXPECT_EQ(write_json(record, path), "");
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
  std::string text = text_of(path);
  std::erase_if(text, [](char letter) { return letter == ' ' || letter == '\n'; });
  return text;
}

void expect_in(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << part << "\nin " << text;
}

std::vector<std::string> cells_of(const Record& record, std::size_t line) {
  std::istringstream lines(table_lines(record, record.points[0]));
  std::string text;
  for (std::size_t i = 0; i <= line; ++i) std::getline(lines, text);
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

// One send takes 20 ns in the median, so that the overheads are 2, 3, 4, and their ratio is 3.
TEST(Record, HasEverySampleAndItsStatistics) {
  const std::string json = json_of(by_hand());
  expect_in(json, R"("way":"partitioned","wrong":1,"early":false,"headline":{"name":"overhead")");
  expect_in(json, R"("n":3,"min":2.0,"p10":2.2,"median":3.0,"p90":3.8,)");
  expect_in(json, R"("ratio":3.0,)");
  expect_in(json, R"("samples":{"total_ns":[40.0,60.0,80.0],"overhead":[2.0,3.0,4.0]})");
  expect_in(json,
            R"("transfers":[[1.0,5.0,32],[2.0,7.0,32]],"arrivals_ns":[5.0,7.0],"joined_ns":3.0)");
}

TEST(Record, GivesTheReasonOfAWayWithoutFigures) {
  const std::string json = json_of(by_hand());
  expect_in(json, R"({"way":"rma","wrong":0,"early":false,"refused":"itsaystoomuch"})");
  expect_in(json, R"("failures":[{"way":"threads","bytes":128,"what":"aroundwasnotover"}])");
}

TEST(Record, StatesHowMessagesAreSent) {
  Record record;
  record.options.benchmark = "message-rate";
  record.options.threads = 2;
  record.options.window = 16;
  Point point{8, 1, 1, 2, {}};
  point.series.push_back({.way = "own", .samples = {{"rate_per_s", {2e6, 4e6}}}});
  record.points.push_back(point);
  expect_in(json_of(record), R"("operation":"send","window":16,"lanes":1})");
  expect_in(json_of(record),
            R"("headline":{"name":"messagerate","unit":"million/s","n":2,"min":2.0,)");
  record.options.variant = "larklane";
  record.options.progress = "dedicated";
  expect_in(
      json_of(record),
      R"("lanes":1,"completion":"queue","progress":"dedicated","layout":"own","more_follow":false})");
  expect_in(table_head(record), "send in windows of 16, completion queue, progress by a dedicated");
  record.options.completion.clear();
  record.options.progress.clear();
  expect_in(json_of(record), R"("operation":"send","window":16,"lanes":1,"layout":"own"})");
  expect_in(table_head(record), "send in windows of 16, posts alone");
}

TEST(Record, HasTheUsersVariablesAsTheyWere) {
  ::setenv("LARKLANE_BENCH_RECORD_TEST", "before", 1);
  const Record record = by_hand();
  ::setenv("LARKLANE_BENCH_RECORD_TEST", "after", 1);
  expect_in(json_of(record), R"("LARKLANE_BENCH_RECORD_TEST":"before")");
  ::unsetenv("LARKLANE_BENCH_RECORD_TEST");
}

TEST(Record, StatesTheSizesOfApplications) {
  Record record;
  record.options.benchmark = "bspmm";
  record.options.blocks = 3;
  record.options.lanes = 2;
  Point point{128, 1, 1, 2, {}};
  point.series.push_back({.way = "own", .samples = {{"time_ns", {2e3, 4e3}}, {"get_ns", {1, 2}}}});
  record.points.push_back(point);
  expect_in(json_of(record), R"("lanes":2,"blocks":3})");
  expect_in(json_of(record),
            R"("headline":{"name":"timeoftheproduct","unit":"us","n":2,"min":2.0,)");
  expect_in(table_head(record), "together, --blocks 3, 2 lanes shared");
}

TEST(Record, StatesWhetherThereAreMoreThreadsThanCores) {
  Record record = by_hand();
  expect_in(json_of(record), R"("oversubscribed":false)");
  record.environment.is_oversubscribed = true;
  expect_in(json_of(record), R"("oversubscribed":true)");
}

TEST(Record, NamesNoFolder) {
  setenv("LARKLANE_PROFILE", "/alice/profile", 1);
  Record record = by_hand();
  record.options.noise = "trace:/alice/delays.json";
  const std::string json = json_of(record);
  expect_in(json, R"("noise":"trace:delays.json")");
  expect_in(json, R"("LARKLANE_PROFILE":"profile")");
  EXPECT_EQ(json.find("alice"), std::string::npos);
}

TEST(Record, HasNoNumberForAnInfiniteSample) {
  Record record = by_hand();
  record.points[0].series[1].samples["perceived_bandwidth_bps"] = {
      std::numeric_limits<double>::infinity(), 2, 3};
  expect_in(json_of(record), R"("perceived_bandwidth_bps":[null,2.0,3.0])");
}

TEST(Record, IsALineASampleInCsv) {
  const std::string path = testing::TempDir() + "bench_record.csv";
  ASSERT_EQ(write_csv(by_hand(), path), "");
  EXPECT_EQ(text_of(path),
            "benchmark,variant,mpi,bytes,send_partitions,recv_partitions,way,metric,round,value\n"
            "overhead,native,\"Model MPI 1.0\",64,2,2,join,total_ns,0,10\n"
            "overhead,native,\"Model MPI 1.0\",64,2,2,join,total_ns,1,20\n"
            "overhead,native,\"Model MPI 1.0\",64,2,2,join,total_ns,2,30\n"
            "overhead,native,\"Model MPI 1.0\",64,2,2,partitioned,total_ns,0,40\n"
            "overhead,native,\"Model MPI 1.0\",64,2,2,partitioned,total_ns,1,60\n"
            "overhead,native,\"Model MPI 1.0\",64,2,2,partitioned,total_ns,2,80\n");
}

TEST(Record, KeepsEveryDigitInCsv) {
  Record record = by_hand();
  record.points[0].series[0].samples["total_ns"] = {1234567.125, 0.1, 3e22};
  const std::string path = testing::TempDir() + "bench_record.csv";
  ASSERT_EQ(write_csv(record, path), "");
  const std::string text = text_of(path);
  for (const char* line : {",0,1234567.125\n", ",1,0.1\n", ",2,3e+22\n"}) expect_in(text, line);
}

TEST(Record, IsATableThatPeopleRead) {
  const Record record = by_hand();
  std::istringstream lines(table_lines(record, record.points[0]));
  std::string join, partitioned, rma;
  std::getline(lines, join);
  std::getline(lines, partitioned);
  std::getline(lines, rma);
  const std::vector<std::string> cells = cells_of(record, 1);
  ASSERT_EQ(cells.size(), 16u) << partitioned;
  EXPECT_EQ((std::vector(cells.begin(), cells.begin() + 6)),
            (std::vector<std::string>{"64", "partitioned", "3", "2", "2.2", "3"}));
  EXPECT_EQ(cells[11], "3") << "the ratio";
  EXPECT_EQ(cells.back(), "1") << "wrong rounds";
  EXPECT_EQ(rma, "64 rma: no figures: it says too much");
}

// Nothing of one send is saved: 1e-15 of rounding is no baseline of a ratio.
TEST(Record, ComparesSharesByDifference) {
  Record record = by_hand();
  record.options.benchmark = "early-bird";
  record.points[0].series[0].samples = {{"early_bird_share", {1e-17, 1e-17, 1e-17}}};
  record.points[0].series[1].samples = {{"early_bird_share", {0.5, 0.5, 0.5}}};
  const std::string json = json_of(record);
  expect_in(json, R"("interval":[50.0,50.0],"difference":50.0,"difference_interval":[50.0,50.0]})");
  EXPECT_EQ(json.find(R"("ratio")"), std::string::npos);
  const std::vector<std::string> cells = cells_of(record, 1);
  ASSERT_EQ(cells.size(), 16u);
  EXPECT_EQ((std::vector(cells.begin() + 11, cells.end() - 1)),
            (std::vector<std::string>{"50", "50", "to", "50"}));
  expect_in(table_head(record), "points: above the first way");
}

TEST(Record, HasNoRatioToNothing) {
  Record record = by_hand();
  record.options.benchmark = "recv-compute";
  record.points[0].series[0].samples = {{"extra_compute_ns", {0, 0, 5}}};
  record.points[0].series[1].samples = {{"extra_compute_ns", {1, 2, 3}}};
  EXPECT_EQ(json_of(record).find(R"("ratio")"), std::string::npos);
  const std::vector<std::string> cells = cells_of(record, 1);
  ASSERT_EQ(cells.size(), 14u);
  EXPECT_EQ(cells[11] + cells[12], "--");
}

TEST(Record, AFailedWriteIsReportedAndLeavesNothing) {
  const std::string path = testing::TempDir() + "no such folder/record.json";
  const std::string problem = write_json(by_hand(), path);
  expect_in(problem, path + ": not written: ");
  EXPECT_EQ(write_csv(by_hand(), path), problem);
}

}  // namespace
}  // namespace larklane::bench
