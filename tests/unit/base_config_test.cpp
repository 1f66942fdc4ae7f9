// The option parser: sources, precedence, secrets, refused values and names.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/config.hpp"

namespace larklane {
namespace {

using Source = Config::Source;

/// Sets variables and a file for one test and removes them afterwards.
class ConfigTest : public testing::Test {
 protected:
  void SetUp() override {
    std::vector<std::string> inherited;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text = *entry;
      if (text.starts_with("LARKLANE_")) inherited.push_back(text.substr(0, text.find('=')));
    }
    for (const std::string& name : inherited) unsetenv(name.c_str());
  }
  void TearDown() override {
    for (const std::string& name : set_) unsetenv(name.c_str());
    if (!path_.empty()) unlink(path_.c_str());
  }
  void set_variable(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    set_.push_back(name);
  }
  void write_file(const std::string& text) {
    path_ = testing::TempDir() + "larklane_config_" + std::to_string(getpid());
    std::ofstream(path_) << text;
    set_variable("LARKLANE_CONFIG", path_);
  }
  /// Loads and expects exactly these problems; `parts` are substrings of their texts.
  std::optional<Config> load(bool fatal, const std::vector<std::vector<std::string>>& parts) {
    std::vector<Config::Problem> problems;
    Result<Config> config = Config::load(&problems);
    EXPECT_EQ(problems.size(), parts.size());
    for (std::size_t i = 0; i < std::min(problems.size(), parts.size()); ++i) {
      EXPECT_EQ(problems[i].fatal, fatal) << problems[i].text;
      for (const std::string& part : parts[i]) {
        EXPECT_NE(problems[i].text.find(part), std::string::npos) << problems[i].text;
      }
    }
    EXPECT_EQ(config.has_value(), !fatal || parts.empty());
    return config ? std::optional<Config>(std::move(*config)) : std::nullopt;
  }
  static Config::Row row(const Config& config, std::string_view name) {
    for (const Config::Row& row : config.rows()) {
      if (row.name == name) return row;
    }
    ADD_FAILURE() << name;
    return {};
  }

 private:
  std::vector<std::string> set_;
  std::string path_;
};

TEST_F(ConfigTest, DefaultsComeFromTheTable) {
  const Config config;
  EXPECT_EQ(config.policy, "learned");
  EXPECT_EQ(config.min_bytes, 16384U);
  EXPECT_EQ(config.wait_sleep_ns_min, 50'000U);
  EXPECT_FALSE(config.summary);
  for (const Config::Row& row : config.rows()) {
    EXPECT_EQ(row.value_text, row.default_text) << row.name;
    EXPECT_EQ(row.source, Source::default_value);
    EXPECT_FALSE(row.doc.empty());
  }
}

TEST_F(ConfigTest, PrecedenceIsDefaultFileEnvironmentProgram) {
  write_file(
      "# a comment\n\n min_bytes = 1M # another\r\nwait_spins=7\nwait_yields = 8\npolicy=none\n");
  set_variable("LARKLANE_WAIT_SPINS", "9");
  set_variable("LARKLANE_WAIT_YIELDS", " 10 ");
  auto config = load(false, {});
  ASSERT_TRUE(config);
  std::string problem;
  EXPECT_TRUE(config->set("wait_yields", "11", &problem).ok());
  EXPECT_EQ(config->min_bytes, 1U << 20);
  EXPECT_EQ(config->policy, "none");
  EXPECT_EQ(config->wait_spins, 9U);
  EXPECT_EQ(config->wait_yields, 11U);
  EXPECT_EQ(row(*config, "wait_sleep_ns_max").source, Source::default_value);
  EXPECT_EQ(row(*config, "min_bytes").source, Source::file);
  EXPECT_EQ(row(*config, "min_bytes").value_text, "1M");
  EXPECT_EQ(row(*config, "wait_spins").source, Source::environment);
  EXPECT_EQ(row(*config, "wait_yields").source, Source::program);
}

TEST_F(ConfigTest, ASecretIsInNoTextAndNotHandedOn) {
  write_file("job: hard-to-guess\njob hard-to-guess\n");
  load(true, {{"\"job\" and more"}, {"\"job\" and more"}});
  set_variable("LARKLANE_CONFIG", "");
  unsetenv("LARKLANE_CONFIG");
  set_variable("LARKLANE_JOB", "hard-to-guess");
  set_variable("LARKLANE_POLICY", "none");
  const auto config = load(false, {});
  ASSERT_TRUE(config);
  EXPECT_EQ(row(*config, "job").value_text, "(13 characters)");
  bool has_policy = false;
  for (char* const entry : environment_without_secrets()) {
    if (entry == nullptr) break;
    const std::string text = entry;
    EXPECT_EQ(text.find("hard-to-guess"), std::string::npos) << text;
    has_policy = has_policy || text == "LARKLANE_POLICY=none";
  }
  EXPECT_TRUE(has_policy);
  EXPECT_TRUE(is_secret_option("job"));
  EXPECT_FALSE(is_secret_option("policy"));
  EXPECT_FALSE(is_secret_option("nothing"));
}

TEST_F(ConfigTest, ValuesThatAreAccepted) {
  const struct {
    const char *name, *value, *canonical;
  } cases[] = {
      {"min_bytes", "1", "1"},
      {"min_bytes", "16384", "16K"},
      {"min_bytes", "1T", "1T"},
      {"shm_slot_bytes_max", "0", "0"},
      {"wait_sleep_ns_min", "1000", "1us"},
      {"wait_sleep_ns_min", "1500ns", "1500ns"},
      {"wait_sleep_ns_max", "1s", "1s"},
      {"wait_spins", "1000000", "1000000"},
      {"policy", "none", "none"},
      {"policy", "static:1", "static:1"},
      {"policy", "min_bytes", "min_bytes"},
      {"policy", "min_bytes:16K", "min_bytes:16K"},
      {"policy", "table", "table"},
      {"policy", "ploggp", "ploggp"},
      {"policy", "ploggp:0", "ploggp:0"},
      {"policy", "ploggp:4ms", "ploggp:4ms"},
      {"policy", "timer", "timer"},
      {"policy", "timer:35us", "timer:35us"},
      {"provider", "auto", "auto"},
      {"provider", "ofi", "ofi"},
      {"provider", "ofi:tcp", "ofi:tcp"},
      {"provider", "verbs:mlx5_0:1", "verbs:mlx5_0:1"},
      {"provider", "ofi,verbs", "ofi,verbs"},
      {"provider", "verbs:mlx5_0:1,ofi:tcp;ofi_rxm@eth0,ofi:tcp",
       "verbs:mlx5_0:1,ofi:tcp;ofi_rxm@eth0,ofi:tcp"},
      {"tuning", "", ""},
      {"tuning", "off", "off"},
      {"tuning", "/a/path with blanks", "/a/path with blanks"},
      {"summary", "on", "on"},
      {"summary", "0", "off"},
      {"summary", "1", "on"},
  };
  for (const auto& c : cases) {
    Config config;
    std::string problem;
    EXPECT_TRUE(config.set(c.name, c.value, &problem).ok()) << problem;
    EXPECT_EQ(row(config, c.name).value_text, c.canonical);
  }
}

TEST_F(ConfigTest, ASecretIsShownByItsLength) {
  Config config;
  std::string problem;
  ASSERT_TRUE(config.set("job", "open sesame", &problem).ok()) << problem;
  EXPECT_EQ(config.job, "open sesame");
  for (const Config::Row& row : config.rows()) {
    EXPECT_EQ(row.value_text.find("sesame"), std::string::npos) << row.name;
    EXPECT_TRUE(row.name != "job" || row.value_text == "(11 characters)") << row.value_text;
  }
}

TEST_F(ConfigTest, ValuesThatAreRefused) {
  const struct {
    const char *name, *value;
  } cases[] = {
      {"min_bytes", ""},
      {"min_bytes", "0"},
      {"min_bytes", "2T"},
      {"min_bytes", "-1"},
      {"min_bytes", "+1"},
      {"min_bytes", "16k"},
      {"min_bytes", "16KB"},
      {"min_bytes", "K"},
      {"min_bytes", "1.5K"},
      {"min_bytes", "0x10"},
      {"min_bytes", "5us"},
      {"min_bytes", "99999999999999999999"},
      {"min_bytes", "18014398509481985K"},
      {"wait_spins", "1K"},
      {"wait_spins", "1000001"},
      {"wait_spins", "4294967297"},
      {"wait_sleep_ns_min", "999ns"},
      {"wait_sleep_ns_min", "2s"},
      {"policy", ""},
      {"policy", "non"},
      {"policy", "none:1"},
      {"policy", "nonesuch"},
      {"policy", "static"},
      {"policy", "static:"},
      {"policy", "static:0"},
      {"policy", "static:4K"},
      {"policy", "static:4294967297"},
      {"policy", "min_bytes:"},
      {"policy", "min_bytes:0"},
      {"policy", "min_bytes16K"},
      {"policy", "table:1"},
      {"policy", "ploggp:"},
      {"policy", "ploggp:-1ms"},
      {"policy", "ploggp:4K"},
      {"policy", "ploggp:nan"},
      {"provider", "ofi:"},
      {"provider", "tcp"},
      {"provider", "auto:tcp"},
      {"provider", ""},
      {"provider", "verbs,"},
      {"provider", "verbs,,ofi"},
      {"provider", ",ofi"},
      {"provider", "auto,ofi"},
      {"provider", "ofi:tcp,rubbish"},
      {"provider", "verbs, ofi"},
      {"policy", "timer:0"},
      {"policy", "timer:4K"},
      {"policy", "single|none"},
      {"summary", "yes"},
  };
  for (const auto& c : cases) {
    Config config;
    const std::string before = row(config, c.name).value_text;
    std::string problem;
    EXPECT_EQ(config.set(c.name, c.value, &problem), Status(Errc::kBadOption)) << c.value;
    EXPECT_NE(problem.find(c.name), std::string::npos) << problem;
    EXPECT_NE(problem.find("\"" + std::string(c.value) + "\""), std::string::npos) << problem;
    EXPECT_NE(problem.find(row(config, c.name).range), std::string::npos) << problem;
    EXPECT_EQ(row(config, c.name).value_text, before);
  }
}

TEST_F(ConfigTest, AWrongVariableIsFatalAndNamed) {
  set_variable("LARKLANE_MIN_BYTES", "lots");
  load(true, {{"LARKLANE_MIN_BYTES", "\"lots\"", "1..1T"}});
}

TEST_F(ConfigTest, AFirstSleepLongerThanTheLongestIsFatal) {
  set_variable("LARKLANE_WAIT_SLEEP_NS_MIN", "2ms");
  load(true, {{"wait_sleep_ns_min is 2000000 ns", "wait_sleep_ns_max, which is 1000000 ns"}});
  set_variable("LARKLANE_WAIT_SLEEP_NS_MAX", "2ms");
  load(false, {});
}

TEST_F(ConfigTest, AWrongFileIsFatalAndNamed) {
  write_file("policy\nmin_bytes = 0\n");
  load(true, {{":1:", "\"policy\"", "name = value"}, {":2:", "min_bytes", "\"0\"", "1..1T"}});
}

TEST_F(ConfigTest, AFileThatCannotBeReadIsFatal) {
  set_variable("LARKLANE_CONFIG", "/nonexistent/file");
  load(true, {{"LARKLANE_CONFIG", "/nonexistent/file"}});
  set_variable("LARKLANE_CONFIG", "/");
  load(true, {{"LARKLANE_CONFIG", "\"/\""}});
}

TEST_F(ConfigTest, AFileWithoutAnEndIsRefusedUnread) {
  write_file("policy = none\n");
  const std::string folder = testing::TempDir() + "larklane_config_of_" + std::to_string(getpid());
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  const std::string pipe = folder + "/pipe", link = folder + "/link", large = folder + "/large";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  ASSERT_EQ(symlink(std::getenv("LARKLANE_CONFIG"), link.c_str()), 0);
  std::ofstream(large) << std::string((1 << 20) + 1, '#');
  const struct {
    std::string path, why;
  } cases[] = {{pipe, "it is no regular file"},
               {"/dev/zero", "it is no regular file"},
               {folder, "Is a directory"},
               {large, "it has more than 1048576 bytes"},
               {"/proc/self/fd", "Is a directory"}};
  for (const auto& [path, why] : cases) {
    set_variable("LARKLANE_CONFIG", path);
    load(true, {{"LARKLANE_CONFIG is \"" + path + "\": " + why}});
  }
  set_variable("LARKLANE_CONFIG", link);
  const auto config = load(false, {});
  EXPECT_TRUE(config && config->policy == "none");
  std::filesystem::remove_all(folder);
}

TEST_F(ConfigTest, OfManyProblemsTheFirstAreReported) {
  std::string text;
  for (int i = 0; i < 50'000; ++i) text += "nonesuch" + std::to_string(i) + " = 1\n";
  write_file(text);
  std::vector<std::vector<std::string>> wanted(10, {"nonesuch"});
  wanted.push_back({"... and 49990 more problems"});
  load(false, wanted);
  // A problem beyond the reported ones may be fatal.
  write_file(text + "policy = nonesuch\n");
  std::vector<Config::Problem> problems;
  EXPECT_FALSE(Config::load(&problems));
  ASSERT_EQ(problems.size(), 11U);
  EXPECT_TRUE(problems.back().fatal && !problems.front().fatal);
}

TEST_F(ConfigTest, LongLinesAndNamesAreNotCompared) {
  write_file("policy = " + std::string(5000, 'x') + "\n");
  load(true, {{":1: a line of 5009 bytes; accepted: 4096 at most"}});
  write_file(std::string(4000, 'n') + " = 1\n");
  load(false, {{":1:", "nnn... (4000 bytes)\" is not known"}});
}

TEST_F(ConfigTest, ProblemsQuoteNoControlCharacterAndNoLongValue) {
  set_variable("LARKLANE_POLICY",
               "\x1b]0;title\a\x9b"
               "31m\xc2\x9b\n");
  load(true, {{R"(LARKLANE_POLICY is "\x1b]0;title\x07\x9b31m\xc2\x9b\n"; accepted)"}});
  set_variable("LARKLANE_POLICY", std::string(100'000, 'v'));
  std::vector<Config::Problem> problems;
  EXPECT_FALSE(Config::load(&problems));
  EXPECT_TRUE(problems.size() == 1 && problems[0].text.size() < 1000);
  set_variable("LARKLANE_POLICY", "none");
  set_variable("LARKLANE_\x1b[2J", "1");
  load(false, {{R"("LARKLANE_\x1b[2J" is not known)"}});
  write_file("\x1b[2J = 1\n");
  load(false, {{R"("\x1b[2J" is not known)"}, {"LARKLANE_"}});
}

TEST_F(ConfigTest, UnknownNamesAreWarningsWithTheNearest) {
  set_variable("LARKLANE_POLCY", "none");
  load(false, {{"LARKLANE_POLCY", "nearest is LARKLANE_POLICY"}});
  write_file("min_byte = 3\n");
  load(false, {{":1:", "min_byte", "nearest is min_bytes"}, {"LARKLANE_POLCY"}});
}

TEST_F(ConfigTest, InternalVariablesAreKnown) {
  for (const char* name :
       {"LARKLANE_SEED", "LARKLANE_MPI", "LARKLANE_FAMILY_DIR", "LARKLANE_SPAWNED"}) {
    set_variable(name, "x");
  }
  load(false, {});
}

TEST_F(ConfigTest, UnknownOptionOfAProgramIsRefused) {
  Config config;
  std::string problem;
  EXPECT_EQ(config.set("wait_spin", "1", &problem), Status(Errc::kBadOption));
  EXPECT_NE(problem.find("wait_spins"), std::string::npos);
}

}  // namespace
}  // namespace larklane
