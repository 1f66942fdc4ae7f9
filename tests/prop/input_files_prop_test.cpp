// Damaged files: each reader refuses them with file and place, or uses the intact parts.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/printable.hpp"
#include "bootstrap/boards.hpp"
#include "model/tuning.hpp"
#include "model/tuning_file.hpp"
#include "msg_seeds.hpp"
#include "mutations.hpp"
#include "sim/copy_costs.hpp"

namespace larklane {
namespace {

constexpr std::uint64_t kMutations = 1000;
constexpr std::size_t kProblemBytesMax = 3000;

class InputFiles : public testing::Test {
 protected:
  void SetUp() override {
    for (char** entry = environ; *entry != nullptr;) {
      const std::string text = *entry;
      if (text.starts_with("LARKLANE_") && !text.starts_with("LARKLANE_SEED"))
        unsetenv(text.substr(0, text.find('=')).c_str());
      else
        ++entry;
    }
    // A card is synchronised with the disk: a thousand of them take no time in memory.
    const std::string above = access("/dev/shm", W_OK) == 0 ? "/dev/shm/" : testing::TempDir();
    folder_ = above + "larklane_input_files_" + std::to_string(getpid());
    std::filesystem::remove_all(folder_);
    ASSERT_EQ(mkdir(folder_.c_str(), 0700), 0);
  }
  void TearDown() override {
    unsetenv("LARKLANE_CONFIG");
    std::filesystem::remove_all(folder_);
  }
  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
    return path;
  }
  /// One short line that a terminal shows as it is, and that names `what`.
  static void expect_problem(const std::string& problem, const std::string& what) {
    EXPECT_NE(problem.find(what), std::string::npos) << problem;
    EXPECT_LE(problem.size(), kProblemBytesMax);
    EXPECT_EQ(problem, printable(problem, problem.size()));
  }
  std::string folder_;
};

TEST_F(InputFiles, ADamagedConfigurationIsRefusedWithFileAndLine) {
  const std::string text =
      "# of this cluster\npolicy = min_bytes:16K\nprovider = ofi:tcp,verbs:mlx5_0:1\n\n"
      "min_bytes = 64K # large\nwait_sleep_ns_max = 1ms\nsummary = on\njob = a secret\n"
      "tuning = /a/path\nnonesuch = 1\n";
  msg::for_seeds(kMutations, [&](std::uint64_t seed) {
    const std::string path = write("config", mutated(text, seed));
    ASSERT_EQ(setenv("LARKLANE_CONFIG", path.c_str(), 1), 0);
    std::vector<Config::Problem> problems;
    const auto config = Config::load(&problems);
    bool fatal = false;
    for (const Config::Problem& problem : problems) {
      fatal |= problem.fatal;
      if (problem.text.starts_with("wait_sleep_ns_min is")) continue;  // of two options
      expect_problem(problem.text, path + ":");
    }
    EXPECT_EQ(config.has_value(), !fatal);
    EXPECT_LE(problems.size(), 12U);
  });
}

TEST_F(InputFiles, ADamagedVariableIsRefusedByName) {
  msg::for_seeds(kMutations, [&](std::uint64_t seed) {
    const std::string value = mutated("verbs:mlx5_0:1,ofi:tcp", seed);
    ASSERT_EQ(setenv("LARKLANE_PROVIDER", value.c_str(), 1), 0);
    std::vector<Config::Problem> problems;
    const auto config = Config::load(&problems);
    EXPECT_EQ(config.has_value(), problems.empty());
    for (const Config::Problem& problem : problems)
      expect_problem(problem.text, "LARKLANE_PROVIDER is ");
  });
  unsetenv("LARKLANE_PROVIDER");
}

TEST_F(InputFiles, ADamagedTuningIsRefusedWithFileAndLine) {
  const std::string text =
      "larklane tuning 1\nfabric shm\ncpu Some CPU\ncores 8\n\nmeasured 2026-11-23\n"
      "loggp 1 1024 500.5 100 200 300 0.1 0.05 0.04\nloggp 2048 1048576 600 100 200 300 0.1 0 0\n\n"
      "searched 2026-11-23\ngroups 4 1048576 2\ngroups 8 1048576 4\ngroups 8 4194304 8\nend\n";
  const model::HostType host{"Some CPU", 8};
  ASSERT_TRUE(model::find_tuning(write("tuning", text), "shm", host).tuning);
  msg::for_seeds(kMutations, [&](std::uint64_t seed) {
    const std::string path = write("tuning", mutated(text, seed));
    const model::TuningFile found = model::find_tuning(path, "shm", host);
    if (!found.tuning) return expect_problem(found.problem, "tuning file " + path);
    std::string problem;
    EXPECT_TRUE(model::Tuning::parse(found.tuning->print(), &problem)) << problem;
  });
}

TEST_F(InputFiles, DamagedCopyCostsAreRefusedWithTheLine) {
  const std::string text =
      "larklane copy costs 1\n# here\ncores 2\npiece_bytes 32768\npready 10.5\nmove 100\nfirst 0\n"
      "line 50\nturn 30\nswitch 1000\ncopy 1048576 2048 1 2 3 4 5 6\ncopy 1048576 32768 10 20 30 "
      "40 50 60\nend\n";
  std::istringstream whole(text);
  std::string problem;
  sim::read_copy_costs(whole, &problem);
  ASSERT_EQ(problem, "");
  msg::for_seeds(kMutations, [&](std::uint64_t seed) {
    std::istringstream lines(mutated(text, seed));
    const sim::CopyCosts costs = sim::read_copy_costs(lines, &problem);
    if (!problem.empty()) return expect_problem(problem, "line");
    EXPECT_GT(costs.calls.size(), 0U);
    EXPECT_GT(costs.cores, 0U);
  });
}

TEST_F(InputFiles, ADamagedCardIsRefusedByName) {
  boot::Member member;
  member.way = boot::Member::Way::folder;
  member.size = 2;
  member.job = "a job";
  member.folder = folder_;
  member.wait_ns = 60'000'000'000;
  const std::string text = "a card of " + std::string(64, 'b');
  std::string problem;
  const auto board_of = [&](int rank) {
    member.rank = rank;
    auto board = boot::open_file_board(member, &problem);
    EXPECT_TRUE(board) << problem;
    EXPECT_TRUE((*board)->publish(std::as_bytes(std::span(text)), &problem).ok()) << problem;
    return std::move(board).value();
  };
  board_of(1);
  std::string own;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) own = entry.path();
  const std::string path = own + "/card.1";
  std::ostringstream whole;
  whole << std::ifstream(path, std::ios::binary).rdbuf();
  msg::for_seeds(kMutations, [&](std::uint64_t seed) {
    const std::string damaged = mutated(whole.str(), seed);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << damaged;
    auto found = board_of(0)->card_of(1, &problem);
    std::filesystem::remove(own + "/rank.0");
    EXPECT_EQ(found.has_value(), damaged == whole.str());
    if (!found) expect_problem(problem, "card.1");
  });
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_FALSE(board_of(0)->card_of(1, &problem));
  expect_problem(problem, "card.1");
}

}  // namespace
}  // namespace larklane
