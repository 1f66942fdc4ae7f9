#pragma once
// One end of a pair of lanes that exchange records, in order and into free cells only.
// (docs/design/protocols/packets.md)

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/spin_lock.hpp"
#include "base/status.hpp"
#include "base/thread_safety.hpp"
#include "larklane/message.hpp"
#include "msg/packet/packet_inbox.hpp"
#include "msg/packet/packet_lane.hpp"
#include "msg/packet/packet_pool.hpp"
#include "msg/packet/packet_wire.hpp"
#include "net/provider.hpp"
#include "vci/vci.hpp"
#include "vci/work.hpp"

namespace larklane::msg {

/// Listener of one link. The thread that holds the lane's lock calls it. It may post; it never
/// waits, polls, or ends the link.
class PacketListener {
 public:
  virtual ~PacketListener() = default;
  /// @param payload  in place, 8-byte aligned; the listener copies any part that it keeps
  /// @return false: not now, and without effect. The record and those behind it stay in the ring
  ///   until resume(). So the peer runs out of room and has to wait
  /// @errors any: the link fails with it, and delivers no more
  virtual Result<bool> on_packet(PacketLink& link, const PacketHeader& header,
                                 std::span<const std::byte> payload) = 0;
  /// After each batch of on_packet() calls, be it of one record or of several.
  virtual void on_all_heard() {}
  /// A write of the peer without a record is complete: see PacketLink::notifications().
  /// @errors any: as on_packet()'s. By default no number is valid
  virtual Status on_notification(PacketLink&, std::uint32_t /*number*/) { return Errc::kProtocol; }
  /// Called once: every later post fails with `status`. Arrived records may still be delivered,
  /// unless they are malformed (kProtocol).
  virtual void on_failure(PacketLink& link, Status status) = 0;
  /// After on_failure(): has the listener deregistered memory that the peer may still write into?
  virtual bool is_written_to() { return false; }
  /// If so, called once, later: the writes that the peer had begun are over.
  virtual void on_settled(PacketLink&) {}
};

/// A payload in several buffers. Thread safety: immutable.
struct Gathered {
  std::span<const Buffer> buffers;
  std::uint64_t bytes;  ///< in all buffers

  void copy_to(std::byte* to) const noexcept;
};

// Thread safety: thread-safe; open, connect and the destructor belong to one owner.
// Invariants:
// 1. A post takes its positions in the peer's ring by one exchange on `next_`, which succeeds only
//    if they are below `limit_`. So no two records share a cell. The order of the exchanges is the
//    order of delivery, in any order of threads, lane and network. So posts of one thread keep
//    their order, as do posts of two threads if one knows of the other's.
// 2. After that exchange nothing can refuse the record: its packet was taken before, or it goes out
//    at once, or by the link's own work, which is free. A record with positions is posted on the
//    lane, or waits there for others to join it. It fails only together with the link.
// 3. `limit_` is the highest freed position that the peer has reported, plus `room_`, or
//    `grown_limit_`. It may be lower only while the credit word in this side's memory says more, or
//    `grown_limit_` does; find_room_slow() reads both.
// 4. A posted record or credit word has reported the freed cells up to `told_`. If more than
//    PacketInbox::untold_max() freed cells are unreported, a credit word is in flight, or the link
//    has failed. At most one credit word is in flight.
// 5. A side that has announced that it polls its ring does so as long as the link is open. The
//    other side posts without immediates once it sees that. Immediates that arrive later carry no
//    news.
// 6. Records of one write lie behind each other in the ring, and each but the last says so.
// 7. Records report at most kWordAgeMax positions more than the last credit word that took effect.
//    So the half of a position in a credit word is unambiguous.
// 8. A link that pushes stores each record in the peer's mapped ring, with `producer_` held: the
//    records before it in the ring can be read by then. It refuses a record before it takes a
//    position. `producer_` is a leaf of the lock order.
// 9. The peer's ring grows (grow_slow()) with `next_` or `producer_` locked, and only if all
//    positions before it are written. So a position and `peer_cells_`, read after the exchange that
//    took it, fit.
class PacketLink final {
 public:
  static constexpr std::uint64_t kWordAgeMax = 1u << 20;
  static constexpr std::uint32_t kNoBytes = UINT32_MAX;
  /// One of this many posts without room probes the link: the peer may have died when no operation
  /// was in flight any more.
  static constexpr std::uint32_t kRefusalsOfAProbe = 256;
  /// Cells of a ring of 64 KiB; of 256 KiB where the software of both sides handles each credit
  /// word, so that there are few.
  static constexpr std::uint32_t cells_on(const net::Limits& network) noexcept {
    return network.is_progress_manual ? 4096 : 1024;
  }
  /// The same of a ring that grows: 512 KiB. A burst of 64 messages of 4 KiB finds room, although
  /// the receiver computes; else the rest waits until the sender's helper has been rung.
  static constexpr std::uint32_t kGrownCells = 8192;
  /// Cells that a ring uses until its sender has found them full: 8 KiB, and with the room behind
  /// them 16 KiB. 0, all: where memory that is not used yet is not saved either.
  static constexpr std::uint32_t first_cells_on(const net::Limits& network,
                                                std::uint32_t record_cells) noexcept {
    return network.has_mapped_memory && record_cells <= 128 ? 128 : 0;
  }
  /// Positions at which a sender finds the ring full before it makes it grow.
  static constexpr std::uint32_t kFullsBeforeGrowth = 8;
  /// Deliveries after which the lane polls a link's ring, if it has a place left.
  static constexpr std::uint32_t kHeardBeforeWatch = 16;

  /// Reserves as many immediates as the ring has cells: no more records can be pending.
  /// @param lane  outlives the link, as does `listener`
  /// @param cells  a power of two from the lane's record_cells up, to RingShape::kCellsMax
  /// @param first_cells  as in RingShape; 0 where immediates are wide, and on a lane of one packet
  /// @errors kInvalidArgument; kNoMemory; those of Endpoint::open_link and allocate_memory
  static Result<std::unique_ptr<PacketLink>> open(PacketLane& lane, PacketListener& listener,
                                                  std::uint32_t cells,
                                                  std::uint32_t first_cells = 0);
  /// With this network's default ring.
  static Result<std::unique_ptr<PacketLink>> open(PacketLane& lane, PacketListener& listener) {
    const net::Limits& network = lane.fabric_.limits();
    const std::uint32_t first_cells =
        lane.options_.has_growing_rings ? first_cells_on(network, lane.options_.record_cells) : 0;
    return open(lane, listener, first_cells != 0 ? kGrownCells : cells_on(network), first_cells);
  }
  /// @pre is_quiet(), no thread posts, and nothing more arrives from the peer
  ~PacketLink();
  PacketLink(const PacketLink&) = delete;
  PacketLink& operator=(const PacketLink&) = delete;

  /// The argument of the peer's connect().
  std::vector<std::byte> offer() const;
  /// From now on the peer may post. This side may, once the peer has reported that it is connected
  /// too. @errors kVersion; kProtocol: no offer; those of Link::connect. The link is of no use
  /// then.
  Status connect(std::span<const std::byte> peer_offer);
  /// Must one side greet the other before any other post on either side?
  bool is_connected_by_use() const noexcept { return lane_.fabric_.limits().is_connected_by_use; }
  /// Posts the first operation, over a link that both sides have connected. Once.
  /// @param answered  called with the greeting's result, with the lane's lock held
  void greet(std::function<void(Status)> answered);
  /// Drops the callback of greet().
  void keep_silent();
  /// One turn of its lane, even if another thread owns the lane. Not from a callback.
  void make_progress() noexcept;
  /// Has the peer's ring grown, and has this side's? relaxed: statistics.
  bool has_grown() const noexcept {
    return peer_shape_.grows() && peer_cells_.load(std::memory_order_relaxed) == peer_shape_.cells;
  }
  /// Longest payload of one record. The lanes of both sides limit it.
  std::uint32_t payload_bytes_max() const noexcept { return payload_bytes_max_; }

  /// Never blocks. done: the record is copied, and the caller may reuse its memory; the listener
  /// gets later errors. retry: without effect; post again after progress.
  /// @errors kInvalidArgument: too long; failure()
  /// @param more_follow  the caller posts more over this lane at once: this record may wait for
  ///   them
  Result<net::Post> post(const PacketHeader& header, std::span<const std::byte> payload,
                         bool more_follow = false) noexcept;
  Result<net::Post> post_gathered(const PacketHeader& header, const Gathered& payload,
                                  bool more_follow = false) noexcept;
  /// As post(), for a payload that lies in `packet`, one of this lane's. If the result is not done,
  /// the packet is still the caller's.
  Result<net::Post> post(Packet& packet, const PacketHeader& header,
                         std::uint32_t payload_bytes) noexcept;
  /// Are posts pushed (PacketLane::Options::pushes)?
  bool is_pushed() const noexcept { return ring_ != nullptr; }
  /// As post(), for a payload that begins with `first`. @pre is_pushed()
  Result<net::Post> push(const PacketHeader& header, std::uint64_t first,
                         std::span<const std::byte> rest) noexcept;

  /// The caller's records wait for room, or no longer do: sets what tell_backlog() tells. The
  /// caller orders the calls. seq_cst: pairs with told_backlog(): store, then look.
  void set_backlog(bool has) noexcept { has_backlog_.exchange(has, std::memory_order_seq_cst); }
  /// Writes that into the peer's memory, unless a thread does already. With no lock of the caller's
  /// that a callback may take.
  void tell_backlog() noexcept;
  /// Has the peer said so of its records? A hint.
  bool has_peer_backlog() const noexcept { return inbox_->has_peer_backlog(); }
  /// May the peer's ring hold records that the peer has not read?
  bool has_unread() noexcept;
  /// Changes with each post, with each record from the peer, and with each report of room.
  std::uint64_t activity() const noexcept {
    // relaxed: numbers
    return next_.load(std::memory_order_relaxed) + limit_.load(std::memory_order_relaxed) +
           inbox_->freed();
  }

  /// Offers the held record to the listener again. Not from a callback.
  void resume();
  /// The same, with the lane's lock held.
  void resume_locked();
  /// For reads and writes of the peer's memory, by works on the same lane.
  net::Link& net_link() const noexcept { return *link_; }

  /// A peer's write into this side's memory may carry one of this many numbers as its immediate.
  /// The listener gets the number when the bytes have arrived. No immediates are reserved for them.
  std::uint32_t notifications() const noexcept { return inbox_->shape().notifications(); }
  /// The immediate of notification `number` to the peer. Nothing: there is no such number.
  std::optional<std::uint32_t> immediate_of_notification(std::uint32_t number) const noexcept {
    if (number >= peer_shape_.notifications()) return std::nullopt;
    return packet_immediate(peer_slot_, peer_shape_.cells + number);
  }

  /// The error of every post; ok: posts work. acquire: pairs with fail_locked()'s release.
  Status failure() const noexcept {
    return is_failed_.load(std::memory_order_acquire) ? failure_ : Status();
  }
  /// The peer is gone: serves arrived records, then ends the operations in flight. Not from a
  /// callback.
  void end(Status status);
  /// No operation posted here is in flight. acquire: pairs with the releases of completions.
  bool is_quiet() const noexcept {
    return completed_.load(std::memory_order_acquire) + pushed_.load(std::memory_order_relaxed) ==
               next_.load(std::memory_order_relaxed) &&
           !is_telling_.load(std::memory_order_acquire) &&
           !is_telling_backlog_.load(std::memory_order_acquire) &&
           !is_probing_.load(std::memory_order_acquire) &&
           !is_settling_.load(std::memory_order_acquire);
  }

 private:
  friend class PacketLane;
  /// A work without a packet: a credit word, probe, greeting, settle, or a direct record.
  struct OwnWork final : vci::Work {
    PacketLink* owner = nullptr;
    std::uint64_t freed = 0;  // position that a credit word reports
  };

  PacketLink(PacketLane& lane, PacketListener& listener,
             std::unique_ptr<PacketInbox> inbox) noexcept;

  // For posters.
  Status refusal(std::size_t payload_bytes) const noexcept;
  bool take_positions(std::uint32_t cells, std::uint64_t& first) noexcept;
  bool find_room_slow(std::uint64_t end) noexcept;
  void refuse_slow(std::uint32_t cells) noexcept;
  void grow_slow(std::uint32_t cells) noexcept;
  void push_mark_slow() noexcept;
  void use_all_cells(std::uint64_t mark) noexcept;
  std::uint32_t peer_index_of(std::uint64_t position) const noexcept {
    // relaxed: the exchange that took the position was an acquire (invariant 8).
    return RingShape::index_in(peer_cells_.load(std::memory_order_relaxed), position);
  }
  /// @param copy  (std::byte* to): writes the payload there
  template <class Copy>
  Result<net::Post> post_copied(const PacketHeader& header, std::uint64_t payload_bytes,
                                bool more_follow, Copy&& copy) noexcept;
  template <class Copy>
  std::optional<net::Post> post_coalesced_slow(const PacketHeader& header,
                                               std::uint32_t payload_bytes, bool more_follow,
                                               Copy&& copy) noexcept;
  template <class Copy>
  bool join_locked(vci::Work* first, const PacketHeader& header, std::uint32_t payload_bytes,
                   Copy&& copy) noexcept;
  Packet* take_first_locked(std::uint32_t cells) noexcept;
  void add_record_locked(Packet& packet, const PacketHeader& header,
                         std::uint32_t payload_bytes) noexcept;
  template <class Copy>
  std::optional<vci::Work::Kind> post_directly_locked(const PacketHeader& header,
                                                      std::uint32_t payload_bytes, Copy&& copy,
                                                      net::Post& answer) noexcept;
  template <class Copy>
  net::Post push_copied(const PacketHeader& header, std::uint32_t payload_bytes,
                        Copy&& copy) noexcept;
  template <class Copy>
  bool store_record(std::uint64_t& position, const PacketHeader& header,
                    std::uint32_t payload_bytes, Copy&& copy) noexcept LARKLANE_REQUIRES(producer_);
  Status map_peer_ring() noexcept;
  net::RemoteMemory place_of(std::uint64_t position) const noexcept;
  std::uint32_t immediate_of(std::uint64_t position) const noexcept;
  void send(Packet& packet, std::uint64_t position, const PacketHeader& header,
            std::uint32_t payload_bytes) noexcept;
  void send_headless(Packet& packet, std::uint64_t position, std::uint32_t header) noexcept;
  void prepare(Packet& packet, std::uint64_t position, std::uint32_t bytes) noexcept;
  std::uint64_t freed_to_tell() noexcept;
  void raise_limit(std::uint64_t limit) noexcept;
  void raise_limit_locked(std::uint64_t freed) noexcept;

  // With the lane's lock held.
  void arrive(std::uint32_t cell);
  void arrive_headless(std::uint32_t cell, std::uint32_t header);
  std::uint32_t look_locked(std::uint32_t most);
  /// As PacketInbox's.
  bool looks_empty() const noexcept { return inbox_->looks_empty(); }
  /// Takes the records that the ring shows now, also one that was held. False: one is held.
  bool look_whole_locked();
  void heard_locked(Status status);
  Result<bool> deliver_locked(const RecordHead& head, std::span<const std::byte> payload);
  void tell_locked() noexcept;
  bool is_word_due_locked() const noexcept;
  bool is_credit_due_locked() const noexcept;
  void post_word_locked() noexcept;
  void post_backlog_word() noexcept;
  void fail_locked(Status status);
  void complete_locked(std::uint32_t cells, Status status);
  static void sent(net::Operation& operation, Status status);
  static void sent_directly(net::Operation& operation, Status status);
  static void told(net::Operation& operation, Status status);
  static void told_backlog(net::Operation& operation, Status status);
  static void probed(net::Operation& operation, Status status);
  static void settled(net::Operation& operation, Status status);
  static void greeted(net::Operation& operation, Status status);

  // Constant after connect().
  PacketLane& lane_;
  PacketListener& listener_;
  const std::unique_ptr<PacketInbox> inbox_;
  std::unique_ptr<net::Link> link_;
  std::uint16_t slot_ = 0;
  bool has_slot_ = false, has_reserved_ = false;
  std::uint16_t peer_slot_ = 0;
  std::uint32_t payload_bytes_max_ = 0;
  std::uint32_t small_bytes_max_ = 0;
  std::uint64_t write_bytes_max_ = 0;  ///< longest write of several records
  /// Length of a payload that fits one small write, but not together with a head. Such a record
  /// carries its header in the immediate, if it fits there.
  std::uint32_t headless_bytes_ = kNoBytes;
  bool are_small_writes_done_ = false;
  std::uint32_t peer_generation_ = 0;
  RingShape peer_shape_{1, 1};
  net::RemoteMemory peer_ring_{};
  std::byte* ring_ = nullptr;  ///< of the peer, mapped, if posts are pushed
  net::Mapping mapping_{};

  // Read by posters, seldom written.
  alignas(vci::kOwnLineBytes) std::atomic<std::uint64_t> limit_{0};
  std::atomic<std::uint32_t> peer_cells_{1};  // of the peer's ring: in use
  std::atomic<std::uint32_t> room_{1};        // of them: for records
  std::atomic<std::uint64_t> worded_;         // position in the last credit word that took effect
  std::atomic<bool> is_failed_{false};
  Status failure_;  // written before is_failed_

  // Written by posters.
  static constexpr std::uint64_t kLocked = std::uint64_t{1} << 63;  // beyond any limit
  alignas(vci::kOwnLineBytes) std::atomic<std::uint64_t> next_{0};  // position of the next record
  SpinLock producer_;                                               // if posts are pushed
  std::atomic<std::uint64_t> pushed_{0};                            // positions, without a notice
  std::atomic<std::uint64_t> told_;
  std::atomic<std::uint32_t> refusals_{0};
  std::atomic<std::uint32_t> fulls_{0};        // positions at which the ring was full
  std::atomic<std::uint64_t> full_at_{0};      // the last of them
  std::atomic<std::uint64_t> grown_limit_{0};  // once the peer's ring has grown
  std::atomic<bool> is_probing_{false};

  // Written where records find no room.
  std::atomic<bool> has_backlog_{false}, is_telling_backlog_{false};
  OwnWork backlog_word_;  // of the thread that has set is_telling_backlog_
  bool has_told_backlog_ = false;

  // With the lane's lock held.
  alignas(vci::kOwnLineBytes) std::atomic<std::uint64_t> completed_{0};  // number of positions
  std::atomic<bool> is_telling_{false}, is_settling_{false};
  bool is_deaf_ = false;  // a delivery has failed
  bool is_watching_ = false, has_told_watching_ = false;
  std::uint32_t heard_ = 0;  // deliveries, until the lane polls the ring
  OwnWork word_, settle_;
  OwnWork probe_;  // before all posts: the greeting
  std::function<void(Status)> on_answer_;
  OwnWork direct_;  // of a direct record that waits for room
  alignas(kCellBytes) std::byte direct_record_[kCellBytes];
};

inline net::RemoteMemory PacketLink::place_of(std::uint64_t position) const noexcept {
  return {peer_ring_.address + ring_offset_of(peer_index_of(position)), peer_ring_.key};
}

inline std::uint32_t PacketLink::immediate_of(std::uint64_t position) const noexcept {
  return packet_immediate(peer_slot_, peer_index_of(position));
}

/// @param position  of the packet's first record
/// @param bytes  of all its records
inline void PacketLink::prepare(Packet& packet, std::uint64_t position,
                                std::uint32_t bytes) noexcept {
  packet.owner_ = this;
  packet.complete = &PacketLink::sent;
  using enum vci::Work::Kind;
  if (inbox_->is_peer_watching())
    packet.kind = bytes <= small_bytes_max_ ? small : write;
  else
    packet.kind = bytes <= small_bytes_max_ ? small_immediate : write_immediate;
  packet.small_bytes = vci::Work::kSmallOfTransfer;
  packet.immediate = immediate_of(position);
  packet.link = link_.get();
  packet.transfer = {packet.record_, &packet.pool_->memory(), place_of(position), bytes};
}

/// Applies a record's report. No read-modify-write: if the store undoes a credit word's effect, the
/// next find_room_slow() reads that word again. release: as above.
inline void PacketLink::raise_limit_locked(std::uint64_t freed) noexcept {
  // relaxed: room_ grows with the lock held by another thread or not; before, the limit is lower.
  const std::uint64_t limit = freed + room_.load(std::memory_order_relaxed);
  if (limit_.load(std::memory_order_relaxed) < limit)
    limit_.store(limit, std::memory_order_release);
}

}  // namespace larklane::msg
