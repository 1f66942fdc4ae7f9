// One operation of one process fails, each in turn: data write, chunk, credit, notice, demand and
// its answer, pull, FIN, probe; refused, failed or with its link; having moved nothing, half or
// all. Both requests of a channel end, complete with the right bytes or failed with a text that
// names the peer and the cause; channels over other links go on; nothing is left.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "net/fault/fault.hpp"
#include "net/loop/fabric.hpp"
#include "network_side.hpp"
#include "scripted_plane.hpp"

namespace larklane::part {
namespace {

using fault::Call;
using fault::Moved;
using fault::What;

constexpr Status kBroken{Errc::kTransfer, 5};
constexpr std::uint64_t kLookNs = 1'000'000'000;
constexpr std::int32_t kPartitions = 8;
constexpr std::size_t kBytes = 24 * std::size_t{kPartitions};
constexpr std::uint32_t kImmediatesMax = 4096;
constexpr std::uint64_t kSeeds = 4;
constexpr GroupRules kAsked{.has_planner = true, .is_on_demand = true};

struct Setting {
  bool hub_sends;
  bool has_channel_links;
  bool is_connected_by_use = false;
  std::uint64_t seed = 1;  ///< of the network's order; even: its queues are short
};

struct Channel {
  std::int32_t tag;
  std::size_t peer;
  std::vector<std::uint32_t> groups;
  GroupRules rules;
  std::vector<std::byte> from = std::vector<std::byte>(kBytes), to = from;
  SendRequest* send = nullptr;
  RecvRequest* receive = nullptr;
  bool has_failed = false;
};

enum class Pace {
  early,   ///< all is ready before the receiver's Start: notices, pulls and FINs
  prompt,  ///< the receiver's Start comes first: pushes
  asked,   ///< the receiver asks for partitions that the rest of their group holds back: demands
  silent,  ///< for a while nothing is ready: probes
};

/// A hub with the fault in its network, and two peers. Thread safety: single-owner.
class World {
 public:
  World(const fault::Fault& fault, const Setting& setting)
      : setting_(setting), fault_(fault), wire_(options(setting)) {
    set_log_sink([](LogLevel, std::string_view message) {
      EXPECT_NE(message.find("no link"), std::string_view::npos) << message;
    });
    for (std::size_t i = 0; i < 3; ++i) {
      const fault::Plan plan{.faults = std::vector<fault::Fault>(i == 0 ? 1 : 0, fault)};
      auto fabric = std::make_unique<fault::Fabric>(wire_.for_process(), plan);
      if (i == 0) faulty_ = fabric.get();
      sides_[i] = std::make_unique<Side>(std::move(fabric), vci::VciPool::Options{},
                                         i == 0 ? "near" : "hub", 2 * kLookNs);
    }
    far_state_->peer = &far_;
    for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(sides_[i]->network->watch_by(planes_[i]));
    for (Channel& channel : channels_) init(channel);
    settle();
  }
  ~World() { set_log_sink({}); }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  void run() {
    for (const Pace pace : {Pace::early, Pace::prompt, Pace::asked, Pace::silent, Pace::prompt})
      round(pace);
    for (Channel& channel : channels_)
      if (!channel.send->error().ok() || !channel.receive->error().ok()) channel.has_failed = true;
    expect_no_more();
    free();
  }

  std::uint64_t hits_count() const { return hits_count_; }
  std::size_t failed_count() const {
    return static_cast<std::size_t>(std::count_if(
        channels_.begin(), channels_.end(), [](const Channel& one) { return one.has_failed; }));
  }
  bool are_failed_on_one_link() const {
    const Channel* first = nullptr;
    for (const Channel& one : channels_) {
      if (!one.has_failed) continue;
      if (first != nullptr && (setting_.has_channel_links || first->peer != one.peer)) return false;
      first = &one;
    }
    return true;
  }
  bool is_device_lost = false;  ///< the fault is to take that

 private:
  static loop::Fabric::Options options(const Setting& setting) {
    loop::Fabric::Options o;
    o.seed = setting.seed;
    o.turns_per_poll = 0;
    if (setting.seed % 2 == 0) o.queue_depth = 2;
    o.limits.immediates_max = kImmediatesMax;
    o.limits.write_bytes_max = 64;  // a group of 4 partitions is cut
    o.limits.unanswered_ns = 1;
    o.limits.is_connected_by_use = setting.is_connected_by_use;
    if (setting.has_channel_links) o.limits.channel_partitions_max = net::paper::kPartitionsMax;
    return o;
  }
  std::size_t sender_of(const Channel& c) const { return setting_.hub_sends ? 0 : 1 + c.peer; }
  std::size_t receiver_of(const Channel& c) const { return setting_.hub_sends ? 1 + c.peer : 0; }
  /// The other side of `c`, as `side` knows it.
  const std::shared_ptr<PeerState>& other_of(std::size_t side, const Channel& c) const {
    return side == 0 && c.peer == 1 ? far_state_ : sides_[side]->state;
  }
  void init(Channel& c) {
    const auto args = [&](std::size_t side, std::vector<std::byte>& buffer) {
      return args_of(other_of(side, c)->peer->address(), c.tag, buffer, kPartitions);
    };
    const std::size_t sender = sender_of(c), receiver = receiver_of(c);
    c.send = must(sides_[sender]->network->send_init(args(sender, c.from), other_of(sender, c),
                                                     c.groups, c.rules));
    c.receive =
        must(sides_[receiver]->network->recv_init(args(receiver, c.to), other_of(receiver, c)));
  }

  /// Every step that needs no further call.
  void settle() {
    for (int turn = 0; turn < 10'000; ++turn) {
      bool moved = wire_.settle() != 0;
      for (auto& side : sides_) moved |= side->progress() != 0;
      moved |= deliver(sides_[0]->other, *sides_[1], sides_[1]->state);
      moved |= deliver(far_, *sides_[2], sides_[2]->state);
      moved |= deliver(sides_[1]->other, *sides_[0], sides_[0]->state);
      moved |= deliver(sides_[2]->other, *sides_[0], far_state_);
      if (!moved) return;
    }
    ADD_FAILURE() << "it never ends";
  }
  static bool deliver(ScriptedPeer& by, Side& to, const std::shared_ptr<PeerState>& from) {
    if (by.sent.empty()) return false;
    const auto [kind, payload] = std::move(by.sent.front());
    by.sent.pop_front();
    to.network->on_record(from, {kind, payload, {}});
    return true;
  }
  void pass_time() {
    now_ns_ += kLookNs;
    for (WatchingPlane& plane : planes_) plane.at(now_ns_);
    settle();
  }

  void round(Pace pace) {
    ++round_;
    for (Channel& c : channels_) {
      if (c.has_failed) continue;
      std::fill(c.from.begin(), c.from.end(), static_cast<std::byte>(round_ * 16 + c.tag));
      if (pace != Pace::early) start(c, *c.receive);
      start(c, *c.send);
    }
    settle();
    if (pace == Pace::asked) ask();
    if (pace == Pace::silent)
      for (int look = 0; look < 4; ++look) pass_time();
    for (Channel& c : channels_) mark(c, pace == Pace::asked ? 1 : 0);
    settle();
    if (pace == Pace::early)
      for (Channel& c : channels_)
        if (!c.has_failed) start(c, *c.receive);
    end_round();
  }
  static void start(Channel& c, Request& request) {
    if (request.start().ok()) return;
    EXPECT_FALSE(request.error().ok());
    c.has_failed = true;
  }
  static void mark(Channel& c, std::int32_t first) {
    for (std::int32_t p = first; p < kPartitions && c.send->active(); ++p)
      EXPECT_TRUE(c.send->pready(p).ok());
  }
  void ask() {
    for (Channel& c : channels_)
      if (c.send->active()) {
        EXPECT_TRUE(c.send->pready(0).ok());
      }
    for (int asked = 0; asked < 5; ++asked)
      for (Channel& c : channels_) {
        settle();
        bool arrived = false;
        if (c.receive->active()) (void)c.receive->parrived(0, &arrived);
      }
    settle();
  }
  bool is_pending() {
    bool is = false;
    for (Channel& c : channels_)
      for (Request* request : {static_cast<Request*>(c.send), static_cast<Request*>(c.receive)})
        is |= request->active() && request->poll() == Completion::pending;
    return is;
  }
  void end_round() {
    settle();
    for (int turn = 0; turn < 10 && is_pending(); ++turn) pass_time();
    for (Channel& c : channels_) {
      const bool are_both = c.send->active() && c.receive->active();
      const bool is_sent = end(c, *c.send, sender_of(c), are_both);
      const bool is_received = end(c, *c.receive, receiver_of(c), are_both);
      EXPECT_TRUE(!is_received || c.to == c.from) << "wrong bytes, tag " << c.tag;
      if (are_both && !(is_sent && is_received)) c.has_failed = true;
    }
  }
  /// @return it was active, and is complete
  bool end(const Channel& c, Request& request, std::size_t side, bool may_complete) {
    if (!request.active()) return false;
    const Completion completion = request.poll();
    EXPECT_NE(completion, Completion::pending) << "tag " << c.tag << " waits for ever";
    EXPECT_TRUE(may_complete || completion != Completion::complete);
    if (completion == Completion::failed) expect_text(c, request, side);
    request.finish();
    return completion == Completion::complete;
  }
  void expect_text(const Channel& c, const Request& request, std::size_t side) const {
    const std::string text = request.error_text();
    const auto has = [&](const std::string& part) { return text.find(part) != std::string::npos; };
    EXPECT_FALSE(request.error().ok());
    EXPECT_TRUE(has(other_of(side, c)->peer->address())) << text;
    EXPECT_TRUE(has("tag " + std::to_string(c.tag))) << text;
    EXPECT_TRUE(has(errc_name(kBroken.code())) ||
                (is_device_lost && has(side == 0 ? "device is lost" : "hub reports unreachable")))
        << text;
    // A failed probe loses the link: then the text depends on the next operation.
    if (side == 0 && fault_.what == What::fail && fault_.call != Call::probe) {
      EXPECT_TRUE(has(what_failed())) << text;
    }
  }
  const char* what_failed() const {
    if (fault_.call == Call::read) return "could not read the sender's memory";
    return setting_.hub_sends ? "could not write into the receiver's memory"
                              : "could not write into the sender's memory";
  }

  /// A failed request stays failed, on both sides.
  void expect_no_more() {
    for (Channel& c : channels_) {
      if (!c.has_failed) continue;
      start(c, *c.receive);
      start(c, *c.send);
      mark(c, 0);
      settle();
    }
    for (int turn = 0; turn < 10 && is_pending(); ++turn) pass_time();
    for (Channel& c : channels_) {
      if (!c.has_failed) continue;
      EXPECT_FALSE(end(c, *c.send, sender_of(c), false));
      EXPECT_FALSE(end(c, *c.receive, receiver_of(c), false));
    }
  }
  void free() {
    std::array<std::uint32_t, 3> lost{};  // demands that never came
    for (Channel& c : channels_) {
      EXPECT_TRUE(sides_[sender_of(c)]->network->free(c.send).ok());
      EXPECT_TRUE(sides_[receiver_of(c)]->network->free(c.receive).ok());
      if (c.has_failed && c.rules.take_demands()) ++lost[sender_of(c)];
    }
    settle();
    for (auto& side : sides_) side->network->settle();
    settle();
    EXPECT_EQ(wire_.registrations_count(), setting_.is_connected_by_use ? 6u : 3u)
        << "the words of each process";
    for (std::size_t i = is_device_lost ? 1 : 0; i < 3; ++i)
      EXPECT_TRUE(sides_[i]
                      ->network->lanes()
                      .at(0)
                      .value()
                      ->reserve_immediates(kImmediatesMax - lost[i])
                      .ok())
          << "receives are still reserved";
    hits_count_ = faulty_->hits_count(fault_.what);
    for (auto& side : sides_) side->network.reset();
    EXPECT_EQ(wire_.registrations_count(), 0u);
    for (const loop::Violation& violation : wire_.take_violations())
      ADD_FAILURE() << loop::offence_name(violation.offence) << ": " << violation.detail;
  }

  const Setting setting_;
  const fault::Fault fault_;
  loop::Fabric wire_;
  std::array<WatchingPlane, 3> planes_;
  fault::Fabric* faulty_ = nullptr;             ///< the hub's network owns it
  std::uint64_t hits_count_ = 0;                ///< in a run
  std::array<std::unique_ptr<Side>, 3> sides_;  ///< the hub, and its peers near and far
  ScriptedPeer far_{"far"};
  std::shared_ptr<PeerState> far_state_ = std::make_shared<PeerState>();
  std::uint64_t now_ns_ = 0;
  int round_ = 0;
  std::array<Channel, 3> channels_{
      Channel{.tag = 1, .peer = 0, .groups = {0, 4}, .rules = kAsked},
      Channel{.tag = 2, .peer = 0, .groups = {0, 2, 4, 6}, .rules = {}},
      Channel{.tag = 3, .peer = 1, .groups = {0, 4}, .rules = kAsked}};
};

class NetworkError : public testing::TestWithParam<Setting> {
 protected:
  template <class Run>
  void for_seeds(Run&& run) {
    Setting setting = GetParam();
    for (setting.seed = 1; setting.seed <= kSeeds && !HasFailure(); ++setting.seed) {
      SCOPED_TRACE("seed " + std::to_string(setting.seed));
      run(setting);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Hub, NetworkError,
                         testing::Values(Setting{true, false}, Setting{false, false},
                                         Setting{true, true}, Setting{false, true},
                                         Setting{true, false, true}, Setting{false, false, true}),
                         [](const auto& setting) {
                           return std::string(setting.param.hub_sends ? "Sends" : "Receives") +
                                  (setting.param.has_channel_links     ? "OverLinksOfChannels"
                                   : setting.param.is_connected_by_use ? "OverLinksThatAreGreeted"
                                                                       : "");
                         });

/// The n-th call, for each n that there is. @return how many
std::uint64_t each(fault::Fault fault, const Setting& setting) {
  for (fault.nth = 1; !testing::Test::HasFailure(); ++fault.nth) {
    SCOPED_TRACE("call " + std::to_string(static_cast<int>(fault.call)) + " what " +
                 std::to_string(static_cast<int>(fault.what)) + " moved " +
                 std::to_string(static_cast<int>(fault.moved)) + " nth " +
                 std::to_string(fault.nth));
    World world(fault, setting);
    world.run();
    if (world.hits_count() == 0) {
      EXPECT_EQ(world.failed_count(), 0u);
      break;
    }
    EXPECT_TRUE(world.are_failed_on_one_link());
    EXPECT_GE(world.failed_count(), 1u);
    if (fault.what == What::fail && fault.call != Call::probe) {
      EXPECT_EQ(world.failed_count(), 1u) << "the link is as good as before";
    }
  }
  return fault.nth - 1;
}

TEST_P(NetworkError, AnyFailureEndsBothSidesAndOthersGoOn) {
  struct Kind {
    Call call;
    std::uint64_t count;  ///< in a run
  };
  const std::vector<Kind> kinds =
      GetParam().hub_sends ? std::vector<Kind>{{Call::write, 12},
                                               {Call::write_immediate, 44},
                                               {Call::write_small, 2},  // demands have been heard
                                               {Call::write_small_immediate, 8}}  // notices
                           : std::vector<Kind>{{Call::write_small, 15 + 8},  // credits and FINs
                                               {Call::write_small_immediate, 2},  // demands
                                               {Call::read, 8}};
  for_seeds([&](const Setting& setting) {
    const auto count_of = [&](fault::Fault fault, Call call) {
      fault.call = call;
      return each(fault, setting);
    };
    std::vector<fault::Fault> faults{{.call = {}, .what = What::refuse, .status = kBroken}};
    for (const What what : {What::fail, What::kill})
      for (const Moved moved : {Moved::nothing, Moved::half, Moved::all})
        faults.push_back({.call = {}, .what = what, .status = kBroken, .moved = moved});
    for (const fault::Fault& fault : faults) {
      for (const Kind& kind : kinds) EXPECT_EQ(count_of(fault, kind.call), kind.count);
      EXPECT_GE(count_of(fault, Call::probe), 2u);
    }
  });
}

TEST_P(NetworkError, ALostDeviceEndsAllAtAnyTime) {
  for_seeds([&](const Setting& setting) {
    std::size_t failed = 3;  // fewer, and then none, once the last round is nearly over
    for (std::uint64_t nth = 1; !testing::Test::HasFailure(); ++nth) {
      SCOPED_TRACE("poll " + std::to_string(nth));
      World world({.call = Call::poll, .what = What::refuse, .nth = nth, .status = kBroken},
                  setting);
      world.is_device_lost = true;
      world.run();
      EXPECT_LE(world.failed_count(), failed);
      failed = world.failed_count();
      EXPECT_TRUE(failed == 3 || nth > 50);
      if (world.hits_count() == 0) break;
    }
    EXPECT_EQ(failed, 0u);
  });
}

}  // namespace
}  // namespace larklane::part
