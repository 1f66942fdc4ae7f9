// Lanes on a provider that follows the test: the order of turns, deterministic.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "vci/lane_lock.hpp"
#include "vci_fake.hpp"

namespace larklane::vci {
namespace {

using Kind = Work::Kind;
using net::Post;

std::vector<std::uint64_t> offsets(const FakeLane& lane) {
  std::vector<std::uint64_t> found;
  for (const FakeLane::Posted& one : lane.posted) found.push_back(one.offset);
  return found;
}
using Offsets = std::vector<std::uint64_t>;

TEST(LaneLock, ReleaseServesTheOldestWaiterFirst) {
  LaneLock lock;
  Work own, first, second, third;
  ASSERT_TRUE(lock.lock_or_queue(own));
  EXPECT_FALSE(lock.try_lock());
  EXPECT_FALSE(lock.lock_or_queue(first));
  EXPECT_FALSE(lock.lock_or_queue(second));
  EXPECT_FALSE(lock.lock_or_queue(third));
  Work* const queued = lock.try_unlock();
  ASSERT_EQ(queued, &first);
  EXPECT_EQ(first.next, &second);
  EXPECT_EQ(second.next, &third);
  EXPECT_EQ(third.next, nullptr);
  EXPECT_FALSE(lock.try_lock()) << "who got works still holds it";
  EXPECT_EQ(lock.try_unlock(), nullptr);
  EXPECT_TRUE(lock.try_lock());
}

// The thread-safety analysis can't follow a lock whose release may hand over works.
void take(LaneLock& lock) LARKLANE_NOT_FOLLOWED { lock.lock(); }
void take_word(LaneLock& lock) LARKLANE_NOT_FOLLOWED { lock.lock_word(); }

template <class Body>
void on_another_thread(Body&& body) {
  std::thread(std::forward<Body>(body)).join();
}

TEST(LaneLock, OwnerHoldsItAndOthersAskForIt) {
  LaneLock lock;
  take(lock);
  ASSERT_TRUE(lock.own());
  ASSERT_EQ(lock.try_unlock(), nullptr);
  EXPECT_FALSE(lock.is_anothers());

  Work own, first, second;
  ASSERT_TRUE(lock.lock_or_queue(own));
  EXPECT_FALSE(lock.try_lock()) << "it holds it already";
  EXPECT_FALSE(lock.lock_or_queue(first));
  EXPECT_FALSE(lock.lock_or_queue(second));
  ASSERT_EQ(lock.try_unlock(), &first);
  EXPECT_EQ(first.next, &second);
  EXPECT_EQ(second.next, nullptr);
  EXPECT_EQ(lock.try_unlock(), nullptr);

  on_another_thread([&] {
    EXPECT_TRUE(lock.is_anothers());
    EXPECT_FALSE(lock.try_lock()) << "nobody else's turn";
    take(lock);
    EXPECT_EQ(lock.try_unlock(), nullptr);
  });
  EXPECT_TRUE(lock.try_lock());
  EXPECT_EQ(lock.try_unlock(), nullptr);
}

// The asker that gets the lock holds it: the owner queues, and is served like any other.
TEST(LaneLock, ItsOwnerQueuesWhereAnotherHoldsIt) {
  LaneLock lock;
  take(lock);
  ASSERT_TRUE(lock.own());
  ASSERT_EQ(lock.try_unlock(), nullptr);
  std::atomic<int> step{0};
  std::thread other([&] {
    take(lock);
    step.store(1, std::memory_order_release);
    while (step.load(std::memory_order_acquire) != 2) std::this_thread::yield();
    Work* const queued = lock.try_unlock();
    EXPECT_NE(queued, nullptr);
    EXPECT_EQ(lock.try_unlock(), nullptr);
  });
  while (step.load(std::memory_order_acquire) != 1) std::this_thread::yield();
  EXPECT_FALSE(lock.try_lock());
  Work work;
  EXPECT_FALSE(lock.lock_or_queue(work));
  step.store(2, std::memory_order_release);
  other.join();
  EXPECT_TRUE(lock.try_lock());
  EXPECT_EQ(lock.try_unlock(), nullptr);
}

TEST(LaneLock, IsSharedWhenItsOwnerIsGone) {
  LaneLock lock;
  on_another_thread([&] {
    take(lock);
    ASSERT_TRUE(lock.own());
    ASSERT_EQ(lock.try_unlock(), nullptr);
  });
  EXPECT_FALSE(lock.try_lock());
  take_word(lock);
  lock.disown();
  EXPECT_EQ(lock.try_unlock(), nullptr);
  EXPECT_TRUE(lock.try_lock());
  EXPECT_EQ(lock.try_unlock(), nullptr);
}

// Another thread posts while the holder polls, and sleeps from then on.
TEST(VciTurns, WorkQueuedDuringAPollGoesOutBeforeTheUnlock) {
  FakeSide side;
  std::array<CountedWork, 3> works;
  for (std::uint64_t i = 0; i < works.size(); ++i) works[i].make(*side.link, Kind::write, i, 8);
  side.lane().during_poll = [&] {
    std::thread([&] {
      for (CountedWork& work : works) side.vci->post(work);
    }).join();
    EXPECT_TRUE(side.lane().posted.empty()) << "two threads in one endpoint";
  };
  EXPECT_EQ(side.vci->progress(), 0u);
  EXPECT_EQ(offsets(side.lane()), (Offsets{0, 1, 2}));
  EXPECT_EQ(side.vci->counts().queued, 3u);
  EXPECT_EQ(side.vci->counts().empty_polls, 1u);
}

TEST(VciTurns, ATurnChecksRingsBeforeThePollAndAfterAPollThatMayMoveData) {
  struct Looker final : net::Receiver {
    void on_immediate(std::uint32_t) override {}
    std::uint32_t look(std::uint32_t) override {
      looked_after.push_back(polls());
      return looked_after.size() == finds_in ? 3 : 0;
    }
    std::function<std::uint32_t()> polls;
    std::vector<std::uint32_t> looked_after;  ///< so many polls
    std::size_t finds_in = 0;
  };
  for (const bool is_progress_manual : {false, true}) {
    FakeFabric fabric;
    fabric.offered.is_progress_manual = is_progress_manual;
    Looker looker;
    auto vci = Vci::create(fabric, looker);
    ASSERT_TRUE(vci);
    FakeLane& lane = *fabric.lanes[0];
    looker.polls = [&] { return lane.polls; };
    EXPECT_EQ((*vci)->progress(), 0u);
    EXPECT_TRUE(looker.looked_after.empty()) << "nothing is watched";
    using Looked = std::vector<std::uint32_t>;
    looker.has_watched = true;
    looker.finds_in = 1;
    EXPECT_EQ((*vci)->progress(), 3u);
    EXPECT_EQ(std::exchange(looker.looked_after, {}), Looked{1});
    looker.finds_in = 2;
    EXPECT_EQ((*vci)->progress(), is_progress_manual ? 3u : 0u);
    EXPECT_EQ(std::exchange(looker.looked_after, {}),
              is_progress_manual ? (Looked{2, 3}) : Looked{2});
    lane.arrived = {1};
    EXPECT_EQ((*vci)->progress(), 1u);
    EXPECT_EQ(looker.looked_after, Looked{3});
    EXPECT_EQ((*vci)->counts().empty_polls, is_progress_manual ? 1u : 2u);
  }
}

// The window between the holder's look at the queue and the moment at which the lock is free.
TEST(VciTurns, WorkQueuedDuringADrainGoesOutToo) {
  FakeSide side;
  std::array<CountedWork, 3> works;
  for (std::uint64_t i = 0; i < works.size(); ++i) works[i].make(*side.link, Kind::write, i, 8);
  std::size_t next = 1;
  side.lane().during_post = [&] {
    if (next == works.size()) return;
    CountedWork& late = works[next++];
    std::thread([&] { side.vci->post(late); }).join();
    EXPECT_EQ(side.vci->progress(), 0u) << "the lock is held";
  };
  side.vci->post(works[0]);
  EXPECT_EQ(offsets(side.lane()), (Offsets{0, 1, 2}));
  EXPECT_EQ(side.lane().polls, 0u);
}

TEST(VciTurns, CallbacksPostAndNothingIsNested) {
  FakeSide side;
  side.lane().answer = Post::done;
  CountedWork chain;
  chain.make(*side.link, Kind::small, 0, 8);
  int depth = 0, deepest = 0;
  chain.then = [&] {
    deepest = std::max(deepest, ++depth);
    if (chain.times < 1000) side.vci->post(chain);
    --depth;
  };
  side.vci->post(chain);
  EXPECT_EQ(chain.times, 1000);
  EXPECT_EQ(deepest, 1);
  EXPECT_EQ(side.vci->counts().queued, 999u);
}

TEST(VciTurns, RefusedWorkStaysAtTheHead) {
  FakeSide side;
  std::array<CountedWork, 4> works;
  for (std::uint64_t i = 0; i < works.size(); ++i) works[i].make(*side.link, Kind::small, i, 8);
  side.lane().answers = {Post::posted, Post::retry};
  for (CountedWork& work : works) side.vci->post(work);
  EXPECT_EQ(offsets(side.lane()), Offsets{0});
  EXPECT_EQ(side.lane().attempts, 2u) << "nothing overtakes, nothing is tried before a turn";
  EXPECT_FALSE(side.vci->arm(net::Wake::all)) << "what is deferred waits for a poll: no sleep";
  side.lane().answers = {Post::posted, Post::retry, Post::retry};
  (void)side.vci->progress();
  EXPECT_EQ(offsets(side.lane()), (Offsets{0, 1}));
  (void)side.vci->progress();
  EXPECT_EQ(offsets(side.lane()), (Offsets{0, 1, 2, 3}));
  for (const net::Wake wake : {net::Wake::needed, net::Wake::all}) {
    EXPECT_TRUE(side.vci->arm(wake));
    EXPECT_EQ(side.lane().armed_for, wake);
  }
  EXPECT_EQ(side.vci->counts().retries, 3u);
}

TEST(VciTurns, ARefusedPostOfACallbackOfArmForbidsTheSleep) {
  for (const bool is_owned : {false, true}) {
    FakeSide side;
    CountedWork first, second;
    first.make(*side.link, Kind::small, 0, 8);
    second.make(*side.link, Kind::small, 1, 8);
    ASSERT_EQ(is_owned && side.vci->own(), is_owned);
    side.vci->post(first);
    first.then = [&] { side.vci->post(second); };
    side.lane().during_arm = [&] {
      side.lane().answers = {Post::retry};
      first.complete(first, {});
    };
    EXPECT_FALSE(side.vci->arm(net::Wake::all)) << "owned: " << is_owned;
    EXPECT_EQ(offsets(side.lane()), Offsets{0});
    (void)side.vci->progress();
    EXPECT_EQ(offsets(side.lane()), (Offsets{0, 1}));
    EXPECT_TRUE(side.vci->arm(net::Wake::all));
    if (is_owned) side.vci->disown();
  }
}

TEST(VciTurns, ALinkWithoutRoomHoldsUpNoOther) {
  FakeSide side;
  auto others = std::move(side.vci->open_link()).value();
  auto third = std::move(side.vci->open_link()).value();
  std::array<CountedWork, 6> works;
  for (std::uint64_t i = 0; i < works.size(); ++i)
    works[i].make(i < 3 ? *side.link : i < 5 ? *others : *third, Kind::small, i, 8);
  side.lane().answers = {Post::retry, Post::posted, Post::retry};
  for (const std::size_t i : {0u, 3u, 1u, 4u, 2u, 5u}) side.vci->post(works[i]);
  EXPECT_EQ(offsets(side.lane()), (Offsets{3, 5})) << "each waits for its own link alone";
  EXPECT_EQ(side.lane().attempts, 4u);
  side.lane().answers = {Post::retry, Post::posted, Post::posted, Post::retry};
  (void)side.vci->progress();
  EXPECT_EQ(offsets(side.lane()), (Offsets{3, 5, 4, 0}));
  EXPECT_FALSE(side.vci->arm(net::Wake::all));
  (void)side.vci->progress();
  EXPECT_EQ(offsets(side.lane()), (Offsets{3, 5, 4, 0, 1, 2}));
  EXPECT_TRUE(side.vci->arm(net::Wake::all));
  side.vci->close_link(std::move(others));
  side.vci->close_link(std::move(third));
}

TEST(VciTurns, AcceptedWorkIsCountedByKind) {
  FakeSide side;
  std::array<CountedWork, 6> works;
  works[0].make(*side.link, Kind::write, 0, 100);
  works[1].make(*side.link, Kind::write_immediate, 0, 350);  // three chunks, then itself
  works[2].make(*side.link, Kind::small, 0, 8);
  works[3].make(*side.link, Kind::small_immediate, 0, 8);
  works[4].make(*side.link, Kind::read, 0, 120);  // three chunks
  works[5].make(*side.link, Kind::small, 0, 8);
  side.lane().answers = {Post::retry, Post::posted};
  for (CountedWork& work : works) side.vci->post(work);
  for (std::size_t done = 0; done < 9; ++done) {
    (void)side.vci->progress();
    if (done < side.lane().posted.size()) side.lane().finish(done);
  }
  (void)side.vci->progress();
  const VciCounts counts = side.vci->counts();
  EXPECT_EQ(counts.operations_of(Kind::write), 1u + 3u);
  EXPECT_EQ(counts.operations_of(Kind::write_immediate), 1u);
  EXPECT_EQ(counts.operations_of(Kind::small), 2u);
  EXPECT_EQ(counts.operations_of(Kind::small_immediate), 1u);
  EXPECT_EQ(counts.operations_of(Kind::read), 3u);
  EXPECT_EQ(counts.posts, works.size());
}

TEST(VciTurns, PostsCompleteOnceForAnyAnswer) {
  FakeSide side;
  std::array<CountedWork, 3> works;
  for (CountedWork& work : works) work.make(*side.link, Kind::write, 0, 8);
  side.lane().answers = {Post::done, Status(Errc::kPeerDown, 3), Post::posted};
  for (CountedWork& work : works) side.vci->post(work);
  EXPECT_EQ(works[0].times, 1);
  EXPECT_TRUE(works[0].status.ok());
  EXPECT_EQ(works[1].times, 1);
  EXPECT_EQ(works[1].status, Status(Errc::kPeerDown, 3));
  EXPECT_EQ(works[2].times, 0);
  side.lane().finish(1);
  EXPECT_EQ(side.vci->progress(), 1u);
  EXPECT_EQ(works[2].times, 1);
}

TEST(VciTurns, ADeadEndpointFailsQueuedAndLaterWork) {
  FakeSide side;
  CountedWork out, refused, behind, cut, late, late_cut;
  for (CountedWork* work : {&out, &refused, &behind, &late})
    work->make(*side.link, Kind::write, 0, 8);
  for (CountedWork* work : {&cut, &late_cut}) work->make(*side.link, Kind::write_immediate, 0, 350);
  side.lane().answers = {Post::posted, Post::retry, Post::retry};
  for (CountedWork* work : {&out, &refused, &behind, &cut}) side.vci->post(*work);
  side.lane().finish(0, Errc::kTransfer);
  side.lane().poll_error = Status(Errc::kSystem, 5);
  (void)side.vci->progress();
  EXPECT_EQ(out.status, Status(Errc::kTransfer));
  const std::uint32_t attempts = side.lane().attempts, polls = side.lane().polls;
  for (CountedWork* work : {&late, &late_cut}) side.vci->post(*work);
  for (CountedWork* work : {&refused, &behind, &cut, &late, &late_cut}) {
    EXPECT_EQ(work->times, 1);
    EXPECT_EQ(work->status, Status(Errc::kSystem, 5));
  }
  EXPECT_EQ(side.vci->progress(), 0u);
  EXPECT_TRUE(side.vci->arm(net::Wake::all)) << "nothing comes: who sleeps may sleep";
  EXPECT_EQ(side.lane().attempts, attempts);
  EXPECT_EQ(side.lane().polls, polls) << "nobody polls what is dead";
}

// --- works that are longer than one operation may be: 100 bytes of a write, 50 of a read
// ----------

TEST(VciCut, WorkThatFitsIsNotCut) {
  FakeSide side;
  std::array<CountedWork, 3> works;
  works[0].make(*side.link, Kind::write, 0, 100);
  works[1].make(*side.link, Kind::write_immediate, 0, 0, 9);
  works[2].make(*side.link, Kind::read, 0, 50);
  for (CountedWork& work : works) side.vci->post(work);
  ASSERT_EQ(side.lane().posted.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(side.lane().posted[i].operation, &works[i]);
  EXPECT_EQ(side.vci->counts().chunks, 0u);
}

TEST(VciCut, TheImmediateGoesWhenTheOthersAreCompleteAndNotFromWithinAPoll) {
  FakeSide side;
  CountedWork work, after;
  work.make(*side.link, Kind::write_immediate, 1000, 250, 9);
  after.make(*side.link, Kind::write, 5, 8);
  side.vci->post(work);
  side.vci->post(after);
  EXPECT_EQ(offsets(side.lane()), (Offsets{1000, 1100, 5})) << "nobody waits for the last chunk";
  side.lane().finish(1);
  (void)side.vci->progress();
  EXPECT_EQ(side.lane().posted.size(), 3u);
  side.lane().finish(0);
  (void)side.vci->progress();
  ASSERT_EQ(side.lane().posted.size(), 4u);
  EXPECT_FALSE(side.lane().was_entered_while_polling);
  const FakeLane::Posted last = side.lane().posted[3];
  EXPECT_EQ(last.kind, Kind::write_immediate);
  EXPECT_EQ(last.offset, 1200u);
  EXPECT_EQ(last.bytes, 50u);
  EXPECT_EQ(last.immediate, 9u);
  EXPECT_EQ(work.times, 0);
  side.lane().finish(3);
  (void)side.vci->progress();
  EXPECT_EQ(work.times, 1);
  EXPECT_TRUE(work.status.ok());
}

TEST(VciCut, ARefusedLastChunkGoesBeforeQueuedWork) {
  FakeSide side;
  CountedWork work, after;
  work.make(*side.link, Kind::write_immediate, 0, 150, 9);
  after.make(*side.link, Kind::write, 5, 8);
  side.lane().answers = {Post::posted, Post::retry, Post::retry, Post::retry};
  side.vci->post(work);
  side.vci->post(after);  // refused, now and before the poll
  side.lane().finish(0);
  (void)side.vci->progress();  // the last chunk is refused
  EXPECT_EQ(side.lane().posted.size(), 1u);
  (void)side.vci->progress();
  EXPECT_EQ(offsets(side.lane()), (Offsets{0, 100, 5}));
}

TEST(VciCut, TheFirstErrorCompletesTheWorkAfterItsLastChunk) {
  FakeSide side;
  CountedWork work;
  work.make(*side.link, Kind::write_immediate, 0, 350, 9);
  side.vci->post(work);
  ASSERT_EQ(side.lane().posted.size(), 3u);
  side.lane().finish(2, Status(Errc::kTransfer, 1));
  (void)side.vci->progress();
  side.lane().finish(0, Status(Errc::kTransfer, 2));
  (void)side.vci->progress();
  EXPECT_EQ(work.times, 0);
  side.lane().finish(1);
  (void)side.vci->progress();
  EXPECT_EQ(work.times, 1);
  EXPECT_EQ(work.status, Status(Errc::kTransfer, 1));
  EXPECT_EQ(side.lane().posted.size(), 3u) << "no immediate tells of bytes that are not there";
}

TEST(VciCut, AnErrorAtAPostWaitsForPostedChunks) {
  FakeSide side;
  CountedWork work;
  work.make(*side.link, Kind::read, 0, 200);
  side.lane().answers = {Post::posted, Post::done, Status(Errc::kPeerDown)};
  side.vci->post(work);
  EXPECT_EQ(side.lane().attempts, 3u);
  EXPECT_EQ(work.times, 0);
  side.lane().finish(0);
  (void)side.vci->progress();
  EXPECT_EQ(work.times, 1);
  EXPECT_EQ(work.status, Status(Errc::kPeerDown));
}

TEST(VciCut, WithAllChunksPostedTheRestWaitsInOrder) {
  FakeSide side;
  CountedWork large, after;
  large.make(*side.link, Kind::write, 0, 10'000);
  after.make(*side.link, Kind::write, 77, 8);
  side.vci->post(large);
  const std::size_t at_once = side.lane().posted.size();
  EXPECT_GE(at_once, 4u);
  EXPECT_LT(at_once, 100u);
  side.vci->post(after);
  EXPECT_EQ(side.lane().posted.size(), at_once);
  for (std::size_t done = 0; done < side.lane().posted.size(); ++done) {
    side.lane().finish(done);
    EXPECT_EQ(side.vci->progress(), 1u);
  }
  EXPECT_EQ(large.times, 1);
  EXPECT_EQ(after.times, 1);
  std::uint64_t bytes = 0;
  for (const FakeLane::Posted& one : side.lane().posted) bytes += one.bytes;
  EXPECT_EQ(bytes, 10'008u);
}

TEST(VciCut, AChunkThatFailsWhileOthersWaitEndsTheWork) {
  FakeSide side;
  CountedWork large;
  large.make(*side.link, Kind::write, 0, 10'000);
  side.vci->post(large);
  const std::size_t at_once = side.lane().posted.size();
  side.lane().finish(0, Errc::kTransfer);
  (void)side.vci->progress();
  EXPECT_EQ(side.lane().posted.size(), at_once) << "no more of it";
  for (std::size_t i = 1; i < at_once; ++i) side.lane().finish(i);
  (void)side.vci->progress();
  EXPECT_EQ(large.times, 1);
  EXPECT_EQ(large.status, Status(Errc::kTransfer));
}

/// `work` waits for others from now on.
void let_wait(FakeSide& side, Work& work) {
  ASSERT_TRUE(side.vci->coalesce([&](Work* before) {
    EXPECT_EQ(before, nullptr);
    return &work;
  }));
  ASSERT_TRUE(side.lane().posted.empty());
  ASSERT_TRUE(side.vci->has_joinable());
}

TEST(Coalesce, AWaitingWorkGoesBeforeLaterPosts) {
  const auto expect_first = [](auto&& then, Offsets wanted) {
    FakeSide side;
    CountedWork waiting, later;
    waiting.make(*side.link, Kind::write, 1, 8);
    later.make(*side.link, Kind::write, 2, 8);
    let_wait(side, waiting);
    then(side, later);
    EXPECT_EQ(offsets(side.lane()), wanted);
    EXPECT_FALSE(side.vci->has_joinable());
  };
  expect_first([](FakeSide& side, Work& later) { side.vci->post(later); }, {1, 2});
  expect_first([](FakeSide& side, Work&) { (void)side.vci->progress(); }, {1});
  expect_first([](FakeSide& side, Work&) { (void)side.vci->arm(net::Wake::all); }, {1});
  expect_first([](FakeSide& side, Work&) { side.vci->exclusively([] {}); }, {1});
  expect_first([](FakeSide& side, Work&) { (void)side.vci->wait_fd(); }, {1});
  expect_first([](FakeSide& side, Work&) { side.vci->coalesce([](Work*) { return nullptr; }); },
               {1});
}

// A thread that has posted meanwhile makes no turn for it.
TEST(Coalesce, QueuedWorkSendsTheWaitingWork) {
  FakeSide side;
  CountedWork waiting, queued;
  waiting.make(*side.link, Kind::write, 1, 8);
  queued.make(*side.link, Kind::write, 2, 8);
  side.vci->coalesce([&](Work*) {
    side.vci->post(queued);
    return &waiting;
  });
  EXPECT_EQ(offsets(side.lane()), (Offsets{1, 2}));
}

TEST(Coalesce, AnotherWaitingWorkTakesItsPlace) {
  FakeSide side;
  CountedWork first, second;
  first.make(*side.link, Kind::write, 1, 8);
  second.make(*side.link, Kind::write, 2, 8);
  let_wait(side, first);
  side.vci->coalesce([&](Work* before) {
    EXPECT_EQ(before, &first);
    return &second;
  });
  EXPECT_EQ(offsets(side.lane()), (Offsets{1}));
  (void)side.vci->progress();
  EXPECT_EQ(offsets(side.lane()), (Offsets{1, 2}));
}

TEST(Coalesce, OnADeadLaneNothingWaits) {
  FakeSide side;
  CountedWork waiting;
  waiting.make(*side.link, Kind::write, 1, 8);
  side.lane().poll_error = Status(Errc::kSystem);
  (void)side.vci->progress();
  EXPECT_FALSE(side.vci->coalesce([&](Work*) { return &waiting; }));
}

}  // namespace
}  // namespace larklane::vci
