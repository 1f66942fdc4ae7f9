// Lanes, on the network inside one process: the posts of each thread, the order in which they go
// out, and that each work completes once.

#include "vci/vci.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "net/loop/fabric.hpp"

namespace larklane::vci {
namespace {

struct Ear final : net::Receiver {
  void on_immediate(std::uint32_t immediate) override {
    heard.push_back(immediate);
    if (react) react();
  }
  std::vector<std::uint32_t> heard;
  std::function<void()> react;
};

struct Sent final : Work {
  Sent() {
    complete = [](net::Operation& operation, Status outcome) {
      auto& sent = static_cast<Sent&>(operation);
      sent.status = outcome;
      if (sent.then) sent.then();
      sent.times.fetch_add(1, std::memory_order_release);  // pairs with is_over()
    };
  }
  bool is_over() const { return times.load(std::memory_order_acquire) == 1; }
  std::atomic<int> times{0};
  Status status;
  std::function<void()> then;
};

constexpr std::size_t kBytes = 8192;

struct Side {
  explicit Side(loop::Fabric& network) : fabric(network.for_process()) {
    vci = std::move(Vci::create(*fabric, ear)).value();
    memory = std::move(fabric->register_memory(bytes.data(), bytes.size())).value();
    link = std::move(vci->open_link()).value();
    EXPECT_TRUE(vci->reserve_immediates(64).ok());
  }
  ~Side() { vci->close_link(std::move(link)); }

  std::unique_ptr<net::Fabric> fabric;
  alignas(64) std::array<std::byte, kBytes> bytes{};
  Ear ear;
  std::unique_ptr<net::Memory> memory;
  std::unique_ptr<Vci> vci;
  std::unique_ptr<net::Link> link;
};

class VciTest : public testing::Test {
 protected:
  void open(loop::Fabric::Options options = {}) {
    network_ = std::make_unique<loop::Fabric>(std::move(options));
    a_ = std::make_unique<Side>(*network_);
    b_ = std::make_unique<Side>(*network_);
    ASSERT_TRUE(a_->vci->connect(*a_->link, b_->link->offer()).ok());
    ASSERT_TRUE(b_->vci->connect(*b_->link, a_->link->offer()).ok());
  }
  void TearDown() override {
    (void)network_->settle();
    a_.reset();
    b_.reset();
    for (const auto& violation : network_->take_violations())
      ADD_FAILURE() << loop::offence_name(violation.offence) << ": " << violation.detail;
  }

  net::RemoteMemory at_b(std::uint64_t offset) const {
    return {b_->memory->remote().address + offset, b_->memory->remote().key};
  }
  void make(Sent& sent, Work::Kind kind, std::uint64_t offset, std::uint64_t length,
            std::uint32_t immediate = 0) {
    sent.kind = kind;
    sent.link = a_->link.get();
    sent.transfer = {a_->bytes.data() + offset, a_->memory.get(), at_b(offset), length};
    sent.immediate = immediate;
  }
  bool turn_until(const std::function<bool()>& done) {
    for (int turn = 0; turn < 200'000 && !done(); ++turn) {
      (void)a_->vci->progress();
      (void)b_->vci->progress();
    }
    return done();
  }

  std::unique_ptr<loop::Fabric> network_;
  std::unique_ptr<Side> a_, b_;
};

TEST_F(VciTest, EveryKindGoesOutAndCompletesOnce) {
  open();
  for (std::size_t i = 0; i < kBytes; ++i) a_->bytes[i] = std::byte(i * 7);
  std::array<Sent, 5> sent;
  make(sent[0], Work::Kind::write, 0, 100);
  make(sent[1], Work::Kind::write_immediate, 100, 100, 11);
  make(sent[2], Work::Kind::small, 200, 0);
  make(sent[3], Work::Kind::small_immediate, 208, 0, 13);
  make(sent[4], Work::Kind::read, 300, 100);
  for (Sent* small : {&sent[2], &sent[3]}) {
    small->small_bytes = 8;
    std::memset(small->small, 0x55, 8);
  }
  std::memset(b_->bytes.data() + 300, 0x66, 100);
  for (Sent& one : sent) a_->vci->post(one);
  ASSERT_TRUE(turn_until([&] {
    return std::all_of(sent.begin(), sent.end(), [](const Sent& one) { return one.is_over(); }) &&
           b_->ear.heard.size() == 2;
  }));
  for (const Sent& one : sent) EXPECT_TRUE(one.status.ok());
  EXPECT_EQ(std::memcmp(a_->bytes.data(), b_->bytes.data(), 200), 0);
  EXPECT_EQ(b_->bytes[200], std::byte{0x55});
  EXPECT_EQ(b_->bytes[215], std::byte{0x55});
  EXPECT_EQ(a_->bytes[399], std::byte{0x66});
  EXPECT_EQ(a_->vci->counts().posts, 5u);
}

TEST_F(VciTest, ATooLongWriteIsCutAndItsImmediateComesLast) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    loop::Fabric::Options options;
    options.seed = seed;
    options.limits.write_bytes_max = options.limits.read_bytes_max = 100;
    open(options);
    for (std::size_t i = 0; i < kBytes; ++i) a_->bytes[i] = std::byte(i * 5 + seed);
    bool is_whole = false;
    b_->ear.react = [&] { is_whole = std::memcmp(a_->bytes.data(), b_->bytes.data(), 4050) == 0; };
    Sent write, plain, read;
    make(write, Work::Kind::write_immediate, 0, 4050, 7);
    make(plain, Work::Kind::write, 4096, 1000);
    std::memset(b_->bytes.data() + 6000, 0x77, 900);
    make(read, Work::Kind::read, 6000, 900);
    for (Sent* one : {&write, &plain, &read}) a_->vci->post(*one);
    ASSERT_TRUE(turn_until([&] {
      return write.is_over() && plain.is_over() && read.is_over() && !b_->ear.heard.empty();
    }));
    EXPECT_TRUE(write.status.ok() && plain.status.ok() && read.status.ok());
    EXPECT_TRUE(is_whole) << "the immediate came before the bytes, seed " << seed;
    EXPECT_EQ(std::memcmp(a_->bytes.data() + 4096, b_->bytes.data() + 4096, 1000), 0);
    EXPECT_EQ(a_->bytes[6899], std::byte{0x77});
    EXPECT_EQ(a_->vci->counts().chunks, 40u + 10u + 9u);
    if (seed != 50) TearDown();
  }
}

TEST_F(VciTest, ARefusedWorkGoesOutLater) {
  loop::Fabric::Options options;
  options.queue_depth = 2;
  open(options);
  std::array<Sent, 20> sent;
  for (std::uint32_t i = 0; i < sent.size(); ++i) {
    make(sent[i], Work::Kind::write_immediate, i * 16, 16, i);
    a_->vci->post(sent[i]);
  }
  EXPECT_GT(a_->vci->counts().retries, 0u);
  ASSERT_TRUE(turn_until([&] {
    return std::all_of(sent.begin(), sent.end(), [](const Sent& one) { return one.is_over(); }) &&
           b_->ear.heard.size() == sent.size();
  }));
}

TEST_F(VciTest, ACallbackMayPost) {
  open();
  Sent first, second;
  make(second, Work::Kind::write_immediate, 64, 64, 2);
  first.then = [&] { a_->vci->post(second); };
  make(first, Work::Kind::write_immediate, 0, 64, 1);
  a_->vci->post(first);
  ASSERT_TRUE(turn_until([&] { return second.is_over() && b_->ear.heard.size() == 2; }));
  EXPECT_EQ(a_->vci->counts().queued, 1u);
}

TEST_F(VciTest, APostToADeadEndpointFails) {
  open();
  Sent before, after;
  make(before, Work::Kind::write, 0, 64);
  a_->vci->post(before);
  network_->kill_endpoint(0);
  ASSERT_TRUE(turn_until([&] { return before.is_over(); }));
  for (int turn = 0; turn < 10; ++turn) (void)a_->vci->progress();  // it reports its own death
  make(after, Work::Kind::write, 0, 64);
  a_->vci->post(after);
  ASSERT_TRUE(turn_until([&] { return after.is_over(); }));
  EXPECT_FALSE(after.status.ok());
}

// No thread makes progress: the posted works are with the provider when the last poster has
// returned.
TEST_F(VciTest, NothingIsStrandedInTheQueue) {
  constexpr int kThreads = 4, kEach = 200, kTurns = 20;
  for (int turn = 0; turn < kTurns; ++turn) {
    loop::Fabric::Options options;
    options.turns_per_poll = 0;
    options.queue_depth = kThreads * kEach;
    open(options);
    std::vector<Sent> sent(kThreads * kEach);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < kEach; ++i) {
          Sent& one = sent[static_cast<std::size_t>(t * kEach + i)];
          make(one, Work::Kind::write, 0, 8);
          a_->vci->post(one);
        }
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(a_->vci->counts().posts, sent.size());
    EXPECT_EQ(network_->under_way_count(), sent.size());
    (void)network_->settle();
    ASSERT_TRUE(turn_until([&] {
      return std::all_of(sent.begin(), sent.end(), [](const Sent& one) { return one.is_over(); });
    }));
    if (turn + 1 != kTurns) TearDown();
  }
}

}  // namespace
}  // namespace larklane::vci
