#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.hpp"
#include "part/shared/channel.hpp"

namespace larklane::part {
namespace {

/// A push is a system call, about 1 us: as long as two copies of this many bytes.
constexpr std::uint64_t kPushBytesMin = 8 << 10;

}  // namespace

SendChannel::SendChannel(Parts parts)
    : SendRequest(Kind::send, parts.args.partitions,
                  parts.shape.partition_bytes * static_cast<std::uint64_t>(parts.args.partitions)),
      ChannelLifetime(std::move(parts.args), Kind::send, std::move(parts.peer),
                      static_cast<std::uint16_t>(record::Type::fail)),
      block_(std::move(parts.block)),
      partition_bytes_(parts.shape.partition_bytes),
      counters_(*parts.counters),
      side_(BlockView<RealPlatform>(block_.base(), parts.shape), parts.shape),
      shared_copy_(side_.block().header().shared_copies, partition_bytes_, parts.piece_bytes),
      peer_access_(*peer_, shm::Direction::write),
      reserving_rounds_(side_.mode() == Mode::slots && !block_.segment->is_allocated() ? 2 : 0),
      has_large_slots_(side_.mode() == Mode::slots && partition_bytes_ >= kPushBytesMin &&
                       args_.type->is_contiguous() && peer_access_.usable()),
      lag_(std::max<std::uint64_t>(partition_bytes_, 1)) {
  channel_.store(parts.id, std::memory_order_relaxed);
  if (args_.type->is_contiguous()) contiguous_from_ = static_cast<const std::byte*>(args_.buffer);
  // The block was made for these groups.
  if (side_.mode() == Mode::direct) (void)side_.choose(parts.boundaries);
  if (const std::uint64_t after = side_.block().header().deadline_ns; after != 0)
    timed_ = std::make_unique<Timed<RealPlatform>>(side_.block(), parts.shape.words_max, after);
  planning_ = parts.plans.make(Planning::Medium::copies, {parts.shape.partitions, partition_bytes_,
                                                          std::move(parts.boundaries), parts.id});
}

Status SendChannel::start() {
  if (active()) return Errc::kAlreadyActive;
  if (has_failed()) return failure_.status();
  const std::uint64_t next = round() + 1;
  if (next <= reserving_rounds_) [[unlikely]]
    LARKLANE_TRY(reserve_slots(next));
  round_.store(next, std::memory_order_relaxed);  // relaxed: the caller orders its own calls
  if (planning_) plan_ahead();
  if (timed_) timed_->start(next);
  const bool packs_early =
      peer_access_.needs_owner() && !peer_access_.is_direct() && make_staging().ok();
  packs_early_.store(packs_early, std::memory_order_release);  // release: see packs_early()
  side_.start(next);
  const auto open = static_cast<std::uint32_t>(partitions_);
  // relaxed: as above.
  if (timed_ || packs_early) {
    // Every Pready takes the slow path: by the clock, or through pack_early().
  } else if (side_.mode() == Mode::direct) {
    words_ = side_.word_window(next);
    open_words(open);
  } else if (contiguous_from_ != nullptr && !has_large_slots_) {
    slots_ = side_.slot_window(next);
    open_slots_.store(open, std::memory_order_relaxed);
  }
  active_.store(true, std::memory_order_relaxed);  // relaxed: the caller orders its own calls
  if (watch_ != nullptr) watch_->warm();
  if (next == 1) peer_->peer->flush_later();  // the INIT
  return {};
}

Status SendChannel::reserve_slots(std::uint64_t round) {
  const std::byte* const slots = side_.block().slot(round, 0);
  const Status status =
      block_.reserve(static_cast<std::uint64_t>(slots - block_.base()), total_bytes_);
  if (status.ok()) return status;
  give_up(status, own_half() + ": no " + std::to_string(total_bytes_) +
                      " bytes of shared memory (errno " + std::to_string(status.detail()) +
                      "); remedy: a smaller message, or more memory");
  return status;
}

/// Chooses the groups of the rounds after this one.
void SendChannel::plan_ahead() {
  watch_ = planning_->on_start() ? &planning_->watch() : nullptr;
  const auto boundaries = planning_->changed_groups();
  if (!boundaries) return;
  (void)side_.choose(*boundaries);  // the block was made for any groups
  log_info("%s to %s: %zu groups after round %llu", describe(args_, Kind::send).c_str(),
           args_.peer.c_str(), boundaries->size(), static_cast<unsigned long long>(round()));
}

Status SendChannel::pready(std::int32_t first, std::int32_t count) {
  if (!active()) return Errc::kNotActive;
  if (first < 0 || count < 0 || first > partitions_ - count) return Errc::kInvalidArgument;
  const Run run{static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(count)};
  if (packs_early()) [[unlikely]]
    pack_early(run);
  if (watch_ != nullptr && count != 0) watch_->ready(run);
  if (timed_ && count != 0) {
    const std::uint64_t busy = this_timed_thread.copied_in(timed_.get(), round());
    return timed_->marks.mark(side_.last_comer(), round(), run, now_ns(), busy,
                              [this](Run moved) { move(moved); });
  }
  if (count == 1 && side_.mode() == Mode::direct)
    return side_.word_window(round()).mark_one(run.first, [&](const Cell& cell, std::uint64_t old) {
      mark_further(cell, run.first, old);
    });
  if (!has_large_slots_) return count == 0 ? Status{} : side_.mark(round(), run, *this);
  Status status;
  for (std::uint32_t p = run.first; p < run.first + run.count; ++p)
    if (const Status one = push_or_mark(p); !one.ok()) status = one;
  return status;
}

Status SendChannel::look_for_receiver(bool* is_ready) {
  if (!active()) return Errc::kNotActive;
  *is_ready = side_.is_open(round());
  if (*is_ready) [[likely]]
    return {};
  // The receiver may have completed the round: it may be one ahead, or gone.
  const Completion now = poll();
  *is_ready = now == Completion::complete;
  return now == Completion::failed ? failure_.status() : Status{};
}

Status SendChannel::push_or_mark(std::uint32_t partition) {
  if (side_.slots().is_ready(round(), partition)) return Errc::kAlreadyReady;
  if (lag_.is_behind(side_.block(), round()) && push_past_slot(partition)) return {};
  lag_.filled(round(), partition);
  return side_.mark(round(), {partition, 1}, *this);  // its last touch: the round may be over now
}

/// The receiver computes, or gets no core: it would have to copy the slots itself later.
bool SendChannel::push_past_slot(std::uint32_t partition) {
  const Moving moving(*this);
  const Run run{partition, 1};
  const bool may =
      moving && peer_access_.usable() && side_.slots().is_open(round()) && knows_peer_type();
  Piece piece = bytes_of(run);
  if (!may || !push(piece, MovedBy::sender).ok()) return false;
  const std::uint64_t of_round = round();
  side_.slots().pushed(of_round, partition);
  counters_.add_moved(MovedBy::sender, run, partition_bytes_, !side_.slots().all_ready(of_round));
  return true;
}

void SendChannel::mark_further(const Cell& cell, std::size_t, std::uint64_t old) {
  side_.last_comer().mark_further(round(), cell, old, [this](Run run) { move(run); });
}

Completion SendChannel::poll() {
  if (!active()) return Completion::complete;
  if (side_.complete(round())) return Completion::complete;
  const bool is_peer_gone = peer_is_down() || peer_closed();
  if (!has_failed()) {
    if (!is_peer_gone) {
      help();
      return Completion::pending;
    }
    if (side_.complete(round())) return Completion::complete;
    fail_without_peer();
  }
  // Of slots only this side's pushes use the buffer.
  return failed_once_quiet(is_peer_gone || side_.mode() == Mode::slots);
}

void SendChannel::finish() {
  // A round that is not complete has failed.
  if (watch_ != nullptr && active() && side_.complete(round())) planning_->on_round_done();
  // relaxed: the caller orders its own calls.
  open_slots_.store(0, std::memory_order_relaxed);
  open_words(0);
  active_.store(false, std::memory_order_relaxed);
}

void SendChannel::moved(Run run, MovedBy by) {
  counters_.add_moved(by, run, bytes_of(run).length, !side_.last_comer().all_marked(round()));
  if (by == MovedBy::sender && watch_ != nullptr) watch_->ended(run);
  publish_moved(side_.block(), round(), run);
}

Status SendChannel::push(Piece& piece, MovedBy by) noexcept {
  // Never destroyed: the helper pushes while the process exits.
  // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): without memory for it nothing works
  static const Typemap& bytes = *new Typemap(Typemap::contiguous(1));
  const Accepted& accepted = side_.block().header().accepted;
  const Typemap* type = &bytes;
  if (accepted.strided != 0) {
    if (!knows_peer_type()) return Errc::kUnreachable;
    type = &*peer_type_;
  }
  return peer_access_.transfer(packs_early() ? packed() : buffer(), {type, accepted.address}, piece,
                               by);
}

bool SendChannel::knows_peer_type() const noexcept {
  // acquire: pairs with on_datatype's release.
  return side_.block().header().accepted.strided == 0 ||
         peer_type_known_.load(std::memory_order_acquire);
}

void SendChannel::help() {
  if (!peer_->steps->empty()) [[unlikely]]
    peer_->steps->carry_out();
  if (timed_)
    timed_->watch.look(side_.last_comer(), round(), now_ns(), [this](Run run) { move(run); });
  if (side_.mode() != Mode::direct) return;
  // Once there are jobs the receiver has matched, so `accepted` may be read. Without its typemap
  // only the receiver copies pieces.
  if (!peer_access_.usable() || !shared_copy_.has_jobs() || !knows_peer_type()) return;
  const Moving moving(*this);
  if (!moving) return;
  if (const Status status = work(MovedBy::sender); !status.ok()) give_up(status);
}

Status SendChannel::work(MovedBy by) {
  return shared_copy_.work([&](Piece& piece) { return push(piece, by); },
                           [&](Run run) { moved(run, by); },
                           [&](TakenPiece taken, Run run, std::uint64_t done) {
                             return pass_on(run, taken.job + 1, taken.index, done, by);
                           });
}

void SendChannel::move(Run run) {
  const Moving moving(*this);
  if (!moving) return;
  const bool is_watched = watch_ != nullptr, is_timed = timed_ != nullptr;
  const std::uint64_t began = is_watched ? watch_->began(run) : is_timed ? now_ns() : 0;
  move_now(run);
  if (is_watched) RoundWatch::left(began);
  if (is_timed) this_timed_thread.copied += now_ns() - began;
}

void SendChannel::move_now(Run run) {
  if (peer_access_.usable() && knows_peer_type() && shared_copy_.offer(run)) {
    if (const Status status = work(MovedBy::sender); !status.ok()) give_up(status);
    return;
  }
  Piece left = bytes_of(run);
  const Status status = push(left, MovedBy::sender);
  if (status.ok()) return moved(run, MovedBy::sender);
  if (status.code() != Errc::kUnreachable) return give_up(status);
  (void)pass_on(run, 0, 0, bytes_of(run).length - left.length, MovedBy::sender);
}

void SendChannel::give_up(Status status) {
  const std::string reason =
      status.code() == Errc::kPeerDown ? peer_->why_down() : why_given_up(status, total_bytes_);
  give_up(status,
          own_half() + ": " + reason);  // the caller is a mover: it sends FAIL when it leaves
}

bool SendChannel::fits(const shm::Segment& region, std::uint64_t offset) const {
  // relaxed: only the helper writes it, and the helper calls.
  const bool is_strided = peer_type_known_.load(std::memory_order_relaxed);
  return lies_within(region, offset, is_strided ? *peer_type_ : Typemap::contiguous(1),
                     total_bytes_);
}

/// The bytes that such a typemap addresses are not the receive buffer.
void SendChannel::refuse_datatype() {
  give_up(Errc::kProtocol, own_half() + ": the receiver's typemap makes no sense");
}

void SendChannel::on_datatype(const record::Datatype& head, std::span<const std::byte> words) {
  // The mapped region was checked against the typemap before it. relaxed: only the helper writes
  // it.
  if (peer_access_.is_mapped() || peer_type_known_.load(std::memory_order_relaxed) ||
      head.first != peer_words_.size() || head.count > words.size() / sizeof(std::uint64_t) ||
      head.first > head.words_total || head.count > head.words_total - head.first)
    return refuse_datatype();
  peer_words_.resize(head.first + std::size_t{head.count});
  std::memcpy(peer_words_.data() + head.first, words.data(), head.count * sizeof(std::uint64_t));
  if (peer_words_.size() != head.words_total) return;
  auto type = Typemap::decode(std::exchange(peer_words_, {}));
  if (!type || !makes_up(*type, total_bytes_)) return refuse_datatype();
  peer_type_.emplace(std::move(type).value());
  // release: pairs with push()'s acquire.
  peer_type_known_.store(true, std::memory_order_release);
}

}  // namespace larklane::part
