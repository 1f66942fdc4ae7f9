// The post of a short message over networks, in our own code: it allocates nothing, makes no system
// call, and takes its lane's lock by one try. Over libfabric, whose own code is not counted; and
// over verbs, on a device made of memory. Both sides are in one process.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/config.hpp"
#include "net/registry.hpp"
#include "net/verbs/fabric.hpp"
#include "steps.hpp"
#include "unit/msg_job.hpp"
#include "unit/net_verbs/device.hpp"

namespace larklane::cost {
namespace {

using msg::Job;
using msg::JobProcess;

constexpr int kWarmup = 30, kRepeats = 7;
constexpr const char* kLibfabric = "libfabric.so";

/// The counted scenario: for the device's calls, which are not counted.
const char* counted = nullptr;

void begin(const char* name) {
  counted = name;
  begin_steps(name);
}
void end() {
  end_steps();
  counted = nullptr;
}

ibv_context_ops plain;
int post_send(ibv_qp* pair, ibv_send_wr* work, ibv_send_wr** bad) {
  if (counted != nullptr) end_steps();
  const int status = plain.post_send(pair, work, bad);
  if (counted != nullptr) begin_steps(counted);
  return status;
}

/// Two processes that exchange messages over the fabric of `open`.
class Talk {
 public:
  using Open = std::function<std::unique_ptr<net::Fabric>()>;
  Talk(const Open& open, std::function<void()> move)
      : move_(std::move(move)), job_(options_of(open)) {
    job_.connect_all();
    options_.completion = &told_;
    there_ = told_.register_remote().value();
  }

  bool run() {
    return run_rounds(kWarmup, kRepeats, &counts_, [this](int round) { return all_calls(round); });
  }

 private:
  static Job::Options options_of(const Open& open) {
    Job::Options options;
    options.lane = {};
    options.cells = 1024;
    options.decorate = [open](std::unique_ptr<net::Fabric>, int) { return open(); };
    return options;
  }

  bool all_calls(int round) {
    for (std::size_t i = 0; i < sizeof bytes_; ++i)
      bytes_[i] = static_cast<std::byte>(static_cast<std::size_t>(round) * 7 + i);
    const Buffer pieces[] = {{bytes_, 8}, {bytes_ + 8, 3}, {bytes_ + 11, 500}};
    return sends("send of 8 B", 8, [&] { return post_send(vci(), 1, 7, bytes_, 8); }) &&
           sends("send of 1,000 B", 1000, [&] { return post_send(vci(), 1, 7, bytes_, 1000); }) &&
           sends("send of 8,000 B", 8000, [&] { return post_send(vci(), 1, 7, bytes_, 8000); }) &&
           sends("send of 3 buffers", 511, [&] { return post_send(vci(), 1, 7, pieces); }) &&
           packet() &&
           tells("active message of 8 B", 8,
                 [&] { return post_am(vci(), 1, there_, 3, bytes_, 8); }) &&
           tells("active message of 1,000 B", 1000,
                 [&] { return post_am(vci(), 1, there_, 3, bytes_, 1000); }) &&
           put();
  }
  Vci& vci() { return *here_.vci; }

  template <class Call>
  bool posts(const char* name, Call&& call) {
    if (counts_) begin(name);
    auto answer = call();
    if (counts_) end();
    return answer && *answer == Post::done;
  }
  std::optional<Completion> arrival() {
    for (int turn = 0; turn < 100'000; ++turn) {
      move_();
      (void)here_.vci->progress();
      (void)peer_.vci->progress();
      if (auto told = told_.pop()) return told;
    }
    std::fprintf(stderr, "message_network_cost: nothing comes\n");
    return std::nullopt;
  }
  /// Credit goes back now and then.
  void settle() {
    for (int turn = 0; turn < 10; ++turn) {
      move_();
      (void)here_.vci->progress();
      (void)peer_.vci->progress();
    }
  }
  template <class Call>
  bool sends(const char* name, std::uint64_t bytes, Call&& call) {
    if (!post_recv(*peer_.vci, 0, 7, into_, sizeof into_, options_) || !posts(name, call))
      return false;
    const auto told = arrival();
    settle();
    return told && told->bytes == bytes && std::memcmp(into_, bytes_, bytes) == 0;
  }
  template <class Call>
  bool tells(const char* name, std::uint64_t bytes, Call&& call) {
    if (!posts(name, call)) return false;
    const auto told = arrival();
    settle();
    const bool is_right =
        told && told->bytes == bytes && std::memcmp(told->buffer, bytes_, bytes) == 0;
    if (told) free_buffer(told->buffer);
    return is_right;
  }
  bool packet() {
    Packet taken = take_packet(vci());
    if (!taken) return false;
    std::memcpy(taken.start(), bytes_, 100);
    return sends("send of a packet", 100, [&] { return post_send(vci(), 1, 7, taken, 100); });
  }
  /// With a signal: a record.
  bool put() {
    if (!posts("put of 8 B with a signal",
               [&] { return post_put(vci(), region_.remote(), 0, bytes_, 8, {}, there_, 5); }))
      return false;
    const auto told = arrival();
    settle();
    return told && told->tag == 5 && std::memcmp(target_, bytes_, 8) == 0;
  }

  const std::function<void()> move_;
  Job job_;
  JobProcess &here_ = job_.at(0), &peer_ = job_.at(1);
  CompletionQueue told_ = CompletionQueue::create(peer_.domain).value();
  PostOptions options_;
  RemoteCompletion there_ = 0;
  bool counts_ = false;
  alignas(64) std::byte bytes_[8000]{}, into_[8000]{}, target_[64]{};
  Region region_ = peer_.add_region(target_, sizeof target_);
};

/// Read-modify-writes of a post: one of them tries the lane's lock, and one gives it back. Segments
/// on both sides of the device's calls count together.
void expect_frugal(const std::map<std::string, std::vector<Steps>>& all, std::uint64_t atomics_most,
                   std::uint64_t packet_atomics_most) {
  ASSERT_EQ(all.size(), 8u);
  for (const auto& [name, each] : all) {
    SCOPED_TRACE(name);
    std::uint64_t instructions = 0, atomics = 0, system_calls = 0, allocations = 0;
    for (const Steps& steps : each) {
      instructions += steps.instructions;
      atomics += steps.atomics;
      system_calls += steps.system_calls;
      allocations += steps.allocations;
    }
    std::printf("%-30s %6.1f instructions, %4.1f atomics\n", name.c_str(),
                static_cast<double>(instructions) / kRepeats,
                static_cast<double>(atomics) / kRepeats);
    EXPECT_GT(instructions, 0u);
    EXPECT_EQ(system_calls, 0u);
    EXPECT_EQ(allocations, 0u);
    EXPECT_LE(atomics,
              kRepeats * (name == "send of a packet" ? packet_atomics_most : atomics_most));
  }
}

class MessageNetworkCost : public testing::TestWithParam<const char*> {};

TEST_P(MessageNetworkCost, OfAPostOurCodeMakesNoSystemCallAndAllocatesNothing) {
  const auto open = [] {
    std::string reason;
    auto fabric = net::open_fabric_named(Config(), GetParam(), &reason, LARKLANE_MODULES);
    if (!fabric) std::fprintf(stderr, "%s\n", reason.c_str());
    return fabric ? std::move(fabric).value() : nullptr;
  };
  if (open() == nullptr) GTEST_SKIP() << "no " << GetParam();
  expect_frugal(
      steps_of([&] { return Talk(open, [] {}).run() && !testing::Test::HasFailure(); }, kLibfabric),
      6, 5);
}

INSTANTIATE_TEST_SUITE_P(Networks, MessageNetworkCost, testing::Values("ofi:tcp"),
                         [](const auto& one) { return std::string(one.param + 4); });

TEST(MessageVerbsCost, OfAPostOurCodeMakesNoSystemCallAndAllocatesNothing) {
  expect_frugal(steps_of([] {
                  verbs::FakeDevice device;
                  device.attributes.max_srq_wr = 1 << 15;
                  plain = device.context.ops;
                  device.context.ops.post_send = &post_send;
                  Talk talk(
                      [] {
                        std::string reason;
                        return verbs::Fabric::open({}, &reason).value();
                      },
                      [&device] { device.run(); });
                  return talk.run() && !testing::Test::HasFailure();
                }),
                6, 5);
}

}  // namespace
}  // namespace larklane::cost
