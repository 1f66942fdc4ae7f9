// A peer's library: opened by the name of its file, with all its functions or none.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <fstream>
#include <string>

#include "measure/peer_library.hpp"

namespace larklane::bench {
namespace {

constexpr const char* kMath = "/lib/x86_64-linux-gnu/libm.so.6";

TEST(PeerLibrary, FindsAllFunctions) {
  if (!std::ifstream(kMath)) GTEST_SKIP() << "no " << kMath;
  const std::array names{"cos", "sin"};
  std::array<void*, 2> functions{};
  ASSERT_EQ(open_peer_library(kMath, names, functions), "");
  EXPECT_EQ(reinterpret_cast<double (*)(double)>(functions[0])(0), 1);
  EXPECT_EQ(reinterpret_cast<double (*)(double)>(functions[1])(0), 0);
}

TEST(PeerLibrary, NamesTheFunctionThatIsNotThere) {
  if (!std::ifstream(kMath)) GTEST_SKIP() << "no " << kMath;
  const std::array names{"cos", "MPIP_Start"};
  std::array<void*, 2> functions{};
  const std::string why = open_peer_library(kMath, names, functions);
  EXPECT_NE(why.find(std::string(kMath) + " has no function MPIP_Start; remedy: "),
            std::string::npos)
      << why;
}

TEST(PeerLibrary, RefusesAFileThatIsMissingOrNoLibrary) {
  const std::array names{"cos"};
  std::array<void*, 1> functions{};
  // Also where the system has a library of that name: a bare name is a file of this folder.
  for (const char* file : {"/nowhere/libpeer.so", "libm.so.6", "/dev/null"}) {
    const std::string why = open_peer_library(file, names, functions);
    EXPECT_NE(why.find(file), std::string::npos) << why;
    EXPECT_NE(why.find("; remedy: the path of the shared library"), std::string::npos) << why;
  }
}

}  // namespace
}  // namespace larklane::bench
