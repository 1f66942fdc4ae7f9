// OutputFile: replaces a file whole, or writes into a pipe or device.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "base/output_file.hpp"

namespace larklane {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class OutputFile : public testing::Test {
 protected:
  OutputFile() {
    std::string name = (fs::temp_directory_path() / "output-file-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~OutputFile() override { fs::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  std::size_t count() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

 private:
  fs::path folder_;
};

TEST_F(OutputFile, ReplacesAFileWhole) {
  for (const char* const text : {"one", "longer than one", "2"}) {
    EXPECT_EQ(write_output_file(path("file"), text), 0);
    EXPECT_EQ(text_of(path("file")), text);
  }
  EXPECT_EQ(count(), 1U);
}

TEST_F(OutputFile, ReplacesTheTargetOfALinkAndKeepsTheLink) {
  std::ofstream(path("target")) << "old";
  fs::create_symlink("target", path("link"));
  EXPECT_EQ(write_output_file(path("link"), "new"), 0);
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(text_of(path("target")), "new");
  EXPECT_EQ(count(), 2U);
}

TEST_F(OutputFile, WritesIntoAPipe) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  std::string heard;
  std::thread reader([&] { heard = text_of(path("pipe")); });
  EXPECT_EQ(write_output_file(path("pipe"), "through"), 0);
  reader.join();
  EXPECT_EQ(heard, "through");
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
}

TEST_F(OutputFile, WritesIntoADevice) {
  if (::mknod(path("null").c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0)
    GTEST_SKIP() << "no devices can be made here";
  const int error = write_output_file(path("null"), "gone");
  EXPECT_TRUE(error == 0 || error == EACCES) << error;  // the file system may allow no devices
  EXPECT_TRUE(fs::is_character_file(path("null")));
}

TEST_F(OutputFile, FollowsNoLinkThatHasTheNameOfThePart) {
  std::ofstream(path("other")) << "other";
  fs::create_symlink("other", path("file.part"));
  EXPECT_EQ(write_output_file(path("file"), "new"), 0);
  EXPECT_EQ(text_of(path("file")), "new");
  EXPECT_EQ(text_of(path("other")), "other");
}

TEST_F(OutputFile, RefusesAFolder) {
  EXPECT_EQ(write_output_file(path(""), "text"), EISDIR);
  EXPECT_EQ(count(), 0U);
}

}  // namespace
}  // namespace larklane
