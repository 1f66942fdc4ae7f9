// Runs, and pieces of shared copies, that their mover can't copy (ADR 0003).
//
// The other side's helper tries next. If the kernel copies for neither side, the sender packs the
// run into staging memory, and the receiver unpacks it from there. The helpers do it where the
// kernel can access the memory of their own process. Otherwise threads of the programs do it, since
// their SIGSEGV handlers may open the memory. Models: tests/protocol/last_comer.pml, death.pml.

#include <utility>

#include "base/log.hpp"
#include "part/shared/channel.hpp"
#include "shm/program_touch.hpp"

namespace larklane::part {
namespace {

constexpr std::uint64_t kPageBytes = 4096;

/// Never destroyed: the helper copies while the process exits.
const Typemap& plain_bytes() {
  static const Typemap& type = *new Typemap(Typemap::contiguous(1));
  return type;
}

shm::Buffer buffer_in(const shm::Segment& staging) {
  return {&plain_bytes(), reinterpret_cast<std::uintptr_t>(staging.base())};
}

Status send_move(PeerState& peer, const record::Move& move) {
  return peer.peer->send(static_cast<std::uint16_t>(record::Type::move),
                         std::as_bytes(std::span(&move, 1)));
}

/// nullopt: there is no such piece.
template <class Shared>
std::optional<Piece> piece_of(const Shared& shared, const record::Move& move, Piece of_run) {
  const auto all =
      move.job == 0 ? std::optional(of_run) : shared.piece_of({move.job - 1, move.piece});
  return all && move.done <= all->length ? all : std::nullopt;
}

Piece left_of(const Piece& all, const record::Move& move) {
  return {all.offset + move.done, all.length - move.done};
}

}  // namespace

std::string why_given_up(Status status, std::uint64_t bytes) {
  switch (status.code()) {
    case Errc::kNoMemory:
    case Errc::kSystem:
      return "the kernel copies for neither side, and there is no shared memory for a copy of " +
             std::to_string(bytes) + " bytes (errno " + std::to_string(status.detail()) +
             "); remedy: a smaller message, or more memory";
    default:
      return "its other side can't be told to go on: " + std::string(errc_name(status.code())) +
             " (errno " + std::to_string(status.detail()) + ")";
  }
}

// --- the sender ---------------------------------------------------------------------------------

std::optional<Piece> SendChannel::all_of(const record::Move& move) const {
  return piece_of(shared_copy_, move, bytes_of(move.run));
}

void SendChannel::finish(const record::Move& move, MovedBy by) {
  if (move.job == 0) return moved(move.run, by);
  shared_copy_.finish({move.job - 1, move.piece}, [&](Run run) { moved(run, by); });
}

Passed SendChannel::pass_on(Run run, std::uint32_t job, std::uint32_t piece, std::uint64_t done,
                            MovedBy by) {
  record::Move move{channel(), round(), run, 1, job, piece, record::Step::copy, done};
  // A run that a thread of the program can't push lacks only the receiver's typemap. The receiver
  // pulls it, since this thread may wait for that receive.
  if (peer_access_.is_direct() && by == MovedBy::helper) {
    peer_->steps->add(*this, move);
    return Passed::alone;
  }
  // relaxed: see is_staged_.
  const bool is_staged = is_staged_.load(std::memory_order_relaxed);
  const auto all = all_of(move);
  const Status status =
      is_staged && all ? pack(move, left_of(*all, move), by) : send_move(*peer_, move);
  if (!status.ok()) give_up(status);
  return is_staged && status.ok() ? Passed::alone : Passed::with_rest;
}

void SendChannel::on_move(const record::Move& move) {
  const Moving moving(*this);
  if (!moving || !active() || move.round != round() || move.step == record::Step::unpack) return;
  carry_out(move, MovedBy::helper);
}

void SendChannel::carry_out_step(const record::Move& step) {
  const Moving moving(*this);
  if (moving && active() && step.round == round()) carry_out(step, MovedBy::sender);
}

void SendChannel::carry_out(record::Move move, MovedBy by) {
  const auto all = all_of(move);
  if (!all) return;
  Piece left = left_of(*all, move);
  Status status;
  if (move.step == record::Step::pack) {
    status = pack(move, left, by);
  } else if (status = push(left, by); status.ok()) {
    finish(move, by);
  } else if (status.code() == Errc::kUnreachable) {
    move.done = all->length - left.length;
    status = peer_access_.is_direct() ? leave_to_program(move) : pack(move, left, by);
  }
  // The mover that handed a piece over copies no more of its job.
  if (status.ok() && move.job != 0) status = work(by);
  if (!status.ok()) give_up(status);
}

Status SendChannel::open_pages(const record::Move& step, std::span<const pid_t> threads) {
  const Moving moving(*this);
  if (!moving || !active() || step.round != round()) return {};
  const auto all = all_of(step);
  if (!all) return {};
  return shm::touch_by_program(threads, buffer(), left_of(*all, step), shm::Access::read);
}

Status SendChannel::leave_to_program(const record::Move& move) {
  peer_->steps->add(*this, move);
  return {};
}

Status SendChannel::pack(record::Move move, const Piece& left, MovedBy by) {
  is_staged_.store(true, std::memory_order_relaxed);  // relaxed: see there
  LARKLANE_TRY(make_staging());
  if (packs_early()) {
    // Pready has packed it.
  } else if (by == MovedBy::helper) {
    Piece unpacked = left;
    if (!shm::checked_copy(buffer(), buffer_in(*staging_), unpacked).ok()) {
      peer_access_.note_owner();
      move.step = record::Step::pack;
      return leave_to_program(move);
    }
  } else if (left.length != 0) {
    shm::pack(buffer(), left.offset, left.length, staging_->base() + left.offset);
  }
  move.step = record::Step::unpack;
  move.to_receiver = 1;
  return send_move(*peer_, move);
}

void SendChannel::pack_early(Run run) noexcept {
  const Piece bytes = bytes_of(run);
  if (bytes.length != 0)
    shm::pack(buffer(), bytes.offset, bytes.length, staging_->base() + bytes.offset);
}

shm::Buffer SendChannel::packed() const noexcept { return buffer_in(*staging_); }

/// Every byte of the message has its own place there, so a round's steps may come in any order. The
/// next round packs nothing before this one is complete.
Status SendChannel::make_staging() {
  const std::scoped_lock lock(staging_mutex_);
  if (staging_ != nullptr) return {};
  auto staging = shm::Segment::create((total_bytes_ + kPageBytes - 1) / kPageBytes * kPageBytes);
  if (!staging) return staging.error();
  const record::Staging record{channel(), (*staging)->bytes()};
  const int fd = (*staging)->fd();
  LARKLANE_TRY(peer_->peer->send(static_cast<std::uint16_t>(record::Type::staging),
                                 std::as_bytes(std::span(&record, 1)), std::span(&fd, 1)));
  log_info("%s to %s: the kernel copies for neither side; through library memory",
           describe(args_, Kind::send).c_str(), args_.peer.c_str());
  staging_ = std::move(staging).value();
  staging_->close_fd();
  return {};
}

// --- the receiver -------------------------------------------------------------------------------

std::optional<Piece> RecvChannel::all_of(const record::Move& move) const {
  return piece_of(*shared_copy_, move, bytes_of(move.run));
}

void RecvChannel::finish(const record::Move& move, MovedBy by) {
  if (move.job == 0) return moved(move.run, by);
  shared_copy_->finish({move.job - 1, move.piece}, [&](Run run) { moved(run, by); });
}

Passed RecvChannel::pass_on(Run run, std::uint32_t job, std::uint32_t piece, std::uint64_t done) {
  record::Move move{channel(), round(), run, 0, job, piece, record::Step::copy, done};
  if (peer_access_.is_direct()) {  // the helper has tried it
    peer_->steps->add(*this, move);
    return Passed::alone;
  }
  // relaxed: see is_staged_.
  const bool is_staged = is_staged_.load(std::memory_order_relaxed);
  if (is_staged) move.step = record::Step::pack;
  const Status status = send_move(*peer_, move);
  if (!status.ok()) give_up(status);
  return is_staged && status.ok() ? Passed::alone : Passed::with_rest;
}

void RecvChannel::on_move(const record::Move& move) {
  const Moving moving(*this);
  if (!moving || !usable() || !active() || move.round != round() || move.step == record::Step::pack)
    return;
  carry_out(move, MovedBy::helper);
}

void RecvChannel::on_staging(Result<std::shared_ptr<shm::Segment>> staging) {
  const Moving moving(*this);
  if (!moving || staging_ != nullptr) return;  // a thread of the program may be using the first one
  if (!staging) return give_up(staging.error());
  staging_ = std::move(staging).value();
}

void RecvChannel::carry_out_step(const record::Move& step) {
  const Moving moving(*this);
  if (moving && active() && step.round == round()) carry_out(step, MovedBy::receiver);
}

Status RecvChannel::open_pages(const record::Move& step, std::span<const pid_t> threads) {
  const Moving moving(*this);
  if (!moving || !usable() || !active() || step.round != round()) return {};
  const auto all = all_of(step);
  if (!all) return {};
  return shm::touch_by_program(threads, buffer(), left_of(*all, step), shm::Access::write);
}

void RecvChannel::carry_out(record::Move move, MovedBy by) {
  const auto all = all_of(move);
  if (!all) return;
  Piece left = left_of(*all, move);
  Status status;
  if (move.step == record::Step::unpack) {
    if (staging_ == nullptr) return give_up(Errc::kProtocol);
    unpack(move, left, by);
  } else {
    status = pull(left, by);
    move.done = all->length - left.length;
    if (status.ok())
      finish(move, by);
    else if (status.code() == Errc::kUnreachable)
      status = pass_on_copy(move);
  }
  // The mover that handed a piece over copies no more of its job.
  if (status.ok() && move.job != 0) status = work(by);
  if (!status.ok()) give_up(status);
}

/// The sender has handed it over, and this side can't pull it.
Status RecvChannel::pass_on_copy(record::Move move) {
  if (peer_access_.is_direct()) {
    peer_->steps->add(*this, move);
    return {};
  }
  move.to_receiver = 0;
  // The sender may have handed over because this side's typemap was still in flight. The sender has
  // it by now: that record precedes this one.
  const bool was_early = move.job == 0 && !args_.type->is_contiguous();
  if (!was_early) {
    is_staged_.store(true, std::memory_order_relaxed);  // relaxed: see there
    move.step = record::Step::pack;
  }
  return send_move(*peer_, move);
}

void RecvChannel::unpack(record::Move move, Piece left, MovedBy by) {
  is_staged_.store(true, std::memory_order_relaxed);  // relaxed: see there
  const std::uint64_t length = left.length;
  if (by != MovedBy::helper) {
    if (length != 0) shm::unpack(buffer(), left.offset, length, staging_->base() + left.offset);
  } else if (!shm::checked_copy(buffer_in(*staging_), buffer(), left).ok()) {
    peer_access_.note_owner();
    move.done += length - left.length;
    return peer_->steps->add(*this, move);
  }
  finish(move, by);
}

}  // namespace larklane::part
