#pragma once
// Packets of one lane: those that it sends, and which pair those that come in belong to.
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

/// What the links of a lane have done, by reason. Thread safety: immutable.
struct PacketCounts {
  std::uint64_t no_room;       ///< posts that have to be made again: the peer's ring was full
  std::uint64_t no_packet;     ///< the same: all were under way
  std::uint64_t delivered;     ///< records
  std::uint64_t credit_words;  ///< that were written to peers
  std::uint64_t coalesced;     ///< records that went out with one before them
  std::uint64_t strays;        ///< immediates of no link
};

// Thread safety: thread-safe.
// Invariants:
// 1. An immediate leads to the link that has its slot, or to none. A slot is given out again after
//    all others that are free.
class PacketLane final : public net::Receiver {
 public:
  struct Options {
    /// Records that are under way at a time, of all links together. With the length below: 2 MiB.
    std::uint32_t packets = 256;
    /// Of the longest record, both ways: 8 KiB.
    std::uint32_t record_cells = 128;
  };

  /// @errors kInvalidArgument; kNoMemory, and what register_memory says; kBadOption: links of this
  ///   fabric carry one channel each
  static Result<std::unique_ptr<PacketLane>> create(net::Fabric& fabric, Options options);
  ~PacketLane() override = default;  ///< its links are gone, and all packets have been given back

  /// Once, before anything else. @param vci  whose receiver this is
  void begin(vci::Vci& vci) noexcept { vci_ = &vci; }
  vci::Vci& vci() const noexcept { return *vci_; }

  /// For a record that the caller assembles in place. Null: none is free (counted).
  Packet* take_packet() noexcept { return counted(pool_->take()); }
  /// The same, for a user's.
  Packet* take_user_packet() noexcept { return counted(pool_->take_for_user()); }
  /// One that was not posted.
  static void give_back(Packet& packet) noexcept { PacketPool::give_back(packet); }

  PacketPool& pool() noexcept { return *pool_; }

  /// What take_packet_for_several() has room for, as a rule.
  std::uint32_t cells_for_several() const noexcept {
    return long_pool_ ? kLongPacketCells : options_.record_cells;
  }
  /// For several records: a long one, if this network is worth it and one is free. Null as
  /// take_packet().
  Packet* take_packet_for_several() noexcept {
    Packet* const packet = long_pool_ ? long_pool_->take() : nullptr;
    return packet != nullptr ? packet : take_packet();
  }

  PacketCounts counts() const noexcept;

  /// Where a poll is a system call, of the last look that has found something: when it was, and how
  /// many such calls the peer may be about to make before we answer. relaxed: hints.
  std::uint64_t looked_at_ns() const noexcept { return looked_at_.load(std::memory_order_relaxed); }
  std::uint64_t calls_ahead() const noexcept { return ahead_.load(std::memory_order_relaxed); }

  void on_immediate(std::uint32_t immediate) override;
  void on_wide_immediate(std::uint64_t immediate) override;
  std::uint32_t look(std::uint32_t most) override;

 private:
  friend class PacketLink;

  PacketLane(net::Fabric& fabric, Options options, std::unique_ptr<PacketPool> pool,
             std::unique_ptr<PacketPool> long_pool) noexcept
      : fabric_(fabric),
        options_(options),
        pool_(std::move(pool)),
        long_pool_(std::move(long_pool)) {
    sleeps = false;  // who waits makes progress
    if (fabric.limits().is_post_system_call) pause = Pause::poll_is_dear;
  }
  Packet* counted(Packet* packet) noexcept {
    if (packet == nullptr) [[unlikely]]
      note(no_packet_);
    return packet;
  }

  /// So many links are watched, the first ones that are worth it: each costs a look at a line in
  /// each turn.
  static constexpr std::uint32_t kWatchedMax = 8;
  static constexpr std::uint32_t kFew = 8, kFewOfSystemCalls = 4;
  /// For records that travel together where each write is a system call: 32 KiB.
  static constexpr std::uint32_t kLongPackets = 16, kLongPacketCells = 512;

  /// @errors kNoMemory: all are taken
  Result<std::uint16_t> take_slot(PacketLink& link);
  void clear_slot(std::uint16_t slot);
  PacketLink* link_of(std::uint32_t immediate) const noexcept {
    const std::uint32_t slot = immediate >> 16;
    return slot < slots_.size() ? slots_[slot] : nullptr;
  }
  void look_ahead_slow(const PacketLink& link, std::uint32_t seen) noexcept;
  /// look() looks at its ring, until clear_slot(). False: others have all places.
  bool watch_locked(PacketLink& link) noexcept;

  // relaxed, here and below: statistics
  static void note(std::atomic<std::uint64_t>& counter) noexcept {
    counter.fetch_add(1, std::memory_order_relaxed);
  }
  /// With the lane's lock held: no read-modify-write.
  static void note_locked(std::atomic<std::uint64_t>& counter) noexcept {
    counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  net::Fabric& fabric_;
  const Options options_;
  const std::unique_ptr<PacketPool> pool_, long_pool_;
  vci::Vci* vci_ = nullptr;
  std::atomic<std::uint32_t> generation_{0};  // of the ring that was made last

  // With the lane's lock held.
  std::vector<PacketLink*> slots_;
  std::uint32_t next_slot_ = 0;                     // from which a free one is looked for
  std::array<PacketLink*, kWatchedMax> watched_{};  // the first of them
  std::uint32_t watched_count_ = 0;
  struct Row {
    const PacketLink* link;
    std::int64_t answers;   ///< posts of the lane until then, to whomever
    std::uint64_t records;  ///< since
  };
  Row row_{};                   // of what one peer has sent without an answer
  std::uint64_t last_row_ = 0;  // its records
  std::atomic<std::uint64_t> looked_at_{0}, ahead_{0};
  std::atomic<std::uint64_t> delivered_{0}, credit_words_{0}, coalesced_{0}, strays_{0};

  alignas(vci::kOwnLineBytes) std::atomic<std::uint64_t> no_room_{0};  // by who has to wait
  std::atomic<std::uint64_t> no_packet_{0};
};

}  // namespace larklane::msg
