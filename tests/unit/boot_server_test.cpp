// The server of cards: its answers to processes, strangers and random bytes.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <random>

#include "boot_fixture.hpp"

namespace larklane::boot {
namespace {

class ServerTest : public testing::Test {
 protected:
  void expect_gone(RawProcess& process, std::uint32_t rank) {
    const auto record = process.next();
    ASSERT_TRUE(record);
    EXPECT_EQ(record->kind, Kind::gone);
    EXPECT_EQ(record->rank, rank);
  }
  void expect_card(RawProcess& process, std::uint32_t rank, const std::string& card) {
    const auto record = process.next();
    ASSERT_TRUE(record);
    EXPECT_EQ(record->kind, Kind::card);
    EXPECT_EQ(record->rank, rank);
    EXPECT_EQ(text_of(record->bytes), card);
  }
  Warnings warnings_;
};

TEST_F(ServerTest, ACardIsAnsweredNowOrWhenItIsThere) {
  ServerThread server(2);
  RawProcess first(server.port(), 0, 2), second(server.port(), 1, 2);
  second.send(packed(Kind::ask, 0));
  second.send(packed(Kind::who, 0));  // answered after it: by then the question waits
  EXPECT_EQ(second.next()->kind, Kind::absent);
  first.send(packed(Kind::publish, 0, bytes_of("zero")));
  expect_card(second, 0, "zero");
  second.send(packed(Kind::ask, 0));
  expect_card(second, 0, "zero");
}

TEST_F(ServerTest, AnEndReachesAskingAndFencedProcesses) {
  ServerThread server(3);
  RawProcess asks(server.port(), 0, 3), fences(server.port(), 2, 3);
  {
    RawProcess dies(server.port());
    ASSERT_TRUE(dies.introduce(1, 3));
    asks.send(packed(Kind::ask, 1));
    fences.send(packed(Kind::fence, 0));
    for (RawProcess* const process : {&asks, &fences}) {
      process->send(packed(Kind::who, 0));
      EXPECT_EQ(process->next()->kind, Kind::absent);
    }
  }
  expect_gone(asks, 1);
  expect_gone(fences, 1);
  asks.send(packed(Kind::fence, 0));
  expect_gone(asks, 1);
  asks.send(packed(Kind::ask, 1));
  expect_gone(asks, 1);
}

TEST_F(ServerTest, APublishedCardOutlivesItsProcess) {
  ServerThread server(2);
  RawProcess asks(server.port());
  ASSERT_TRUE(asks.introduce(0, 2));
  {
    RawProcess dies(server.port());
    ASSERT_TRUE(dies.introduce(1, 2));
    dies.send(packed(Kind::publish, 0, bytes_of("last words")));
  }
  asks.send(packed(Kind::fence, 0));
  expect_gone(asks, 1);
  asks.send(packed(Kind::ask, 1));
  expect_card(asks, 1, "last words");
}

TEST_F(ServerTest, AFencePassesWithAllRanksAndNamesTheMissing) {
  ServerThread server(2);
  RawProcess first(server.port(), 0, 2), second(server.port(), 1, 2);
  for (int turn = 0; turn < 3; ++turn) {
    first.send(packed(Kind::fence, 0));
    first.send(packed(Kind::who, 0));
    const auto absent = first.next();
    ASSERT_TRUE(absent);
    EXPECT_EQ(absent->kind, Kind::absent);
    EXPECT_EQ(text_of(absent->bytes), "1");
    second.send(packed(Kind::fence, 0));
    for (RawProcess* const process : {&first, &second})
      EXPECT_EQ(process->next()->kind, Kind::passed);
  }
}

TEST_F(ServerTest, AProcessComesOnceAndFits) {
  ServerThread server(2);
  RawProcess first(server.port()), twice(server.port()), other(server.port()),
      beyond(server.port());
  ASSERT_TRUE(first.introduce(0, 2));
  EXPECT_FALSE(twice.introduce(0, 2));
  EXPECT_EQ(twice.welcome.verdict, Verdict::rank_taken);
  EXPECT_FALSE(other.introduce(1, 3));
  EXPECT_EQ(other.welcome.verdict, Verdict::other_size);
  EXPECT_FALSE(beyond.introduce(2, 2));
  EXPECT_EQ(beyond.welcome.verdict, Verdict::other_size);
  EXPECT_TRUE(twice.is_cut_off() && other.is_cut_off() && beyond.is_cut_off());
}

TEST_F(ServerTest, StrangersAreDroppedWithOneWarning) {
  ServerThread server(2);
  const auto expect_dropped = [&](auto change) {
    RawProcess raw(server.port());
    Hello hello = raw.hello_of(1, 2);
    change(hello);
    raw.send_hello(hello);
    raw.send(packed(Kind::ask, 0));
    EXPECT_TRUE(raw.is_cut_off());
  };
  expect_dropped([](Hello& hello) { ++hello.proof; });
  expect_dropped([](Hello& hello) { hello.magic = 0; });
  expect_dropped([](Hello& hello) { ++hello.version; });
  expect_dropped([](Hello& hello) { hello.rank = 0; });
  RawProcess overheard(server.port());
  const Hello old = overheard.hello_of(1, 2);
  RawProcess again(server.port());
  again.send_hello(old);  // of another challenge
  EXPECT_TRUE(again.is_cut_off());
  RawProcess process(server.port());
  EXPECT_TRUE(process.introduce(1, 2));
  EXPECT_NE(warnings_.take().find("somebody"), std::string::npos);
}

std::ptrdiff_t open_count() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}
bool wait_until_open(std::ptrdiff_t most) {
  for (int turn = 0; turn < 2000 && open_count() > most; ++turn) ::poll(nullptr, 0, 10);
  return open_count() <= most;
}

TEST_F(ServerTest, StrangersAreFewAndAProcessGetsIn) {
  constexpr int kStrangers = 400;
  ServerThread server(2);
  const std::ptrdiff_t before = open_count();
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < kStrangers; ++i) {
    const Endpoint name = loopback(server.port());
    strangers.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(strangers.back().get(), name.get(), name.length), 0);
  }
  RawProcess process(server.port());
  EXPECT_TRUE(process.introduce(1, 2));
  EXPECT_LE(open_count(), before + kStrangers + std::ptrdiff_t{Unproven<int>::kMost} + 4);
  strangers.clear();
  EXPECT_TRUE(wait_until_open(before + 4));
}

TEST_F(ServerTest, ThousandSpoiledHellosLeaveNothing) {
  ServerThread server(2);
  const std::ptrdiff_t before = open_count();
  for (unsigned seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    RawProcess raw(server.port());
    const Hello hello = raw.hello_of(1, 2);
    std::string bytes(reinterpret_cast<const char*>(&hello), sizeof hello);
    bytes[random() % bytes.size()] ^= static_cast<char>(1 + random() % 255);
    if (random() % 3 == 0) bytes.resize(random() % bytes.size());
    if (random() % 3 == 0) bytes.append(random() % 3000, 'x');
    raw.send(bytes);
  }
  EXPECT_TRUE(wait_until_open(before + 4));
  RawProcess process(server.port());
  EXPECT_TRUE(process.introduce(1, 2));
  warnings_.take();
}

TEST_F(ServerTest, AMalformedRecordEndsItsProcess) {
  const std::string publish = packed(Kind::publish, 0, bytes_of("card"));
  for (const std::string& nonsense :
       {std::string(64, 'x'), packed(Kind::ask, 2), packed(Kind::passed, 0),
        packed(Kind::card, 0, bytes_of("x")), publish + publish,
        packed(Kind::fence, 0) + packed(Kind::fence, 0)}) {
    ServerThread server(2);
    RawProcess first(server.port(), 0, 2), second(server.port(), 1, 2);
    first.send(nonsense);
    EXPECT_TRUE(first.is_cut_off());
    second.send(packed(Kind::fence, 0));
    expect_gone(second, 0);
    EXPECT_NE(warnings_.take().find("rank 0"), std::string::npos);
  }
}

TEST_F(ServerTest, AProcessThatReadsNothingIsDropped) {
  ServerThread server(2);
  RawProcess first(server.port(), 0, 2), greedy(server.port(), 1, 2);
  first.send(packed(Kind::publish, 0, bytes_of(std::string(kCardBytesMax, 'c'))));
  // Some 40 MB of answers: more than the kernel's buffers and the server's hold.
  std::string questions;
  for (int i = 0; i < 100; ++i) questions += packed(Kind::ask, 0);
  for (int i = 0; i < 100; ++i) greedy.send(questions);
  first.send(packed(Kind::fence, 0));
  expect_gone(first, 1);
  EXPECT_NE(warnings_.take().find("reads nothing"), std::string::npos);
}

TEST_F(ServerTest, RandomBytesNeitherCrashNorHang) {
  const char* const given = std::getenv("LARKLANE_SEED");
  const unsigned long seed = given != nullptr ? std::strtoul(given, nullptr, 10) : 20261125;
  SCOPED_TRACE("LARKLANE_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  ServerThread server(300);
  RawProcess honest(server.port());
  ASSERT_TRUE(honest.introduce(0, 300));
  for (std::uint32_t rank = 1; rank < 300; ++rank) {
    RawProcess raw(server.port());
    std::string bytes;
    if (random() % 4 != 0) {  // let in
      ASSERT_TRUE(raw.introduce(rank, 300));
      bytes =
          packed(Kind::publish, 0, bytes_of("card")) + packed(Kind::ask, 0) + packed(Kind::who, 0);
      for (int change = 0; change < 2; ++change)
        bytes[random() % bytes.size()] = static_cast<char>(random());
    } else {
      bytes.resize(random() % 200);
      std::ranges::generate(bytes, [&] { return static_cast<char>(random()); });
    }
    raw.send(bytes);
  }
  honest.send(packed(Kind::who, 0));
  while (const auto record = honest.next())
    if (record->kind == Kind::absent) break;
  honest.send(packed(Kind::publish, 0, bytes_of("still here")));
  honest.send(packed(Kind::ask, 0));
  expect_card(honest, 0, "still here");
  warnings_.take();
}

}  // namespace
}  // namespace larklane::boot
