#include <algorithm>
#include <utility>

#include "base/copy_small.hpp"
#include "part/shared/channel.hpp"

namespace larklane::part {

RecvChannel::RecvChannel(InitArgs args, std::shared_ptr<PeerState> peer, Counters* counters,
                         std::uint64_t piece_bytes)
    : RecvRequest(
          Kind::receive, args.partitions,
          static_cast<std::uint64_t>(args.partitions) * args.count * args.type->size_bytes()),
      ChannelLifetime(std::move(args), Kind::receive, std::move(peer),
                      static_cast<std::uint16_t>(record::Type::fail)),
      counters_(*counters),
      piece_bytes_(piece_bytes),
      peer_access_(*peer_, shm::Direction::read) {}

bool RecvChannel::match(Match match) {
  match_ = std::move(match);
  channel_.store(match_.channel, std::memory_order_relaxed);
  if (match_.sender_closed) on_peer_closed(0);
  if (has_failed()) {
    // No byte of such a pair may move: no side is made.
    (void)gate_.accept([](bool) {});
    return false;
  }
  if (match_.region) peer_access_.map(match_.region, match_.region_offset);
  BlockView<RealPlatform> view(match_.segment->base() + match_.block_offset, match_.shape);
  // Published to the sender by the first open().
  view.header().accepted = {reinterpret_cast<std::uint64_t>(args_.buffer),
                            args_.type->is_contiguous() ? 0u : 1u};
  side_ = std::make_unique<RecvSide<RealPlatform>>(view, match_.shape,
                                                   static_cast<std::uint32_t>(partitions_));
  shared_copy_.emplace(view.header().shared_copies, match_.shape.partition_bytes, piece_bytes_);
  if (const std::uint64_t after = view.header().deadline_ns;
      after != 0 && match_.shape.mode == Mode::direct)
    deadlines_.emplace(side_->block(), match_.shape.words_max, after);
  is_on_demand_ = match_.shape.mode == Mode::direct && view.header().on_demand != 0;
  const bool has_slots = side_->mode() == Mode::slots;
  const bool waits = gate_.accept([&](bool start_waits) {
    // Before any thread can complete the round: once it is freed the block may be another
    // channel's. Slots have no plan that could be invalid.
    if (start_waits && has_slots) (void)side_->open(1, *this);
    // release: pairs with usable()'s acquire.
    usable_.store(side_.get(), std::memory_order_release);
    arrival_marks_ = side_->marks();
    // release: `arrival_marks_`; pairs with parrived()'s acquire.
    if (arrival_marks_ != nullptr)
      marks_count_.store(static_cast<std::uint32_t>(partitions_), std::memory_order_release);
  });
  return waits && !has_slots;
}

void RecvChannel::match_freed() {
  fail_freed();
  (void)match({});
}

Status RecvChannel::start() {
  if (active()) return Errc::kAlreadyActive;
  if (has_failed()) return failure_.status();
  const std::uint64_t next = round() + 1;
  // relaxed, here and below: the caller orders its own calls.
  round_.store(next, std::memory_order_relaxed);
  round_mark_.store(mark_of(next), std::memory_order_relaxed);
  active_.store(true, std::memory_order_relaxed);
  if (!gate_.start() || !usable()) return {};  // a round of a failed match fails
  if (deadlines_) deadlines_->start();
  open(next, *this);
  return {};
}

/// On the helper.
void RecvChannel::open_first_round() {
  struct {
    RecvChannel& channel;
    void move(Run run) { channel.move(run, MovedBy::helper); }
  } mover{*this};
  open(1, mover);
}

/// A round that can't be opened is still active, and fails.
template <class Mover>
void RecvChannel::open(std::uint64_t round, Mover& mover) {
  const Status status = side_->open(round, mover);
  if (status.ok()) return;
  give_up(status, own_half() + ": the sender's plan of the round makes no sense");
}

Status RecvChannel::look(std::int32_t partition, bool* arrived) {
  if (partition < 0 || partition >= partitions_) return Errc::kInvalidArgument;
  const std::uint64_t emptied = bytes_emptied;
  *arrived = !active() ||
             (usable() && side_->arrived(round(), static_cast<std::uint32_t>(partition), *this));
  if (bytes_emptied != emptied && !side_->all_arrived(round())) count_early(emptied);
  if (*arrived) return {};
  if (has_failed() || peer_is_down() || peer_closed())
    return poll() == Completion::failed ? failure_.status() : Status{};
  help();
  if (!usable()) return {};
  if (is_on_demand_) side_->ask(round(), static_cast<std::uint32_t>(partition), *this);
  // An expired deadline, or the demand, may have moved the partition.
  if (is_on_demand_ || deadlines_)
    *arrived = side_->arrived(round(), static_cast<std::uint32_t>(partition), *this);
  return {};
}

Completion RecvChannel::poll() {
  if (!active()) return Completion::complete;
  const std::uint64_t emptied = bytes_emptied;
  if (usable() && side_->complete(round(), *this)) return Completion::complete;
  if (bytes_emptied != emptied) count_early(emptied);
  const bool is_peer_gone = peer_is_down() || peer_closed();
  if (!has_failed()) {
    if (!is_peer_gone) {
      help();
      return Completion::pending;
    }
    peer_->steps->carry_out();  // the sender may have packed everything before its end
    if (peer_->steps->has_steps_in_hand()) return Completion::pending;
    if (usable() && side_->complete(round(), *this)) return Completion::complete;
    if (usable() && side_->reading(round())) return Completion::pending;
    // Nothing more becomes ready, and all ready partitions are copied: the count is final.
    if (usable() && side_->complete(round(), *this)) return Completion::complete;
    fail_without_peer();
  }
  if (!usable()) return Completion::failed;
  if (side_->mode() == Mode::direct) return failed_once_quiet(is_peer_gone);
  side_->shut();
  return Completion::failed;
}

void RecvChannel::finish() {
  active_.store(false, std::memory_order_relaxed);  // relaxed: the caller orders its own calls
}

RoundTotals RecvChannel::totals() const noexcept {
  RoundTotals totals = Request::totals();
  if (!usable() || side_->mode() != Mode::slots) return totals;
  const std::uint64_t emptied = totals.rounds * send_partitions();
  // relaxed: statistics.
  const std::uint64_t pushed =
      std::min(side_->block().header().pushed_count.load(std::memory_order_relaxed), emptied);
  totals.slots_emptied = emptied - pushed;
  totals.slot_bytes = totals.bytes - pushed * match_.shape.partition_bytes;
  return totals;
}

shm::Buffer RecvChannel::buffer() const noexcept {
  return {args_.type.get(), reinterpret_cast<std::uintptr_t>(args_.buffer)};
}

void RecvChannel::empty(const std::byte* slot, std::uint64_t offset,
                        std::uint64_t length) const noexcept {
  ++runs_moved;
  bytes_emptied += length;
  if (args_.type->is_contiguous())
    copy_small(static_cast<std::byte*>(args_.buffer) + offset, slot, length);
  else if (length != 0)
    shm::unpack(buffer(), offset, length, slot);
}

/// This call has emptied slots while other partitions of the round were missing.
void RecvChannel::count_early(std::uint64_t emptied_before) noexcept {
  Counters::add(counters_.early_bytes, bytes_emptied - emptied_before);
}

void RecvChannel::moved(Run run, MovedBy by) {
  counters_.add_moved(by, run, bytes_of(run).length, !side_->last_comer().all_marked(round()));
  publish_moved(side_->block(), round(), run);
}

Status RecvChannel::pull(Piece& piece, MovedBy by) noexcept {
  return peer_access_.transfer(buffer(), {match_.send_type.get(), match_.send_address}, piece, by);
}

void RecvChannel::help() {
  if (!peer_->steps->empty()) [[unlikely]]
    peer_->steps->carry_out();
  if (!usable() || side_->mode() != Mode::direct) return;
  if (deadlines_)
    deadlines_->look(side_->last_comer(), round(), now_ns(), [this](Run run) { move(run); });
  if (!peer_access_.usable() || !shared_copy_->has_jobs()) return;
  const Moving moving(*this);
  if (!moving) return;
  if (const Status status = work(MovedBy::receiver); !status.ok()) give_up(status);
}

Status RecvChannel::work(MovedBy by) {
  return shared_copy_->work([&](Piece& piece) { return pull(piece, by); },
                            [&](Run run) { moved(run, by); },
                            [&](TakenPiece taken, Run run, std::uint64_t done) {
                              return pass_on(run, taken.job + 1, taken.index, done);
                            });
}

void RecvChannel::move(Run run, MovedBy by) {
  const Moving moving(*this);
  if (!moving) return;
  // This thread copies alone if only it can write the memory: it may not call again for long.
  if (peer_access_.usable() && !peer_access_.needs_owner() && shared_copy_->offer(run)) {
    if (const Status status = work(by); !status.ok()) give_up(status);
    return;
  }
  Piece left = bytes_of(run);
  const Status status = pull(left, by);
  if (status.ok()) return moved(run, by);
  if (status.code() != Errc::kUnreachable) return give_up(status);
  (void)pass_on(run, 0, 0, bytes_of(run).length - left.length);
}

void RecvChannel::give_up(Status status) {
  const std::string reason =
      status.code() == Errc::kPeerDown ? peer_->why_down() : why_given_up(status, total_bytes_);
  give_up(status,
          own_half() + ": " + reason);  // the caller is a mover: it sends FAIL when it leaves
}

}  // namespace larklane::part
