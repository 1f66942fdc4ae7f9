#include "part/shared/channel.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <utility>

#include "base/log.hpp"

namespace larklane::part {

std::uint64_t runs_moved_by_this_thread() noexcept { return runs_moved; }

void FailureSlot::set(Status status, std::string text) {
  const std::scoped_lock lock(mutex_);
  // relaxed: under the mutex.
  if (failed_.load(std::memory_order_relaxed)) return;
  status_ = status;
  text_ = std::move(text);
  // release: pairs with failed()'s acquire.
  failed_.store(true, std::memory_order_release);
}

void InUse::wait_until_free() const noexcept {
  while (!is_free()) ::sched_yield();
}

std::string PeerState::why_down() const {
  std::string reason = peer->down_reason();
  return reason.empty() ? "its process has ended" : reason;
}

Status FailureSlot::status() const noexcept { return failed() ? status_ : Status{}; }

std::string FailureSlot::text() const { return failed() ? text_ : std::string{}; }

void ProgramSteps::add(StepOwner& owner, const record::Move& step) {
  {
    const std::scoped_lock lock(mutex_);
    steps_.push_back({owner.weak_from_this(), step});
    count_.store(steps_.size(), std::memory_order_relaxed);  // relaxed: a hint
    if (std::exchange(is_prompted_, true)) return;
  }
  plane_->post_spare([this] { prompt_program(); });
}

void ProgramSteps::prompt_program() {
  const timespec patience{0, kPatienceNs};
  ::nanosleep(&patience, nullptr);
  std::vector<Step> waiting;
  {
    const std::scoped_lock lock(mutex_);
    is_prompted_ = !steps_.empty();
    if (!is_prompted_) return;
    waiting = steps_;
  }
  bool has_opened = false;
  for (const Step& step : waiting) {
    const auto owner = step.owner.lock();
    const std::array<pid_t, 2> threads{owner ? owner->thread() : 0, thread_};
    const Status status = owner ? owner->open_pages(step.move, threads) : Status{};
    has_opened |= status.ok();
    if (!status.ok())
      log_warn_once("program-steps",
                    "a buffer has pages that only a signal handler of the program opens, and "
                    "the thread that made its request takes no signal (%s): its bytes move once "
                    "one calls MPI; remedy: "
                    "shm_attach=off",
                    std::string(errc_name(status.code())).c_str());
  }
  if (has_opened)
    plane_->post([this] { carry_out_by_helper(); });
  else
    plane_->post_spare([this] { prompt_program(); });
}

/// Steps come back through add() if their pages have been closed again.
void ProgramSteps::carry_out_by_helper() {
  std::vector<Step> steps;
  {
    const std::scoped_lock lock(mutex_);
    steps.swap(steps_);
    count_.store(0, std::memory_order_relaxed);  // relaxed: a hint
    is_prompted_ = false;
  }
  for (const Step& step : steps)
    if (const auto owner = step.owner.lock()) owner->on_move(step.move);
}

std::optional<ProgramSteps::Step> ProgramSteps::take() {
  const std::scoped_lock lock(mutex_);
  if (steps_.empty()) return std::nullopt;
  Step step = std::move(steps_.back());
  steps_.pop_back();
  count_.store(steps_.size(), std::memory_order_relaxed);  // relaxed: a hint
  return step;
}

void ProgramSteps::carry_out() {
  while (const auto step = take())
    if (const auto owner = step->owner.lock()) owner->carry_out_step(step->move);
}

Wire::Wire(PeerState& peer, shm::Direction direction) noexcept
    : peer_(peer),
      direction_(direction),
      same_process_(peer.peer->same_process()),
      allowed_(direction == shm::Direction::write ? peer.push_allowed : peer.pull_allowed) {}

void Wire::map(std::shared_ptr<shm::Segment> region, std::uint64_t offset) noexcept {
  region_ = std::move(region);
  // release: pairs with transfer()'s acquire.
  mapped_.store(reinterpret_cast<std::uintptr_t>(region_->base()) + offset,
                std::memory_order_release);
}

Status Wire::transfer(const shm::Buffer& ours, const shm::Buffer& theirs, Piece& piece,
                      MovedBy by) noexcept {
  if (piece.length == 0) return {};
  if (is_direct()) {
    // relaxed: is_direct() has acquired it.
    const std::uintptr_t mapped = mapped_.load(std::memory_order_relaxed);
    const shm::Buffer here{theirs.type, mapped != 0 ? mapped : theirs.address};
    const bool is_push = direction_ == shm::Direction::write;
    const shm::Buffer& from = is_push ? ours : here;
    const shm::Buffer& to = is_push ? here : ours;
    if (by != MovedBy::helper) {
      shm::copy(from, to, piece.offset, piece.length);
      piece.length = 0;
      return {};
    }
    const Status status = shm::checked_copy(from, to, piece);
    return status.ok() ? status : Status(Errc::kUnreachable, status.detail());
  }
  if (!usable()) return Errc::kUnreachable;
  // acquire: pairs with on_peer_down's release. The kernel may have given the process id to a
  // foreign program by now: this process must not touch its memory.
  if (peer_.down.load(std::memory_order_acquire)) return Errc::kPeerDown;
  const Status status = attach(ours, theirs, piece, by);
  if (status.ok()) return status;
  // The kernel refuses later copies, too, except after a lack of memory. On EFAULT the helper can't
  // tell which side's memory failed. relaxed: see usable()
  const bool may_pass =
      status.detail() == ENOMEM || (status.detail() == EFAULT && by == MovedBy::helper);
  if (!may_pass) allowed_.store(false, std::memory_order_relaxed);
  return Status(Errc::kUnreachable, status.detail());
}

/// An ended thread is no dead process: the copy goes on by another of its threads. If the kernel
/// can't access memory of this side, the program's own thread may be able to open it.
Status Wire::attach(const shm::Buffer& ours, const shm::Buffer& theirs, Piece& piece,
                    MovedBy by) noexcept {
  // relaxed, both: see PeerState.
  const pid_t process = peer_.peer->pid(), thread = peer_.thread.load(std::memory_order_relaxed);
  const Status status = shm::attach_copy(direction_, process, thread, ours, theirs, piece);
  if (status.detail() == EFAULT && by != MovedBy::helper) {
    const Status copied =
        shm::attach_copy_by_owner(direction_, process, thread, ours, theirs, piece);
    if (copied.ok()) note_owner();
    return copied;
  }
  if (status.detail() != ESRCH || peer_.peer->has_ended()) return status;
  const pid_t other = shm::attach_thread(process);
  if (other == thread) return status;
  peer_.thread.store(other, std::memory_order_relaxed);
  return attach(ours, theirs, piece, by);
}

void send_fail(PeerState& peer, std::uint64_t channel, bool by_sender, Status status,
               std::uint64_t bytes) {
  const record::Fail record{
      channel, by_sender ? 1u : 0u, static_cast<std::int32_t>(status.code()), status.detail(), 0,
      bytes};
  // If send() fails the peer is gone, and the engine detects that by itself.
  (void)peer.peer->send(static_cast<std::uint16_t>(record::Type::fail),
                        std::as_bytes(std::span(&record, 1)));
}

bool lies_within(const shm::Segment& region, std::uint64_t offset, const Typemap& type,
                 std::uint64_t total_bytes) {
  __extension__ using Wide = __int128;
  if (total_bytes == 0 || type.size_bytes() == 0) return total_bytes == 0;
  const Wide last = static_cast<Wide>((total_bytes - 1) / type.size_bytes()) * type.extent_bytes();
  const Wide base = static_cast<std::int64_t>(offset);
  return base + type.low_bytes() + std::min(last, Wide{0}) >= 0 &&
         base + type.high_bytes() + std::max(last, Wide{0}) <= static_cast<Wide>(region.bytes());
}

std::string describe(const InitArgs& args, Kind kind) {
  return std::string(kind == Kind::send ? "partitioned send" : "partitioned receive") + " (tag " +
         std::to_string(args.tag) + ", source rank " + std::to_string(args.source) + ", " +
         std::to_string(args.partitions) + " partitions, " +
         std::to_string(static_cast<std::uint64_t>(args.partitions) * args.count *
                        args.type->size_bytes()) +
         " bytes)";
}

Status status_of(const record::Fail& fail) {
  const bool is_known = fail.code > 0 && fail.code <= static_cast<std::int32_t>(Errc::kBadOption);
  return is_known ? Status(static_cast<Errc>(fail.code), fail.detail) : Status(Errc::kProtocol);
}

std::string reported(const InitArgs& args, Kind kind, const record::Fail& fail,
                     const std::string& cause) {
  const Errc code = status_of(fail).code();
  if (code == Errc::kSizeMismatch)
    return "the " + describe(args, kind) + " was matched by a receive of " +
           std::to_string(fail.bytes) + " bytes at " + args.peer;
  return "the " + describe(args, kind) + ": " + args.peer + " reports " +
         (cause.empty()
              ? std::string(errc_name(code)) + " (errno " + std::to_string(fail.detail) + ")"
              : cause);
}

}  // namespace larklane::part
