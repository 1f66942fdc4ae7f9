// The state machine of links: two ends and the records between them, in every order that a seed
// draws; ends that can't be opened, connected or greeted; a side that loses the link, or dies.
// LARKLANE_SEED=N repeats one run.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "net/loop/random.hpp"
#include "wireup/link.hpp"

namespace larklane::wireup {
namespace {

std::vector<std::byte> bytes_of(std::uint8_t first) { return {std::byte{first}, std::byte{7}}; }

struct Record {
  bool is_offer;
  std::vector<std::byte> offer;
  Status status;
};

/// One end. Thread safety: single-owner.
class Side final : public Link {
 public:
  Side(std::uint8_t name, bool is_by_use) : name_(name), is_by_use_(is_by_use) {}

  /// The oldest record from the peer, if there is one. @return its result
  std::optional<Status> deliver() {
    if (inbox.empty() || is_dead) return std::nullopt;
    const Record record = inbox.front();
    inbox.pop_front();
    return record.is_offer ? hear_offer(record.offer) : hear_ready(record.status);
  }
  /// The lane's turn. @return the greeting has ended
  bool turn(bool fails) {
    if (!is_posted || is_dead) return false;
    if (!is_over() && !(is_served() && peer->is_served())) return false;
    is_posted = false;
    if (is_over() || fails) {
      answered(Errc::kTransfer);
    } else {
      EXPECT_TRUE(peer->is_linked);
      EXPECT_FALSE(peer->is_ready()) << "first operations cross";
      has_greeted = true;
      answered({});
    }
    return true;
  }

  Side* peer = nullptr;
  std::deque<Record> inbox;
  Status open_status, connect_status;
  bool is_linked = false, is_posted = false, has_greeted = false, is_dead = false;
  int opens = 0, offers = 0, errors = 0, readies = 0, overs = 0;
  std::optional<Cause> cause;

 private:
  void send(Record record) {
    if (!peer->is_dead) peer->inbox.push_back(std::move(record));
  }
  Status open() override {
    ++opens;
    return open_status;
  }
  std::vector<std::byte> offer() const override { return bytes_of(name_); }
  Status send_offer() override {
    ++offers;
    send({true, bytes_of(name_), {}});
    return {};
  }
  Status connect(std::span<const std::byte> offer) override {
    EXPECT_EQ(offer.front(), std::byte{peer->name_});
    EXPECT_FALSE(is_linked);
    is_linked = connect_status.ok();
    return connect_status;
  }
  bool is_connected_by_use() const override { return is_by_use_; }
  void send_ready(Status status) override {
    errors += status.ok() ? 0 : 1;
    send({false, {}, status});
  }
  void greet() override {
    EXPECT_TRUE(peer->is_linked);
    is_posted = true;
  }
  void on_served() override {}
  void on_ready() override {
    ++readies;
    EXPECT_EQ(overs, 0);
    EXPECT_TRUE(is_linked && peer->is_linked);
    EXPECT_TRUE(!is_by_use_ || has_greeted || peer->has_greeted) << "used before the greeting";
  }
  void on_over(Status status, Cause why) override {
    ++overs;
    EXPECT_FALSE(status.ok());
    cause = why;
  }

  const std::uint8_t name_;
  const bool is_by_use_;
};

struct Pair {
  explicit Pair(bool is_by_use) : sides{{1, is_by_use}, {2, is_by_use}} {
    sides[0].peer = &sides[1];
    sides[1].peer = &sides[0];
  }
  /// Every step that needs no further call.
  void settle() {
    for (bool is_news = true; is_news;) {
      is_news = false;
      for (Side& side : sides) {
        while (const auto result = side.deliver()) {
          EXPECT_TRUE(result->ok());
          is_news = true;
        }
        is_news |= side.turn(false);
      }
    }
  }
  Side sides[2];
};

class WireupLink : public testing::TestWithParam<bool> {};

TEST_P(WireupLink, OneWantConnectsBothEndsOnce) {
  for (const int first : {0, 1}) {
    Pair pair(GetParam());
    ASSERT_TRUE(pair.sides[first].want().ok());
    ASSERT_TRUE(pair.sides[first].want().ok());
    EXPECT_FALSE(pair.sides[first].is_ready());
    pair.settle();
    for (Side& side : pair.sides) {
      EXPECT_TRUE(side.is_ready());
      EXPECT_FALSE(side.is_served());
      EXPECT_EQ(side.opens, 1);
      EXPECT_EQ(side.offers, 1);
      EXPECT_EQ(side.readies, 1);
      EXPECT_EQ(side.hear_offer(bytes_of(1)).code(), Errc::kProtocol);
      EXPECT_EQ(side.hear_ready({}).code(), Errc::kProtocol);
    }
    EXPECT_EQ(pair.sides[0].has_greeted, false);
    EXPECT_EQ(pair.sides[1].has_greeted, GetParam());  // it has the greater offer
  }
}

TEST_P(WireupLink, AReadyBeforeTheOfferChangesNothing) {
  Pair pair(GetParam());
  ASSERT_TRUE(pair.sides[0].want().ok());
  EXPECT_TRUE(pair.sides[0].hear_ready({}).ok());
  EXPECT_FALSE(pair.sides[0].is_ready());
  pair.settle();
  EXPECT_TRUE(pair.sides[0].is_ready() && pair.sides[1].is_ready());
}

TEST_P(WireupLink, AnEndThatCannotBeOpenedIsRefusedWhenThePeerOffers) {
  Pair pair(GetParam());
  pair.sides[0].open_status = Errc::kNoMemory;
  EXPECT_EQ(pair.sides[0].want().code(), Errc::kNoMemory);
  EXPECT_EQ(pair.sides[0].want().code(), Errc::kNoMemory);
  EXPECT_EQ(pair.sides[0].opens, 1);
  EXPECT_EQ(pair.sides[0].overs, 1);
  pair.settle();
  EXPECT_EQ(pair.sides[1].state(), Link::State::unopened);  // it has no notice yet
  ASSERT_TRUE(pair.sides[1].want().ok());
  pair.settle();
  EXPECT_EQ(pair.sides[1].failure().code(), Errc::kNoMemory);
  EXPECT_EQ(pair.sides[1].cause, Link::Cause::peer);
  EXPECT_EQ(pair.sides[0].overs, 1);
}

TEST_P(WireupLink, ALossInUseEndsBothSides) {
  Pair pair(GetParam());
  ASSERT_TRUE(pair.sides[0].want().ok());
  pair.settle();
  pair.sides[0].lose(Errc::kUnreachable);
  pair.sides[0].lose(Errc::kTransfer);
  pair.settle();
  for (Side& side : pair.sides) {
    EXPECT_EQ(side.overs, 1);
    EXPECT_TRUE(side.has_been_ready());
    EXPECT_EQ(side.failure().code(), Errc::kUnreachable);
  }
  EXPECT_EQ(pair.sides[0].cause, Link::Cause::here);
  EXPECT_EQ(pair.sides[1].cause, Link::Cause::peer);
}

TEST_P(WireupLink, LossesThatCrossAreReportedOnceEach) {
  Pair pair(GetParam());
  for (Side& side : pair.sides) ASSERT_TRUE(side.want().ok());
  for (Side& side : pair.sides) (void)side.deliver();  // both are connected
  for (Side& side : pair.sides) side.lose(Errc::kUnreachable);
  pair.settle();
  for (Side& side : pair.sides) {
    EXPECT_EQ(side.errors, 1);
    EXPECT_EQ(side.overs, 1);
  }
}

TEST_P(WireupLink, NothingIsSentToADepartedPeer) {
  Pair pair(GetParam());
  ASSERT_TRUE(pair.sides[0].want().ok());
  pair.sides[1].inbox.clear();
  pair.sides[0].end(Errc::kPeerDown);
  EXPECT_EQ(pair.sides[0].cause, Link::Cause::gone);
  EXPECT_TRUE(pair.sides[1].inbox.empty());
  EXPECT_EQ(pair.sides[0].want().code(), Errc::kPeerDown);
}

TEST(WireupGreeting, AGreetingThatFailsEndsBothSidesWithItsStatus) {
  Pair pair(true);
  ASSERT_TRUE(pair.sides[0].want().ok());
  while (!pair.sides[1].is_posted)
    for (Side& side : pair.sides) (void)side.deliver();
  EXPECT_EQ(pair.sides[1].hear_ready({}).code(), Errc::kProtocol);  // not answered yet
  ASSERT_TRUE(pair.sides[1].turn(true));
  EXPECT_FALSE(pair.sides[1].is_over());  // the completion has no lock
  pair.settle();
  for (Side& side : pair.sides) {
    EXPECT_EQ(side.failure().code(), Errc::kTransfer);
    EXPECT_EQ(side.readies, 0);
    EXPECT_EQ(side.overs, 1);
    EXPECT_FALSE(side.is_served());
  }
  EXPECT_EQ(pair.sides[1].cause, Link::Cause::here);
}

TEST(WireupGreeting, OfTwoOffersOneGoesFirst) {
  const auto one = bytes_of(1), two = bytes_of(2);
  EXPECT_EQ(Link::first_of(one, two), Link::First::theirs);
  EXPECT_EQ(Link::first_of(two, one), Link::First::ours);
  EXPECT_EQ(Link::first_of(one, one), Link::First::either);
  EXPECT_EQ(Link::first_of(std::span(one).first(1), one), Link::First::theirs);
}

/// As tests/protocol/wireup.pml, of the code itself.
void run(std::uint64_t seed) {
  loop::Random random(seed);
  Pair pair(random.one_in(2));
  Side(&sides)[2] = pair.sides;
  if (random.one_in(4)) sides[random.below(2)].open_status = Errc::kNoMemory;
  if (random.one_in(4)) sides[random.below(2)].connect_status = Errc::kSystem;
  const bool fails = random.one_in(3);
  bool may_lose = random.one_in(2), may_die = random.one_in(3), is_gone[2] = {};
  for (int step = 0; step < 60; ++step) {
    const std::size_t number = random.below(2);
    Side& side = sides[number];
    if (side.is_dead) continue;
    switch (random.below(8)) {
      case 0:
        if (!is_gone[number]) (void)side.want();
        break;
      case 1:
        if (may_lose && side.state() != Link::State::unopened) {
          side.lose(Errc::kUnreachable);
          may_lose = false;
        }
        break;
      case 2:
        if (random.one_in(4) && may_die) {
          side.is_dead = true;
          may_die = false;
        }
        break;
      case 3:
        (void)side.turn(fails);
        break;
      default:
        if (const auto result = side.deliver()) {
          EXPECT_TRUE(result->ok());
        } else if (side.peer->is_dead && !is_gone[number]) {
          is_gone[number] = true;
          side.end(Errc::kPeerDown);
        }
    }
  }
  pair.settle();
  for (std::size_t number : {0u, 1u}) {
    Side& side = sides[number];
    if (side.peer->is_dead) side.end(Errc::kPeerDown);
    EXPECT_LE(side.opens, 1);
    EXPECT_LE(side.offers, 1);
    EXPECT_LE(side.readies, 1);
    EXPECT_LE(side.overs, 1);
    if (side.is_dead || side.state() == Link::State::unopened) continue;
    EXPECT_TRUE(side.is_ready() || side.is_over()) << "it waits for ever";
    EXPECT_FALSE(side.is_served());
    if (side.peer->is_over()) {
      EXPECT_TRUE(side.is_over()) << "the peer has given the link up";
    }
  }
}

TEST(WireupGreeting, NoSideWaitsForEverInAnySchedule) {
  if (const char* const given = std::getenv("LARKLANE_SEED"))
    return run(std::strtoull(given, nullptr, 10));
  for (std::uint64_t seed = 1; seed <= 50'000 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("LARKLANE_SEED=" + std::to_string(seed));
    run(seed);
  }
}

INSTANTIATE_TEST_SUITE_P(, WireupLink, testing::Bool(), [](const auto& setting) {
  return std::string(setting.param ? "ConnectedByUse" : "Connected");
});

}  // namespace
}  // namespace larklane::wireup
