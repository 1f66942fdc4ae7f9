#pragma once
// One end of a pair of lanes that send each other records: in order, none into cells that are not
// free. (docs/design/protocols/packets.md)

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "larklane/message.hpp"
#include "msg/packet/packet_inbox.hpp"
#include "msg/packet/packet_lane.hpp"
#include "msg/packet/packet_pool.hpp"
#include "msg/packet/packet_wire.hpp"
#include "net/provider.hpp"
#include "vci/vci.hpp"
#include "vci/work.hpp"

namespace larklane::msg {

/// Who hears of one link: called with the lane's lock held, by whoever holds it. May post, never
/// waits, polls, or ends the link.
class PacketListener {
 public:
  virtual ~PacketListener() = default;
  /// @param payload  in place, 8-byte aligned: what is wanted later is copied before this returns
  /// @return false: not now, and nothing has happened. The record stays where it is, with all that
  ///   come behind it, until resume(): so the peer's room runs out, and it has to wait
  /// @errors any: the link fails with it, and delivers no more
  virtual Result<bool> on_packet(PacketLink& link, const PacketHeader& header,
                                 std::span<const std::byte> payload) = 0;
  /// After on_packet(), of one record or of several that were there.
  virtual void on_all_heard() {}
  /// A write of the peer's that has no record is complete: see PacketLink::notifications().
  /// @errors any: as on_packet()'s. By default no number makes sense
  virtual Status on_notification(PacketLink&, std::uint32_t /*number*/) { return Errc::kProtocol; }
  /// Once: every later post fails with `status`. What has come from the peer may still be
  /// delivered, unless its records make no sense (kProtocol).
  virtual void on_failure(PacketLink& link, Status status) = 0;
  /// Then: has memory been deregistered that the peer may be writing into?
  virtual bool is_written_to() { return false; }
  /// If so, later, once: what the peer had begun to write is over.
  virtual void on_settled(PacketLink&) {}
};

/// A payload that lies in several places. Thread safety: immutable.
struct Gathered {
  std::span<const Buffer> buffers;
  std::uint64_t bytes;  ///< of all

  void copy_to(std::byte* to) const noexcept;
};

// Thread safety: thread-safe; open, connect and the destructor belong to one owner.
// Invariants:
// 1. A post takes its positions in the peer's ring by one exchange on `next_`, which succeeds only
//    if they are below `limit_`. So no two records share a cell, and the order of the exchanges is
//    the order of delivery, in whatever order threads, lane and network hand the records on: posts
//    of one thread, or of two of which one knows of the other's, keep their order.
// 2. After that exchange nothing can be refused: the packet was taken before, or the record goes
//    out at once, or by the link's own work, which is free. A record that has positions is posted
//    on the lane, or waits there for others to join it, and fails with the link if at all.
// 3. `limit_` is what the peer has said to be free, and a ring more; less only where its credit
//    word says so, which stands there until the next look.
// 4. Of the cells that we have freed, `told_` have been told, by a record or a credit word that is
//    posted. If more than RingShape::untold_max() have not, a credit word is under way, or the link
//    has failed. One credit word is under way at a time.
// 5. Who watches its ring, and has said so, looks at it as long as the link is open; the other side
//    posts without immediates from when it sees that. Those that are heard later say nothing new.
// 6. Records that go out by one write lie behind each other in the ring, and each but the last
//    says so.
// 7. What records tell is never more than kWordAgeMax ahead of the last credit word that has taken
//    effect: so its half of a position is never taken for another one.
class PacketLink final {
 public:
  static constexpr std::uint64_t kWordAgeMax = 1u << 20;
  static constexpr std::uint32_t kNoBytes = UINT32_MAX;
  /// One of so many posts without room probes the link: the peer may have died when all that was
  /// under way had completed.
  static constexpr std::uint32_t kRefusalsOfAProbe = 256;
  /// Of a ring of 64 KiB; of 256 KiB where a word of credit is a message that the software of both
  /// sides sees to, so that there are few.
  static constexpr std::uint32_t cells_on(const net::Limits& network) noexcept {
    return network.is_progress_manual ? 4096 : 1024;
  }
  /// Of so many deliveries a link is worth being watched, if the lane has a place left.
  static constexpr std::uint32_t kHeardBeforeWatch = 16;

  /// Reserves as many immediates as the ring has cells: no more records can be unheard.
  /// @param lane  outlives the link, as `listener` does
  /// @param cells  a power of two from the lane's record_cells up, to RingShape::kCellsMax
  /// @errors kInvalidArgument; kNoMemory; those of Endpoint::open_link and register_memory
  static Result<std::unique_ptr<PacketLink>> open(PacketLane& lane, PacketListener& listener,
                                                  std::uint32_t cells);
  /// The same of a ring as it should be on this network.
  static Result<std::unique_ptr<PacketLink>> open(PacketLane& lane, PacketListener& listener) {
    return open(lane, listener, cells_on(lane.fabric_.limits()));
  }
  /// is_quiet(), nobody posts, and nothing comes from the peer any more.
  ~PacketLink();
  PacketLink(const PacketLink&) = delete;
  PacketLink& operator=(const PacketLink&) = delete;

  /// What the peer's connect() takes.
  std::vector<std::byte> offer() const;
  /// From now on the peer may post; we may when it has said that it has connected, too.
  /// @errors kVersion; kProtocol: no offer; those of Link::connect. The link is of no use then.
  Status connect(std::span<const std::byte> peer_offer);
  /// Whether one side has to greet the other one before anything else is posted on either.
  bool is_connected_by_use() const noexcept { return lane_.fabric_.limits().is_connected_by_use; }
  /// The first operation, over a link that both sides have connected. Once.
  /// @param answered  what it came to; with the lane's lock held, by whoever holds it
  void greet(std::function<void(Status)> answered);
  /// acquire: pairs with greeted()'s release, before anybody is told.
  bool is_greeting_over() const noexcept {
    return is_greeting_over_.load(std::memory_order_acquire);
  }
  /// Nobody hears any more what a greeting comes to.
  void keep_silent();
  /// One turn of its lane, whoever's that is. Not from a callback.
  void make_progress() noexcept;
  /// Of one record. Both sides' lanes limit it.
  std::uint32_t payload_bytes_max() const noexcept { return payload_bytes_max_; }

  /// Never blocks. done: copied, the caller has its memory back; whatever goes wrong later is told
  /// to the listener. retry: nothing has happened; post again after progress.
  /// @errors kInvalidArgument: too long; failure()
  /// @param more_follow  more posts come at once, over this lane: this one may wait for them
  Result<net::Post> post(const PacketHeader& header, std::span<const std::byte> payload,
                         bool more_follow = false) noexcept;
  Result<net::Post> post_gathered(const PacketHeader& header, const Gathered& payload,
                                  bool more_follow = false) noexcept;
  /// The same of a payload that lies in `packet`, one of this lane's. Not done: it is still the
  /// caller's.
  Result<net::Post> post(Packet& packet, const PacketHeader& header,
                         std::uint32_t payload_bytes) noexcept;

  /// What the listener did not want is offered again. Not from a callback.
  void resume();
  /// For reads and writes of the same peer's memory, by works on the same lane.
  net::Link& net_link() const noexcept { return *link_; }

  /// A peer's write into memory of ours may carry, as its immediate, one of so many numbers of
  /// which the listener hears when its bytes are there. Nothing is reserved for them.
  std::uint32_t notifications() const noexcept { return inbox_->shape().notifications(); }
  /// That of number `number`, to the peer. Nothing: there is none.
  std::optional<std::uint32_t> immediate_of_notification(std::uint32_t number) const noexcept {
    if (number >= peer_shape_.notifications()) return std::nullopt;
    return packet_immediate(peer_slot_, peer_shape_.cells + number);
  }

  /// Why every post fails; ok: none does. acquire: pairs with fail()'s release.
  Status failure() const noexcept {
    return is_failed_.load(std::memory_order_acquire) ? failure_ : Status();
  }
  /// The peer is gone: serves what has come, then ends what is under way. Not from a callback.
  void end(Status status);
  /// Nothing that was posted here is under way. acquire: pairs with the releases of completions.
  bool is_quiet() const noexcept {
    return completed_.load(std::memory_order_acquire) == next_.load(std::memory_order_relaxed) &&
           !is_telling_.load(std::memory_order_acquire) &&
           !is_probing_.load(std::memory_order_acquire) &&
           !is_settling_.load(std::memory_order_acquire);
  }

 private:
  friend class PacketLane;
  /// What is posted besides records.
  struct OwnWork final : vci::Work {
    PacketLink* owner = nullptr;
    std::uint64_t freed = 0;  // of a credit word
  };

  PacketLink(PacketLane& lane, PacketListener& listener,
             std::unique_ptr<PacketInbox> inbox) noexcept;

  // Posters.
  Status refusal(std::size_t payload_bytes) const noexcept;
  bool take_positions(std::uint32_t cells, std::uint64_t& first) noexcept;
  bool find_room_slow(std::uint64_t end) noexcept;
  void refuse_slow() noexcept;
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
  net::RemoteMemory place_of(std::uint64_t position) const noexcept;
  std::uint32_t immediate_of(std::uint64_t position) const noexcept;
  void send(Packet& packet, std::uint64_t position, const PacketHeader& header,
            std::uint32_t payload_bytes) noexcept;
  void send_headless(Packet& packet, std::uint64_t position, std::uint32_t header) noexcept;
  void prepare(Packet& packet, std::uint64_t position, std::uint32_t bytes) noexcept;
  std::uint64_t freed_to_tell() noexcept;
  void raise_limit(std::uint64_t freed) noexcept;
  void raise_limit_locked(std::uint64_t freed) noexcept;

  // With the lane's lock held.
  void arrive(std::uint32_t cell);
  void arrive_headless(std::uint32_t cell, std::uint32_t header);
  std::uint32_t look_locked(std::uint32_t most);
  void heard_locked(Status status);
  Result<bool> deliver_locked(const RecordHead& head, std::span<const std::byte> payload);
  void tell_locked() noexcept;
  bool is_word_due_locked() const noexcept;
  bool is_credit_due_locked() const noexcept;
  void post_word_locked() noexcept;
  void fail_locked(Status status);
  void complete_locked(std::uint32_t cells, Status status);
  static void sent(net::Operation& operation, Status status);
  static void sent_directly(net::Operation& operation, Status status);
  static void told(net::Operation& operation, Status status);
  static void probed(net::Operation& operation, Status status);
  static void settled(net::Operation& operation, Status status);
  static void greeted(net::Operation& operation, Status status);

  // Constant once it is connected.
  PacketLane& lane_;
  PacketListener& listener_;
  const std::unique_ptr<PacketInbox> inbox_;
  std::unique_ptr<net::Link> link_;
  std::uint16_t slot_ = 0;
  bool has_slot_ = false, has_reserved_ = false;
  std::uint16_t peer_slot_ = 0;
  std::uint32_t payload_bytes_max_ = 0;
  std::uint32_t small_bytes_max_ = 0;
  std::uint64_t write_bytes_max_ = 0;  ///< of several records
  /// Payload that is one small write, which a head before it would make two: such a record's header
  /// is in its immediate, if it fits there.
  std::uint32_t headless_bytes_ = kNoBytes;
  bool are_small_writes_done_ = false;
  std::uint32_t peer_generation_ = 0;
  RingShape peer_shape_{1, 1};
  net::RemoteMemory peer_ring_{};

  // Read by posters, seldom written.
  alignas(vci::kOwnLineBytes) std::atomic<std::uint64_t> limit_{0};
  std::atomic<std::uint64_t> worded_;  // what the last credit word that has taken effect says
  std::atomic<bool> is_failed_{false};
  Status failure_;  // written before is_failed_

  // Written by posters.
  alignas(vci::kOwnLineBytes) std::atomic<std::uint64_t> next_{0};  // position of the next record
  std::atomic<std::uint64_t> told_;
  std::atomic<std::uint32_t> refusals_{0};
  std::atomic<bool> is_probing_{false};

  // With the lane's lock held.
  alignas(vci::kOwnLineBytes) std::atomic<std::uint64_t> completed_{0};  // as many positions
  std::atomic<bool> is_telling_{false}, is_settling_{false};
  std::atomic<bool> is_greeting_over_{false};
  bool is_deaf_ = false;  // its records made no sense
  bool is_watching_ = false, has_told_watching_ = false;
  std::uint32_t heard_ = 0;  // until it is watched
  OwnWork word_, settle_;
  OwnWork probe_;  // before all posts: the greeting
  std::function<void(Status)> on_answer_;
  OwnWork direct_;  // of a record that was posted directly, while it waits for room
  alignas(kCellBytes) std::byte direct_record_[kCellBytes];
};

}  // namespace larklane::msg
