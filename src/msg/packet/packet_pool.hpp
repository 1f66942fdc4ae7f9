#pragma once
// The packets of a lane: what a record is assembled in, and travels from.

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

/// Registered memory for one record, and the work that sends it. Thread safety: single-owner: who
/// has taken it, until it is posted or given back.
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
  std::uint64_t first_ = 0;             // while others may join: the position of its first record
  std::atomic<std::uint64_t> held_{0};  // by what its user names it
  std::uint32_t payload_bytes_max_ = 0;
  std::uint32_t cells_ = 0;   // while it is under way
  std::uint32_t last_ = 0;    // while others may join: the cell of its last record
  std::uint32_t number_ = 0;  // from 1
  std::atomic<std::uint32_t> next_{0};
  std::uint32_t uses_ = 0;  // by users
};

// Thread safety: thread-safe.
// Invariants:
// 1. A packet is free, or somebody's: who has taken it, or its link's, until its work is complete.
// 2. A list is the number of its first free packet (0: none) and, in its high half, how often one
//    has been taken: so no exchange succeeds that has looked at another list.
// 3. A user names a packet by its number and, in the high half, how often users have had it: so by
//    a name that is over he gets none.
// 4. Users never have those of `reserved_`: what they keep, or post to who has no room, stops
//    nothing else.
class PacketPool final {
 public:
  static constexpr std::uint32_t kCountMax = 1u << 20;
  /// One of so many is no user's, and one at least.
  static constexpr std::uint32_t kOneReservedOf = 8;

  /// @errors kInvalidArgument; kNoMemory, and what register_memory says
  static Result<std::unique_ptr<PacketPool>> create(net::Fabric& fabric, std::uint32_t count,
                                                    std::uint32_t record_cells);

  /// Null: there is none.
  Packet* take() noexcept {
    Packet* const packet = take_of(free_);
    return packet != nullptr ? packet : take_of(reserved_);
  }
  /// For a user. Null: there is none that users may have.
  Packet* take_for_user() noexcept { return take_of(free_); }
  static void give_back(Packet& packet) noexcept;

  // By users. relaxed, all: the one that has a packet is alone with it, and other names don't fit.
  /// Of one that was taken. @return what held() knows it by; never 0
  static std::uint64_t hold(Packet& packet) noexcept {
    const std::uint64_t name = std::uint64_t{++packet.uses_} << 32 | packet.number_;
    packet.held_.store(name, std::memory_order_relaxed);
    return name;
  }
  /// Null: nobody holds one by that name.
  Packet* held(std::uint64_t name) const noexcept {
    const std::uint64_t index = (name & UINT32_MAX) - 1;
    if (index >= count_) return nullptr;
    Packet& packet = packets_[index];
    return packet.held_.load(std::memory_order_relaxed) == name ? &packet : nullptr;
  }
  /// Before it is posted or given back.
  static void let_go(Packet& packet) noexcept { packet.held_.store(0, std::memory_order_relaxed); }
  /// It was not posted.
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
