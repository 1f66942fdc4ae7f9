// The helper's loop, and the end of peers.

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "base/clock.hpp"
#include "base/kernel_calls.hpp"
#include "base/log.hpp"
#include "control/helper/helper_thread.hpp"
#include "control/local/local_peer.hpp"
#include "control/plane/plane_impl.hpp"
#include "control/remote/remote_peer.hpp"

namespace larklane::control {
namespace {

constexpr int kRetryMs = 5;
constexpr std::uint64_t kNsPerMs = 1'000'000;
constexpr std::uint64_t kDrainNsMax = 2'000'000'000;  // of the destructor
constexpr int kEventsMax = 64;
constexpr std::uint64_t kNever = Watched::kNever;

Reason bereft_reason() {
  return {{Errc::kPeerDown, EBADF}, "this process has closed descriptors that are Larklane's"};
}

/// @param rest_ns  less than a second; before Linux 5.11 in milliseconds @return as epoll_wait()
int wait_briefly(int epoll, std::span<epoll_event> events, std::uint64_t rest_ns) {
  const auto most = static_cast<int>(events.size());
#ifdef SYS_epoll_pwait2
  const timespec rest{0, static_cast<long>(rest_ns)};
  const long count =
      ::syscall(SYS_epoll_pwait2, epoll, events.data(), most, &rest, nullptr, std::size_t{0});
  if (count >= 0 || errno == EINTR) return static_cast<int>(count);  // else: filtered, or unknown
#endif
  return ::epoll_wait(epoll, events.data(), most, static_cast<int>(rest_ns / kNsPerMs) + 1);
}

}  // namespace

void PlaneImpl::run() {
  helper_id_.store(::gettid(), std::memory_order_relaxed);  // relaxed: see is_helper()
  std::uint64_t deadline_ns = 0;
  std::array<epoll_event, kEventsMax> events{};
  const std::shared_ptr<Turn> turn = turn_;
  std::unique_lock awake(turn->mutex);
  for (;;) {
    const bool may_sleep = watches_.before_sleep();
    if (bell_.is_lost()) return be_bereft();
    const Sleep sleep = next_sleep(may_sleep);
    awake.unlock();
    const int count = sleep_in(sleep, events);
    const int error = errno;
    awake.lock();
    if (turn->is_replaced) return;  // the plane may have been destroyed
    if (bell_.is_lost()) return be_bereft();
    if (count < 0 && error != EINTR) {
      log_error("control: the helper can't sleep (epoll_wait): %s; remedy: %s",
                std::strerror(error), remedy_of(error));
      end_all({Errc::kSystem, error}, "the helper can't sleep (epoll_wait)");
    }
    // relaxed: statistics
    helper_wakeups_.fetch_add(1, std::memory_order_relaxed);
    retry_all();  // before new failures are added: those wait for kRetryMs
    has_served_ = false;
    for (int i = 0; i < count; ++i) {
      serve_event(events[static_cast<std::size_t>(i)]);
      bury_doomed();
    }
    on_time();
    run_posted();
    bury_doomed();
    closed_.clear();
    watches_.end_of_batch();
    // acquire: pairs with the destructor's release
    if (!is_ending_.load(std::memory_order_acquire)) continue;
    flush_all();
    if (deadline_ns == 0) deadline_ns = now_ns() + kDrainNsMax;
    if (is_drained() || now_ns() > deadline_ns) return;
  }
}

PlaneImpl::Sleep PlaneImpl::next_sleep(bool may_sleep) const {
  if (!has_events_) return {-1, 0, 0};  // posted work still runs
  return {epoll(), may_sleep ? watches_.rest_ns() : 0, may_sleep ? timeout_ms() : 0};
}

int PlaneImpl::sleep_in(const Sleep& sleep, std::span<epoll_event> events) {
  if (sleep.epoll < 0) {
    const timespec pause{0, kRetryMs * static_cast<long>(kNsPerMs)};
    ::nanosleep(&pause, nullptr);
    return 0;
  }
  if (sleep.rest_ns != 0) return wait_briefly(sleep.epoll, events, sleep.rest_ns);
  return ::epoll_wait(sleep.epoll, events.data(), static_cast<int>(events.size()),
                      sleep.timeout_ms);
}

int PlaneImpl::timeout_ms() const {
  const bool is_waiting = !retrying_.empty() || has_claims_ || !is_listening_ ||
                          watches_.must_poll() ||
                          is_ending_.load(std::memory_order_acquire);  // acquire: as in run()
  if (is_waiting) return kRetryMs;
  const std::uint64_t deadline_ns = next_deadline_ns();
  if (deadline_ns == kNever) return -1;
  const std::uint64_t now = now_ns();
  constexpr std::uint64_t kLongestMs = 1'000'000;
  if (deadline_ns <= now) return 0;
  return static_cast<int>(std::min((deadline_ns - now) / kNsPerMs + 1, kLongestMs));
}

std::uint64_t PlaneImpl::next_deadline_ns() const {
  std::uint64_t next = watches_.next_time_ns();
  for (const RemotePeer* peer : dialing_) {
    if (peer->deadline_ns() != 0) next = std::min(next, peer->deadline_ns());
  }
  next = std::min({next, unproven_local_.deadline_ns(), unproven_remote_.deadline_ns()});
  for (const Dying& dying : dying_) next = std::min(next, dying.deadline_ns);
  return next;
}

void PlaneImpl::on_time() {
  const bool is_watched = watches_.next_time_ns() != kNever;
  if (!is_watched && dialing_.empty() && dying_.empty() && unproven_local_.empty() &&
      unproven_remote_.empty())
    return;
  const std::uint64_t now = now_ns();
  if (is_watched) watches_.on_time(now);
  for (RemotePeer* const peer : dialing_) {
    if (!peer->buried) doom_if(*peer, peer->on_time(now));
  }
  std::erase_if(dialing_, [](RemotePeer* peer) { return !peer->is_dialing(); });
  drop_silent(unproven_local_, now);
  drop_silent(unproven_remote_, now);
  for (Dying& dying : dying_) {
    if (now >= dying.deadline_ns) doom(*dying.peer, dying.reason);
  }
}

void PlaneImpl::look_at_descriptors() {
  // relaxed: once it is true no work is left
  if (is_bereft_.load(std::memory_order_relaxed) || !has_helper_ || !maker_.is_this_process())
    return;
  if (!bell_.is_lost()) return;
  const std::unique_lock asleep(turn_->mutex, std::try_to_lock);
  // else the helper is awake, and notices the loss itself
  if (!asleep || is_bereft_.load(std::memory_order_relaxed)) return;
  const auto body = [](void* plane) -> void* {
    static_cast<PlaneImpl*>(plane)->run_bereft();
    return nullptr;
  };
  Result<pthread_t> helper = start_helper_thread(body, this);
  if (!helper) return;  // the next call retries
  turn_->is_replaced = true;
  is_bereft_.store(true, std::memory_order_relaxed);
  ::pthread_detach(helper_);
  helper_ = *helper;
}

void PlaneImpl::be_bereft() {
  is_bereft_.store(true, std::memory_order_relaxed);  // relaxed: see epoll()
  run_bereft();
}

/// Runs without descriptors: ends the peers, then runs posted work until the plane is destroyed.
void PlaneImpl::run_bereft() {
  helper_id_.store(::gettid(), std::memory_order_relaxed);  // relaxed: see is_helper()
  has_served_ = false;
  const Reason reason = bereft_reason();
  log_error(
      "control: %s (a loop over all of them?): its partitioned calls and messages fail from "
      "now on; remedy: close none that the program has not opened",
      reason.text.c_str());
  std::vector<QueuedPeer*> peers;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& peer : peers_) peers.push_back(peer.get());
  }
  for (const auto& incoming : incoming_) incoming->close();
  for (QueuedPeer* const peer : peers) {
    if (std::exchange(peer->buried, true)) continue;
    peer->shut(reason);
    handler_.on_peer_down(*peer);
  }
  // acquire: pairs with the destructor's release
  while (!is_ending_.load(std::memory_order_acquire)) {
    ::poll(nullptr, 0, kRetryMs);
    run_posted();
  }
  while (has_posted()) run_posted();
}

void PlaneImpl::dial_soon(RemotePeer& peer) {
  post([this, &peer] {
    if (!peer.is_dialing()) return;  // shut meanwhile
    if (std::find(dialing_.begin(), dialing_.end(), &peer) == dialing_.end()) {
      dialing_.push_back(&peer);
    }
    doom_if(peer, peer.dial());
  });
}

void PlaneImpl::serve_event(const epoll_event& event) {
  const Source& source = *static_cast<const Source*>(event.data.ptr);
  switch (source.kind) {
    case SourceKind::listener:
      has_served_ = true;
      return accept_all();
    case SourceKind::bell:
      return bell_.hear();
    case SourceKind::timer:
      return on_timer();
    case SourceKind::incoming:
      has_served_ = true;
      serve(*static_cast<Incoming*>(source.object));
      return;
    case SourceKind::outgoing: {
      QueuedPeer& peer = *static_cast<QueuedPeer*>(source.object);
      if (!peer.buried) doom_if(peer, peer.on_outgoing(event.events));
      return;
    }
    case SourceKind::process:
      return doom(*static_cast<LocalPeer*>(source.object),
                  {Errc::kPeerDown, "its process has ended"});
    case SourceKind::watched:
      return watches_.on_event(source.object);
  }
}

void PlaneImpl::on_timer() {
  std::uint64_t expirations = 0;
  [[maybe_unused]] const ssize_t got = ::read(timer_.get(), &expirations, sizeof expirations);
  is_timer_set_.exchange(false, std::memory_order_acq_rel);  // acq_rel: pairs with flush_soon()
  flush_all();
}

void PlaneImpl::flush_all() {
  const std::lock_guard lock(mutex_);
  for (const auto& peer : peers_) peer->flush_later();
}

/// Runs one function per pass: between two long ones the helper serves records.
void PlaneImpl::run_posted() {
  std::function<void()> item;
  {
    const std::lock_guard lock(work_mutex_);
    if (work_.empty()) return;
    item = std::move(work_.front());
    work_.pop_front();
  }
  item();
  const std::lock_guard lock(work_mutex_);
  if (!work_.empty()) bell_.ring();
}

void PlaneImpl::retry_all() {
  if (!is_listening_) set_listening(true);
  if (has_claims_) judge_again();
  std::erase_if(retrying_, [](QueuedPeer* peer) { return !peer->retry(); });
}

bool PlaneImpl::has_posted() {
  const std::lock_guard lock(work_mutex_);
  return !work_.empty();
}

bool PlaneImpl::is_drained() {
  if (has_posted()) return false;
  const std::lock_guard lock(mutex_);
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const auto& peer) { return peer->queued_count() == 0; });
}

void PlaneImpl::bury_doomed() {
  while (!doomed_.empty()) {
    const auto [peer, reason] = std::move(doomed_.front());
    doomed_.pop_front();
    if (peer->buried || awaits_rest(*peer, reason)) continue;
    peer->buried = true;
    std::erase_if(dying_, [&peer = *peer](const Dying& dying) { return dying.peer == &peer; });
    bury(*peer, reason);
  }
}

/// No event arrives any more: all requests with peers fail, and the plane accepts no peer.
void PlaneImpl::end_all(Status status, const std::string& why) {
  has_events_ = false;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& peer : peers_) doom(*peer, {status, why});
  }
  stop_accepting(status.detail());
}

/// True: the remote process has ended, or has closed the connection from this process, and its own
/// connection is still open. Its last records and its end are on their way while its host lives.
/// For a dead host, the kernel reports the end after the time of silence, which is the limit here,
/// too.
bool PlaneImpl::awaits_rest(QueuedPeer& peer, const Reason& reason) {
  if (!peer.is_remote() || reason.status != Status(Errc::kPeerDown)) return false;
  const bool is_open = std::any_of(incoming_.begin(), incoming_.end(),
                                   [&](const auto& incoming) { return incoming->peer == &peer; });
  if (!is_open) return false;
  const std::uint64_t now = now_ns();
  const auto known = std::find_if(dying_.begin(), dying_.end(),
                                  [&](const Dying& dying) { return dying.peer == &peer; });
  if (known != dying_.end()) return now < known->deadline_ns;
  peer.hang_up(reason.status);
  dying_.push_back({&peer, reason, now + terms_.silence_ns});
  return true;
}

/// A program that closes one descriptor after another itself ends the connection. The peer then
/// closes its own, and this end may arrive before the bell is lost.
bool PlaneImpl::is_robbed_of(QueuedPeer& peer) const {
  return peer.is_robbed() ||
         std::any_of(incoming_.begin(), incoming_.end(), [&](const auto& incoming) {
           return incoming->peer == &peer && incoming->is_robbed();
         });
}

void PlaneImpl::bury(QueuedPeer& peer, Reason reason) {
  if (is_robbed_of(peer))
    reason = bereft_reason();  // and the listeners stay as they are
  else
    accept_all(/*grace_ns=*/0);
  if (has_claims_) judge_again();
  std::vector<Incoming*> all;
  for (const auto& incoming : incoming_) all.push_back(incoming.get());
  for (Incoming* const incoming : all) {
    // without a hello so far: the connection may be one of this peer
    for (int reads = 0; reads < kDrainReadsMax; ++reads) {
      if (incoming->peer != nullptr && incoming->peer != &peer) break;
      if (!serve(*incoming)) break;
    }
    if (incoming->peer == &peer && !incoming->is_closed()) close(*incoming);
  }
  peer.shut(reason);
  handler_.on_peer_down(peer);
}

}  // namespace larklane::control
