// The numbers of completion objects that peers may signal.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "msg_lane.hpp"

namespace larklane::msg {
namespace {

class MsgDomain : public testing::Test {
 protected:
  Counter counter() { return std::move(Counter::create(*domain_)).value(); }
  Status find_error(RemoteCompletion number) {
    return domain_->find(*lane_.ledger, number).error();
  }
  /// A peer's operation. @pre the number is right
  void operate(RemoteCompletion number) {
    lane_.signal(*domain_->find(*lane_.ledger, number).value(), *lane_.pool.get(), {});
  }

  std::unique_ptr<CompletionDomain> domain_ = std::make_unique<CompletionDomain>();
  Lane lane_{*domain_};
};

constexpr Status kUnknown{Errc::kInvalidArgument};

TEST_F(MsgDomain, APeersOperationFindsTheObjectByItsNumber) {
  Counter one = counter(), other = counter();
  const RemoteCompletion first = one.register_remote().value(),
                         second = other.register_remote().value();
  EXPECT_NE(first, second);
  EXPECT_EQ(one.register_remote().value(), first);
  operate(first);
  operate(second);
  operate(second);
  EXPECT_EQ(one.completed(), 1u);
  EXPECT_EQ(other.completed(), 2u);
}

TEST_F(MsgDomain, TheSameOrderGivesTheSameNumbers) {
  const auto peer = std::make_unique<CompletionDomain>();
  Counter unregistered = counter();
  std::vector<Counter> here, there;
  for (int i = 0; i < 5; ++i) {
    here.push_back(counter());
    there.push_back(std::move(Counter::create(*peer)).value());
    const RemoteCompletion number = here.back().register_remote().value();
    EXPECT_EQ(number, there.back().register_remote().value());
    EXPECT_NE(number, 0u);
    EXPECT_LT(number, 1u << 24);
  }
}

TEST_F(MsgDomain, ANumberThatWasTakenBackNamesNothingForEver) {
  Counter first = counter();
  const RemoteCompletion number = first.register_remote().value();
  first.deregister_remote();
  first.deregister_remote();
  EXPECT_EQ(find_error(number), kUnknown);
  Counter second = counter();
  const RemoteCompletion freed = second.register_remote().value();
  EXPECT_TRUE(second.free().ok());
  { Counter destroyed = counter(); }
  Counter third = counter();
  const RemoteCompletion last = third.register_remote().value();
  EXPECT_EQ(number & 0xfff, last & 0xfff);  // in the same place
  for (const RemoteCompletion old : {number, freed}) {
    EXPECT_NE(old, last);
    EXPECT_EQ(find_error(old), kUnknown);
  }
  EXPECT_TRUE(third.free().ok());  // the refused post holds up no other
  EXPECT_TRUE(first.free().ok());
}

TEST_F(MsgDomain, NumbersThatPeersMakeUpNameNothing) {
  Counter counter = this->counter();
  const RemoteCompletion number = counter.register_remote().value();
  for (std::uint32_t bit = 0; bit < 32; ++bit) EXPECT_EQ(find_error(number ^ 1u << bit), kUnknown);
  EXPECT_EQ(find_error(0), kUnknown);
  std::mt19937 random(3);
  for (int i = 0; i < 10'000; ++i) {
    const auto made_up = static_cast<RemoteCompletion>(random());
    if (made_up == number) continue;
    EXPECT_EQ(find_error(made_up), kUnknown) << made_up;
  }
  EXPECT_TRUE(counter.free().ok());
}

TEST_F(MsgDomain, AFoundObjectIsNotFreedBeforeItsSignal) {
  Counter counter = this->counter();
  Object& found = *domain_->find(*lane_.ledger, counter.register_remote().value()).value();
  EXPECT_EQ(counter.free(), Status(Errc::kAlreadyActive));
  EXPECT_EQ(find_error(found.number), kUnknown);
  lane_.signal(found, *lane_.pool.get(), {});
  EXPECT_EQ(counter.completed(), 1u);
  EXPECT_TRUE(counter.free().ok());
}

TEST_F(MsgDomain, APlaceWhoseNumbersAreUsedUpStaysEmpty) {
  Counter counter = this->counter();
  const RemoteCompletion first = counter.register_remote().value();
  RemoteCompletion last = first;
  for (int i = 1; i < 4095; ++i) {
    counter.deregister_remote();
    last = counter.register_remote().value();
    ASSERT_EQ(last & 0xfff, first & 0xfff);
  }
  operate(last);
  counter.deregister_remote();
  EXPECT_NE(counter.register_remote().value() & 0xfff, first & 0xfff);
  EXPECT_EQ(find_error(first), kUnknown);
}

TEST_F(MsgDomain, NoMoreAreRegisteredThanThereArePlaces) {
  std::vector<Counter> counters;
  for (int i = 0; i < 4096; ++i) {
    counters.push_back(counter());
    ASSERT_TRUE(counters.back().register_remote());
  }
  Counter one_more = counter();
  EXPECT_EQ(one_more.register_remote().error(), Status(Errc::kNoMemory));
  counters.pop_back();
  EXPECT_TRUE(one_more.register_remote());
}

TEST_F(MsgDomain, ObjectsHaveALimitAndComeBack) {
  std::vector<Counter> counters;
  for (std::uint32_t i = 0; i < kObjectsMax; ++i) counters.push_back(counter());
  EXPECT_EQ(Counter::create(*domain_).error(), Status(Errc::kNoMemory));
  EXPECT_TRUE(lane_.operate(counters.back(), {}));
  EXPECT_TRUE(counters[777].free().ok());
  Counter another = counter();
  EXPECT_EQ(another.inside()->index, 777u);
}

TEST_F(MsgDomain, AnOperationMayBeginOnOneLaneAndEndOnAnother) {
  Lane other(*domain_);
  Counter counter = this->counter();
  Node* const node = lane_.post(counter);
  EXPECT_EQ(counter.free(), Status(Errc::kAlreadyActive));
  other.signal(counter, *node, {});
  EXPECT_TRUE(counter.free().ok());
}

TEST_F(MsgDomain, PostsOfALaneCountWhenItIsGone) {
  auto posting = std::make_unique<Lane>(*domain_), signalling = std::make_unique<Lane>(*domain_);
  Counter counter = this->counter();
  Node* const first = posting->post(counter);
  Node* const second = posting->post(counter);
  posting.reset();
  EXPECT_EQ(counter.free(), Status(Errc::kAlreadyActive));
  signalling->signal(counter, *first, {});
  EXPECT_EQ(counter.free(), Status(Errc::kAlreadyActive));
  signalling->signal(counter, *second, {});
  signalling.reset();
  EXPECT_TRUE(counter.free().ok());
}

TEST_F(MsgDomain, ALaneThatComesLaterKnowsAllObjects) {
  std::vector<Counter> counters;
  for (int i = 0; i < 1500; ++i) counters.push_back(counter());
  Lane later(*domain_);
  for (Counter& each : counters) EXPECT_TRUE(later.operate(each, {}));
  for (int i = 0; i < 1500; ++i) {
    counters.push_back(counter());
    EXPECT_TRUE(later.operate(counters.back(), {}));
  }
}

}  // namespace
}  // namespace larklane::msg
