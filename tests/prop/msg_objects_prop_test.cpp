// Completion objects, lanes and numbers in random sequences, against a plain model: the completions
// of each object, whether it may be freed, and which numbers name it. LARKLANE_SEED=N repeats one
// run.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "msg_seeds.hpp"
#include "net/loop/random.hpp"
#include "unit/msg_lane.hpp"

namespace larklane::msg {
namespace {

/// An object, and its required state.
struct Modelled {
  std::variant<Synchronizer, CompletionQueue, Counter, Handler> handle;
  std::uint32_t signals = 0;                           ///< of a synchronizer
  RemoteCompletion number = 0;                         ///< 0: none
  std::unique_ptr<std::deque<std::uint64_t>> heard{};  ///< by a handler
  std::deque<std::uint64_t> told{};  ///< tags that it must still report, the oldest first
  std::uint64_t completed = 0, failed = 0, excess = 0;
  std::uint32_t in_flight = 0;

  CompletionObject& object() {
    return std::visit([](CompletionObject& any) -> CompletionObject& { return any; }, handle);
  }
};

/// Posted, and not over.
struct InFlight {
  std::shared_ptr<Modelled> to;  ///< null: it was destroyed
  Object* object;
  Node* node;
};

class World {
 public:
  explicit World(std::uint64_t seed) : random_(seed) {}
  ~World() {
    while (!in_flight_.empty()) signal();
    for (const auto& each : objects_) check(*each);
  }

  void step() {
    using Step = void (World::*)();
    static constexpr Step kSteps[] = {&World::create, &World::post,        &World::post,
                                      &World::post,   &World::post_remote, &World::post_remote,
                                      &World::signal, &World::signal,      &World::signal,
                                      &World::signal, &World::signal,      &World::look,
                                      &World::look,   &World::free,        &World::destroy,
                                      &World::name,   &World::change_lanes};
    (this->*kSteps[random_.below(std::size(kSteps))])();
  }

 private:
  static constexpr std::size_t kObjects = 8, kLanes = 3;
  static constexpr std::uint32_t kNodes = 70;  // of a lane: more than a slab

  void create();
  void post();
  void post_remote();
  void signal();
  void look();
  void free();
  void destroy();
  void name();
  void change_lanes();

  Lane& lane() { return *lanes_[random_.below(kLanes)]; }
  /// Null: there is none.
  std::shared_ptr<Modelled> any() {
    return objects_.empty() ? nullptr : objects_[random_.below(objects_.size())];
  }
  void forget(const std::shared_ptr<Modelled>& gone) { std::erase(objects_, gone); }
  static void tell(Modelled& to, const Completion& completion);
  static void check(Modelled& modelled);
  static void check(Modelled& modelled, Synchronizer& synchronizer);
  static void check(Modelled& modelled, CompletionQueue& queue);
  static void check(Modelled& modelled, Counter& counter);
  static void check(Modelled& modelled, Handler& handler);

  loop::Random random_;
  std::unique_ptr<CompletionDomain> domain_ = std::make_unique<CompletionDomain>();
  std::vector<std::unique_ptr<Lane>> lanes_ = [this] {
    std::vector<std::unique_ptr<Lane>> lanes;
    for (std::size_t i = 0; i < kLanes; ++i)
      lanes.push_back(std::make_unique<Lane>(*domain_, kNodes));
    return lanes;
  }();
  std::vector<std::shared_ptr<Modelled>> objects_;
  std::vector<InFlight> in_flight_;
  std::set<RemoteCompletion> numbers_;  ///< all that there ever were
  std::uint64_t tag_ = 0;
};

void World::create() {
  if (objects_.size() == kObjects) return;
  const auto signals = static_cast<std::uint32_t>(1 + random_.below(4));
  switch (random_.below(4)) {
    case 0:
      objects_.push_back(std::make_shared<Modelled>(
          Modelled{Synchronizer::create(*domain_, signals).value(), signals}));
      break;
    case 1:
      objects_.push_back(
          std::make_shared<Modelled>(Modelled{CompletionQueue::create(*domain_).value()}));
      break;
    case 2:
      objects_.push_back(std::make_shared<Modelled>(Modelled{Counter::create(*domain_).value()}));
      break;
    default:
      auto heard = std::make_unique<std::deque<std::uint64_t>>();
      const auto hear = [](const Completion& completion, void* state) {
        static_cast<std::deque<std::uint64_t>*>(state)->push_back(completion.tag);
      };
      objects_.push_back(std::make_shared<Modelled>(
          Modelled{Handler::create(*domain_, hear, heard.get()).value(), 0, 0, std::move(heard)}));
  }
}

void World::post() {
  const auto to = any();
  if (to == nullptr) return;
  Node* const node = lane().post(to->object());
  if (node == nullptr) return;  // its lane is at the limit
  ++to->in_flight;
  in_flight_.push_back({to, to->object().inside(), node});
}

/// By a number that is right, was right, or never was.
void World::post_remote() {
  RemoteCompletion number = static_cast<RemoteCompletion>(random_.next());
  if (!numbers_.empty() && !random_.one_in(4))
    number =
        *std::next(numbers_.begin(), static_cast<std::ptrdiff_t>(random_.below(numbers_.size())));
  const auto named = std::find_if(objects_.begin(), objects_.end(), [&](const auto& each) {
    return each->number == number && number != 0;
  });
  Lane& lane = this->lane();
  Node* const node = lane.pool.get();
  if (node == nullptr) return;
  Result<Object*> found = domain_->find(*lane.ledger, number);
  ASSERT_EQ(found.has_value(), named != objects_.end()) << number;
  if (!found) return lane.pool.put(*node);
  EXPECT_EQ(*found, (*named)->object().inside());
  ++(*named)->in_flight;
  in_flight_.push_back({*named, *found, node});
}

void World::tell(Modelled& to, const Completion& completion) {
  --to.in_flight;
  ++to.completed;
  if (!completion.status.ok()) ++to.failed;
  if (to.signals != 0 && to.told.size() == to.signals)
    ++to.excess;
  else
    to.told.push_back(completion.tag);
}

void World::signal() {
  if (in_flight_.empty()) return;
  std::swap(in_flight_[random_.below(in_flight_.size())], in_flight_.back());
  const InFlight one = std::move(in_flight_.back());
  in_flight_.pop_back();
  const Completion completion = numbered(++tag_, random_.one_in(3) ? Errc::kTransfer : Errc::kOk);
  lane().signal(*one.object, *one.node, completion);
  if (one.to != nullptr) tell(*one.to, completion);
}

void World::check(Modelled& modelled, Synchronizer& synchronizer) {
  const bool is_ready = modelled.told.size() == modelled.signals;
  EXPECT_EQ(synchronizer.test(), is_ready);
  EXPECT_EQ(synchronizer.excess(), modelled.excess);
  const auto said = synchronizer.completions();
  EXPECT_EQ(said.size(), is_ready ? modelled.signals : 0);
  for (std::size_t i = 0; i < said.size(); ++i) EXPECT_EQ(said[i].tag, modelled.told[i]);
  EXPECT_EQ(synchronizer.reset().ok(), is_ready);
  if (!is_ready) return;
  modelled.told.clear();
}
void World::check(Modelled& modelled, CompletionQueue& queue) {
  const auto said = queue.pop();
  ASSERT_EQ(said.has_value(), !modelled.told.empty());
  if (!said) return;
  EXPECT_EQ(said->tag, modelled.told.front());
  EXPECT_EQ(said->bytes, said->tag * 3);
  modelled.told.pop_front();
}
void World::check(Modelled& modelled, Counter& counter) {
  EXPECT_EQ(counter.completed(), modelled.completed);
  EXPECT_EQ(counter.failed(), modelled.failed);
}
void World::check(Modelled& modelled, Handler&) { EXPECT_EQ(*modelled.heard, modelled.told); }

void World::check(Modelled& modelled) {
  std::visit([&](auto& handle) { check(modelled, handle); }, modelled.handle);
}

void World::look() {
  if (const auto one = any()) check(*one);
}

void World::free() {
  const auto one = any();
  if (one == nullptr) return;
  const Status status = one->object().free();
  EXPECT_EQ(status, one->in_flight == 0 ? Status() : Status(Errc::kAlreadyActive));
  one->number = 0;
  if (status.ok()) forget(one);
}

void World::destroy() {
  const auto one = any();
  if (one == nullptr) return;
  for (InFlight& each : in_flight_)
    if (each.to == one) each.to = nullptr;
  forget(one);
}

void World::name() {
  const auto one = any();
  if (one == nullptr) return;
  if (random_.one_in(3)) {
    one->object().deregister_remote();
    one->number = 0;
    return;
  }
  const RemoteCompletion number = one->object().register_remote().value();
  EXPECT_EQ(numbers_.insert(number).second, one->number == 0);
  EXPECT_TRUE(one->number == 0 || one->number == number);
  one->number = number;
}

/// A lane ends while its nodes are in queues and in flight, and another comes.
void World::change_lanes() {
  if (random_.one_in(8)) lanes_[random_.below(kLanes)] = std::make_unique<Lane>(*domain_, kNodes);
}

TEST(MsgObjectsProperty, ObjectsReportTheirCompletionsAndAreFreedWhenIdle) {
  for_seeds(1500, [](std::uint64_t seed) {
    World world(seed);
    for (int step = 0; step < 400 && !testing::Test::HasFailure(); ++step) world.step();
  });
}

}  // namespace
}  // namespace larklane::msg
