// linked_libraries() finds what the dynamic linker itself reports, or says that it can't.

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "../../tools/linked_libraries.hpp"

namespace larklane::tools {
namespace {

namespace fs = std::filesystem;
using Paths = std::vector<fs::path>;

const fs::path kPrograms = LARKLANE_LINKED_DIR;

std::optional<Paths> found(const fs::path& program) {
  const auto elf = ElfFile::read(program);
  if (!elf) return std::nullopt;
  return linked_libraries(program, *elf);
}

/// As `ld.so --list` prints it.
Paths listed(const fs::path& program) {
  const std::string command =
      ElfFile::read(program)->interpreter() + " --list " + program.string() + " 2>&1";
  Paths paths;
  FILE* const output = ::popen(command.c_str(), "r");
  char line[4096];
  while (output != nullptr && std::fgets(line, sizeof line, output) != nullptr) {
    const std::string text = line;
    const std::size_t start = text.find("=> /");
    if (start != std::string::npos)
      paths.emplace_back(text.substr(start + 3, text.rfind(" (") - start - 3));
  }
  if (output != nullptr) ::pclose(output);
  return paths;
}

/// A variable of the environment. Thread safety: single-owner.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    ::setenv(name, value.c_str(), 1);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* const name_;
};

TEST(LinkedLibraries, SystemProgramsAreReadAsTheLinkerReadsThem) {
  int count = 0;
  for (const fs::path program : {"/proc/self/exe", "/bin/sh", "/bin/ls", "/usr/bin/python3",
                                 "/usr/bin/cmake", "/usr/bin/gdb"}) {
    std::error_code error;
    const fs::path path = fs::canonical(program, error);
    const auto elf = ElfFile::read(path);
    if (error || !elf || elf->is_static()) continue;
    const auto libraries = found(path);
    ASSERT_TRUE(libraries) << path;
    EXPECT_EQ(*libraries, listed(path)) << path;
    ++count;
  }
  EXPECT_GT(count, 0);
}

TEST(LinkedLibraries, RpathOfTheProgramServesItsLibraries) {
  const auto libraries = found(kPrograms / "linked_by_rpath");
  ASSERT_TRUE(libraries);
  EXPECT_EQ(*libraries, listed(kPrograms / "linked_by_rpath"));
  EXPECT_EQ(libraries->front(), kPrograms / "below/liblinked_upper.so");
  EXPECT_EQ(libraries->size(), 3u);
}

TEST(LinkedLibraries, RunpathServesTheProgramAlone) {
  const fs::path program = kPrograms / "linked_by_runpath";
  EXPECT_FALSE(found(program));  // the linker says which library is missing
  const Variable path("LD_LIBRARY_PATH", "/nowhere:" + (kPrograms / "below").string());
  const auto libraries = found(program);
  ASSERT_TRUE(libraries);
  EXPECT_EQ(*libraries, listed(program));
}

TEST(LinkedLibraries, EnvironmentComesBeforeRunpath) {
  const fs::path other = kPrograms / "other";
  fs::create_directories(other);
  for (const char* name : {"liblinked_upper.so", "liblinked_lower.so"})
    fs::copy_file(kPrograms / "below" / name, other / name, fs::copy_options::overwrite_existing);
  const Variable path("LD_LIBRARY_PATH", other.string());
  const auto libraries = found(kPrograms / "linked_by_runpath");
  ASSERT_TRUE(libraries);
  EXPECT_EQ(*libraries, listed(kPrograms / "linked_by_runpath"));
  EXPECT_EQ(libraries->front(), other / "liblinked_upper.so");
  EXPECT_EQ(found(kPrograms / "linked_by_rpath")->front(), kPrograms / "below/liblinked_upper.so");
}

TEST(LinkedLibraries, PreloadsAndWordsOfTheLinkerAreLeftToIt) {
  {
    const Variable preload("LD_PRELOAD", "libm.so.6");
    EXPECT_FALSE(found("/proc/self/exe"));
  }
  const Variable path("LD_LIBRARY_PATH", "/nowhere/$LIB");
  EXPECT_FALSE(found("/proc/self/exe"));
}

}  // namespace
}  // namespace larklane::tools
