#pragma once
// The packet layer of one lane: its packets, the slots of its links, and the rings that it polls.
// (docs/design/protocols/packets.md)

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "msg/packet/packet_pool.hpp"
#include "net/provider.hpp"
#include "vci/vci.hpp"

namespace larklane::msg {

class PacketLink;

/// Counts of a lane's packet events, by reason. Thread safety: immutable.
struct PacketCounts {
  std::uint64_t no_room;       ///< posts that returned retry: the peer's ring was full
  std::uint64_t no_packet;     ///< requests for a packet while all were in use
  std::uint64_t delivered;     ///< records
  std::uint64_t credit_words;  ///< written to peers
  std::uint64_t coalesced;     ///< records that joined the write of an earlier one
  std::uint64_t strays;        ///< immediates without a link
};

// Thread safety: thread-safe.
// Invariants:
// 1. An immediate leads to the link that has its slot, or to none. A freed slot is reused after all
//    other free ones.
class PacketLane final : public net::Receiver {
 public:
  struct Options {
    /// Packets, for the records in flight over all links. With the length below: 2 MiB.
    std::uint32_t packets = 256;
    /// Cells of the longest record, both ways: 8 KiB.
    std::uint32_t record_cells = 128;
    /// Where peers' memory can be mapped, a post returns when the peer can read its record, and all
    /// before it in that ring (PacketLink, invariant 8).
    bool pushes = false;
    /// Over shared memory a ring takes 16 KiB until its sender has found it full. Until then a
    /// burst that a whole ring would hold may find no room.
    bool has_growing_rings = false;
  };

  /// @errors kInvalidArgument; kNoMemory, and those of register_memory; kBadOption: each link of
  ///   this fabric carries one channel
  static Result<std::unique_ptr<PacketLane>> create(net::Fabric& fabric, Options options);
  ~PacketLane() override = default;  ///< its links are gone, and all packets are back

  /// Once, before any other call. @param vci  the lane with this receiver
  void begin(vci::Vci& vci) noexcept { vci_ = &vci; }
  vci::Vci& vci() const noexcept { return *vci_; }

  /// For a record that the caller assembles in place. Null: all packets are in use (counted).
  Packet* take_packet() noexcept { return counted(pool_->take()); }
  /// As take_packet(), for a user.
  Packet* take_user_packet() noexcept { return counted(pool_->take_for_user()); }
  /// A packet that was not posted.
  static void give_back(Packet& packet) noexcept { PacketPool::give_back(packet); }

  PacketPool& pool() noexcept { return *pool_; }

  /// Cells of a packet that take_packet_for_several() usually returns.
  std::uint32_t cells_for_several() const noexcept {
    return long_pool_ ? kLongPacketCells : options_.record_cells;
  }
  /// For several records of one write: a long packet, if this network has them and one is free.
  /// Null: as take_packet().
  Packet* take_packet_for_several() noexcept {
    Packet* const packet = long_pool_ ? long_pool_->take() : nullptr;
    return packet != nullptr ? packet : take_packet();
  }

  /// Takes the records that the rings of all links show now. False: a record is held.
  /// @pre the lane's lock is held
  bool look_at_all_locked() noexcept;

  PacketCounts counts() const noexcept;

  /// Where a poll is a system call: the time of the last look that found records, and the calls
  /// that the peer may make before this side answers. relaxed: hints.
  std::uint64_t looked_at_ns() const noexcept { return looked_at_.load(std::memory_order_relaxed); }
  std::uint64_t calls_ahead() const noexcept { return ahead_.load(std::memory_order_relaxed); }

  void on_immediate(std::uint32_t immediate) override;
  void on_wide_immediate(std::uint64_t immediate) override;
  std::uint32_t look(std::uint32_t most) override;
  bool looks_empty() const noexcept override;
  /// The rings of all links show no record: earlier ones are where they were delivered to. False:
  /// unknown. Takes no lock. @pre as looks_empty()
  bool shows_nothing() const noexcept;

 private:
  friend class PacketLink;

  PacketLane(net::Fabric& fabric, Options options, std::unique_ptr<PacketPool> pool,
             std::unique_ptr<PacketPool> long_pool) noexcept
      : fabric_(fabric),
        options_(options),
        pool_(std::move(pool)),
        long_pool_(std::move(long_pool)) {
    sleeps = false;  // a waiting thread makes progress
    if (fabric.limits().is_post_system_call) pause = Pause::poll_is_dear;
  }
  Packet* counted(Packet* packet) noexcept {
    if (packet == nullptr) [[unlikely]]
      note(no_packet_);
    return packet;
  }

  /// Most rings that a lane polls: those of the first links that qualify. Each turn loads one line
  /// for each of them.
  static constexpr std::uint32_t kWatchedMax = 8;
  static constexpr std::uint32_t kFew = 8, kFewOfSystemCalls = 4;
  /// Packets for several records of one write, where each write is a system call: 32 KiB.
  static constexpr std::uint32_t kLongPackets = 16, kLongPacketCells = 512;

  /// @errors kNoMemory: all slots are taken
  Result<std::uint16_t> take_slot(PacketLink& link);
  void clear_slot(std::uint16_t slot);
  PacketLink* link_of(std::uint32_t immediate) const noexcept {
    const std::uint32_t slot = immediate >> 16;
    return slot < slots_.size() ? slots_[slot] : nullptr;
  }
  void look_ahead_slow(const PacketLink& link, std::uint32_t seen) noexcept;
  /// Makes look() poll the link's ring, until clear_slot(). False: all places are taken.
  bool watch_locked(PacketLink& link) noexcept;

  // relaxed, here and below: statistics.
  static void note(std::atomic<std::uint64_t>& counter) noexcept {
    counter.fetch_add(1, std::memory_order_relaxed);
  }
  /// With the lane's lock held, so without a read-modify-write.
  static void note_locked(std::atomic<std::uint64_t>& counter) noexcept {
    counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  net::Fabric& fabric_;
  const Options options_;
  const std::unique_ptr<PacketPool> pool_, long_pool_;
  vci::Vci* vci_ = nullptr;
  std::atomic<std::uint32_t> generation_{0};  // of the newest ring

  // Written with the lane's lock held.
  std::vector<PacketLink*> slots_;
  std::atomic<std::uint32_t> link_count_{0};  // those with a slot
  std::uint32_t next_slot_ = 0;               // the search for a free slot starts here
  // The first watched_count_ ones. relaxed, but for looks_empty(): written with the lane's lock
  // held
  std::array<std::atomic<PacketLink*>, kWatchedMax> watched_{};
  std::atomic<std::uint32_t> watched_count_{0};
  struct Row {
    const PacketLink* link;
    std::int64_t answers;   ///< posts of the lane to any peer, up to then
    std::uint64_t records;  ///< that arrived since
  };
  Row row_{};                   // records of one peer without an answer
  std::uint64_t last_row_ = 0;  // records in the row before
  std::atomic<std::uint64_t> looked_at_{0}, ahead_{0};
  std::atomic<std::uint64_t> delivered_{0}, credit_words_{0}, coalesced_{0}, strays_{0};

  // Written by posts that retry
  alignas(vci::kOwnLineBytes) std::atomic<std::uint64_t> no_room_{0};
  std::atomic<std::uint64_t> no_packet_{0};
};

}  // namespace larklane::msg
