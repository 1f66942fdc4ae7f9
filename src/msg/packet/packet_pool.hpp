#pragma once
// The packets of a lane. A packet is registered memory for one record, or for several that leave in
// one write. A thread takes a packet, assembles the record in it and posts it.
//
// To change the number of packets: PacketLane::Options::packets (packet_lane.hpp). PacketLane
// passes it to create(), and also makes the pool of long packets.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.hpp"
#include "msg/packet/packet_wire.hpp"
#include "net/provider.hpp"
#include "vci/switches.hpp"
#include "vci/work.hpp"

namespace larklane::msg {

class PacketLink;
class PacketPool;

/// Registered memory for a record, and the work that sends it. Thread safety: single-owner: the
/// thread that has taken the packet, until it posts the packet or gives it back.
class alignas(kCellBytes) Packet final : private vci::Work {
 public:
  Packet() noexcept { is_looked_for = true; }
  /// Where the payload goes.
  std::span<std::byte> payload() noexcept {
    return {record_ + sizeof(RecordHead), payload_bytes_max_};
  }
  std::uint32_t cells_max() const noexcept { return record_cells_of(payload_bytes_max_); }

 private:
  friend class PacketLink;
  friend class PacketPool;

  PacketPool* pool_ = nullptr;
  std::byte* record_ = nullptr;
  PacketLink* owner_ = nullptr;
  // While later records may join its write: position of its first record in the peer's ring.
  std::uint64_t first_ = 0;
  std::atomic<std::uint64_t> held_{0};  // name by which a user holds it; 0: none
  std::uint32_t payload_bytes_max_ = 0;
  std::uint32_t cells_ = 0;   // while in flight
  std::uint32_t last_ = 0;    // while later records may join: the packet's cell of its last one
  std::uint32_t number_ = 0;  // in its pool, from 1
  std::atomic<std::uint32_t> next_{0};  // number of the next free packet
  std::uint32_t uses_ = 0;              // times that users have held it
};

// Thread safety: thread-safe.
// Invariants:
// 1. A packet is free, or belongs to the caller that has taken it, or to its link until its work is
//    complete.
// 2. The word of a list holds the number of its first free packet (0: none) in the low half, and
//    the number of takes so far in the high half. So a compare-and-swap fails if the list has
//    changed since its load.
// 3. The low half of a user's name of a packet is the packet's number. The high half counts how
//    often users have held it, so an old name finds no packet.
// 4. Users never get packets of `reserved_`; the library takes these when `free_` is empty. So
//    packets that a user keeps, or posts to a peer without room, block no other traffic.
class PacketPool final {
 public:
  static constexpr std::uint32_t kCountMax = 1u << 20;
  /// One of this many packets is reserved, and at least one.
  static constexpr std::uint32_t kOneReservedOf = 8;

  /// @errors kInvalidArgument; kNoMemory, and what register_memory says
  static Result<std::unique_ptr<PacketPool>> create(net::Fabric& fabric, std::uint32_t count,
                                                    std::uint32_t record_cells);

  /// Null: all are in use.
  Packet* take() noexcept {
    Packet* const packet = take_of(free_);
    return packet != nullptr ? packet : take_of(reserved_);
  }
  /// For a user. Null: all packets for users are in use.
  Packet* take_for_user() noexcept { return take_of(free_); }
  static void give_back(Packet& packet) noexcept;

  // Names of users' packets. relaxed, all: a packet has one owner, and other names don't match.
  /// Names a taken packet. @return its name for held(); never 0
  static std::uint64_t hold(Packet& packet) noexcept {
    const std::uint64_t name = std::uint64_t{++packet.uses_} << 32 | packet.number_;
    packet.held_.store(name, std::memory_order_relaxed);
    return name;
  }
  /// Null: no user holds a packet by that name.
  Packet* held(std::uint64_t name) const noexcept {
    const std::uint64_t index = (name & UINT32_MAX) - 1;
    if (index >= count_) return nullptr;
    Packet& packet = packets_[index];
    return packet.held_.load(std::memory_order_relaxed) == name ? &packet : nullptr;
  }
  /// Before the packet is posted or given back.
  static void let_go(Packet& packet) noexcept { packet.held_.store(0, std::memory_order_relaxed); }
  /// The packet was not posted.
  static void hold_again(Packet& packet, std::uint64_t name) noexcept {
    packet.held_.store(name, std::memory_order_relaxed);
  }
  std::uint32_t held_count() const noexcept {
    std::uint32_t held = 0;
    for (std::uint32_t i = 0; i < count_; ++i)
      held += packets_[i].held_.load(std::memory_order_relaxed) != 0;
    return held;
  }

  const net::Memory& memory() const noexcept { return *memory_; }

 private:
  struct alignas(kCellBytes) Line {
    std::byte bytes[kCellBytes];
  };

  using List = std::atomic<std::uint64_t>;

  PacketPool(std::uint32_t count, std::uint32_t record_cells);

  Packet* take_of(List& list) noexcept;

  const std::uint32_t count_;
  std::unique_ptr<Packet[]> packets_;
  std::unique_ptr<Line[]> lines_;
  std::unique_ptr<net::Memory> memory_;
  alignas(vci::kOwnLineBytes) List free_{0};
  List reserved_{0};
};

}  // namespace larklane::msg
