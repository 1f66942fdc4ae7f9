#pragma once
// Two endpoints of a network that are connected, each with memory that the other one may use.

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "net/provider.hpp"

namespace larklane::net {

/// Collects immediates.
class Ear final : public Receiver {
 public:
  void on_immediate(std::uint32_t immediate) override {
    heard.push_back(immediate);
    if (react) react(immediate);
  }
  std::vector<std::uint32_t> heard;
  std::function<void(std::uint32_t)> react;
};

/// An operation that counts how often it completes.
struct Sent final : Operation {
  Sent() {
    complete = [](Operation& operation, Status outcome) {
      auto& sent = static_cast<Sent&>(operation);
      ++sent.times;
      sent.status = outcome;
      if (sent.then) sent.then(sent);
    };
  }
  bool is_over() const noexcept { return times == 1; }
  std::uint32_t times = 0;
  Status status;
  std::function<void(Sent&)> then;
};

inline constexpr std::size_t kSideBytes = 4096;

struct Side {
  void open(Fabric& fabric) {
    auto opened = fabric.open_endpoint(ear);
    ASSERT_TRUE(opened);
    endpoint = std::move(*opened);
    auto registered = fabric.register_memory(bytes.data(), bytes.size());
    ASSERT_TRUE(registered);
    memory = std::move(*registered);
    auto linked = endpoint->open_link();
    ASSERT_TRUE(linked);
    link = std::move(*linked);
  }
  void fill(std::string_view text, std::size_t at = 0) {
    std::memcpy(bytes.data() + at, text.data(), text.size());
  }
  std::string_view text(std::size_t at, std::size_t length) const {
    return {reinterpret_cast<const char*>(bytes.data()) + at, length};
  }
  RemoteMemory at(std::uint64_t offset) const {
    return {memory->remote().address + offset, memory->remote().key};
  }
  /// A transfer of `length` bytes from (or, a read, to) `offset` here.
  Transfer to(const Side& peer, std::uint64_t offset, std::uint64_t peer_offset,
              std::uint64_t length) {
    return {bytes.data() + offset, memory.get(), peer.at(peer_offset), length};
  }
  std::uint32_t poll(std::uint32_t most = 16) {
    Result<std::uint32_t> served = endpoint->poll(most);
    EXPECT_TRUE(served) << errc_name(served.error().code());
    return served ? *served : 0;
  }

  alignas(64) std::array<std::byte, kSideBytes> bytes{};
  Ear ear;
  std::unique_ptr<Endpoint> endpoint;
  std::unique_ptr<Memory> memory;
  std::unique_ptr<Link> link;
};

struct Pair {
  Pair(Fabric& of_a, Fabric& of_b) {
    a.open(of_a);
    b.open(of_b);
    EXPECT_TRUE(a.link->connect(b.link->offer()).ok());
    EXPECT_TRUE(b.link->connect(a.link->offer()).ok());
    EXPECT_TRUE(a.endpoint->reserve_immediates(64).ok());
    EXPECT_TRUE(b.endpoint->reserve_immediates(64).ok());
  }
  /// Poll both until `done`. False: it did not come.
  bool poll_until(const std::function<bool()>& done, std::uint32_t polls_max = 100'000) {
    for (std::uint32_t i = 0; i < polls_max && !done(); ++i) {
      a.poll();
      b.poll();
    }
    return done();
  }
  Side a, b;
};

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

inline void expect_posted(Result<Post> answer) {
  ASSERT_TRUE(answer) << errc_name(answer.error().code());
  EXPECT_EQ(*answer, Post::posted);
}

}  // namespace larklane::net
