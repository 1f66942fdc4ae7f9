#include "msg/packet/packet_link.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/copy_small.hpp"

namespace larklane::msg {

PacketLink::PacketLink(PacketLane& lane, PacketListener& listener,
                       std::unique_ptr<PacketInbox> inbox) noexcept
    : lane_(lane),
      listener_(listener),
      inbox_(std::move(inbox)),
      worded_(inbox_->freed()),
      told_(inbox_->freed()) {
  word_.complete = &PacketLink::told;
  probe_.complete = &PacketLink::probed;
  probe_.kind = vci::Work::Kind::probe;
  direct_.complete = &PacketLink::sent_directly;
  direct_.is_looked_for = true;
  settle_.complete = &PacketLink::settled;
  settle_.kind = vci::Work::Kind::settle;
  backlog_word_.complete = &PacketLink::told_backlog;
  backlog_word_.owner = this;
  word_.owner = probe_.owner = direct_.owner = settle_.owner = this;
}

Result<std::unique_ptr<PacketLink>> PacketLink::open(PacketLane& lane, PacketListener& listener,
                                                     std::uint32_t cells,
                                                     std::uint32_t first_cells) {
  const RingShape shape{cells, lane.options_.record_cells, first_cells};
  // The mark needs a packet beside the one of the record that found no room.
  if (shape.grows() && (lane.fabric_.limits().has_wide_immediates || lane.options_.packets < 2))
    return Errc::kInvalidArgument;
  // relaxed: a counter, no order
  const std::uint32_t generation = lane.generation_.fetch_add(1, std::memory_order_relaxed);
  auto inbox = PacketInbox::create(lane.fabric_, shape, generation);
  if (!inbox) return inbox.error();
  std::unique_ptr<PacketLink> link(new (std::nothrow)
                                       PacketLink(lane, listener, std::move(inbox).value()));
  if (link == nullptr) return Errc::kNoMemory;
  auto opened = lane.vci().open_link();
  if (!opened) return opened.error();
  link->link_ = std::move(opened).value();
  const Status reserved = lane.vci().reserve_immediates(cells);
  // More links than that may share a queue where the sender keeps immediates that find no room.
  if (!reserved.ok() && lane.fabric_.limits().first_word_last_bytes_max == 0) return reserved;
  link->has_reserved_ = reserved.ok();
  auto slot = lane.take_slot(*link);
  if (!slot) return slot.error();
  link->slot_ = *slot;
  link->has_slot_ = true;
  return link;
}

PacketLink::~PacketLink() {
  if (has_slot_) lane_.clear_slot(slot_);
  if (link_ != nullptr) lane_.vci().close_link(std::move(link_));
  if (has_reserved_) lane_.vci().release_immediates(inbox_->shape().cells);
}

std::vector<std::byte> PacketLink::offer() const {
  PacketOffer offer{};
  offer.slot = slot_;
  offer.shape = inbox_->shape();
  offer.generation = inbox_->generation();
  offer.headless_bytes = PacketOffer::headless_bytes_on(lane_.fabric_.limits());
  offer.ring = inbox_->remote();
  return write_packet_offer(offer, link_->offer());
}

Status PacketLink::connect(std::span<const std::byte> peer_offer) {
  auto parsed = parse_packet_offer(peer_offer);
  if (!parsed) return parsed.error();
  const PacketOffer& peer = parsed->offer;
  peer_slot_ = peer.slot;
  peer_shape_ = peer.shape;
  peer_generation_ = peer.generation;
  peer_ring_ = peer.ring;
  payload_bytes_max_ =
      std::min(peer_shape_.payload_bytes_max(), inbox_->shape().payload_bytes_max());
  const net::Limits& limits = lane_.fabric_.limits();
  small_bytes_max_ = limits.small_bytes_max;
  write_bytes_max_ = limits.first_word_last_bytes_max == 0
                         ? limits.write_bytes_max
                         : std::min(limits.write_bytes_max, limits.first_word_last_bytes_max);
  are_small_writes_done_ = limits.are_small_writes_done && small_bytes_max_ >= kCellBytes;
  if (peer.headless_bytes != 0 && peer.headless_bytes == PacketOffer::headless_bytes_on(limits))
    headless_bytes_ = peer.headless_bytes;
  const std::uint64_t first = peer_shape_.first_position();
  // relaxed: no other thread uses the link before connect() has held the lane's lock.
  next_.store(first, std::memory_order_relaxed);
  completed_.store(first, std::memory_order_relaxed);
  peer_cells_.store(peer_shape_.cells_at_first(), std::memory_order_relaxed);
  room_.store(peer_shape_.room_at_first(), std::memory_order_relaxed);
  limit_.store(first + peer_shape_.room_at_first(), std::memory_order_relaxed);
  LARKLANE_TRY(lane_.vci().connect(*link_, parsed->link));
  if (!lane_.options_.pushes || !limits.has_mapped_memory || !inbox_->is_first_word_last())
    return {};
  return map_peer_ring();
}

/// From now on posts are pushed.
Status PacketLink::map_peer_ring() noexcept {
  Status status;
  lane_.vci().exclusively([&] {
    auto mapped = link_->map(peer_ring_.key);
    status = mapped.error();
    if (mapped) mapping_ = *mapped;
  });
  if (!status.ok()) return status;
  const std::uint64_t offset = peer_ring_.address - mapping_.address;
  const std::uint64_t bytes = std::uint64_t{peer_shape_.lines()} * kCellBytes;
  if (mapping_.start == nullptr || offset > mapping_.bytes || bytes > mapping_.bytes - offset ||
      offset % kCellBytes != 0)
    return Errc::kProtocol;
  ring_ = mapping_.start + offset;
  are_small_writes_done_ = false;
  return {};
}

void PacketLink::greet(std::function<void(Status)> answered) {
  on_answer_ = std::move(answered);
  // relaxed: no thread posts, and so probes, yet. is_quiet()'s callers have held the mesh's lock.
  is_probing_.store(true, std::memory_order_relaxed);
  probe_.complete = &PacketLink::greeted;
  probe_.kind = vci::Work::Kind::settle;
  probe_.link = link_.get();
  probe_.transfer.remote = peer_ring_;
  lane_.vci().post(probe_);
}

void PacketLink::keep_silent() {
  lane_.vci().exclusively([this] { on_answer_ = nullptr; });
}

void PacketLink::make_progress() noexcept {
  vci::Vci& vci = lane_.vci();
  (void)(vci.is_anothers() ? vci.progress_by_asking() : vci.progress());
}

void PacketLink::greeted(net::Operation& operation, Status status) {
  auto& work = static_cast<OwnWork&>(operation);
  PacketLink& link = *work.owner;
  work.complete = &PacketLink::probed;
  work.kind = vci::Work::Kind::probe;
  if (link.on_answer_) link.on_answer_(status);
  link.is_probing_.store(false, std::memory_order_release);  // pairs with is_quiet(), refuse_slow()
}

// --- posts --------------------------------------------------------------------------------------

inline Status PacketLink::refusal(std::size_t payload_bytes) const noexcept {
  if (is_failed_.load(std::memory_order_acquire)) [[unlikely]]  // pairs with fail_locked()
    return failure_;
  if (payload_bytes > payload_bytes_max_) [[unlikely]]
    return Errc::kInvalidArgument;
  return {};
}

/// False: the ring has no room (counted).
inline bool PacketLink::take_positions(std::uint32_t cells, std::uint64_t& first) noexcept {
  // relaxed: positions are numbers; limit_ says which of them may be written. kLocked is above it.
  first = next_.load(std::memory_order_relaxed);
  do {
    // acquire: pairs with raise_limit()'s release; the peer has read the record that was there.
    if (first + cells > limit_.load(std::memory_order_acquire) && !find_room_slow(first + cells))
        [[unlikely]] {
      refuse_slow(cells);
      return false;
    }
    // acquire: pairs with grow_slow()'s release.
  } while (!next_.compare_exchange_weak(first, first + cells, std::memory_order_acquire,
                                        std::memory_order_relaxed));
  return true;
}

/// Does the credit word report positions up to `end` as free?
[[gnu::noinline]] bool PacketLink::find_room_slow(std::uint64_t end) noexcept {
  const auto low = credit_word::freed_low(inbox_->credit(), inbox_->generation());
  const std::uint64_t limit = limit_.load(std::memory_order_acquire);  // as in take_positions()
  if (low) {
    // Of a limit of before the growth less than was freed; of grown_limit_ more than was freed
    // before the mark, and no more than next_. relaxed: a limit of after the growth came behind it.
    const std::uint64_t known = limit - room_.load(std::memory_order_relaxed);
    const std::uint32_t more = *low - static_cast<std::uint32_t>(known);
    // Ignores an older word, and an invalid one that frees more than was posted. relaxed: freed
    // positions were posted before.
    if (more <= (next_.load(std::memory_order_relaxed) & ~kLocked) - known)
      raise_limit(known + more + room_.load(std::memory_order_relaxed));
  }
  // acquire: pairs with grow_slow()'s release, before which next_ was stored.
  raise_limit(grown_limit_.load(std::memory_order_acquire));
  return end <= limit_.load(std::memory_order_acquire);
}

bool PacketLink::has_unread() noexcept {
  (void)find_room_slow(0);  // reads the credit word
  // relaxed, both: a hint
  return next_.load(std::memory_order_relaxed) !=
         limit_.load(std::memory_order_relaxed) - room_.load(std::memory_order_relaxed);
}

[[gnu::noinline]] void PacketLink::refuse_slow(std::uint32_t cells) noexcept {
  lane_.note(lane_.no_room_);
  // relaxed: once more costs nothing; see grow_slow().
  if (peer_cells_.load(std::memory_order_relaxed) != peer_shape_.cells) grow_slow(cells);
  // relaxed: a counter
  if (refusals_.fetch_add(1, std::memory_order_relaxed) % kRefusalsOfAProbe !=
      kRefusalsOfAProbe - 1)
    return;
  // acquire: pairs with probed()'s release of the work.
  if (is_probing_.exchange(true, std::memory_order_acquire)) return;
  probe_.link = link_.get();
  lane_.vci().post(probe_);
}

void PacketLink::raise_limit(std::uint64_t limit) noexcept {
  std::uint64_t old = limit_.load(std::memory_order_relaxed);  // relaxed: the exchange compares it
  // Never lowers a limit that a record has raised meanwhile: a record reports only once. release:
  // the peer has read the records that were there; pairs with the acquires of posters.
  while (old < limit && !limit_.compare_exchange_weak(old, limit, std::memory_order_release,
                                                      std::memory_order_relaxed)) {
  }
}

/// The freed position to report in a record that the caller is about to post.
inline std::uint64_t PacketLink::freed_to_tell() noexcept {
  const std::uint64_t freed = inbox_->freed();
  // acquire: pairs with the release below and in post_word_locked(), after a read of freed().
  const std::uint64_t told = told_.load(std::memory_order_acquire);
  // relaxed: an older value only makes the record report less.
  if (freed <= told || freed - worded_.load(std::memory_order_relaxed) > kWordAgeMax) return told;
  told_.store(freed, std::memory_order_release);
  return freed;
}

inline void PacketLink::send(Packet& packet, std::uint64_t position, const PacketHeader& header,
                             std::uint32_t payload_bytes) noexcept {
  if (payload_bytes == headless_bytes_) [[unlikely]]
    if (const auto word = short_header::encode(header))
      return send_headless(packet, position, *word);
  write_record_head(packet.record_, freed_to_tell() << RecordHead::kBytesBits | payload_bytes,
                    stamp_of(position, peer_generation_), header);
  packet.cells_ = record_cells_of(payload_bytes);
  prepare(packet, position, static_cast<std::uint32_t>(sizeof(RecordHead)) + payload_bytes);
  lane_.vci().post(packet);
}

/// Reports no freed positions.
[[gnu::noinline]] void PacketLink::send_headless(Packet& packet, std::uint64_t position,
                                                 std::uint32_t header) noexcept {
  packet.owner_ = this;
  packet.complete = &PacketLink::sent;
  packet.cells_ = record_cells_of(headless_bytes_);
  packet.kind = vci::Work::Kind::small_wide;
  packet.small_bytes = vci::Work::kSmallOfTransfer;
  packet.set_wide_immediate(header, immediate_of(position));
  packet.link = link_.get();
  packet.transfer = {packet.payload().data(), &packet.pool_->memory(), place_of(position),
                     headless_bytes_};
  packet.transfer.remote.address += sizeof(RecordHead);
  lane_.vci().post(packet);
}

// --- pushes -------------------------------------------------------------------------------------

/// False: the ring has no room, or the peer has withdrawn it.
template <class Copy>
inline bool PacketLink::store_record(std::uint64_t& position, const PacketHeader& header,
                                     std::uint32_t payload_bytes, Copy&& copy) noexcept {
  position = next_.load(std::memory_order_relaxed);
  const std::uint64_t end = position + record_cells_of(payload_bytes);
  // acquire: as in take_positions()
  if (end > limit_.load(std::memory_order_acquire) && !find_room_slow(end)) [[unlikely]]
    return false;
  // acquire: pairs with the peer's withdrawal
  if (mapping_.registered->load(std::memory_order_acquire) != mapping_.generation) [[unlikely]]
    return false;
  next_.store(end, std::memory_order_relaxed);
  std::byte* const record = ring_ + ring_offset_of(peer_index_of(position));
  std::byte head[sizeof(RecordHead)];
  write_record_head(head, freed_to_tell() << RecordHead::kBytesBits | payload_bytes,
                    stamp_of(position, peer_generation_), header);
  std::uint64_t first = 0;
  std::memcpy(&first, head, sizeof first);
  std::memcpy(record + sizeof first, head + sizeof first, sizeof head - sizeof first);
  copy(record + sizeof head);
  // release: of the record, and of the caller's earlier writes; pairs with the peer's is_at_head().
  std::atomic_ref(*reinterpret_cast<std::uint64_t*>(record))
      .store(first, std::memory_order_release);
  return true;
}

/// The peer finds the record by a look at its ring. A notice makes its polls look there, too.
template <class Copy>
net::Post PacketLink::push_copied(const PacketHeader& header, std::uint32_t payload_bytes,
                                  Copy&& copy) noexcept {
  Packet* notice = nullptr;
  if (!inbox_->is_peer_watching()) [[unlikely]] {
    notice = lane_.take_packet();
    if (notice == nullptr) return net::Post::retry;
  }
  std::uint64_t position = 0;
  const std::uint32_t cells = record_cells_of(payload_bytes);
  bool is_stored = false;
  {
    const SpinGuard guard(producer_);
    is_stored = store_record(position, header, payload_bytes, copy);
    if (is_stored && notice == nullptr) [[likely]]
      // relaxed, no read-modify-write: written with the lock held; see is_quiet()
      pushed_.store(pushed_.load(std::memory_order_relaxed) + cells, std::memory_order_relaxed);
  }
  if (!is_stored) [[unlikely]] {
    if (notice != nullptr) lane_.give_back(*notice);
    refuse_slow(cells);
    return net::Post::retry;
  }
  if (notice == nullptr) [[likely]]
    return net::Post::done;
  notice->owner_ = this;
  notice->complete = &PacketLink::sent;
  notice->cells_ = cells;
  notice->kind = vci::Work::Kind::small_immediate;
  notice->small_bytes = 0;
  notice->immediate = immediate_of(position);
  notice->link = link_.get();
  notice->transfer = {nullptr, nullptr, place_of(position), 0};
  lane_.vci().post(*notice);
  return net::Post::done;
}

Result<net::Post> PacketLink::push(const PacketHeader& header, std::uint64_t first,
                                   std::span<const std::byte> rest) noexcept {
  LARKLANE_TRY(refusal(sizeof first + rest.size()));
  return push_copied(header, static_cast<std::uint32_t>(sizeof first + rest.size()),
                     [&](std::byte* to) {
                       std::memcpy(to, &first, sizeof first);
                       copy_small(to + sizeof first, rest.data(), rest.size());
                     });
}

// --- several records of one write ---------------------------------------------------------------

/// A packet for several records, with positions for the first one. Null: no packet, or no room.
Packet* PacketLink::take_first_locked(std::uint32_t cells) noexcept {
  Packet* const packet = lane_.take_packet_for_several();
  if (packet == nullptr) return nullptr;
  if (!take_positions(cells, packet->first_)) {
    lane_.give_back(*packet);
    return nullptr;
  }
  packet->cells_ = 0;
  return packet;
}

/// Appends a record to the packet. @pre the positions behind the packet's are this record's
void PacketLink::add_record_locked(Packet& packet, const PacketHeader& header,
                                   std::uint32_t payload_bytes) noexcept {
  const std::uint32_t first_byte = packet.cells_ * kCellBytes;
  if (packet.cells_ != 0) {
    set_followed(packet.record_ + packet.last_ * kCellBytes);
    // Clears the gap: the peer must not see the packet's earlier contents.
    std::memset(packet.record_ + packet.transfer.bytes, 0, first_byte - packet.transfer.bytes);
  }
  packet.last_ = packet.cells_;
  write_record_head(packet.record_ + first_byte,
                    freed_to_tell() << RecordHead::kBytesBits | payload_bytes,
                    stamp_of(packet.first_ + packet.last_, peer_generation_), header);
  packet.cells_ += record_cells_of(payload_bytes);
  prepare(packet, packet.first_,
          first_byte + static_cast<std::uint32_t>(sizeof(RecordHead)) + payload_bytes);
}

/// False: the record does not fit behind those that wait in `first`.
template <class Copy>
bool PacketLink::join_locked(vci::Work* first, const PacketHeader& header,
                             std::uint32_t payload_bytes, Copy&& copy) noexcept {
  if (first == nullptr || first->link != link_.get()) return false;
  Packet& packet = static_cast<Packet&>(*first);
  const std::uint32_t cells = record_cells_of(payload_bytes);
  const std::uint32_t cells_with_it = packet.cells_ + cells;
  if (cells_with_it > packet.cells_max() ||
      std::uint64_t{cells_with_it} * kCellBytes > write_bytes_max_ ||
      peer_index_of(packet.first_) + packet.cells_ >= peer_cells_.load(std::memory_order_relaxed))
    return false;
  // Fails too if another thread has taken the next position. Orders: as in take_positions().
  std::uint64_t next = packet.first_ + packet.cells_;
  const std::uint64_t end = next + cells;
  if (end > limit_.load(std::memory_order_acquire) && !find_room_slow(end)) return false;
  if (!next_.compare_exchange_strong(next, end, std::memory_order_acquire,
                                     std::memory_order_relaxed))
    return false;
  add_record_locked(packet, header, payload_bytes);
  copy(packet.record_ + packet.last_ * kCellBytes + sizeof(RecordHead));
  lane_.note_locked(lane_.coalesced_);
  return true;
}

/// Joins the waiting records, or waits as the first. Nothing: neither; the waiting ones are posted.
template <class Copy>
[[gnu::noinline]] std::optional<net::Post> PacketLink::post_coalesced_slow(
    const PacketHeader& header, std::uint32_t payload_bytes, bool more_follow,
    Copy&& copy) noexcept {
  std::optional<net::Post> answer;
  lane_.vci().coalesce([&](vci::Work* first) -> vci::Work* {
    if (join_locked(first, header, payload_bytes, copy)) {
      answer = net::Post::done;
      const Packet& packet = static_cast<Packet&>(*first);
      return more_follow && packet.cells_ < packet.cells_max() ? first : nullptr;
    }
    const std::uint32_t cells = record_cells_of(payload_bytes);
    if (!more_follow || 2 * cells > lane_.cells_for_several()) return nullptr;
    Packet* const packet = take_first_locked(cells);
    answer = packet == nullptr ? net::Post::retry : net::Post::done;
    if (packet == nullptr) return nullptr;
    add_record_locked(*packet, header, payload_bytes);
    copy(packet->payload().data());
    return packet;
  });
  return answer;
}

/// Posts a record of one cell that completes at once, and so needs no packet. The link's own line
/// holds the record; it is free, because no work of the link waits.
template <class Copy>
std::optional<vci::Work::Kind> PacketLink::post_directly_locked(const PacketHeader& header,
                                                                std::uint32_t payload_bytes,
                                                                Copy&& copy,
                                                                net::Post& answer) noexcept {
  std::uint64_t position = 0;
  if (!take_positions(1, position)) [[unlikely]]
    return std::nullopt;
  answer = net::Post::done;
  write_record_head(direct_record_, freed_to_tell() << RecordHead::kBytesBits | payload_bytes,
                    stamp_of(position, peer_generation_), header);
  copy(direct_record_ + sizeof(RecordHead));
  const std::span<const std::byte> record(direct_record_, sizeof(RecordHead) + payload_bytes);
  using Kind = vci::Work::Kind;
  const Kind kind = inbox_->is_peer_watching() ? Kind::small : Kind::small_immediate;
  auto posted = kind == Kind::small ? link_->write_small(record, place_of(position), direct_)
                                    : link_->write_small_immediate(record, place_of(position),
                                                                   immediate_of(position), direct_);
  if (posted && *posted == net::Post::retry) [[unlikely]] {
    direct_.kind = kind;
    direct_.small_bytes = vci::Work::kSmallOfTransfer;
    direct_.immediate = immediate_of(position);
    direct_.link = link_.get();
    direct_.transfer = {direct_record_, nullptr, place_of(position), record.size()};
    lane_.vci().post(direct_);
    return std::nullopt;
  }
  complete_locked(1, posted.error());
  return kind;
}

template <class Copy>
inline Result<net::Post> PacketLink::post_copied(const PacketHeader& header,
                                                 std::uint64_t payload_bytes, bool more_follow,
                                                 Copy&& copy) noexcept {
  LARKLANE_TRY(refusal(payload_bytes));
  const auto bytes = static_cast<std::uint32_t>(payload_bytes);
  if (are_small_writes_done_) {
    if (payload_bytes <= kCellBytes - sizeof(RecordHead)) {
      net::Post answer = net::Post::retry;
      const bool is_answered = lane_.vci().post_directly(
          *link_, [&] { return post_directly_locked(header, bytes, copy, answer); });
      if (is_answered) [[likely]]
        return answer;
    }
  } else if (is_pushed()) {
    return push_copied(header, bytes, copy);
  } else if (more_follow || lane_.vci().has_joinable()) {
    if (const auto answer = post_coalesced_slow(header, bytes, more_follow, copy)) return *answer;
  }
  Packet* const packet = lane_.take_packet();
  if (packet == nullptr) [[unlikely]]
    return net::Post::retry;
  std::uint64_t position = 0;
  if (!take_positions(record_cells_of(bytes), position)) [[unlikely]] {
    lane_.give_back(*packet);
    return net::Post::retry;
  }
  copy(packet->payload().data());
  send(*packet, position, header, bytes);
  return net::Post::done;
}

Result<net::Post> PacketLink::post(const PacketHeader& header, std::span<const std::byte> payload,
                                   bool more_follow) noexcept {
  return post_copied(header, payload.size(), more_follow, [payload](std::byte* to) {
    copy_small(to, payload.data(), static_cast<std::uint32_t>(payload.size()));
  });
}

void Gathered::copy_to(std::byte* to) const noexcept {
  for (const Buffer& buffer : buffers) {
    copy_small(to, static_cast<const std::byte*>(buffer.start), buffer.bytes);
    to += buffer.bytes;
  }
}

Result<net::Post> PacketLink::post_gathered(const PacketHeader& header, const Gathered& payload,
                                            bool more_follow) noexcept {
  return post_copied(header, payload.bytes, more_follow,
                     [&](std::byte* to) { payload.copy_to(to); });
}

Result<net::Post> PacketLink::post(Packet& packet, const PacketHeader& header,
                                   std::uint32_t payload_bytes) noexcept {
  LARKLANE_TRY(refusal(payload_bytes));
  if (is_pushed()) [[unlikely]] {
    const net::Post answer = push_copied(header, payload_bytes, [&](std::byte* to) {
      copy_small(to, packet.payload().data(), payload_bytes);
    });
    if (answer != net::Post::retry) lane_.give_back(packet);
    return answer;
  }
  std::uint64_t position = 0;
  if (!take_positions(record_cells_of(payload_bytes), position)) [[unlikely]]
    return net::Post::retry;
  send(packet, position, header, payload_bytes);
  return net::Post::done;
}

void PacketLink::sent(net::Operation& operation, Status status) {
  auto& packet = static_cast<Packet&>(operation);
  PacketLink& link = *packet.owner_;
  const std::uint32_t cells = packet.cells_;
  link.lane_.give_back(packet);
  link.complete_locked(cells, status);
}

void PacketLink::sent_directly(net::Operation& operation, Status status) {
  static_cast<OwnWork&>(operation).owner->complete_locked(1, status);
}

inline void PacketLink::complete_locked(std::uint32_t cells, Status status) {
  if (!status.ok()) [[unlikely]]
    fail_locked(status);
  // The last access. No read-modify-write: the lane's lock is held. release: pairs with is_quiet().
  completed_.store(completed_.load(std::memory_order_relaxed) + cells, std::memory_order_release);
}

// --- the end ------------------------------------------------------------------------------------

[[gnu::noinline]] void PacketLink::fail_locked(Status status) {
  if (is_failed_.load(std::memory_order_relaxed)) return;  // relaxed: written with the lock held
  failure_ = status;
  is_failed_.store(true, std::memory_order_release);  // pairs with failure()
  listener_.on_failure(*this, status);
  if (!listener_.is_written_to()) return;
  // relaxed: with the lane's lock held, which end() takes before any call of is_quiet().
  is_settling_.store(true, std::memory_order_relaxed);
  settle_.link = link_.get();
  settle_.transfer.remote = peer_ring_;
  lane_.vci().post(settle_);
}

void PacketLink::settled(net::Operation& operation, Status) {
  PacketLink& link = *static_cast<OwnWork&>(operation).owner;
  link.listener_.on_settled(link);
  link.is_settling_.store(false, std::memory_order_release);  // pairs with is_quiet()
}

/// Posts the settle work before it ends the network's link.
void PacketLink::end(Status status) {
  lane_.vci().drain();
  lane_.vci().exclusively([&] { fail_locked(status); });
  lane_.vci().end_link(*link_, status);
}

}  // namespace larklane::msg
