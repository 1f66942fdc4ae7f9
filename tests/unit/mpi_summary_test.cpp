// The summary that a rank logs.

#include <gtest/gtest.h>

#include "mpi/world/summary.hpp"

namespace larklane::mpi {
namespace {

Job job(const char* name) { return std::make_shared<const std::string>(name); }
Identity rank_3() { return {job("slurm-7"), 3}; }

TEST(MpiSummary, CountsMessagesBytesAndWays) {
  part::Summary summary;
  summary.sends = 2;
  summary.receives = 1;
  summary.send_rounds = 20;
  summary.receive_rounds = 10;
  summary.bytes_sent = 3 << 20;
  summary.bytes_received = 512;
  summary.bytes_moved = 2048;
  summary.early_bytes = 1536;
  summary.moved_by_receiver = 8;
  summary.control.helper_wakeups = 4;
  const std::string own = address_of({job("slurm-7"), 1});
  const std::string other = address_of({job("slurm-8"), 0});
  summary.peers = {{own, "shm slots", "", 1},
                   {other, "shm attach", "min_bytes", 2},
                   {"tcp://10.0.0.1,10.1.0.1:4711/" + own, "ofi tcp@eth0", "none", 3}};
  EXPECT_EQ(
      summary_text(summary, 5, rank_3()),
      "larklane: rank 3: sends: 2, rounds 20, 3.0 MiB; receives: 1, rounds 10, 512 B\n"
      "larklane: rank 3: moved by this process: 2.0 KiB, of it 1.5 KiB (75.0 %) before all of "
      "their round was ready\n"
      "larklane: rank 3: partitions moved as sender 0, as receiver 8, by the helper 0; helper "
      "woken 4 times\n"
      "larklane: rank 3: 5 requests left to the MPI\n"
      "larklane: rank 3: peer rank 1: shm slots, 1 channels\n"
      "larklane: rank 3: peer rank 0 of another world: shm attach, policy min_bytes, 2 "
      "channels\n"
      "larklane: rank 3: peer rank 1: ofi tcp@eth0, policy none, 3 channels\n");
}

TEST(MpiSummary, StatesThatNothingWasSent) {
  EXPECT_EQ(summary_text({}, 0, rank_3()),
            "larklane: rank 3: nothing to speed up: no partitioned requests, and point-to-point "
            "messages are left to the MPI (option p2p)\n");
  EXPECT_EQ(summary_text({}, 1, rank_3()),
            "larklane: rank 3: no partitioned requests of ours\n"
            "larklane: rank 3: 1 requests left to the MPI\n");
}

TEST(MpiSummary, StatesInOneLineThatThereWasNothingToSpeedUp) {
  const OrdinaryMessages none{.text = "messages are carried", .had_none = true};
  EXPECT_EQ(summary_text({}, 0, rank_3(), none),
            "larklane: rank 3: messages are carried; there was none, and no partitioned request: "
            "nothing to speed up\n");
  EXPECT_EQ(summary_text({}, 1, rank_3(), none),
            "larklane: rank 3: no partitioned requests of ours\n"
            "larklane: rank 3: 1 requests left to the MPI\n"
            "larklane: rank 3: messages are carried; there was none\n");
  EXPECT_EQ(summary_text({}, 0, rank_3(), {.text = "sent 1"}),
            "larklane: rank 3: no partitioned requests\n"
            "larklane: rank 3: sent 1\n");
}

}  // namespace
}  // namespace larklane::mpi
