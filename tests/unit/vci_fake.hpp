#pragma once
// A provider that follows the test, call by call. It takes no lock: a lane must keep its callers
// apart, and the thread sanitizer reports a lane that does not.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "net/provider.hpp"
#include "vci/vci.hpp"

namespace larklane::vci {

/// The calls of a lane to its provider, and the answers that the provider gives.
struct FakeLane {
  struct Posted {
    Work::Kind kind;
    std::uint64_t offset, bytes;  ///< at the peer
    std::uint32_t immediate;
    net::Operation* operation;
  };

  // The answers to give.
  std::deque<Result<net::Post>> answers;  ///< to the next posts; then `answer`
  Result<net::Post> answer = net::Post::posted;
  std::function<void()> during_post, during_poll, during_arm;
  std::vector<std::pair<net::Operation*, Status>> finished;  ///< completed by the next poll
  std::vector<std::uint32_t> arrived;                        ///< heard in the next poll
  Status poll_error;
  int fd = 7;  ///< to wait on
  bool can_tell_needed = false;
  // The calls so far.
  std::vector<Posted> posted;  ///< those that were not refused
  std::uint32_t attempts = 0, polls = 0, reserved = 0;
  net::Wake armed_for = net::Wake::all;  // last
  bool is_polling = false, was_entered_while_polling = false;

  Result<net::Post> post(Posted one) {
    ++attempts;
    was_entered_while_polling |= is_polling;
    if (during_post) during_post();
    Result<net::Post> reply = answer;
    if (!answers.empty()) {
      reply = answers.front();
      answers.pop_front();
    }
    if (reply && *reply != net::Post::retry) posted.push_back(one);
    return reply;
  }
  void finish(std::size_t index, Status status = {}) {
    finished.emplace_back(posted.at(index).operation, status);
  }
};

class FakeLink final : public net::Link {
 public:
  explicit FakeLink(FakeLane& lane) : lane_(lane) {}
  std::span<const std::byte> offer() const noexcept override { return {}; }
  Status connect(std::span<const std::byte>) override { return {}; }
  Result<net::Post> write(const net::Transfer& t, net::Operation& o) override {
    return lane_.post({Work::Kind::write, t.remote.address, t.bytes, 0, &o});
  }
  Result<net::Post> write_immediate(const net::Transfer& t, std::uint32_t immediate,
                                    net::Operation& o) override {
    return lane_.post({Work::Kind::write_immediate, t.remote.address, t.bytes, immediate, &o});
  }
  Result<net::Post> write_small(std::span<const std::byte> bytes, net::RemoteMemory to,
                                net::Operation& o) override {
    return lane_.post({Work::Kind::small, to.address, bytes.size(), 0, &o});
  }
  Result<net::Post> write_small_immediate(std::span<const std::byte> bytes, net::RemoteMemory to,
                                          std::uint32_t immediate, net::Operation& o) override {
    return lane_.post({Work::Kind::small_immediate, to.address, bytes.size(), immediate, &o});
  }
  Result<net::Post> read(const net::Transfer& t, net::Operation& o) override {
    return lane_.post({Work::Kind::read, t.remote.address, t.bytes, 0, &o});
  }

 private:
  FakeLane& lane_;
};

class FakeEndpoint final : public net::Endpoint {
 public:
  FakeEndpoint(FakeLane& lane, net::Receiver& receiver) : lane_(lane), receiver_(receiver) {}
  Result<std::unique_ptr<net::Link>> open_link() override {
    return Result<std::unique_ptr<net::Link>>(std::make_unique<FakeLink>(lane_));
  }
  Result<std::uint32_t> poll(std::uint32_t) override {
    ++lane_.polls;
    lane_.is_polling = true;
    if (lane_.during_poll) lane_.during_poll();
    std::uint32_t served = 0;
    for (auto [operation, status] : std::exchange(lane_.finished, {})) {
      operation->complete(*operation, status);
      ++served;
    }
    for (const std::uint32_t immediate : std::exchange(lane_.arrived, {})) {
      receiver_.on_immediate(immediate);
      ++served;
    }
    lane_.is_polling = false;
    if (!lane_.poll_error.ok()) return lane_.poll_error;
    return served;
  }
  Status reserve_immediates(std::uint32_t count) override {
    lane_.reserved += count;
    return {};
  }
  void release_immediates(std::uint32_t count) override { lane_.reserved -= count; }
  int wait_fd() const noexcept override { return lane_.fd; }
  bool arm(net::Wake wake) override {
    lane_.armed_for = wake;
    if (lane_.during_arm) std::exchange(lane_.during_arm, nullptr)();
    all_wakes_.store(!lane_.can_tell_needed || wake == net::Wake::all, std::memory_order_relaxed);
    return true;
  }
  bool does_all_wake() const noexcept override {
    return all_wakes_.load(std::memory_order_relaxed);
  }

 private:
  FakeLane& lane_;
  net::Receiver& receiver_;
  std::atomic<bool> all_wakes_{true};
};

class FakeFabric final : public net::Fabric {
 public:
  const net::Limits& limits() const noexcept override { return offered; }
  Result<std::unique_ptr<net::Memory>> register_memory(void*, std::uint64_t) override {
    return Errc::kNoMemory;
  }
  Result<std::unique_ptr<net::Endpoint>> open_endpoint(net::Receiver& receiver) override {
    if (!open_error.ok()) return open_error;
    lanes.push_back(std::make_unique<FakeLane>());
    return Result<std::unique_ptr<net::Endpoint>>(
        std::make_unique<FakeEndpoint>(*lanes.back(), receiver));
  }
  net::Limits offered{100, 50, 16, 0, false, "fake"};
  Status open_error;
  std::vector<std::unique_ptr<FakeLane>> lanes;  ///< in the order in which they were opened
};

/// A work that counts its completions. Thread safety: single-owner.
struct CountedWork : Work {
  CountedWork() {
    complete = [](net::Operation& operation, Status outcome) {
      auto& work = static_cast<CountedWork&>(operation);
      work.status = outcome;
      ++work.times;
      if (work.then) work.then();
    };
  }
  void make(net::Link& to, Kind what, std::uint64_t offset, std::uint64_t bytes,
            std::uint32_t number = 0) {
    const bool is_small = what == Kind::small || what == Kind::small_immediate;
    link = &to;
    kind = what;
    transfer = {nullptr, nullptr, {offset, 0}, bytes};
    immediate = number;
    small_bytes = is_small ? static_cast<std::uint8_t>(bytes) : std::uint8_t{0};
  }
  int times = 0;
  Status status{Errc::kInvalidArgument};
  std::function<void()> then;
};

struct NoReceiver final : net::Receiver {
  void on_immediate(std::uint32_t immediate) override { heard.push_back(immediate); }
  std::vector<std::uint32_t> heard;
};

/// One lane and one link.
struct FakeSide {
  FakeSide() {
    vci = std::move(Vci::create(fabric, receiver)).value();
    link = std::move(vci->open_link()).value();
  }
  ~FakeSide() { vci->close_link(std::move(link)); }
  FakeLane& lane() { return *fabric.lanes[0]; }

  FakeFabric fabric;
  NoReceiver receiver;
  std::unique_ptr<Vci> vci;
  std::unique_ptr<net::Link> link;
};

}  // namespace larklane::vci
