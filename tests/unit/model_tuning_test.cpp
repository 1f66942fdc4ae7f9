// Tunings: text, parser, choice of an entry, and the file that holds them.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "model/groups.hpp"
#include "model/tuning.hpp"
#include "model/tuning_file.hpp"

namespace larklane::model {
namespace {

constexpr const char* kText = R"(larklane tuning 1
fabric shm
cpu Some(R) CPU @ 2.10GHz
cores 8

measured 2026-11-23 by hand
#     bytes from, to, L, o_s, o_r, g in ns, then ns a byte: G, of o_s, of o_r
loggp 1 4096 1000 300.5 400 500 0.1 0 0.25
loggp 8192 1048576 2000 300 400 500 0.00001 0.5 0

searched 2026-11-24 by hand
#      partitions, bytes of the message, best number of groups
groups 8 65536 1
groups 8 1048576 4
groups 32 65536 2
end
)";

Tuning parsed(const std::string& text) {
  std::string problem;
  auto tuning = Tuning::parse(text, &problem);
  EXPECT_TRUE(tuning.has_value()) << problem;
  return tuning ? *tuning : Tuning{};
}

std::string problem_of(const std::string& text) {
  std::string problem;
  const auto tuning = Tuning::parse(text, &problem);
  EXPECT_EQ(tuning.has_value(), problem.empty());
  return problem;
}

std::string with(const std::string& text, const std::string& from, const std::string& to) {
  std::string changed = text;
  const std::size_t at = changed.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return changed.replace(at, from.size(), to);
}

TEST(ModelTuning, TextRoundTrips) {
  const Tuning tuning = parsed(kText);
  EXPECT_EQ(tuning.fabric, "shm");
  EXPECT_EQ(tuning.host, (HostType{"Some(R) CPU @ 2.10GHz", 8}));
  EXPECT_EQ(tuning.measured, "2026-11-23 by hand");
  ASSERT_EQ(tuning.ranges.size(), 2u);
  const LogGP& network = tuning.ranges[0].network;
  EXPECT_EQ(network.latency_ns, 1000);
  EXPECT_EQ(network.send_overhead_ns, 300.5);
  EXPECT_EQ(network.recv_overhead_ns, 400);
  EXPECT_EQ(network.gap_ns, 500);
  EXPECT_EQ(network.gap_per_byte_ns, 0.1);
  EXPECT_EQ(network.send_overhead_per_byte_ns, 0);
  EXPECT_EQ(network.recv_overhead_per_byte_ns, 0.25);
  EXPECT_EQ(tuning.ranges[1].network.gap_per_byte_ns, 1e-5);
  EXPECT_EQ(tuning.print(), kText);
}

TEST(ModelTuning, NumbersHaveSixDecimals) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> power(-8, 11.9);
  for (int i = 0; i < 1000; ++i) {
    Tuning tuning;
    tuning.fabric = "shm";
    tuning.host = {"x", 1};
    tuning.measured = "now";
    const double value = std::pow(10, power(random));
    tuning.ranges = {{1, 2, {value, value / 3, 0, 1, 0, 0, 0}}};
    const Tuning again = parsed(tuning.print());
    ASSERT_EQ(again.ranges.size(), 1u);
    ASSERT_NEAR(again.ranges[0].network.latency_ns, value, 6e-7 + value * 1e-15);
    ASSERT_EQ(again.ranges[0].network.gap_ns, 1);
    ASSERT_EQ(again.print(), tuning.print());
  }
}

TEST(ModelTuning, TooLongATimeIsPrintedAsOne) {
  for (const double value : {1.1e12, 1e20, std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()}) {
    Tuning tuning = parsed(kText);
    tuning.ranges[0].network.gap_ns = value;
    EXPECT_NE(problem_of(tuning.print()).find("line 8: wanted"), std::string::npos) << value;
  }
}

TEST(ModelTuning, CutOffAnywhereItIsRefused) {
  const std::string whole = kText;
  for (std::size_t bytes = 0; bytes + 1 < whole.size(); ++bytes)
    ASSERT_NE(problem_of(whole.substr(0, bytes)), "") << bytes;
  EXPECT_EQ(problem_of(whole.substr(0, whole.size() - 1)), "");  // the last line's end
}

TEST(ModelTuning, AnErrorIsNamedWithItsLine) {
  const struct {
    const char *from, *to, *problem;
  } cases[] = {
      {"tuning 1", "tuning 2", "line 1: of another version"},
      {"larklane tuning 1", "#!/bin/sh", "line 1: not a tuning file"},
      {"larklane tuning 1", "\nlarklane tuning 1", "line 1: not a tuning file"},
      {"fabric shm", "fabrik shm", "line 2: no such key"},
      {"fabric shm", "fabric", "line 2: nothing follows"},
      {"fabric shm", "fabric shm\nfabric shm", "line 3: a second one"},
      {"fabric shm\n", "", "line 15: fabric, cpu or cores"},
      {"cores 8", "cores 0", "line 4: wanted: a number from 1"},
      {"cores 8", "cores 8 9", "line 4: wanted"},
      {"cores 8", "cores 8\ncores 8", "line 5: a second one"},
      {"measured 2026-11-23 by hand\n", "", "'measured' and 'loggp'"},
      {"searched 2026-11-24 by hand\n", "", "'searched' and 'groups'"},
      {"4096 1000", "4096 -1000", "line 8: wanted: 2 sizes and 7 times"},
      {"4096 1000", "4096 nan", "line 8: wanted"},
      {"4096 1000", "4096 inf", "line 8: wanted"},
      {"4096 1000", "4096 1,000", "line 8: wanted"},
      {"4096 1000", "4096 1e3", "line 8: wanted"},
      {"4096 1000", "4096 1000.", "line 8: wanted"},
      {"4096 1000", "4096 .5", "line 8: wanted"},
      {"4096 1000", "4096 1.0000001", "line 8: wanted"},
      {"4096 1000", "4096 1.-5", "line 8: wanted"},
      {"4096 1000", "4096 1000000000001", "line 8: wanted"},
      {"4096 1000", "4096", "line 8: wanted"},
      {"0 0.25", "0 0.25 7", "line 8: wanted"},
      {"1 4096", "1 9999999999999999999", "line 8: wanted"},
      {"1 4096", "-1 4096", "line 8: wanted"},
      {"1 4096", "5000 4096", "line 8: the first size is above the last"},
      {"8192 1048576", "4096 1048576", "line 9: not above"},
      {"8 65536 1", "8 65536 0", "line 13: groups are 1 to"},
      {"8 65536 1", "8 65536 9", "line 13: groups are 1 to"},
      {"8 65536 1", "0 65536 0", "line 13: groups are 1 to"},
      {"8 65536 1", "8 65536", "line 13: wanted: partitions, bytes, groups"},
      {"8 65536 1", "8 65536 1 0", "line 13: queue pairs are 1 to 16"},
      {"8 65536 1", "8 65536 1 17", "line 13: queue pairs are 1 to 16"},
      {"8 65536 1", "8 65536 1 x", "line 13: wanted: partitions, bytes, groups, and maybe queue"},
      {"8 65536 1", "8 65536 1 -1", "line 13: wanted"},
      {"8 65536 1", "8 65536 1 2 3", "line 13: wanted"},
      {"8 65536 1", "4294967297 65536 1", "line 13: wanted"},
      {"8 1048576 4", "8 65536 4", "line 14: not after"},
      {"end\n", "end\ngroups 64 1 1\n", "line 17: more after the end"},
  };
  for (const auto& c : cases) {
    const std::string problem = problem_of(with(kText, c.from, c.to));
    EXPECT_NE(problem.find(c.problem), std::string::npos)
        << c.from << ", " << c.to << ": " << problem;
  }
  EXPECT_NE(problem_of("larklane tuning 1\nfabric a\ncpu b\ncores 1\nend\n").find("neither"),
            std::string::npos);
}

TEST(ModelTuning, NoChangeOfBytesIsACrash) {
  std::mt19937_64 random(11);
  const std::string alphabet = "0123456789.-+e naif\n#\r\t\xff" + std::string(1, '\0') + kText;
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = kText;
    for (std::uint64_t changes = random() % 4 + 1; changes > 0; --changes) {
      const std::size_t at = random() % text.size();
      const char c = alphabet[random() % alphabet.size()];
      switch (random() % 3) {
        case 0:
          text[at] = c;
          break;
        case 1:
          text.insert(at, 1, c);
          break;
        default:
          text.erase(at, random() % 5);
      }
    }
    std::string problem;
    const auto tuning = Tuning::parse(text, &problem);
    accepted += tuning.has_value();
    if (auto copy = tuning; copy) {
      for (const auto& entry : copy->entries) ASSERT_LE(entry.groups, entry.partitions);
      ASSERT_EQ(parsed(copy->print()).print(), copy->print());
    } else {
      ASSERT_TRUE(problem.starts_with("line ")) << problem;
    }
  }
  EXPECT_GT(accepted, 100);  // names, comments, digits
}

TEST(ModelTuning, TheNearestRangeAndTheEntryAtOrBelow) {
  const Tuning tuning = parsed(kText);
  for (const auto& [bytes, latency_ns] : std::vector<std::pair<std::uint64_t, double>>{
           {0, 1000}, {4096, 1000}, {6000, 1000}, {6200, 2000}, {8192, 2000}, {1 << 30, 2000}})
    EXPECT_EQ(tuning.network_of(bytes)->latency_ns, latency_ns) << bytes;
  EXPECT_EQ(Tuning{}.network_of(1), nullptr);
  EXPECT_EQ(tuning.groups_of(8, 65535), std::nullopt);
  EXPECT_EQ(tuning.groups_of(8, 65536), 1u);
  EXPECT_EQ(tuning.groups_of(8, 1048575), 1u);
  EXPECT_EQ(tuning.groups_of(8, 1 << 30), 4u);
  EXPECT_EQ(tuning.groups_of(32, 1 << 30), 2u);
  EXPECT_EQ(tuning.groups_of(16, 1 << 30), std::nullopt);
}

TEST(ModelTuning, AnEntryMayHaveQueuePairs) {
  const std::string text =
      with(with(with(kText, "best number of groups", "best number of groups, of queue pairs"),
                "65536 1\n", "65536 1 16\n"),
           "1048576 4\n", "1048576 4 2\n");
  const Tuning tuning = parsed(text);
  EXPECT_EQ(tuning.print(), text);
  EXPECT_EQ(tuning.entry_of(8, 65535), nullptr);
  EXPECT_EQ(tuning.entry_of(8, 65536)->queues, 16u);
  EXPECT_EQ(tuning.entry_of(8, 1 << 30)->queues, 2u);
  EXPECT_EQ(tuning.entry_of(32, 1 << 30)->queues, 0u) << "a table of before";
  EXPECT_EQ(tabled_queues(&tuning, 8, 8192), 16u);
  EXPECT_EQ(tabled_queues(&tuning, 8, 131072), 2u);
  EXPECT_EQ(tabled_queues(&tuning, 16, 131072), 0u);
  EXPECT_EQ(tabled_queues(nullptr, 8, 131072), 0u);
}

TEST(ModelTuning, HostTypes) {
  const HostType intel = host_type_of(
      "processor\t: 0\nmodel name\t: Intel(R) Xeon(R)  @ 2.1GHz\n\nprocessor\t: 1\nmodel name\t: "
      "Intel(R) Xeon(R)  @ 2.1GHz\n",
      "x86_64");
  EXPECT_EQ(intel, (HostType{"Intel(R) Xeon(R)  @ 2.1GHz", 2}));
  EXPECT_EQ(intel.key(), "intel-r-xeon-r-2-1ghz-2");
  EXPECT_EQ(host_type_of("processor : 0\nCPU implementer : 0x41\nCPU part : 0xd0c\n", "aarch64"),
            (HostType{"aarch64 0x41 0xd0c", 1}));
  EXPECT_EQ(host_type_of("", "riscv64"), (HostType{"riscv64", 1}));
  EXPECT_EQ(this_host(), this_host());
}

/// A folder of its own, and the variables that say where files are looked for.
class ModelTuningFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "larklane_tuning_" + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
    setenv("XDG_CONFIG_HOME", folder_.c_str(), 1);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << text;
    return path;
  }
  TuningFile find(const std::string& option) { return find_tuning(option, "shm", host_); }
  /// Ignored, with a reason that names the file and the remedy.
  void expect_ignored(const std::string& path, const std::string& why) {
    const TuningFile found = find(path);
    EXPECT_FALSE(found.tuning);
    for (const std::string& part : {path, why, std::string("`larklane tune`")})
      EXPECT_NE(found.problem.find(part), std::string::npos) << found.problem;
  }

  const HostType host_{"Some(R) CPU @ 2.10GHz", 8};
  std::string folder_;
};

TEST_F(ModelTuningFile, TheDefaultPlaceIsReadAndMayBeEmpty) {
  const std::string path = folder_ + "/larklane/tuning/shm-some-r-cpu-2-10ghz-8.txt";
  EXPECT_EQ(default_tuning_path("shm", host_), path);
  EXPECT_EQ(find("").path, path);
  EXPECT_EQ(find("").problem, "");
  EXPECT_FALSE(find("").tuning);
  write(path, kText);
  EXPECT_EQ(find("").problem, "");
  EXPECT_TRUE(find("").tuning);
  EXPECT_EQ(find("off").path, "");
  EXPECT_FALSE(find("off").tuning);
  EXPECT_TRUE(find(path).tuning);
  setenv("XDG_CONFIG_HOME", "relative", 1);
  setenv("HOME", "/home-of-mine", 1);
  EXPECT_EQ(find("").path, "/home-of-mine/.config/larklane/tuning/shm-some-r-cpu-2-10ghz-8.txt");
  unsetenv("HOME");
  EXPECT_EQ(find("").path, "");
  EXPECT_EQ(find("").problem, "");
}

TEST_F(ModelTuningFile, AnUnusableFileIsNamed) {
  expect_ignored(folder_ + "/nothing", "No such file");
  expect_ignored(folder_, "Is a directory");
  expect_ignored(write(folder_ + "/damaged", with(kText, "cores 8", "cores x")), "line 4");
  expect_ignored(write(folder_ + "/cpu", with(kText, "Some(R)", "Another(R)")),
                 "of another host type: Another(R) CPU @ 2.10GHz, 8 cores; here: Some(R)");
  expect_ignored(write(folder_ + "/cores", with(kText, "cores 8", "cores 9")), "9 cores");
  expect_ignored(write(folder_ + "/fabric", with(kText, "fabric shm", "fabric verbs")), "'verbs'");
  expect_ignored(write(folder_ + "/large", kText + std::string(2 << 20, '#')),
                 "it has more than 1048576 bytes");
  ASSERT_EQ(mkfifo((folder_ + "/pipe").c_str(), 0600), 0);
  expect_ignored(folder_ + "/pipe", "it is no regular file");
  expect_ignored("/dev/zero", "it is no regular file");
  expect_ignored(
      write(folder_ + "/line", with(kText, "cores 8", "cores 8" + std::string(9000, '1'))),
      "line 4: longer than 4096 bytes");
  expect_ignored(write(folder_ + "/bell", with(kText, "Some(R)", "\a\x1b[31m")), "\\x07\\x1b[31m");
}

}  // namespace
}  // namespace larklane::model
