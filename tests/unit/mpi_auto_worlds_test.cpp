// The worlds that option p2p = auto owns.

#include <gtest/gtest.h>

#include "mpi/p2p/auto_worlds.hpp"

namespace larklane::mpi::p2p {
namespace {

TEST(AutoWorlds, TitlesOfLibraries) {
  EXPECT_EQ(mpi_title("MPICH Version:      5.0.2\nMPICH Release date: Tue"), "MPICH 5");
  EXPECT_EQ(mpi_title("Open MPI v5.0.11, package: Open MPI"), "Open MPI 5");
  EXPECT_EQ(mpi_title("Open MPI v4.1.4"), "Open MPI 4");
  EXPECT_EQ(mpi_title("Intel(R) MPI Library 2021.17 for Linux*"), "Intel(R) MPI Library 2021");
  EXPECT_EQ(mpi_title("Some MPI"), "Some MPI ");
  EXPECT_EQ(mpi_title(""), " ");
}

TEST(AutoWorlds, EntriesNameAnMpiAndALevel) {
  for (const bool is_multiple : {false, true}) {
    EXPECT_TRUE(auto_owns("MPICH 5", is_multiple));
    EXPECT_EQ(auto_owns("Open MPI 5", is_multiple), is_multiple);
    for (const char* const other :
         {"MPICH 4", "MPICH 51", "MPICH ", "Intel(R) MPI Library 2021", " ", ""})
      EXPECT_FALSE(auto_owns(other, is_multiple)) << other;
  }
  EXPECT_TRUE(auto_may_own("Open MPI 5"));
  EXPECT_FALSE(auto_may_own("Open MPI 4"));
}

}  // namespace
}  // namespace larklane::mpi::p2p
