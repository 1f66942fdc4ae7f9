#include "control/plane/plane.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <future>
#include <utility>

#include "base/clock.hpp"
#include "control/helper/helper_thread.hpp"
#include "control/local/local_peer.hpp"
#include "control/local/socket.hpp"
#include "control/plane/plane_impl.hpp"
#include "control/remote/remote_peer.hpp"

namespace larklane::control {

PlaneImpl::PlaneImpl(std::vector<Listener> own, Handler& handler, std::optional<Remote> remote,
                     std::uint64_t accept_ns)
    : own_(std::move(own)), remote_(std::move(remote)), accept_ns_(accept_ns), handler_(handler) {}

Status PlaneImpl::start() {
  hello_.pid = ::getpid();
  hello_.address_count = static_cast<std::uint32_t>(own_.size());
  for (std::size_t i = 0; i < own_.size(); ++i) {
    std::memcpy(hello_.addresses[i].data(), own_[i].address.data(), own_[i].address.size());
  }
  if (::getrandom(&hello_.nonce, sizeof hello_.nonce, 0) < 0) return Status(Errc::kSystem, errno);
  hello_.nonce |= 1;  // 0 means: no hello yet
  if (remote_) {
    terms_ = {remote_->secret, remote_->connect_ns, remote_->silence_ns, remote_->listener.address,
              0};
    unproven_remote_ =
        Unproven<Incoming>(std::min(Unproven<Incoming>::kHelloNs, remote_->silence_ns));
    if (::getrandom(&terms_.life, sizeof terms_.life, 0) < 0) return Status(Errc::kSystem, errno);
    terms_.life |= 1;
  }
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return Status(Errc::kSystem, errno);
  watches_.use_epoll(epoll());
  LARKLANE_TRY(bell_.open());
  LARKLANE_TRY(control::watch(epoll(), bell_.fd(), EPOLLIN, &bell_source_));
  timer_.reset(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer_) return Status(Errc::kSystem, errno);
  LARKLANE_TRY(control::watch(epoll(), timer_.get(), EPOLLIN, &timer_source_));
  for (const Listener& listener : own_) identities_.emplace_back(listener.fd.get());
  if (remote_) identities_.emplace_back(remote_->listener.fd.get());
  for (const Listener& listener : own_) LARKLANE_TRY(listen_to(listener.fd.get()));
  if (remote_) LARKLANE_TRY(listen_to(remote_->listener.fd.get()));
  is_listening_ = true;
  const auto body = [](void* plane) -> void* {
    static_cast<PlaneImpl*>(plane)->run();
    return nullptr;
  };
  Result<pthread_t> helper = start_helper_thread(body, this);
  if (!helper) return helper.error();
  helper_ = *helper;
  has_helper_ = true;
  return {};
}

Status PlaneImpl::listen_to(int listener) {
  LARKLANE_TRY(listen_at(listener));
  return control::watch(epoll(), listener, EPOLLIN, &listener_source_);
}

PlaneImpl::~PlaneImpl() {
  // a forked child has no helper, and shares sockets and epoll with its parent
  if (!has_helper_ || !maker_.is_this_process()) return;
  // release: pairs with run() acquire
  is_ending_.store(true, std::memory_order_release);
  post([] {});
  join_helper();
  if (!bell_.is_lost()) return;
  // descriptors that the program has closed since run() ended
  is_bereft_.store(true, std::memory_order_relaxed);  // relaxed: see epoll()
  for (const auto& incoming : incoming_) incoming->close();
  for (const auto& peer : peers_) peer->shut({Errc::kPeerDown, "this process has left"});
  bell_.forget();
  (void)epoll_.release();
  (void)timer_.release();
  for (std::size_t i = 0; i < own_.size(); ++i)
    if (!identities_[i].is_at(own_[i].fd.get())) (void)own_[i].fd.release();
  if (remote_ && !identities_.back().is_at(remote_->listener.fd.get()))
    (void)remote_->listener.fd.release();
}

/// The program may close the helper's descriptors at any time: then nothing wakes the helper.
void PlaneImpl::join_helper() {
  for (;;) {
    look_at_descriptors();
    timespec until{};
    ::clock_gettime(CLOCK_REALTIME, &until);
    ++until.tv_sec;
    if (::pthread_timedjoin_np(helper_, nullptr, &until) != ETIMEDOUT) return;
  }
}

PlaneCounters PlaneImpl::counters() const noexcept {
  // relaxed: statistics
  return {helper_wakeups_.load(std::memory_order_relaxed),
          records_sent_.load(std::memory_order_relaxed),
          records_received_.load(std::memory_order_relaxed)};
}

/// The helper runs the work if no thread can be created.
void PlaneImpl::post_spare(std::function<void()> work) {
  if (!spare_.post(work).ok()) post(std::move(work));
}

void PlaneImpl::post(std::function<void()> work) {
  {
    const std::lock_guard lock(work_mutex_);
    work_.push_back(std::move(work));
    if (work_.size() > 1) return;  // the thread that posted first has rung
  }
  bell_.ring();
}

/// The kernel's timer wakes the helper, so the caller does not.
void PlaneImpl::flush_soon() noexcept {
  // acq_rel: pairs with on_timer(). Either on_timer() comes after this call and flushes the record,
  // or this call sets the timer anew.
  if (is_timer_set_.exchange(true, std::memory_order_acq_rel)) return;
  if (bell_.is_lost()) return;  // the timer's number may be the program's
  const itimerspec once{{0, 0}, {0, static_cast<long>(kLaterNs)}};
  if (::timerfd_settime(timer_.get(), 0, &once, nullptr) == 0) return;
  is_timer_set_.store(false, std::memory_order_release);  // release: the next exchange
  post([this] { flush_all(); });
}

Status PlaneImpl::watch(Watched& watched) {
  if (::fcntl(watched.fd(), F_GETFD) < 0) return Status(Errc::kInvalidArgument, errno);
  watches_.add(watched, bell_);
  bell_.ring();
  return {};
}

void PlaneImpl::unwatch(Watched& watched) {
  if (is_helper()) return watches_.remove(watched);
  if (!maker_.is_this_process()) return;  // a forked child, which has no helper
  run_on_helper([&] { watches_.remove(watched); });
}

/// One pass of the helper accepts a connection, and the next pass reads from it. The helper judges
/// the hello of an ending process again until the process has ended.
void PlaneImpl::catch_up() {
  if (!has_helper_ || is_helper() || !maker_.is_this_process()) return;
  constexpr std::uint64_t kMostNs = 1'500'000'000;  // some peers may send without end
  constexpr timespec kBetween{0, 1'000'000};
  const std::uint64_t deadline_ns = now_ns() + kMostNs;
  bool has_served = true, has_claims = true;
  while ((has_served || has_claims) && now_ns() < deadline_ns) {
    if (!has_served) ::nanosleep(&kBetween, nullptr);
    run_on_helper([&] {
      has_served = has_served_;
      has_claims = has_claims_;
    });
  }
}

/// Returns after the helper has run `work`.
void PlaneImpl::run_on_helper(std::function<void()> work) {
  std::promise<void> done;
  post([&] {
    work();
    done.set_value();
  });
  constexpr std::chrono::milliseconds kLook{100};
  const auto future = done.get_future();
  while (future.wait_for(kLook) != std::future_status::ready) look_at_descriptors();
}

QueuedPeer* PlaneImpl::find_live_locked(const Address& address) {
  const auto found = by_address_.find(address);
  return found == by_address_.end() || found->second->is_down() ? nullptr : found->second;
}

/// @param address  valid
QueuedPeer& PlaneImpl::add_peer_locked(const Address& address) {
  if (is_remote_form(address)) {
    peers_.push_back(std::make_unique<RemotePeer>(host(), address));
  } else {
    peers_.push_back(std::make_unique<LocalPeer>(host(), address));
  }
  return *peers_.back();
}

Result<Peer*> PlaneImpl::connect(const Address& address) {
  const bool is_valid =
      is_local_address(address) || (remote_.has_value() && RemoteAddress::parse(address));
  if (!is_valid) return Errc::kInvalidArgument;
  const std::lock_guard lock(mutex_);
  if (QueuedPeer* const peer = find_live_locked(address)) return peer;
  LARKLANE_TRY(accept_error_);  // the peer could not connect back
  // relaxed: see epoll()
  if (is_bereft_.load(std::memory_order_relaxed)) return Status(Errc::kSystem, EBADF);
  QueuedPeer& peer = add_peer_locked(address);
  const Status opened = peer.open();
  if (opened.ok()) {
    by_address_[address] = &peer;
    return &peer;
  }
  peer.shut({opened, "nobody can be reached at its address"});
  // after kSystem the helper may hold an event of the peer
  if (opened.code() != Errc::kSystem) peers_.pop_back();
  return opened;
}

Result<std::unique_ptr<Plane>> Plane::create(std::vector<Listener> own, Handler& handler,
                                             std::optional<Remote> remote,
                                             std::uint64_t accept_ns) {
  if (own.empty() || own.size() > kAddressesMax) return Errc::kInvalidArgument;
  auto plane = std::make_unique<PlaneImpl>(std::move(own), handler, std::move(remote), accept_ns);
  LARKLANE_TRY(plane->start());
  return std::unique_ptr<Plane>(std::move(plane));
}

}  // namespace larklane::control
