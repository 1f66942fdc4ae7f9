// Resources that operations and lanes of one engine share: memory that can be registered, a
// thread's turns.

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "unit/msg_job.hpp"

namespace larklane::msg {
namespace {

/// How many pieces of memory a network still registers, and the steps of other threads before it
/// answers.
struct Scarcity {
  std::uint64_t left;
  std::function<void()> meanwhile{};
};

struct ScarceFabric final : net::Fabric {
  ScarceFabric(std::unique_ptr<net::Fabric> inner_, Scarcity& scarcity_)
      : inner(std::move(inner_)), scarcity(scarcity_) {}
  const net::Limits& limits() const noexcept override { return inner->limits(); }
  Result<std::unique_ptr<net::Memory>> register_memory(void* start, std::uint64_t bytes) override {
    const bool is_left = scarcity.left != 0;
    if (is_left) --scarcity.left;
    if (scarcity.meanwhile) scarcity.meanwhile();
    if (!is_left) return Errc::kNoMemory;
    return inner->register_memory(start, bytes);
  }
  Result<std::unique_ptr<net::Endpoint>> open_endpoint(net::Receiver& receiver) override {
    return inner->open_endpoint(receiver);
  }

  std::unique_ptr<net::Fabric> inner;
  Scarcity& scarcity;
};

constexpr std::uint64_t kEnough = 100;

Job::Options with(Scarcity& scarcity) {
  Job::Options options;
  options.decorate = [&scarcity](std::unique_ptr<net::Fabric> fabric, int rank) {
    if (rank != 0) return fabric;
    return std::unique_ptr<net::Fabric>(new ScarceFabric(std::move(fabric), scarcity));
  };
  return options;
}

TEST(EngineLimits, WithoutMemoryToRegisterAPostWaitsForOthersOrFails) {
  Scarcity scarcity{kEnough};
  Job job(with(scarcity));
  job.connect_all();
  auto told = std::move(CompletionQueue::create(job.at(0).domain).value());
  auto received = std::move(CompletionQueue::create(job.at(1).domain).value());
  PostOptions posting, receiving;
  posting.completion = &told;
  receiving.completion = &received;
  std::vector<std::byte> from = random_bytes(5000, 5), into(5000);
  Vci& vci = *job.at(0).vci;
  const auto send = [&] { return post_send(vci, 1, 1, from.data(), from.size(), posting); };
  RemoteRegion elsewhere;
  {
    const Region region = job.at(1).add_region(into.data(), into.size());
    elsewhere = region.remote();
  }
  const auto put = [&] { return post_put(vci, elsewhere, 0, from.data(), from.size(), posting); };
  scarcity.left = 0;
  EXPECT_EQ(send().error().code(), Errc::kNoMemory);
  EXPECT_EQ(put().error().code(), Errc::kNoMemory);
  scarcity.left = kEnough;
  EXPECT_EQ(*send(), Post::posted);
  scarcity.left = 0;
  EXPECT_EQ(*send(), Post::retry);
  EXPECT_EQ(*put(), Post::retry);
  EXPECT_EQ(vci.retry_counts().no_memory, 2u);
  (void)post_recv(*job.at(1).vci, 0, 1, into.data(), into.size(), receiving);
  job.settle();
  EXPECT_TRUE(told.pop());
  EXPECT_EQ(into, from);
  EXPECT_EQ(send().error().code(), Errc::kNoMemory);
}

TEST(EngineLimits, ReceivesThatAreOverMakeRoomForOthers) {
  constexpr std::uint32_t kOperations = 8;
  Job::Options options;
  options.lane.operations = kOperations;
  Job job(options);
  job.connect_all();
  auto received = std::move(Counter::create(job.at(1).domain).value());
  PostOptions receiving;
  receiving.completion = &received;
  std::uint64_t into = 0;
  const auto receive = [&] {
    return *post_recv(*job.at(1).vci, 0, 1, &into, sizeof into, receiving);
  };
  for (std::uint64_t round = 1; round <= 3; ++round) {
    for (std::uint32_t i = 0; i < kOperations; ++i) ASSERT_EQ(receive(), Post::posted) << round;
    EXPECT_EQ(receive(), Post::retry);
    for (std::uint32_t i = 0; i < kOperations; ++i)
      ASSERT_TRUE(post_send(*job.at(0).vci, 1, 1, &round, sizeof round));
    job.settle();
    EXPECT_EQ(received.completed(), round * kOperations);
  }
}

TEST(EngineLimits, APieceThatCannotBeRegisteredGivesTheOthersBack) {
  Scarcity scarcity{kEnough};
  Job job(with(scarcity));
  job.connect_all();
  const std::vector<std::byte> from = random_bytes(3000, 5);
  std::vector<std::byte> into(from.size());
  const Buffer pieces[] = {
      {from.data(), 1000}, {from.data() + 1000, 1500}, {from.data() + 2500, 500}};
  const auto send = [&] { return post_send(*job.at(0).vci, 1, 1, pieces); };
  scarcity.left = 2;
  EXPECT_EQ(send().error().code(), Errc::kNoMemory);
  EXPECT_FALSE(job.at(0).engine->has_registered());
  scarcity.left = 3;
  EXPECT_EQ(*send(), Post::posted);
  EXPECT_EQ(*send(), Post::retry);  // when the first is over there may be some
  auto received = std::move(CompletionQueue::create(job.at(1).domain).value());
  PostOptions receiving;
  receiving.completion = &received;
  (void)post_recv(*job.at(1).vci, 0, 1, into.data(), into.size(), receiving);
  job.settle();
  EXPECT_EQ(into, from);
  EXPECT_FALSE(job.at(0).engine->has_registered());
}

/// As two threads' posts may meet: neither gets the error that its memory would never fit.
TEST(EngineLimits, RegistrationsOfOtherThreadsAreWaitedFor) {
  for (const bool ends : {false, true}) {
    Scarcity scarcity{kEnough};
    Job job(with(scarcity));
    job.connect_all();
    Vci& vci = *job.at(0).vci;
    auto received = std::move(CompletionQueue::create(job.at(1).domain).value());
    PostOptions receiving;
    receiving.completion = &received;
    std::vector<std::byte> from = random_bytes(3000, 5), into(from.size());
    const Buffer pieces[] = {{from.data(), 1000}, {from.data() + 1000, 2000}};
    (void)post_recv(*job.at(1).vci, 0, 1, into.data(), into.size(), receiving);
    int calls = 0;
    scarcity.left = 2;
    scarcity.meanwhile = [&] {
      ++calls;
      if (calls == 1) {
        EXPECT_EQ(*post_send(vci, 1, 1, from.data(), from.size()), Post::posted);
      } else if (calls == 3 && ends) {
        job.settle();
      }
    };
    EXPECT_EQ(*post_send(vci, 1, 1, pieces), Post::retry) << ends;
    EXPECT_EQ(calls, 3);
    scarcity = {kEnough};
    job.settle();
    EXPECT_EQ(into, from);
    EXPECT_FALSE(job.at(0).engine->has_registered());
  }
}

TEST(EngineLanes, AnUnservedLaneHasAsManyTurnsAsABusyOne) {
  Job::Options options;
  options.lanes.count_max = 2;
  Job job(options);
  JobProcess &sender = job.at(0), &receiver = job.at(1);
  Vci second(*sender.engine->take_lane().value());
  ASSERT_NE(&second.inside(), &sender.vci->inside());
  std::vector<Counter> heard;
  std::vector<RemoteCompletion> there;
  for (int lane = 0; lane < 2; ++lane) {
    heard.push_back(std::move(Counter::create(receiver.domain).value()));
    there.push_back(heard.back().register_remote().value());
  }
  for (int turn = 0; turn < 20'000; ++turn) {
    for (std::size_t lane = 0; lane < 2; ++lane)
      while (*post_am(lane == 0 ? *sender.vci : second, 1, there[lane], 0, nullptr, 0) !=
             Post::retry) {
      }
    job.connect();
    (void)sender.engine->progress_all();
    job.wire.settle();
    (void)receiver.vci->progress();
  }
  // 16 * 256 turns, at most, before the other lane is polled.
  EXPECT_GT(heard[0].completed(), 20'000u);
  EXPECT_GT(heard[1].completed(), heard[0].completed() / 2);
  EXPECT_LT(heard[1].completed(), heard[0].completed() * 2);
}

Job::Options of_lanes(int size, std::uint32_t lanes) {
  Job::Options options;
  options.size = size;
  options.lanes.count_max = lanes;
  return options;
}

/// It has a lane that is the calling thread's, and connected to itself.
struct OneProcess {
  OneProcess() {
    EXPECT_EQ(*hello(), Post::retry) << "not connected yet";
    job.settle();
  }
  Result<Post> hello() { return post_am(own, 0, there, 0, "hello", 6); }
  bool has_heard() {
    const auto heard = told.pop();
    if (heard) free_buffer(heard->buffer);
    return heard.has_value();
  }

  Job job{of_lanes(1, 2)};
  JobProcess& process = job.at(0);
  CompletionQueue told = CompletionQueue::create(process.domain).value();
  RemoteCompletion there = told.register_remote().value();
  Vci own{*process.engine->take_lane(Engine::Use::own_thread).value()};
};

TEST(EngineLanes, ASingleThreadsLaneIsNoOtherThreads) {
  Job job(of_lanes(2, 2));
  Engine& engine = *job.at(0).engine;
  using Use = Engine::Use;
  auto taken = engine.take_lane(Use::own_thread);
  ASSERT_TRUE(taken);
  const MessageLane* const lane = *taken;
  EXPECT_NE(lane, &job.at(0).vci->inside()) << "which has a user";
  EXPECT_EQ(engine.take_lane(Use::own_thread).error(), Status(Errc::kNoMemory, EBUSY));
  {
    const Vci another(*engine.take_lane().value());
    EXPECT_EQ(&another.inside(), &job.at(0).vci->inside()) << "the only one that is left";
  }
  {
    const Vci own(**taken);
    std::thread([&] { EXPECT_TRUE(own.inside().vci().is_anothers()); }).join();
  }
  std::thread([&] { EXPECT_FALSE(lane->vci().is_anothers()); }).join();
  const Vci shared(*engine.take_lane().value());
  EXPECT_EQ(&shared.inside(), lane);
}

TEST(EngineLanes, WithSingleThreadLanesAloneNoOtherThreadGetsOne) {
  Job job(of_lanes(2, 1));
  JobProcess& process = job.at(0);
  process.vci.reset();
  {
    const Vci own(*process.engine->take_lane(Engine::Use::own_thread).value());
    EXPECT_EQ(process.engine->take_lane().error(), Status(Errc::kNoMemory, EBUSY));
  }
  process.vci.emplace(*process.engine->take_lane().value());
}

// A message on it waits for its thread, even if other threads make progress.
TEST(EngineLanes, OneOfASingleThreadMovesWhenThatThreadMakesProgress) {
  OneProcess one;
  ASSERT_EQ(*one.hello(), Post::done);
  one.job.wire.settle();
  std::thread([&] {
    for (int turn = 0; turn < 1000; ++turn) {
      EXPECT_EQ(one.process.engine->progress_all(), 0u);
      EXPECT_EQ(one.process.vci->progress(), 0u);
    }
  }).join();
  EXPECT_FALSE(one.has_heard());
  one.job.settle();
  EXPECT_TRUE(one.has_heard());

  // A handler with work to do, of a receive that finds its message there already.
  int calls = 0;
  const auto count = [](const Completion&, void* state) { ++*static_cast<int*>(state); };
  auto handler = std::move(Handler::create(one.process.domain, count, &calls)).value();
  PostOptions options_of_receive;
  options_of_receive.completion = &handler;
  options_of_receive.signals_always = true;
  int into = 0;
  ASSERT_EQ(*post_send(one.own, 0, 1, &calls, sizeof calls), Post::done);
  one.job.settle();
  ASSERT_EQ(*post_recv(one.own, 0, 1, &into, sizeof into, options_of_receive), Post::posted);
  std::thread([&] { (void)one.process.engine->progress_all(); }).join();
  EXPECT_EQ(calls, 0);
  one.job.settle();
  EXPECT_EQ(calls, 1);
}

#ifdef NDEBUG
TEST(EngineLanes, AnotherThreadOnALaneOfASingleThreadIsServedSlowly) {
  OneProcess one;
  std::thread([&] {
    ASSERT_EQ(*one.hello(), Post::done);
    for (int turn = 0; turn < 100; ++turn) {
      one.job.wire.settle();
      (void)one.own.progress();
    }
    EXPECT_TRUE(one.has_heard());
  }).join();
}
#else
TEST(EngineLanesDeathTest, AnotherThreadOnALaneOfASingleThreadEndsADebugBuild) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Job job(of_lanes(2, 2));
  Vci own(*job.at(0).engine->take_lane(Engine::Use::own_thread).value());
  EXPECT_DEATH(std::thread([&] { (void)own.progress(); }).join(), "single-threaded lane");
  EXPECT_DEATH(std::thread([&] { (void)post_send(own, 1, 1, "a", 1); }).join(),
               "single-threaded lane");
}
#endif

/// Two processes; the first sends messages to the second. The tests are of the second one's pauses.
class EngineTurns : public testing::Test {
 protected:
  using Pause = net::Receiver::Pause;

  explicit EngineTurns(bool are_polls_dear = false) : job_(options(are_polls_dear)) {
    job_.connect_all();
    while (sent_ < 2 * PacketLink::kHeardBeforeWatch) send();
  }
  void send() {
    ASSERT_EQ(*post_send(*job_.at(0).vci, 1, sent_, &sent_, sizeof sent_), Post::done);
    ++sent_;
    job_.step();
  }
  /// How long a waiting thread backs off after a poll that has found something, ns; 0: as always.
  std::uint64_t lets() {
    const std::uint64_t until = lane().why_away().until_ns;
    return until == 0 ? 0 : until - lane().packets().looked_at_ns();
  }
  /// @return lets(), after the last of them
  std::uint64_t hear(int messages) {
    for (; messages != 0; --messages) send();
    return lets();
  }
  /// As hear(), where one poll finds all.
  std::uint64_t hear_at_once(int messages) {
    for (int i = 0; i < messages; ++i)
      EXPECT_EQ(*post_send(*job_.at(0).vci, 1, sent_++, "a", 1), Post::done);
    job_.step();
    return lets();
  }
  /// Sends a message that waits for an answer.
  void ask() {
    asked_.resize(1 << 20);
    EXPECT_EQ(*post_send(*job_.at(1).vci, 0, 0, asked_.data(), asked_.size()), Post::posted);
    job_.step();
    EXPECT_EQ(lane().awaited().count(), 1U);
  }
  void answer() { ASSERT_EQ(*post_send(*job_.at(1).vci, 0, 0, "a", 1), Post::done); }
  void wait() { (void)job_.at(1).vci->progress(); }
  MessageLane& lane() { return job_.at(1).vci->inside(); }
  Pause pause() { return lane().packets().pause.load(std::memory_order_relaxed); }

 private:
  static Job::Options options(bool are_polls_dear) {
    Job::Options made = of_lanes(2, 1);
    made.network.limits.first_word_last_bytes_max = UINT64_MAX;
    made.network.limits.is_post_system_call = are_polls_dear;
    return made;
  }

  std::vector<char> asked_;
  Job job_;
  std::uint32_t sent_ = 0;
};

/// A waiting thread backs off once after little has come; other threads that serve the lane do not.
TEST_F(EngineTurns, AWaitAfterFewArrivalsBacksOffFirst) {
  EXPECT_EQ(pause(), Pause::little_came);
  wait();
  EXPECT_EQ(pause(), Pause::none);
  wait();
  EXPECT_EQ(pause(), Pause::none);
}

class EngineTurnsOfSystemCalls : public EngineTurns {
 protected:
  EngineTurnsOfSystemCalls() : EngineTurns(true) {}
};

TEST_F(EngineTurnsOfSystemCalls, EachWaitBacksOffFirst) {
  for (int turn = 0; turn < 3; ++turn) {
    wait();
    EXPECT_EQ(pause(), Pause::poll_is_dear) << turn;
  }
}

TEST_F(EngineTurnsOfSystemCalls, APeerThatSendsOnIsLetSend) {
  answer();
  (void)hear(1);
  answer();
  EXPECT_EQ(hear(3), 0U);
  const std::uint64_t of_one = hear(1);
  EXPECT_EQ(lane().packets().calls_ahead(), 1U);
  EXPECT_GE(of_one, 1000U);
  EXPECT_EQ(lets(), 0U) << "nothing has come";
  EXPECT_EQ(hear(4), 2 * of_one);
  const std::uint64_t credit_words = lane().packets().counts().credit_words;
  EXPECT_EQ(hear(18), 3 * of_one);
  EXPECT_GT(lane().packets().counts().credit_words, credit_words);
  EXPECT_EQ(lane().packets().calls_ahead(), 6U) << "a word of credit answers nothing";
}

TEST_F(EngineTurnsOfSystemCalls, ARowEndsWhereTheLastOneDid) {
  for (int row = 0; row < 2; ++row) {
    answer();
    (void)hear(6);
  }
  answer();
  for (std::uint64_t left = 5; left != 0; --left) {
    EXPECT_GT(hear(1), 0U) << left;
    EXPECT_EQ(lane().packets().calls_ahead(), left);
  }
  EXPECT_EQ(hear(1), 0U) << "that was the last one";
}

TEST_F(EngineTurnsOfSystemCalls, RecordsThatCameTogetherWereOneCall) {
  EXPECT_GT(hear(24), 0U);
  (void)hear_at_once(3);
  EXPECT_EQ(lane().packets().calls_ahead(), 4U) << "for ten records";
  send();
  EXPECT_EQ(hear_at_once(4), 0U) << "others wait for us";
}

TEST_F(EngineTurnsOfSystemCalls, APeerThatSendsOnCausesABackoff) {
  const std::uint64_t most = hear(24);
  send();
  wait();
  EXPECT_GE(now_ns(), lane().packets().looked_at_ns() + most);
}

TEST_F(EngineTurnsOfSystemCalls, AThreadThatHasComputedPollsAtOnce) {
  const std::uint64_t most = hear(24);
  send();
  while (now_ns() <= lane().packets().looked_at_ns() + most) {
  }
  const auto away = lane().why_away();
  EXPECT_EQ(away.turns, 0U);
  EXPECT_LT(away.until_ns, now_ns());
}

TEST_F(EngineTurnsOfSystemCalls, AnswersToOurOwnAreNotLetWait) {
  const std::uint64_t most = hear(24);
  ask();
  EXPECT_EQ(hear(1), most / 3);
}

TEST(EngineLanes, AThreadThatReceivesFromOneAfterAnotherBacksOffAsAlways) {
  Job::Options options = of_lanes(3, 1);
  options.network.limits.first_word_last_bytes_max = UINT64_MAX;
  options.network.limits.is_post_system_call = true;
  Job job(options);
  job.connect_all();
  const auto lets_after = [&](int from) {
    EXPECT_EQ(*post_send(*job.at(from).vci, 1, 0, "a", 1), Post::done);
    job.step();
    return job.at(1).vci->inside().why_away().until_ns != 0;
  };
  for (std::uint32_t i = 0; i < PacketLink::kHeardBeforeWatch + 2; ++i)
    for (const int from : {0, 2}) (void)lets_after(from);
  for (int i = 0; i < 9; ++i)
    for (const int from : {0, 2}) EXPECT_FALSE(lets_after(from));
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(lets_after(2));
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(lets_after(2));
  EXPECT_FALSE(lets_after(0)) << "the other's row is not its own";
}

/// ... from the first one on, when nothing has come.
TEST(EngineLanes, OfSystemCallsIsWaitedForFromTheFirstTurnOn) {
  for (const bool are_polls_dear : {false, true}) {
    Job::Options options = of_lanes(2, 1);
    options.network.limits.is_post_system_call = are_polls_dear;
    Job job(options);
    EXPECT_EQ(job.at(1).vci->inside().packets().pause.load(std::memory_order_relaxed) !=
                  net::Receiver::Pause::none,
              are_polls_dear);
  }
}

}  // namespace
}  // namespace larklane::msg
