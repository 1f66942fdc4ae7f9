// Completion objects: queues, counters, synchronizers, handlers.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "larklane/completion.hpp"
#include "msg_lane.hpp"

namespace larklane::msg {
namespace {

class MsgCompletion : public testing::Test {
 protected:
  CompletionQueue queue() { return std::move(CompletionQueue::create(*domain_)).value(); }
  Counter counter() { return std::move(Counter::create(*domain_)).value(); }
  Synchronizer synchronizer(std::uint32_t signals) {
    return std::move(Synchronizer::create(*domain_, signals)).value();
  }
  Handler handler(Handler::Function function, void* state) {
    return std::move(Handler::create(*domain_, function, state)).value();
  }

  std::unique_ptr<CompletionDomain> domain_ = std::make_unique<CompletionDomain>();
  Lane lane_{*domain_};
};

TEST_F(MsgCompletion, AQueueKeepsCompletionsInOrder) {
  CompletionQueue queue = this->queue();
  EXPECT_FALSE(queue.pop());
  int buffer = 0, user = 0;
  ASSERT_TRUE(lane_.operate(queue, {.status = {Errc::kTransfer, 5},
                                    .rank = 3,
                                    .tag = 1ull << 40,
                                    .buffer = &buffer,
                                    .bytes = 1ull << 33,
                                    .user_context = &user}));
  ASSERT_TRUE(lane_.operate(queue, numbered(2)));
  const auto first = queue.pop(), second = queue.pop();
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->status, Status(Errc::kTransfer, 5));
  EXPECT_EQ(first->rank, 3);
  EXPECT_EQ(first->tag, 1ull << 40);
  EXPECT_EQ(first->buffer, &buffer);
  EXPECT_EQ(first->bytes, 1ull << 33);
  EXPECT_EQ(first->user_context, &user);
  EXPECT_EQ(second->tag, 2u);
  EXPECT_FALSE(queue.pop());
}

TEST_F(MsgCompletion, AQueueIsBoundedByTheNodesOfTheLanesOnly) {
  Lane lane(*domain_, 2);
  CompletionQueue queue = this->queue();
  Counter counter = this->counter();
  EXPECT_TRUE(lane.operate(queue, numbered(1)));
  EXPECT_TRUE(lane.operate(queue, numbered(2)));
  EXPECT_FALSE(lane.operate(queue, numbered(3)));
  EXPECT_EQ(queue.pop()->tag, 1u);
  EXPECT_EQ(queue.pop()->tag, 2u);
  // A completion object other than a queue gives the node back at once.
  EXPECT_TRUE(lane.operate(queue, numbered(3)));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(lane.operate(counter, numbered(4)));
  EXPECT_EQ(counter.completed(), 5u);
  EXPECT_EQ(queue.pop()->tag, 3u);
}

TEST_F(MsgCompletion, AQueuesNodesGoHomeWithIt) {
  Lane lane(*domain_, 2);
  {
    CompletionQueue queue = this->queue();
    EXPECT_TRUE(lane.operate(queue, numbered(1)));
    EXPECT_TRUE(lane.operate(queue, numbered(2)));
  }
  Counter counter = this->counter();
  Node* const one = lane.post(counter);
  Node* const two = lane.post(counter);
  ASSERT_TRUE(one != nullptr && two != nullptr);
  lane.signal(counter, *one, {});
  lane.signal(counter, *two, {});
}

// They go back together, and each to its own.
TEST_F(MsgCompletion, PoppedNodesGoBackWhereTheyBelong) {
  constexpr std::uint32_t kNodes = 40;
  Lane one(*domain_, kNodes), two(*domain_, kNodes);
  CompletionQueue queue = std::move(CompletionQueue::create(*domain_).value());
  for (int round = 0; round < 5; ++round) {
    for (std::uint32_t i = 0; i < kNodes; ++i)
      for (Lane* const lane : {&one, &two}) ASSERT_TRUE(lane->operate(queue, numbered(i))) << round;
    EXPECT_FALSE(one.operate(queue, {}));
    for (std::uint32_t i = 0; i < 2 * kNodes; ++i) {
      const auto told = queue.pop();
      ASSERT_TRUE(told);
      EXPECT_EQ(told->tag, i / 2);
    }
    EXPECT_FALSE(queue.pop());
  }
}

TEST_F(MsgCompletion, AQueueOutlivesTheLanesThatSignalledIt) {
  CompletionQueue queue = this->queue();
  {
    Lane lane(*domain_);
    EXPECT_TRUE(lane.operate(queue, numbered(1)));
    EXPECT_TRUE(lane.operate(queue, numbered(2)));
  }
  EXPECT_EQ(queue.pop()->tag, 1u);
  EXPECT_EQ(queue.pop()->tag, 2u);
  EXPECT_TRUE(queue.free().ok());
}

TEST_F(MsgCompletion, ASynchronizerIsReadyWhenAllHaveCome) {
  EXPECT_EQ(Synchronizer::create(*domain_, 0).error(), Status(Errc::kInvalidArgument));
  Synchronizer synchronizer = this->synchronizer(3);
  for (std::uint64_t round = 0; round < 3; ++round) {
    for (std::uint64_t i = 0; i < 3; ++i) {
      EXPECT_FALSE(synchronizer.test());
      EXPECT_TRUE(synchronizer.completions().empty());
      EXPECT_EQ(synchronizer.reset(), Status(Errc::kNotActive));
      EXPECT_TRUE(lane_.operate(synchronizer, numbered(round * 10 + i)));
    }
    EXPECT_TRUE(synchronizer.test());
    ASSERT_EQ(synchronizer.completions().size(), 3u);
    for (std::uint64_t i = 0; i < 3; ++i)
      EXPECT_EQ(synchronizer.completions()[i].tag, round * 10 + i);
    EXPECT_TRUE(synchronizer.reset().ok());
  }
}

TEST_F(MsgCompletion, ASignalTooManyHarmsNothingAndIsCounted) {
  Synchronizer synchronizer = this->synchronizer(1);
  EXPECT_EQ(synchronizer.excess(), 0u);
  for (std::uint64_t tag : {1, 2, 3}) EXPECT_TRUE(lane_.operate(synchronizer, numbered(tag)));
  EXPECT_TRUE(synchronizer.test());
  ASSERT_EQ(synchronizer.completions().size(), 1u);
  EXPECT_EQ(synchronizer.completions()[0].tag, 1u);
  EXPECT_EQ(synchronizer.excess(), 2u);
  EXPECT_TRUE(synchronizer.reset().ok());
  EXPECT_EQ(synchronizer.excess(), 2u);
  EXPECT_FALSE(synchronizer.test());
}

TEST_F(MsgCompletion, ACounterCountsTheFailedOnesToo) {
  Counter counter = this->counter();
  for (std::uint64_t i = 0; i < 5; ++i)
    EXPECT_TRUE(lane_.operate(counter, numbered(i, i % 2 == 0 ? Errc::kPeerDown : Errc::kOk)));
  EXPECT_EQ(counter.completed(), 5u);
  EXPECT_EQ(counter.failed(), 3u);
}

TEST_F(MsgCompletion, AHandlerIsCalledWithItsState) {
  EXPECT_EQ(Handler::create(*domain_, nullptr, nullptr).error(), Status(Errc::kInvalidArgument));
  std::vector<std::uint64_t> tags;
  Handler handler = this->handler(
      [](const Completion& completion, void* state) {
        static_cast<std::vector<std::uint64_t>*>(state)->push_back(completion.tag);
      },
      &tags);
  for (std::uint64_t tag : {4, 2}) EXPECT_TRUE(lane_.operate(handler, numbered(tag)));
  EXPECT_EQ(tags, (std::vector<std::uint64_t>{4, 2}));
}

TEST_F(MsgCompletion, FreeReturnsBusyWithOperationsInFlight) {
  Counter counter = this->counter();
  Node* const node = lane_.post(counter);
  EXPECT_EQ(counter.free(), Status(Errc::kAlreadyActive));
  EXPECT_EQ(counter.completed(), 0u);  // as good as before
  lane_.signal(counter, *node, {});
  EXPECT_EQ(counter.completed(), 1u);
  EXPECT_TRUE(counter.free().ok());
  EXPECT_EQ(counter.inside(), nullptr);
}

// The address sanitizer says whether the object lives as long as it must, and no longer.
TEST_F(MsgCompletion, DestroyedInFlightItGetsNoCompletion) {
  int calls = 0;
  Object* object = nullptr;
  Node* node = nullptr;
  {
    Handler handler =
        this->handler([](const Completion&, void* state) { ++*static_cast<int*>(state); }, &calls);
    EXPECT_TRUE(lane_.operate(handler, {}));
    node = lane_.post(handler);
    object = handler.inside();
  }
  const std::uint32_t index = object->index;
  Counter meanwhile = counter();
  EXPECT_NE(meanwhile.inside()->index, index);
  lane_.signal(*object, *node, {});
  EXPECT_EQ(calls, 1);
  Counter later = counter();
  EXPECT_EQ(later.inside()->index, index);
}

TEST_F(MsgCompletion, OfSeveralDestroyedInFlightEachGoesWhenItIsOver) {
  std::vector<Object*> objects;
  std::vector<Node*> nodes;
  {
    std::vector<CompletionQueue> queues;
    for (int i = 0; i < 4; ++i) {
      queues.push_back(queue());
      nodes.push_back(lane_.post(queues.back()));
      objects.push_back(queues.back().inside());
    }
  }
  std::vector<Counter> later;
  for (const std::size_t i : {2, 0, 3, 1}) {
    const std::uint32_t index = objects[i]->index;
    lane_.signal(*objects[i], *nodes[i], {});
    later.push_back(counter());
    EXPECT_EQ(later.back().inside()->index, index);
  }
}

TEST_F(MsgCompletion, AMovedHandleIsTheSameObject) {
  Counter counter = this->counter(), other = this->counter();
  Object* const object = counter.inside();
  Counter moved = std::move(counter);
  EXPECT_EQ(moved.inside(), object);
  const RemoteCompletion old = other.register_remote().value();
  other = std::move(moved);
  EXPECT_FALSE(domain_->find(*lane_.ledger, old)) << "what it was is destroyed";
  EXPECT_EQ(moved.inside(), nullptr);
  EXPECT_EQ(other.inside(), object);
  EXPECT_TRUE(lane_.operate(other, {}));
  EXPECT_EQ(other.completed(), 1u);
}

}  // namespace
}  // namespace larklane::msg
