#pragma once
// Message engines of several processes on a network inside one process; the test decides when links
// are made.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "larklane/context.hpp"
#include "larklane/message.hpp"
#include "msg/protocol/engine.hpp"
#include "net/loop/fabric.hpp"
#include "net/loop/random.hpp"

namespace larklane::msg {

inline constexpr std::uint64_t kEager = 8 * 64 - 24;  ///< bytes of a record of 8 cells

/// One process.
struct JobProcess final : Connector {
  using Want = std::function<void(int rank, std::uint32_t number)>;

  JobProcess(std::unique_ptr<net::Fabric> network, Engine::Options options, Want want_)
      : fabric(std::move(network)), wanted(std::move(want_)) {
    engine = std::make_unique<Engine>(*fabric, domain, *this, options);
    vci.emplace(*engine->take_lane().value());
  }
  void want(int rank, std::uint32_t number) override { wanted(rank, number); }
  void ring(int rank) override { rung.push_back(rank); }
  Connection& to(int rank) { return *engine->connection(vci->inside(), rank); }
  Region add_region(void* start, std::uint64_t bytes) {
    return Region(*engine->add_region(start, bytes).value());
  }

  std::unique_ptr<net::Fabric> fabric;
  CompletionDomain domain;
  Want wanted;
  std::unique_ptr<Engine> engine;
  std::vector<std::unique_ptr<PacketLink>> links;
  std::optional<Vci> vci;
  std::vector<int> rung;  ///< ranks that its waiting threads have rung
};

/// All of them.
struct Job {
  struct Options {
    int size = 2;
    loop::Fabric::Options network{};
    MessageLane::Options lane{{16, 8}, 256, 64};
    std::uint32_t cells = 32, first_cells = 0;
    vci::VciPool::Options lanes{};
    std::uint32_t eager_bytes_max = UINT32_MAX;
    Engine::Rendezvous rendezvous = Engine::Rendezvous::chosen;
    std::uint64_t stall_ns = 0;
    bool is_of_first_alone = false;  ///< both of these: others have chosen nothing
    /// Puts something around the network of one process.
    std::function<std::unique_ptr<net::Fabric>(std::unique_ptr<net::Fabric>, int rank)> decorate{};
  };
  explicit Job(Options options_) : options(std::move(options_)), wire(options.network) {
    for (int rank = 0; rank < options.size; ++rank) {
      auto fabric = wire.for_process();
      if (options.decorate) fabric = options.decorate(std::move(fabric), rank);
      Engine::Options engine{rank, options.size, options.lanes, options.lane};
      engine.stall_ns = options.stall_ns;
      if (rank == 0 || !options.is_of_first_alone) {
        engine.eager_bytes_max = options.eager_bytes_max;
        engine.rendezvous = options.rendezvous;
      }
      processes.push_back(std::make_unique<JobProcess>(
          std::move(fabric), engine,
          [this, rank](int peer, std::uint32_t number) { want(rank, peer, number); }));
    }
  }
  ~Job() {
    settle();
    for (auto& process : processes)
      for (auto& link : process->links) link->end(Errc::kPeerDown);
    settle();  // operations that have waited for a peer that has ended its own end
    for (auto& process : processes)
      for (auto& link : process->links) EXPECT_TRUE(link->is_quiet());
    for (auto& process : processes) process->links.clear();
    for (auto& process : processes) process->vci.reset();
    for (auto& process : processes) process->engine.reset();
    processes.clear();
    for (const loop::Violation& violation : wire.take_violations())
      ADD_FAILURE() << loop::offence_name(violation.offence) << ": " << violation.detail;
  }

  void want(int from, int to, std::uint32_t number) {
    const std::pair ends = std::minmax(from, to);
    if (!asked.insert({ends, number}).second) return;
    wanted.push_back({ends.first, ends.second, number});
  }
  PacketLink& open(int rank, int peer, std::uint32_t number) {
    JobProcess& process = *processes[static_cast<std::size_t>(rank)];
    MessageLane& lane = *process.engine->lane_of(number).value();
    Connection& connection = *process.engine->connection_of_link(peer, number);
    auto link = PacketLink::open(lane.packets(), connection, options.cells, options.first_cells);
    EXPECT_TRUE(link) << errc_name(link.error().code());
    process.links.push_back(std::move(link).value());
    return *process.links.back();
  }
  /// Makes the wanted connections.
  void connect() {
    for (const auto& [one, two, number] : std::exchange(wanted, {})) {
      PacketLink &a = open(one, two, number), &b = open(two, one, number);
      EXPECT_TRUE(a.connect(b.offer()).ok());
      EXPECT_TRUE(b.connect(a.offer()).ok());
      begin(one, two, number, a);
      if (one != two) begin(two, one, number, b);
    }
  }
  void begin(int rank, int peer, std::uint32_t number, PacketLink& link) {
    at(rank).engine->connection_of_link(peer, number)->begin(link);
  }
  /// Every process knows every other, itself too.
  void connect_all() {
    for (int from = 0; from < options.size; ++from)
      for (int to = from; to < options.size; ++to) (void)at(from).to(to);
    connect();
  }
  JobProcess& at(int rank) { return *processes[static_cast<std::size_t>(rank)]; }
  void step() {
    connect();
    wire.settle();
    for (auto& process : processes) (void)process->engine->progress_all();
  }
  void settle() {
    for (int i = 0; i < 60; ++i) step();
  }

  Options options;
  loop::Fabric wire;
  std::set<std::pair<std::pair<int, int>, std::uint32_t>> asked;
  std::vector<std::tuple<int, int, std::uint32_t>> wanted;
  std::vector<std::unique_ptr<JobProcess>> processes;
};

/// Every post signals `object`.
inline PostOptions telling(CompletionObject& object) {
  PostOptions options;
  options.completion = &object;
  options.signals_always = true;
  return options;
}

/// Posts and their ends, between processes that know each other.
class JobTest : public testing::Test {
 public:
  Vci& vci(int rank) { return *job_.at(rank).vci; }

 protected:
  explicit JobTest(Job::Options options = {}) : job_(std::move(options)) { job_.connect_all(); }
  CompletionQueue queue(int rank) {
    return std::move(CompletionQueue::create(job_.at(rank).domain).value());
  }
  Completion next(CompletionQueue& queue) {
    for (int i = 0; i < 100; ++i) {
      if (auto completion = queue.pop()) return *completion;
      job_.step();
    }
    ADD_FAILURE() << "nothing comes";
    return {};
  }
  static void expect_posted(Result<Post> answer) {
    ASSERT_TRUE(answer) << errc_name(answer.error().code());
    EXPECT_EQ(*answer, Post::posted);
  }
  static void expect_refused(Result<Post> answer) {
    EXPECT_EQ(answer.error(), Status(Errc::kInvalidArgument));
  }

  Job job_;
};

inline std::vector<std::byte> random_bytes(std::size_t bytes, std::uint64_t seed) {
  loop::Random random(seed);
  std::vector<std::byte> made(bytes);
  for (std::byte& byte : made) byte = static_cast<std::byte>(random.next());
  return made;
}

}  // namespace larklane::msg
