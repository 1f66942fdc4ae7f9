#pragma once
// Two lanes on a network inside one process, and pairs of packet links between them.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "msg/packet/packet_lane.hpp"
#include "msg/packet/packet_link.hpp"
#include "net/loop/fabric.hpp"
#include "net/loop/random.hpp"
#include "vci/vci.hpp"

namespace larklane::msg {

/// A lane with packets.
struct PacketSide {
  PacketSide(net::Fabric& fabric, PacketLane::Options options)
      : lane(std::move(PacketLane::create(fabric, options).value())),
        vci(std::move(vci::Vci::create(fabric, *lane).value())) {
    lane->begin(*vci);
  }
  std::unique_ptr<PacketLane> lane;
  std::unique_ptr<vci::Vci> vci;
};

struct Received {
  PacketHeader header;
  std::vector<std::byte> payload;
};

/// One end of a pair, and the events that it has received.
struct PacketEnd final : PacketListener {
  PacketEnd(PacketSide& of, std::uint32_t cells, std::uint32_t first_cells = 0) : side(of) {
    auto opened = PacketLink::open(*side.lane, *this, cells, first_cells);
    EXPECT_TRUE(opened) << errc_name(opened.error().code());
    if (opened) link = std::move(opened).value();
  }
  Result<bool> on_packet(PacketLink& from, const PacketHeader& header,
                         std::span<const std::byte> payload) override {
    EXPECT_EQ(&from, link.get());
    if (holds) return false;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(payload.data()) % 8, 0u);
    if (react)
      react(header, payload);
    else
      received.push_back({header, {payload.begin(), payload.end()}});
    return true;
  }
  void on_failure(PacketLink& from, Status status) override {
    EXPECT_EQ(&from, link.get());
    EXPECT_EQ(from.failure(), status);
    failures.push_back(status);
  }
  void connect(const PacketEnd& peer) {
    const Status status = link->connect(peer.link->offer());
    EXPECT_TRUE(status.ok()) << errc_name(status.code());
  }
  /// @return the post's answer; an error counts as none
  net::Post post(std::uint32_t number, std::uint32_t bytes);

  PacketSide& side;
  std::unique_ptr<PacketLink> link;
  std::vector<Received> received;
  std::vector<Status> failures;
  bool holds = false;
  std::function<void(const PacketHeader&, std::span<const std::byte>)> react;
};

/// The `number`-th record of a poster: its bytes follow from number and length.
inline PacketHeader header_of(std::uint32_t number, std::uint32_t bytes, std::uint32_t who = 0) {
  return {number, bytes, who};
}
inline void fill_payload(std::span<std::byte> payload, const PacketHeader& header) {
  loop::Random random((std::uint64_t{header[0]} << 32 | header[1]) ^ std::uint64_t{header[2]}
                                                                         << 16);
  for (std::byte& byte : payload) byte = static_cast<std::byte>(random.next());
}
inline std::vector<std::byte> payload_of(const PacketHeader& header) {
  std::vector<std::byte> payload(header[1]);
  fill_payload(payload, header);
  return payload;
}
inline void expect_intact(const PacketHeader& header, std::span<const std::byte> payload) {
  ASSERT_EQ(payload.size(), header[1]) << "record " << header[0];
  const std::vector<std::byte> wanted = payload_of(header);
  ASSERT_TRUE(wanted.empty() || std::memcmp(wanted.data(), payload.data(), wanted.size()) == 0)
      << "record " << header[0];
}
inline net::Post PacketEnd::post(std::uint32_t number, std::uint32_t bytes) {
  const PacketHeader header = header_of(number, bytes);
  auto answer = link->post(header, payload_of(header));
  EXPECT_TRUE(answer) << errc_name(answer.error().code());
  return answer ? *answer : net::Post::retry;
}

inline void expect_no_violations(loop::Fabric& wire) {
  for (const loop::Violation& violation : wire.take_violations())
    ADD_FAILURE() << loop::offence_name(violation.offence) << ": " << violation.detail;
}

/// Two processes with a lane each, and one pair.
struct PacketPair {
  explicit PacketPair(loop::Fabric::Options network = {}, PacketLane::Options lane = {8, 4},
                      std::uint32_t cells_a = 16, std::uint32_t cells_b = 16,
                      std::uint32_t first_cells = 0)
      : wire(network),
        other(wire.for_process()),
        sides{{wire, lane}, {*other, lane}},
        a(sides[0], cells_a, first_cells),
        b(sides[1], cells_b, first_cells) {
    a.connect(b);
    b.connect(a);
  }
  ~PacketPair() {
    settle();
    EXPECT_TRUE(a.link == nullptr || a.link->is_quiet());
    EXPECT_TRUE(b.link == nullptr || b.link->is_quiet());
    a.link.reset();
    b.link.reset();
    expect_no_violations(wire);
  }
  /// Moves all that has been posted, without the many empty turns of settle().
  void step() {
    for (int i = 0; i < 8; ++i) {
      wire.settle();
      for (PacketSide& side : sides) (void)side.vci->progress();
    }
  }
  /// Until nothing travels.
  void settle() {
    for (int i = 0; i < 20; ++i) {
      wire.settle();
      sides[0].vci->drain();
      sides[1].vci->drain();
    }
  }
  loop::Fabric wire;
  std::unique_ptr<net::Fabric> other;
  PacketSide sides[2];
  PacketEnd a, b;
};

}  // namespace larklane::msg
