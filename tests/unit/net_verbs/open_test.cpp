// Opened objects, and the errors when one can't be opened; offers; memory.

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "base/log.hpp"
#include "net/verbs/offer.hpp"
#include "pair.hpp"

namespace larklane::verbs {
namespace {

class OpenTest : public Pair {
 protected:
  /// Opens nothing. @return the reason
  std::string refused(const net::FabricOptions& options, Errc code) {
    std::string reason;
    const auto opened = Fabric::open(options, &reason);
    EXPECT_FALSE(opened);
    EXPECT_EQ(opened.error().code(), code) << reason;
    return reason;
  }
};

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
}

TEST_F(OpenTest, ReportsItsLimits) {
  start();
  const net::Limits& limits = fabric->limits();
  EXPECT_EQ(limits.provider, "verbs fake0 port 1");
  EXPECT_EQ(limits.write_bytes_max, 1u << 23);
  EXPECT_FALSE(limits.is_progress_manual);
  EXPECT_TRUE(limits.are_words_whole);
  EXPECT_GE(limits.small_bytes_max, 8u);
  Note note;
  EXPECT_EQ(links[0]->write(transfer((1u << 23) + 1), note).error(), Errc::kInvalidArgument);
}

TEST_F(OpenTest, ReportsItsChoiceAndTheReason) {
  start();
  const std::string chosen = fabric->limits().choices;
  expect_part(chosen, "GID 0 (RoCE v2, ::ffff:10.");
  expect_part(chosen, "reaches furthest");
  expect_part(chosen, "service level 0");
  expect_part(chosen, "MTU 4096, the port's active one");
  std::string reason;
  auto asked = Fabric::open({"", 0, 5, 1024}, &reason);
  ASSERT_TRUE(asked) << reason;
  const std::string wished = asked.value()->limits().choices;
  expect_part(wished, "as asked for; service level 5; MTU 1024 as asked for");
}

// With ibv_fork_init(), which others in the process may have called.
TEST_F(OpenTest, AForkedProcessKeepsRegisteredMemory) {
  utsname system{};
  ASSERT_EQ(::uname(&system), 0);
  if (std::strtol(system.release, nullptr, 10) < 6)
    GTEST_SKIP() << "Linux " << system.release << " may make no copies of what is registered";
  device.does_withhold_at_fork = true;
  start();
  constexpr std::size_t kPage = 4096;
  void* const page =
      ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  auto* const bytes = static_cast<char*>(page);
  bytes[0] = 42;
  auto memory = fabric->register_memory(static_cast<char*>(page) + 100, 8);
  ASSERT_TRUE(memory.has_value());
  const pid_t child = ::fork();
  if (child == 0) ::_exit(bytes[0]);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 42);
  memory->reset();
  ::munmap(page, kPage);
}

TEST_F(OpenTest, SoftwareTearsWords) {
  device.attributes.vendor_id = 0xffffff;  // Soft-RoCE
  start();
  EXPECT_FALSE(fabric->limits().are_words_whole);
}

TEST_F(OpenTest, NamesEveryCauseAndRemedy) {
  expect_part(refused({.device = "mlx5_7"}, Errc::kUnreachable), "no RDMA device mlx5_7");
  expect_part(refused({.device = "mlx5_7"}, Errc::kUnreachable), "fake0");
  expect_part(refused({.device = "fake0:2"}, Errc::kUnreachable), "no port 2");
  expect_part(refused({.device = "fake0:x"}, Errc::kBadOption), "DEVICE:PORT");
  expect_part(refused({.device = ":1"}, Errc::kBadOption), "DEVICE:PORT");
  expect_part(refused({.device = "", .gid_index = 9}, Errc::kBadOption), "index 9");
  expect_part(refused({.device = "", .gid_index = -1, .service_level = 16}, Errc::kBadOption),
              "service level 16");
  expect_part(refused({.device = "", .gid_index = -1, .service_level = -1, .mtu_bytes = 1500},
                      Errc::kBadOption),
              "MTU of 1500");
  device.port.state = IBV_PORT_DOWN;
  expect_part(refused({}, Errc::kUnreachable), "fake0 port 1 is down");
  device.port.state = IBV_PORT_ACTIVE;
  device.open_error = EACCES;
  expect_part(refused({}, Errc::kUnreachable), "/dev/infiniband");
  device.open_error = 0;
  device.is_present = false;
  expect_part(refused({}, Errc::kUnreachable), "ibverbs-providers");
}

TEST_F(OpenTest, NamesTheLockedMemoryLimitOrTheExhaustedResource) {
  device.create_cq_error = ENOMEM;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &before), 0);
  const rlimit low{65536, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &low), 0);
  const std::string reason = refused({}, Errc::kNoMemory);
  expect_part(reason, "limited to 64 KiB");
  expect_part(reason, "ulimit -l unlimited");
  device.create_cq_error = 0;
  device.create_qp_error = ENOMEM;
  const rlimit high{RLIM_INFINITY, RLIM_INFINITY};
  if (::setrlimit(RLIMIT_MEMLOCK, &high) == 0) {
    const std::string used_up = refused({}, Errc::kNoMemory);
    expect_part(used_up, "no queue pair");
    expect_part(used_up, "fewer lanes");
  }
  static_cast<void>(::setrlimit(RLIMIT_MEMLOCK, &before));
}

TEST_F(OpenTest, PrefersRoutedAddressesWithIpv4) {
  ibv_gid_entry link_local{};
  link_local.gid.raw[0] = 0xfe;
  link_local.gid_type = IBV_GID_TYPE_ROCE_V1;
  ibv_gid_entry ipv4 = device.gids[0];
  ibv_gid_entry old_ipv4 = ipv4;
  old_ipv4.gid_type = IBV_GID_TYPE_ROCE_V1;
  ibv_gid_entry routed_local = link_local;
  routed_local.gid_type = IBV_GID_TYPE_ROCE_V2;
  device.gids = {link_local, routed_local, old_ipv4, ipv4};
  device.port.gid_tbl_len = 255;
  start();
  EXPECT_EQ(queue(0).to_receive.ah_attr.grh.sgid_index, 3);
  EXPECT_EQ(queue(0).to_receive.ah_attr.is_global, 1);
}

TEST_F(OpenTest, InfiniBandIsAddressedByTheLid) {
  device.port.link_layer = IBV_LINK_LAYER_INFINIBAND;
  device.port.lid = 77;
  start();
  EXPECT_EQ(queue(0).to_receive.ah_attr.dlid, 77);
  EXPECT_EQ(queue(0).to_receive.ah_attr.is_global, 0);
}

TEST_F(OpenTest, BothSidesQueuesMeetByTheirPurpose) {
  start();
  EXPECT_EQ(queue(0).peer, queue(1).qp_num);
  EXPECT_EQ(queue(0, true).peer, queue(1, true).qp_num);
  EXPECT_EQ(queue(0).to_receive.rq_psn, queue(1).to_send.sq_psn);
  EXPECT_EQ(queue(1, true).to_receive.rq_psn, queue(0, true).to_send.sq_psn);
  for (const auto& [number, pair] : device.pairs) {
    EXPECT_LT(pair->to_send.retry_cnt, 7);  // Soft-RoCE would ask the dead for ever
    EXPECT_EQ(pair->to_send.rnr_retry, 0);
  }
  EXPECT_EQ(queue(0).to_send.max_rd_atomic, 8);             // as many as the device begins at once
  EXPECT_FALSE(links[0]->connect(links[1]->offer()).ok());  // again
}

TEST_F(OpenTest, MemoryIsRegisteredFromConstructionToDestruction) {
  start();
  const std::size_t before = device.registrations.size();
  auto memory = fabric->register_memory(target.data(), 10);
  EXPECT_EQ(device.registrations.size(), before + 1);
  memory = Errc::kOk;
  EXPECT_EQ(device.registrations.size(), before);
  EXPECT_TRUE(fabric->register_memory(target.data(), 0));
  EXPECT_TRUE(fabric->register_memory(nullptr, 0));
  device.register_error = EFAULT;  // not writable
  EXPECT_TRUE(fabric->register_memory(target.data(), 10));
  device.register_error = ENOMEM;
  std::string said;
  set_log_sink([&](LogLevel, std::string_view message) { said = message; });
  EXPECT_EQ(fabric->register_memory(target.data(), 10).error().code(), Errc::kNoMemory);
  set_log_sink({});
  expect_part(said, "ulimit -l");
}

const Offer kOffer{true, 5, 16, 3, {1, 2, 3}, true, {18, 1}, {{17, 0xabcdef}, {19, 2}}};

TEST(VerbsOffer, ComesBack) {
  const auto bytes = encode(kOffer);
  auto offer = decode(bytes);
  ASSERT_TRUE(offer);
  EXPECT_EQ(*offer, kOffer);
  EXPECT_LE(bytes.size(), net::kOfferBytesMax);
}

TEST(VerbsOffer, NothingBrokenIsBelieved) {
  const auto good = encode(kOffer);
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(decode(std::span(good).first(length))) << length;
  }
  std::vector<std::byte> longer(good.begin(), good.end());
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode(longer));
  const auto broken = [](auto change) {
    Offer offer = kOffer;
    change(offer);
    return !decode(encode(offer));
  };
  EXPECT_TRUE(broken([](Offer& o) { o.mtu_code = 0; }));
  EXPECT_TRUE(broken([](Offer& o) { o.mtu_code = 6; }));
  EXPECT_TRUE(broken([](Offer& o) { o.reads_at_once = 0; }));
  EXPECT_TRUE(broken([](Offer& o) { o.gid = {}; }));
  EXPECT_TRUE(broken([](Offer& o) { o.write_queues[1].number = 0; }));
  EXPECT_TRUE(broken([](Offer& o) { o.write_queues[0].number = 1 << 24; }));
  EXPECT_TRUE(broken([](Offer& o) { o.read_queue.number = o.write_queues[1].number; }));
  EXPECT_TRUE(broken([](Offer& o) { o.write_queues[0].number = o.write_queues[1].number; }));
  EXPECT_TRUE(broken([](Offer& o) { o.write_queues.clear(); }));
  EXPECT_TRUE(broken([](Offer& o) { o.is_of_channel = false; }));
  EXPECT_TRUE(broken([](Offer& o) {
    for (std::uint32_t n = 0; n < kWriteQueuesMax; ++n) o.write_queues.push_back({100 + n, 1});
  }));
  EXPECT_TRUE(broken([](Offer& o) { o.read_queue.first_packet = 1 << 24; }));
  const auto infiniband = [&](std::uint16_t lid, Gid gid) {
    return broken([&](Offer& o) {
      o.is_ethernet = false;
      o.lid = lid;
      o.gid = gid;
    });
  };
  EXPECT_TRUE(infiniband(0xc000, {1}));
  EXPECT_TRUE(infiniband(0, {}));
  EXPECT_FALSE(infiniband(0, {1}));
  EXPECT_FALSE(infiniband(1, {}));
}

TEST(VerbsOffer, AnyOfferIsRefusedOrPossible) {
  std::uint32_t state = 99;
  auto bytes = encode(kOffer);
  for (int turn = 0; turn < 200000; ++turn) {
    state = state * 1664525 + 1013904223;
    const std::byte old = std::exchange(bytes[(state >> 8) % bytes.size()], std::byte(state >> 24));
    if (auto offer = decode(bytes); offer) {
      ASSERT_EQ(encode(*offer), bytes);
    } else {
      bytes[(state >> 8) % bytes.size()] = old;
    }
  }
}

}  // namespace
}  // namespace larklane::verbs
