// A link's arrivals: records out of the ring, and the words that tell the peer of room.

#include <algorithm>
#include <cstring>

#include "msg/packet/packet_link.hpp"

namespace larklane::msg {

void PacketLink::arrive(std::uint32_t cell) {
  if (is_deaf_) [[unlikely]]
    return;
  if (const std::uint32_t cells = inbox_->shape().cells; cell >= cells) [[unlikely]]
    return heard_locked(listener_.on_notification(*this, cell - cells));
  heard_locked(
      inbox_->arrive(cell, [this](const RecordHead& head, std::span<const std::byte> payload) {
        return deliver_locked(head, payload);
      }));
}

void PacketLink::arrive_headless(std::uint32_t cell, std::uint32_t header) {
  if (is_deaf_) return;
  if (cell >= inbox_->shape().cells) return heard_locked(Errc::kProtocol);
  // If the sides agreed on no length, this is kNoBytes, which no valid record has.
  inbox_->write_head(cell, short_header::decode(header), headless_bytes_);
  arrive(cell);
}

std::uint32_t PacketLink::look_locked(std::uint32_t most) {
  if (is_deaf_ || !inbox_->has_seen()) return 0;
  std::uint32_t seen = 0;
  heard_locked(
      inbox_->deliver_seen(most, [&](const RecordHead& head, std::span<const std::byte> payload) {
        ++seen;
        return deliver_locked(head, payload);
      }));
  return seen;
}

bool PacketLink::look_whole_locked() {
  if (!is_deaf_ && inbox_->is_held())
    heard_locked(inbox_->resume([this](const RecordHead& head, std::span<const std::byte> payload) {
      return deliver_locked(head, payload);
    }));
  else
    (void)look_locked(inbox_->shape().cells);
  return is_deaf_ || !inbox_->is_held();
}

void PacketLink::resume() {
  lane_.vci().exclusively([this] { resume_locked(); });
}

void PacketLink::resume_locked() {
  if (is_deaf_ || !inbox_->is_held()) return;
  heard_locked(inbox_->resume([this](const RecordHead& head, std::span<const std::byte> payload) {
    return deliver_locked(head, payload);
  }));
}

void PacketLink::heard_locked(Status status) {
  listener_.on_all_heard();
  lane_.expected_bytes = inbox_->head_place();
  // The lane polls the ring before the peer learns of it.
  if (!is_watching_ && ++heard_ == kHeardBeforeWatch && inbox_->is_first_word_last())
    is_watching_ = lane_.watch_locked(*this);
  if (!status.ok()) [[unlikely]] {
    is_deaf_ = true;
    fail_locked(status);
  }
  tell_locked();
}

Result<bool> PacketLink::deliver_locked(const RecordHead& head,
                                        std::span<const std::byte> payload) {
  // relaxed: freed positions were posted before.
  if (head.freed() > next_.load(std::memory_order_relaxed)) return Errc::kProtocol;
  raise_limit_locked(head.freed());
  Result<bool> taken = listener_.on_packet(*this, head.header(), payload);
  if (taken && *taken) [[likely]]
    lane_.note_locked(lane_.delivered_);
  return taken;
}

void PacketLink::tell_locked() noexcept {
  // relaxed: written with the lock held
  if (is_telling_.load(std::memory_order_relaxed) || !is_word_due_locked()) return;
  is_telling_.store(true, std::memory_order_relaxed);
  post_word_locked();
}

/// Is the peer still to be told that this side polls, or of many freed cells?
bool PacketLink::is_word_due_locked() const noexcept {
  return is_watching_ != has_told_watching_ || is_credit_due_locked();
}

bool PacketLink::is_credit_due_locked() const noexcept {
  // acquire: as in freed_to_tell(). relaxed: written with the lock held.
  const std::uint64_t told = told_.load(std::memory_order_acquire);
  return inbox_->freed() > told + inbox_->untold_max() &&
         !is_failed_.load(std::memory_order_relaxed);
}

[[gnu::noinline]] void PacketLink::post_word_locked() noexcept {
  std::uint64_t word = kWatched;
  word_.transfer.remote = peer_ring_;
  word_.freed = worded_.load(std::memory_order_relaxed);  // as freed_to_tell() reads it
  if (is_watching_ != has_told_watching_) {
    has_told_watching_ = true;
    word_.transfer.remote.address += sizeof word;
  } else {
    word_.freed = inbox_->freed();
    told_.store(word_.freed, std::memory_order_release);  // pairs with freed_to_tell()
    word = credit_word::make(word_.freed, peer_generation_);
    lane_.note_locked(lane_.credit_words_);
  }
  std::memcpy(word_.small, &word, sizeof word);
  word_.kind = vci::Work::Kind::small;
  word_.small_bytes = sizeof word;
  word_.link = link_.get();
  lane_.vci().post(word_);
}

void PacketLink::told(net::Operation& operation, Status status) {
  PacketLink& link = *static_cast<OwnWork&>(operation).owner;
  if (status.ok()) [[likely]]
    link.worded_.store(link.word_.freed, std::memory_order_relaxed);  // as freed_to_tell() reads it
  else
    link.fail_locked(status);
  if (link.is_word_due_locked())
    link.post_word_locked();
  else
    link.is_telling_.store(false, std::memory_order_release);  // pairs with is_quiet()
}

void PacketLink::tell_backlog() noexcept {
  // seq_cst: pairs with told_backlog(). One of the two sees the other's store.
  if (!is_telling_backlog_.exchange(true, std::memory_order_seq_cst)) post_backlog_word();
}

/// @pre this thread has set is_telling_backlog_
void PacketLink::post_backlog_word() noexcept {
  has_told_backlog_ = has_backlog_.load(std::memory_order_seq_cst);  // as set_backlog()
  const std::uint64_t word = has_told_backlog_ ? kHasBacklog : 0;
  std::memcpy(backlog_word_.small, &word, sizeof word);
  backlog_word_.kind = vci::Work::Kind::small;
  backlog_word_.small_bytes = sizeof word;
  backlog_word_.link = link_.get();
  backlog_word_.transfer.remote = peer_ring_;
  backlog_word_.transfer.remote.address += 2 * sizeof word;
  lane_.vci().post(backlog_word_);
}

void PacketLink::told_backlog(net::Operation& operation, Status status) {
  PacketLink& link = *static_cast<OwnWork&>(operation).owner;
  if (!status.ok()) link.fail_locked(status);
  const bool told = link.has_told_backlog_;
  // seq_cst, all: pairs with set_backlog() and tell_backlog(). The lane's lock keeps the link
  // alive.
  link.is_telling_backlog_.exchange(false, std::memory_order_seq_cst);
  if (status.ok() && link.has_backlog_.load(std::memory_order_seq_cst) != told &&
      !link.is_telling_backlog_.exchange(true, std::memory_order_seq_cst))
    link.post_backlog_word();
}

void PacketLink::probed(net::Operation& operation, Status status) {
  PacketLink& link = *static_cast<OwnWork&>(operation).owner;
  if (!status.ok()) link.fail_locked(status);
  link.is_probing_.store(false, std::memory_order_release);  // pairs with refuse_slow(), is_quiet()
}

}  // namespace larklane::msg
