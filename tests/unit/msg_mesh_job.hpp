#pragma once
// Processes that are connected by their meshes, inside one: the network is the loop, the control
// planes are real, the cards lie on a table.

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/config.hpp"
#include "base/log.hpp"
#include "bootstrap/board.hpp"
#include "control/plane/plane.hpp"
#include "larklane/message.hpp"
#include "msg/mesh.hpp"
#include "msg/protocol/engine.hpp"
#include "net/provider.hpp"

namespace larklane::msg {

inline bool comes(const std::function<bool()>& is_so, const std::function<void()>& meanwhile = {}) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > until) return false;
    if (meanwhile) meanwhile();
    ::sched_yield();
  }
  return true;
}

/// The warnings of a test; an unexpected one fails it.
class WarningLog {
 public:
  WarningLog() {
    set_log_sink([this](LogLevel, std::string_view text) {
      const std::scoped_lock lock(mutex_);
      texts_.emplace_back(text);
    });
  }
  ~WarningLog() {
    set_log_sink({});
    for (const std::string& text : texts_) ADD_FAILURE() << text;
  }
  /// Those that have `text`; the others stay. @return how many
  std::size_t take(const std::string& text) {
    const std::scoped_lock lock(mutex_);
    return std::erase_if(
        texts_, [&](const std::string& one) { return one.find(text) != std::string::npos; });
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> texts_;
};

/// The cards of a job. Thread safety: thread-safe.
class Table {
 public:
  void put(int rank, std::span<const std::byte> card) {
    const std::scoped_lock lock(mutex_);
    cards_[rank].assign(card.begin(), card.end());
    changed_.notify_all();
  }
  /// No process waits any more.
  void clear() {
    const std::scoped_lock lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }
  Result<boot::Card> wait_for(int rank) {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.wait(lock, [&] { return is_over_ || cards_.contains(rank); });
    --waiting_;
    if (!cards_.contains(rank)) return Status(Errc::kPeerDown);
    return cards_[rank];
  }
  int waiting() {
    const std::scoped_lock lock(mutex_);
    return waiting_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, boot::Card> cards_;
  int waiting_ = 0;
  bool is_over_ = false;
};

class TableBoard final : public boot::Board {
 public:
  TableBoard(int rank, int size, Table& table) : Board(rank, size), table_(table) {}

 private:
  Status publish_locked(std::span<const std::byte> card, std::string*) override {
    table_.put(rank(), card);
    return {};
  }
  Result<boot::Card> fetch_locked(int rank, std::string* problem) override {
    auto card = table_.wait_for(rank);
    if (!card) *problem = "it has no card";
    return card;
  }
  Result<bool> is_one_host_locked(std::string*) override { return true; }
  Status fence_locked(std::string*) override { return {}; }

  Table& table_;
};

/// How often something has happened. Thread safety: thread-safe.
class Tally {
 public:
  // relaxed: a number
  void add() { count_.fetch_add(1, std::memory_order_relaxed); }
  int count() const { return count_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int> count_{0};
};

/// As the context puts them together.
class MeshProcess final : public Connector, public MeshUser {
  const std::unique_ptr<net::Fabric> fabric_;
  TableBoard board_;

 public:
  MeshProcess(std::unique_ptr<net::Fabric> fabric, Table& table, int rank, int size,
              std::uint32_t lanes)
      : fabric_(std::move(fabric)), board_(rank, size, table) {
    Engine::Options options{rank, size, {}, {{16, 8}, 256, 64}};
    options.lanes.count_max = lanes;
    engine = std::make_unique<Engine>(*fabric_, domain, *this, options);
    std::string problem;
    auto made = Mesh::create(Config{}, board_, *this, &problem);
    EXPECT_TRUE(made) << problem;
    mesh_ = std::move(made).value();
    for (std::uint32_t i = 0; i < lanes; ++i) vcis.emplace_back(*engine->take_lane().value());
    told.emplace(std::move(CompletionQueue::create(domain).value()));
  }
  ~MeshProcess() {
    close();
    told.reset();
  }
  void close() {
    if (mesh_ == nullptr) return;
    mesh_->close([this] { (void)engine->progress_all(); });
    mesh_.reset();
  }

  PostOptions telling(bool queues = true) {
    PostOptions options;
    options.completion = &*told;
    options.signals_always = true;
    options.queues = queues;
    return options;
  }
  Result<Post> send(int to, std::uint32_t tag, std::uint32_t lane = 0, bool queues = true) {
    static const std::uint64_t kBytes = 0x1234'5678;
    return post_send(vcis[lane], to, tag, &kBytes, sizeof kBytes, telling(queues));
  }
  Result<Post> receive(int from, std::uint32_t tag, std::uint64_t* into, std::uint32_t lane = 0) {
    return post_recv(vcis[lane], from, tag, into, sizeof *into, telling());
  }
  void step() { (void)engine->progress_all(); }

  CompletionDomain domain;
  std::unique_ptr<Engine> engine;
  std::vector<Vci> vcis;
  std::optional<CompletionQueue> told;
  Tally ready, unreachable, down;

 private:
  void want(int rank, std::uint32_t number) override { mesh_->want(rank, number); }

  Result<PacketLane*> lane_of(std::uint32_t number) override {
    auto lane = engine->lane_of(number);
    if (!lane) return lane.error();
    return &(*lane)->packets();
  }
  PacketListener* listener_of(int rank, std::uint32_t number) override {
    return engine->connection_of_link(rank, number);
  }
  void on_ready(int rank, std::uint32_t number, PacketLink& link) override {
    ready.add();
    engine->connection_of_link(rank, number)->begin(link);
  }
  void on_unreachable(int rank, std::uint32_t number, Status status) override {
    unreachable.add();
    engine->refuse(rank, number, status);
  }
  void on_peer_down(int rank, Status status) override {
    down.add();
    engine->lose(rank, status);
  }

  std::unique_ptr<Mesh> mesh_;
};

/// A process that speaks the mesh's protocol by hand, rightly or wrongly.
class Speaker final : private control::Handler {
 public:
  /// @param name  of its socket
  explicit Speaker(const std::string& name) : name_(name) {
    std::vector<control::Listener> own;
    own.push_back(std::move(control::Listener::bind(name).value()));
    plane_ = std::move(control::Plane::create(std::move(own), *this).value());
  }
  ~Speaker() override { plane_.reset(); }

  void call(const std::string& address) { peer_ = plane_->connect(address).value(); }
  void say(MeshRecord kind, std::span<const std::byte> payload) {
    (void)peer_->send(static_cast<std::uint16_t>(kind), payload);
  }
  template <class T>
  void say(MeshRecord kind, const T& record, std::span<const std::byte> rest = {}) {
    const auto own = std::as_bytes(std::span(&record, 1));
    std::vector<std::byte> payload(own.begin(), own.end());
    payload.insert(payload.end(), rest.begin(), rest.end());
    say(kind, std::span<const std::byte>(payload));
  }
  int heard(MeshRecord kind) {
    const std::scoped_lock lock(mutex_);
    return heard_[kind];
  }
  const std::string& name() const { return name_; }

 private:
  void on_record(control::Peer&, const control::Record& record) override {
    const std::scoped_lock lock(mutex_);
    ++heard_[static_cast<MeshRecord>(record.kind)];
  }
  void on_peer_down(control::Peer&) override {}

  const std::string name_;
  std::unique_ptr<control::Plane> plane_;
  control::Peer* peer_ = nullptr;
  std::mutex mutex_;
  std::map<MeshRecord, int> heard_;
};

}  // namespace larklane::msg
