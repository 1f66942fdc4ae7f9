#include "control/plane.hpp"

#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "control/helper_thread.hpp"
#include "control/incoming.hpp"
#include "control/peer.hpp"
#include "control/source.hpp"
#include "control/wire.hpp"

namespace larklane::control {
namespace {

constexpr int kRetryMs = 5;
constexpr std::uint64_t kDrainNsMax = 2'000'000'000;  // of the destructor
/// Far above what a socket buffer holds: only a peer that is alive and sends on and on reaches it.
constexpr int kDrainReadsMax = 65536;
constexpr int kEventsMax = 64;

// Thread safety: thread-safe; the members below "The helper's own" belong to the helper.
// Invariants:
// 1. A peer's records reach the handler before its on_peer_down, which comes once: bury() drains
// every connection that may
//    carry some, in the backlog or accepted, and nothing of a buried peer is read.
// 2. What an epoll event points to exists until the batch of events has been served: peers live as
// long as the plane,
//    closed connections lie in closed_ until then.
// 3. epoll_wait has a time limit only while something is retried or the plane ends: an idle helper
// is never woken. Lock order: mutex_, a peer's mutex, work_mutex_. None is held while the handler
// runs.
class LocalPlane final : public Plane, private PeerHost {
 public:
  LocalPlane(std::vector<Listener> own, Handler& handler)
      : own_(std::move(own)), handler_(handler) {}
  ~LocalPlane() override;
  Status start();

  Result<Peer*> connect(const Address& address) override;
  void post(std::function<void()> work) override;
  const Address& own_address() const noexcept override { return own_.front().address; }
  PlaneCounters counters() const noexcept override;

 private:
  PeerHost& host() noexcept { return *this; }
  int epoll() const noexcept override { return epoll_.get(); }
  const Hello& hello() const noexcept override { return hello_; }
  // relaxed: statistics
  void count_sent() noexcept override { records_sent_.fetch_add(1, std::memory_order_relaxed); }
  void retry_soon(LocalPeer& peer) override {
    post([this, &peer] { retrying_.push_back(&peer); });
  }
  void report_down(LocalPeer& peer, Status reason) override {
    post([this, &peer, reason] { doom(peer, reason.code()); });
  }

  LocalPeer* find_live_locked(const Address& address);
  LocalPeer& add_peer_locked(std::unique_ptr<LocalPeer> peer);

  // On the helper.
  void run();
  int timeout_ms() const;
  void serve_event(const epoll_event& event);
  void run_posted();
  void ring() const;
  void retry_all();
  bool is_drained();
  void set_listening(bool on);
  void accept_all();
  void accept_from(const Listener& listener);
  bool serve(Incoming& incoming);
  bool serve_hello(Incoming& incoming);
  bool serve_record(Incoming& incoming);
  void identify(Incoming& incoming, const Hello& hello);
  LocalPeer& peer_of(const Hello& hello);
  void refuse(Incoming& incoming);
  void close(Incoming& incoming);
  void doom(LocalPeer& peer, Errc reason) { doomed_.emplace_back(&peer, reason); }
  void bury_doomed();
  void bury(LocalPeer& peer, Errc reason);

  const std::vector<Listener> own_;
  Handler& handler_;
  const pid_t process_ = ::getpid();
  UniqueFd epoll_;
  UniqueFd bell_;
  Hello hello_;
  pthread_t helper_{};
  bool has_helper_ = false;
  std::atomic<bool> is_ending_{false};
  Source listener_source_{SourceKind::listener, nullptr};
  Source bell_source_{SourceKind::bell, nullptr};

  std::atomic<std::uint64_t> helper_wakeups_{0};
  std::atomic<std::uint64_t> records_sent_{0};
  std::atomic<std::uint64_t> records_received_{0};

  std::mutex mutex_;
  std::vector<std::unique_ptr<LocalPeer>> peers_;
  std::map<Address, LocalPeer*> by_address_;  // the latest that had the name

  std::mutex work_mutex_;
  std::deque<std::function<void()>> work_;

  // The helper's own.
  std::unordered_map<std::uint64_t, LocalPeer*> by_nonce_;
  std::vector<std::unique_ptr<Incoming>> incoming_;
  std::vector<std::unique_ptr<Incoming>> closed_;
  std::vector<LocalPeer*> retrying_;
  std::deque<std::pair<LocalPeer*, Errc>> doomed_;
  bool is_listening_ = false;
};

Status LocalPlane::start() {
  hello_.pid = process_;
  hello_.address_count = static_cast<std::uint32_t>(own_.size());
  for (std::size_t i = 0; i < own_.size(); ++i) {
    std::memcpy(hello_.addresses[i].data(), own_[i].address.data(), own_[i].address.size());
  }
  if (::getrandom(&hello_.nonce, sizeof hello_.nonce, 0) < 0) return Status(Errc::kSystem, errno);
  hello_.nonce |= 1;  // 0 means: no hello yet
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return Status(Errc::kSystem, errno);
  bell_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell_) return Status(Errc::kSystem, errno);
  LARKLANE_TRY(watch(epoll(), bell_.get(), EPOLLIN, &bell_source_));
  for (const Listener& listener : own_) {
    LARKLANE_TRY(listen_at(listener.fd.get()));
    LARKLANE_TRY(watch(epoll(), listener.fd.get(), EPOLLIN, &listener_source_));
  }
  is_listening_ = true;
  const auto body = [](void* plane) -> void* {
    static_cast<LocalPlane*>(plane)->run();
    return nullptr;
  };
  Result<pthread_t> helper = start_helper_thread(body, this);
  if (!helper) return helper.error();
  helper_ = *helper;
  has_helper_ = true;
  return {};
}

LocalPlane::~LocalPlane() {
  // a forked child has no helper, and shares sockets and epoll with its parent
  if (!has_helper_ || ::getpid() != process_) return;
  // release: pairs with run() acquire
  is_ending_.store(true, std::memory_order_release);
  post([] {});
  ::pthread_join(helper_, nullptr);
}

PlaneCounters LocalPlane::counters() const noexcept {
  // relaxed: statistics
  return {helper_wakeups_.load(std::memory_order_relaxed),
          records_sent_.load(std::memory_order_relaxed),
          records_received_.load(std::memory_order_relaxed)};
}

void LocalPlane::post(std::function<void()> work) {
  {
    const std::lock_guard lock(work_mutex_);
    work_.push_back(std::move(work));
    if (work_.size() > 1) return;  // who came first has rung
  }
  ring();
}

void LocalPlane::ring() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(bell_.get(), &one, sizeof one);
}

LocalPeer* LocalPlane::find_live_locked(const Address& address) {
  const auto found = by_address_.find(address);
  return found == by_address_.end() || found->second->is_down() ? nullptr : found->second;
}

LocalPeer& LocalPlane::add_peer_locked(std::unique_ptr<LocalPeer> peer) {
  LocalPeer& added = *peers_.emplace_back(std::move(peer));
  by_address_[added.address()] = &added;
  return added;
}

Result<Peer*> LocalPlane::connect(const Address& address) {
  if (!is_address(address)) return Errc::kInvalidArgument;
  const std::lock_guard lock(mutex_);
  if (LocalPeer* const peer = find_live_locked(address)) return peer;
  auto peer = std::make_unique<LocalPeer>(host(), address);
  const Status opened = peer->open();
  if (opened.ok()) return &add_peer_locked(std::move(peer));
  peer->shut(opened.code());
  // after kSystem the helper may hold an event of it
  if (opened.code() == Errc::kSystem) peers_.push_back(std::move(peer));
  return opened;
}

// --- the helper ---

void LocalPlane::run() {
  std::uint64_t deadline_ns = 0;
  std::array<epoll_event, kEventsMax> events{};
  for (;;) {
    const int count = ::epoll_wait(epoll(), events.data(), kEventsMax, timeout_ms());
    // relaxed: statistics
    helper_wakeups_.fetch_add(1, std::memory_order_relaxed);
    retry_all();  // before new failures are added: those wait for kRetryMs
    for (int i = 0; i < count; ++i) {
      serve_event(events[static_cast<std::size_t>(i)]);
      bury_doomed();
    }
    run_posted();
    bury_doomed();
    closed_.clear();
    // acquire: pairs with the destructor's release
    if (!is_ending_.load(std::memory_order_acquire)) continue;
    if (deadline_ns == 0) deadline_ns = now_ns() + kDrainNsMax;
    if (is_drained() || now_ns() > deadline_ns) return;
  }
}

int LocalPlane::timeout_ms() const {
  const bool is_waiting = !retrying_.empty() || !is_listening_ ||
                          is_ending_.load(std::memory_order_acquire);  // acquire: as in run()
  return is_waiting ? kRetryMs : -1;
}

void LocalPlane::serve_event(const epoll_event& event) {
  const Source& source = *static_cast<const Source*>(event.data.ptr);
  const bool is_hung_up = (event.events & (EPOLLHUP | EPOLLERR)) != 0;
  switch (source.kind) {
    case SourceKind::listener:
      return accept_all();
    case SourceKind::bell: {
      std::uint64_t rings = 0;
      [[maybe_unused]] const ssize_t got = ::read(bell_.get(), &rings, sizeof rings);
      return;
    }
    case SourceKind::incoming:
      serve(*static_cast<Incoming*>(source.object));
      return;
    case SourceKind::outgoing: {
      LocalPeer& peer = *static_cast<LocalPeer*>(source.object);
      return is_hung_up ? doom(peer, Errc::kPeerDown) : peer.flush();
    }
    case SourceKind::process:
      return doom(*static_cast<LocalPeer*>(source.object), Errc::kPeerDown);
  }
}

/// One at a time: between two that take long, records are served.
void LocalPlane::run_posted() {
  std::function<void()> item;
  {
    const std::lock_guard lock(work_mutex_);
    if (work_.empty()) return;
    item = std::move(work_.front());
    work_.pop_front();
  }
  item();
  const std::lock_guard lock(work_mutex_);
  if (!work_.empty()) ring();
}

void LocalPlane::retry_all() {
  if (!is_listening_) set_listening(true);
  std::erase_if(retrying_, [](LocalPeer* peer) { return !peer->retry(); });
}

bool LocalPlane::is_drained() {
  {
    const std::lock_guard lock(work_mutex_);
    if (!work_.empty()) return false;
  }
  const std::lock_guard lock(mutex_);
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const auto& peer) { return peer->queued_count() == 0; });
}

/// Off while we can't accept: the backlog would wake the helper again and again.
void LocalPlane::set_listening(bool on) {
  for (const Listener& listener : own_) {
    const Status changed = watch(epoll(), listener.fd.get(), on ? std::uint32_t{EPOLLIN} : 0,
                                 &listener_source_, EPOLL_CTL_MOD);
    if (!changed.ok()) on = false;
  }
  is_listening_ = on;
}

void LocalPlane::accept_all() {
  for (const Listener& listener : own_) accept_from(listener);
}

void LocalPlane::accept_from(const Listener& listener) {
  for (;;) {
    UniqueFd fd(::accept4(listener.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN) return;
      log_warn_once("control accept", "control: accept at %s: %s; trying again",
                    listener.address.c_str(), std::strerror(errno));
      return set_listening(false);
    }
    const Credentials credentials = peer_credentials(fd.get());
    if (!is_own_user(credentials)) {
      log_warn_once("control foreign " + std::to_string(credentials.uid),
                    "control: process %d of user %u tried to connect: refused", credentials.pid,
                    credentials.uid);
      continue;
    }
    auto incoming = std::make_unique<Incoming>(std::move(fd), credentials);
    if (!watch(epoll(), incoming->fd(), EPOLLIN, incoming->source()).ok()) continue;
    incoming_.push_back(std::move(incoming));
  }
}

/// Reads once and serves all that is complete. False when there was nothing to read.
bool LocalPlane::serve(Incoming& incoming) {
  if (incoming.is_closed()) return false;
  switch (incoming.read()) {
    case Incoming::Read::nothing:
      return false;
    case Incoming::Read::end:
      if (incoming.has_rest()) {
        log_warn("control: the connection from process %d ended within a record",
                 incoming.credentials().pid);
      }
      if (incoming.peer != nullptr) doom(*incoming.peer, Errc::kPeerDown);
      close(incoming);
      return false;
    case Incoming::Read::data:
      break;
  }
  while (!incoming.is_closed() &&
         (incoming.peer == nullptr ? serve_hello(incoming) : serve_record(incoming))) {
  }
  return true;
}

bool LocalPlane::serve_hello(Incoming& incoming) {
  Hello hello;
  switch (incoming.parse_hello(&hello)) {
    case Incoming::Parsed::incomplete:
      return false;
    case Incoming::Parsed::broken:
      refuse(incoming);
      return false;
    case Incoming::Parsed::complete:
      break;
  }
  if (hello.version != kProtocolVersion) {
    log_warn(
        "control: process %d at %s speaks version %u of the control protocol, this process %u: "
        "another Larklane is installed there; not served",
        incoming.credentials().pid, hello.addresses[0].data(), hello.version, kProtocolVersion);
    hello.address_count = 1;
    doom(peer_of(hello), Errc::kVersion);
    close(incoming);
    return false;
  }
  identify(incoming, hello);
  return true;
}

bool LocalPlane::serve_record(Incoming& incoming) {
  Record record{};
  switch (incoming.parse_record(&record)) {
    case Incoming::Parsed::incomplete:
      return false;
    case Incoming::Parsed::broken:
      refuse(incoming);
      return false;
    case Incoming::Parsed::complete:
      break;
  }
  // relaxed: statistics
  records_received_.fetch_add(1, std::memory_order_relaxed);
  handler_.on_record(*incoming.peer, record);
  return true;
}

void LocalPlane::identify(Incoming& incoming, const Hello& hello) {
  LocalPeer& peer = peer_of(hello);
  if (peer.is_down()) return close(incoming);
  incoming.peer = &peer;
  const Status watched = peer.watch_process(incoming.fd(), incoming.credentials());
  if (watched.code() == Errc::kPeerDown) doom(peer, Errc::kPeerDown);
}

/// Finds or makes the peer that introduces itself.
LocalPeer& LocalPlane::peer_of(const Hello& hello) {
  const auto known = by_nonce_.find(hello.nonce);
  if (known != by_nonce_.end()) return *known->second;
  const std::lock_guard lock(mutex_);
  LocalPeer* peer = nullptr;
  for (std::size_t i = 0; i < hello.address_count && peer == nullptr; ++i) {
    LocalPeer* const at_address = find_live_locked(hello.addresses[i].data());
    if (at_address == nullptr) continue;
    if (at_address->nonce == 0) {
      peer = at_address;  // we connected to it before it connected to us
    } else {
      doom(*at_address, Errc::kPeerDown);  // somebody else has its name now
    }
  }
  if (peer == nullptr) {
    peer = &add_peer_locked(std::make_unique<LocalPeer>(host(), hello.addresses[0].data()));
  }
  for (std::size_t i = 0; i < hello.address_count; ++i) {
    by_address_[hello.addresses[i].data()] = peer;
  }
  peer->nonce = hello.nonce;
  by_nonce_[hello.nonce] = peer;
  return *peer;
}

/// Whoever sends what makes no sense is not talked to any more.
void LocalPlane::refuse(Incoming& incoming) {
  log_warn("control: process %d%s%s: %s; connection closed", incoming.credentials().pid,
           incoming.peer == nullptr ? "" : " at ",
           incoming.peer == nullptr ? "" : incoming.peer->address().c_str(), incoming.complaint());
  if (incoming.peer != nullptr) doom(*incoming.peer, Errc::kProtocol);
  close(incoming);
}

void LocalPlane::close(Incoming& incoming) {
  unwatch(epoll(), incoming.fd());
  incoming.close();
  const auto at = std::find_if(incoming_.begin(), incoming_.end(),
                               [&](const auto& candidate) { return candidate.get() == &incoming; });
  closed_.push_back(std::move(*at));
  incoming_.erase(at);
}

void LocalPlane::bury_doomed() {
  while (!doomed_.empty()) {
    const auto [peer, reason] = doomed_.front();
    doomed_.pop_front();
    if (!std::exchange(peer->buried, true)) bury(*peer, reason);
  }
}

void LocalPlane::bury(LocalPeer& peer, Errc reason) {
  accept_all();
  std::vector<Incoming*> all;
  for (const auto& incoming : incoming_) all.push_back(incoming.get());
  for (Incoming* const incoming : all) {
    // without a hello so far: it may be one of this peer
    for (int reads = 0; reads < kDrainReadsMax; ++reads) {
      if (incoming->peer != nullptr && incoming->peer != &peer) break;
      if (!serve(*incoming)) break;
    }
    if (incoming->peer == &peer && !incoming->is_closed()) close(*incoming);
  }
  peer.shut(reason);
  handler_.on_peer_down(peer);
}

}  // namespace

Result<std::unique_ptr<Plane>> Plane::create(std::vector<Listener> own, Handler& handler) {
  if (own.empty() || own.size() > kAddressesMax) return Errc::kInvalidArgument;
  auto plane = std::make_unique<LocalPlane>(std::move(own), handler);
  LARKLANE_TRY(plane->start());
  return std::unique_ptr<Plane>(std::move(plane));
}

}  // namespace larklane::control
