// How the lanes of processes get connected, and the effect of peers that send malformed records,
// leave, or never come.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "net/fault/fault.hpp"
#include "net/loop/fabric.hpp"
#include "prop/msg_seeds.hpp"
#include "unit/msg_job.hpp"
#include "unit/msg_mesh_job.hpp"

namespace larklane::msg {
namespace {

constexpr std::uint32_t kLanes = 4;

loop::Fabric::Options network_options(bool is_connected_by_use) {
  loop::Fabric::Options options;
  options.limits.is_connected_by_use = is_connected_by_use;
  if (is_connected_by_use) {  // as over sockets
    // A greeting ends only after its target's lane has been polled.
    options.limits.is_progress_manual = true;
    options.limits.immediates_max = 0;  // rings are longer, so two would exceed a limit
  }
  return options;
}

/// Over a network whose links are connected by use, and over another one.
class MeshTest : public testing::TestWithParam<bool> {
 protected:
  MeshProcess& add(int rank, int size, const fault::Plan& plan = {}) {
    auto fabric = std::make_unique<fault::Fabric>(network_.for_process(), plan);
    processes_.push_back(
        std::make_unique<MeshProcess>(std::move(fabric), table_, rank, size, kLanes));
    return *processes_.back();
  }
  void step() {
    network_.settle();
    for (auto& process : processes_) process->step();
  }
  /// The next status that `process` gets.
  Status next(MeshProcess& process) {
    std::optional<Completion> completion;
    if (!comes([&] { return (completion = process.told->pop()).has_value(); }, [&] { step(); }))
      ADD_FAILURE() << "nothing comes";
    return completion ? completion->status : Status(Errc::kSystem);
  }
  /// Whether the post was refused, or its completion reports an error later.
  Status end_of(MeshProcess& process, Result<Post> post) {
    return post ? next(process) : post.error();
  }
  void expect_exchange(MeshProcess& from, MeshProcess& to, int rank_from, int rank_to,
                       std::uint32_t lane = 0) {
    std::uint64_t into = 0;
    EXPECT_TRUE(to.receive(rank_from, 1, &into, lane));
    EXPECT_TRUE(from.send(rank_to, 1, lane));
    EXPECT_TRUE(next(to).ok());
    EXPECT_TRUE(next(from).ok());
    EXPECT_EQ(into, 0x1234'5678u);
  }
  std::string text_of_card(int rank) {
    const boot::Card bytes = table_.wait_for(rank).value();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  boot::HostCard card_of(int rank) { return boot::HostCard::of_text(text_of_card(rank)).value(); }
  void put(int rank, const std::string& text) { table_.put(rank, std::as_bytes(std::span(text))); }
  void put_card(int rank, const Speaker& speaker) {
    boot::HostCard card = card_of(0);
    card.local = speaker.name();
    put(rank, card.text());
  }
  /// Has called rank 0; its card is there.
  std::unique_ptr<Speaker> speaker_of_rank_1() {
    auto one = std::make_unique<Speaker>(std::string(card_of(0).local) + "-one");
    one->call(card_of(0).local);
    put_card(1, *one);
    return one;
  }
  static void say_anything(Speaker& two, std::uint64_t seed) {
    loop::Random random(seed);
    for (int i = 0; i < 10; ++i) {
      const std::int32_t ranks[] = {2, 2, 2, 1, 0, -1, 3, static_cast<std::int32_t>(random.next())};
      const std::uint32_t numbers[] = {0, 1, Mesh::kLinksMax - 1, Mesh::kLinksMax,
                                       static_cast<std::uint32_t>(random.next())};
      const std::int32_t rank = ranks[random.below(8)];
      const std::uint32_t number = numbers[random.below(5)];
      const auto rest = random_bytes(random.below(random.one_in(8) ? 8000 : 60), random.next());
      if (random.one_in(3))
        two.say(MeshRecord::offer, MeshOffer{rank, number}, rest);
      else if (random.one_in(2))
        two.say(MeshRecord::ready,
                MeshReady{rank, number, static_cast<std::uint32_t>(random.below(30))}, rest);
      else
        two.say(static_cast<MeshRecord>(random.below(6)), std::span<const std::byte>(rest));
    }
  }
  /// Each at its own time, as processes do.
  void close_all() {
    std::vector<std::thread> threads;
    for (auto& process : processes_) threads.emplace_back([&process] { process->close(); });
    for (std::thread& thread : threads) thread.join();
  }
  void TearDown() override {
    table_.clear();
    close_all();
    processes_.clear();
    for (const loop::Violation& violation : network_.take_violations())
      ADD_FAILURE() << loop::offence_name(violation.offence) << ": " << violation.detail;
  }

  loop::Fabric network_{network_options(GetParam())};
  Table table_;
  std::vector<std::unique_ptr<MeshProcess>> processes_;
  WarningLog warnings_;
};

TEST_P(MeshTest, EachLinkIsMadeOnceWhenItIsWanted) {
  MeshProcess &zero = add(0, 2), &one = add(1, 2);
  EXPECT_EQ(zero.ready.count() + one.ready.count(), 0);
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
    expect_exchange(zero, one, 0, 1, lane);
    expect_exchange(one, zero, 1, 0, lane);
    EXPECT_EQ(zero.ready.count(), static_cast<int>(lane + 1));
    EXPECT_EQ(one.ready.count(), static_cast<int>(lane + 1));
  }
  expect_exchange(zero, zero, 0, 0);
  close_all();
  EXPECT_EQ(zero.down.count(), 1);
  EXPECT_EQ(one.down.count(), 1);
}

TEST_P(MeshTest, BothWantTheSameLinksAtTheSameTime) {
  for (int i = 0; i < 2; ++i) (void)add(i, 2);
  std::uint64_t into[2][kLanes] = {};
  std::vector<std::thread> threads;
  for (int rank : {0, 1})
    threads.emplace_back([&, rank] {
      MeshProcess& own = *processes_[static_cast<std::size_t>(rank)];
      for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
        EXPECT_TRUE(own.receive(1 - rank, lane, &into[rank][lane], lane));
        EXPECT_TRUE(own.send(1 - rank, lane, lane));
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (auto& process : processes_) {
    for (std::uint32_t i = 0; i < 2 * kLanes; ++i) EXPECT_TRUE(next(*process).ok());
    EXPECT_EQ(process->ready.count(), static_cast<int>(kLanes));
    EXPECT_EQ(process->unreachable.count(), 0);
  }
}

TEST_P(MeshTest, DepartedPeerStaysGone) {
  MeshProcess &zero = add(0, 2), &one = add(1, 2);
  expect_exchange(zero, one, 0, 1);
  one.close();
  EXPECT_EQ(one.down.count(), 1);  // it has received the farewell
  EXPECT_EQ(zero.down.count(), 1);
  EXPECT_EQ(end_of(zero, zero.send(1, 1, 2)).code(), Errc::kPeerDown);  // over another lane
  std::uint64_t into = 0;
  ASSERT_TRUE(zero.receive(1, 1, &into));
  EXPECT_EQ(next(zero).code(), Errc::kPeerDown);
}

TEST_P(MeshTest, PeerThatEndsSilentlyFailsPendingSends) {
  MeshProcess& zero = add(0, 2);
  {
    const auto one_p = speaker_of_rank_1();
    Speaker& one = *one_p;
    ASSERT_TRUE(zero.send(1, 1));
    ASSERT_TRUE(comes([&] { return one.heard(MeshRecord::offer) != 0; }));
  }
  EXPECT_EQ(next(zero).code(), Errc::kPeerDown);
}

TEST_P(MeshTest, PeerThatOffersAndEndsBeforeTheCallIsGone) {
  MeshProcess& zero = add(0, 2);
  ASSERT_TRUE(zero.send(1, 1));
  ASSERT_TRUE(comes([&] { return table_.waiting() != 0; }));  // for the card of rank 1
  boot::HostCard card = card_of(0);
  const std::string name = card.local += "-one";
  {
    Speaker one(name);
    one.call(card_of(0).local);
    one.say(MeshRecord::offer, MeshOffer{1, 3}, random_bytes(100, 1));  // makes the rank known
    one.say(MeshRecord::goodbye, MeshGoodbye{1});
    ASSERT_TRUE(comes([&] { return one.heard(MeshRecord::farewell) != 0; }));
  }
  EXPECT_EQ(warnings_.take("over lane 3"), 1u);
  put(1, card.text());
  EXPECT_EQ(next(zero).code(), Errc::kPeerDown);
}

TEST_P(MeshTest, CardsOfOtherVersionsAndOfNoSenseAreRefused) {
  MeshProcess& zero = add(0, 3);
  const std::string card = text_of_card(0);
  put(1, "other" + card);
  table_.put(2, random_bytes(card.size(), 1));
  for (const int rank : {1, 2}) {
    EXPECT_EQ(end_of(zero, zero.send(rank, 1)).code(), Errc::kVersion);
  }
  EXPECT_EQ(warnings_.take("runs another version"), 2u);
}

TEST_P(MeshTest, StrangerEndsNoLinks) {
  MeshProcess &zero = add(0, 3), &one = add(1, 3);
  expect_exchange(zero, one, 0, 1);
  const std::string address = card_of(0).local;
  const auto bytes = random_bytes(100, 1);
  {
    Speaker stranger(address + "-stranger");
    stranger.call(address);
    stranger.say(MeshRecord::goodbye, MeshGoodbye{1});
    stranger.say(MeshRecord::offer, MeshOffer{1, 0}, bytes);
    stranger.say(MeshRecord::ready, MeshReady{1, 0, 0});
    stranger.say(MeshRecord::offer, MeshOffer{2, 0}, bytes);
    stranger.say(MeshRecord::goodbye, MeshGoodbye{2});
    EXPECT_TRUE(comes([&] { return stranger.heard(MeshRecord::farewell) != 0; }));
  }
  ASSERT_FALSE(zero.engine->is_lost(1));
  expect_exchange(zero, one, 0, 1);
  expect_exchange(one, zero, 1, 0, 1);
  (void)warnings_.take("sends records that make no sense");  // of a process once
  EXPECT_EQ(warnings_.take("rank 2 can't be reached"), 1u);
}

TEST_P(MeshTest, LeavingProcessOpensNoLink) {
  MeshProcess &zero = add(0, 3), &two = add(2, 3);
  expect_exchange(zero, two, 0, 2);
  std::uint64_t into = 0;
  ASSERT_TRUE(zero.receive(1, 1, &into));
  ASSERT_TRUE(comes([&] { return table_.waiting() == 1; }));
  std::thread leaving([&] { zero.close(); });
  EXPECT_TRUE(comes([&] { return two.down.count() != 0; }));
  MeshProcess& one = add(1, 3);  // rank 0 still waits for its card
  leaving.join();
  EXPECT_EQ(one.ready.count(), 0);
  EXPECT_EQ(zero.unreachable.count(), 1);
}

TEST_P(MeshTest, LeavingProcessEndsPostsThatWaitForALink) {
  MeshProcess &zero = add(0, 4), &three = add(3, 4);
  expect_exchange(zero, three, 0, 3);
  const auto bytes = random_bytes(5000, 1);
  for (const int rank : {1, 2})
    ASSERT_TRUE(post_send(zero.vcis[0], rank, 1, bytes.data(), bytes.size(), zero.telling()));
  ASSERT_TRUE(comes([&] { return table_.waiting() == 1; }));
  std::thread leaving([&] { zero.close(); });
  EXPECT_TRUE(comes([&] { return three.down.count() != 0; }));
  table_.clear();
  leaving.join();
  for (int i = 0; i < 2; ++i) {
    const auto completion = zero.told->pop();
    ASSERT_TRUE(completion);
    EXPECT_EQ(completion->status.code(), Errc::kPeerDown);
  }
}

/// The peer's offer has ended the link before the fetch of the peer's card answers.
TEST_P(MeshTest, LeavingProcessReportsALinkThatIsOverOnce) {
  MeshProcess& zero = add(0, 2);
  std::uint64_t into = 0;
  ASSERT_TRUE(zero.receive(1, 1, &into));
  ASSERT_TRUE(comes([&] { return table_.waiting() == 1; }));
  Speaker one(std::string(card_of(0).local) + "-one");
  one.call(card_of(0).local);
  one.say(MeshRecord::offer, MeshOffer{1, 0}, random_bytes(100, 1));
  EXPECT_TRUE(comes([&] { return zero.unreachable.count() == 1; }));
  std::thread leaving([&] { zero.close(); });
  EXPECT_TRUE(comes([&] { return one.heard(MeshRecord::goodbye) == 1; }));
  put_card(1, one);
  leaving.join();
  EXPECT_EQ(zero.unreachable.count(), 1);
  EXPECT_EQ(warnings_.take("rank 1 can't be reached"), 1u);
}

TEST_P(MeshTest, PeerThatIsReadyWithoutAnOfferFailsPendingSends) {
  MeshProcess& zero = add(0, 2);
  const auto one_p = speaker_of_rank_1();
  Speaker& one = *one_p;
  ASSERT_TRUE(zero.send(1, 1));
  ASSERT_TRUE(comes([&] { return one.heard(MeshRecord::offer) != 0; }));
  one.say(MeshRecord::ready, MeshReady{1, 0, 0});
  one.say(MeshRecord::goodbye, MeshGoodbye{1});
  EXPECT_EQ(next(zero).code(), Errc::kPeerDown);
}

TEST_P(MeshTest, ALinkThatWasGivenUpStaysSo) {
  MeshProcess& zero = add(0, 2);
  const auto one_p = speaker_of_rank_1();
  Speaker& one = *one_p;
  const auto nonsense = random_bytes(100, 1);
  for (int i = 1; i <= 3; ++i) {
    one.say(MeshRecord::offer, MeshOffer{1, 0}, nonsense);
    one.say(MeshRecord::ready, MeshReady{1, 0, static_cast<std::uint32_t>(Errc::kNoMemory)});
    EXPECT_TRUE(comes([&] { return one.heard(MeshRecord::ready) == i; }));
  }
  one.say(MeshRecord::goodbye, MeshGoodbye{1});
  EXPECT_TRUE(comes([&] { return one.heard(MeshRecord::farewell) != 0; }));
  EXPECT_EQ(zero.unreachable.count(), 1);
  EXPECT_EQ(zero.ready.count(), 0);
  EXPECT_EQ(zero.send(1, 1).error().code(), Errc::kProtocol);
  EXPECT_EQ(warnings_.take("rank 1 can't be reached"), 1u);
}

/// Records that no mesh writes: only their sender loses anything.
TEST_P(MeshTest, MadeUpRecordsEndNoOtherPeersLinks) {
  for_seeds(200, [&](std::uint64_t seed) {
    MeshProcess &zero = add(0, 3), &one = add(1, 3);
    expect_exchange(zero, one, 0, 1);
    {
      Speaker two(std::string(card_of(0).local) + "-two");
      two.call(card_of(0).local);
      say_anything(two, seed);
    }
    EXPECT_FALSE(zero.engine->is_lost(1));
    expect_exchange(zero, one, 0, 1);
    expect_exchange(one, zero, 1, 0, 1);
    close_all();
    processes_.clear();
  });
  (void)warnings_.take("sends records that make no sense");
  (void)warnings_.take("rank 2 can't be reached");
}

class GreetedMeshTest : public MeshTest {};

/// Any of the two may go first: nothing waits for the link on either side.
TEST_P(GreetedMeshTest, FailedGreetingEndsTheLinkOnBothSides) {
  for (const fault::What what : {fault::What::fail, fault::What::kill, fault::What::refuse}) {
    const fault::Plan plan{
        .faults = {
            {.call = fault::Call::probe, .what = what, .nth = 1, .status = Errc::kTransfer}}};
    MeshProcess &zero = add(0, 2, plan), &one = add(1, 2, plan);
    const Result<Post> posted[] = {zero.send(1, 1), one.send(0, 1)};
    for (MeshProcess* process : {&zero, &one}) {
      EXPECT_EQ(end_of(*process, posted[process == &one]).code(), Errc::kTransfer);
      EXPECT_EQ(process->unreachable.count(), 1);
      EXPECT_EQ(process->ready.count(), 0);
    }
    EXPECT_EQ(warnings_.take("can't be reached"), 2u);
    close_all();
    processes_.clear();
  }
}

/// One only receives, and neither makes a turn.
TEST_P(GreetedMeshTest, NoProgramNeedsToMakeProgressForAGreeting) {
  MeshProcess &zero = add(0, 2), &one = add(1, 2);
  std::uint64_t into = 0;
  ASSERT_TRUE(zero.receive(1, 1, &into));
  EXPECT_TRUE(comes([&] { return zero.ready.count() == 1 && one.ready.count() == 1; }));
  ASSERT_TRUE(one.send(0, 1));
  EXPECT_TRUE(next(zero).ok());
  EXPECT_TRUE(next(one).ok());
}

INSTANTIATE_TEST_SUITE_P(, GreetedMeshTest, testing::Values(true));
INSTANTIATE_TEST_SUITE_P(, MeshTest, testing::Bool(), [](const auto& setting) {
  return std::string(setting.param ? "OverLinksThatAreGreeted" : "OverLinks");
});

}  // namespace
}  // namespace larklane::msg
