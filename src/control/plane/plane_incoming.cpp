// Connections in: accept, hello, records.

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.hpp"
#include "base/kernel_calls.hpp"
#include "base/log.hpp"
#include "base/tcp.hpp"
#include "control/local/local_peer.hpp"
#include "control/local/socket.hpp"
#include "control/plane/plane_impl.hpp"
#include "control/remote/remote_peer.hpp"

namespace larklane::control {
namespace {

/// The most in one turn, in which no records are served. Without a grace, all that a backlog can
/// hold.
int accepts_max(std::uint64_t grace_ns) noexcept { return grace_ns != 0 ? 256 : 8192; }

/// A process has one connection to this one, and another each time that it is sent away. Processes
/// of a pid namespace that is not visible from here are all process 0, so they share a larger
/// limit.
constexpr std::ptrdiff_t kClaimsMax = 16, kClaimsUnseenMax = 1024;
/// The most processes that have ended and left records: each is a peer as long as the plane. A job
/// has no more ranks on a host.
constexpr std::size_t kGoneMax = 1024;
/// Far more than a process needs from closing its sockets to its end.
constexpr std::uint64_t kEndingNs = 1'000'000'000;

}  // namespace

/// Off while accept fails: the backlog would wake the helper again and again.
void PlaneImpl::set_listening(bool on) {
  is_listening_ = on;
  const auto set = [&](int listener) {
    const Status changed = control::watch(epoll(), listener, on ? std::uint32_t{EPOLLIN} : 0,
                                          &listener_source_, EPOLL_CTL_MOD);
    is_listening_ = is_listening_ && changed.ok();
  };
  for (const Listener& listener : own_) set(listener.fd.get());
  if (remote_) set(remote_->listener.fd.get());
}

/// A shortage passes. A refusal does not, and waiting peers would wait for ever.
void PlaneImpl::cannot_accept(const Address& at, int error) {
  const bool is_shortage =
      error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
  const std::uint64_t now = now_ns();
  if (unaccepted_since_ns_ == 0) unaccepted_since_ns_ = now;
  if (is_shortage && now - unaccepted_since_ns_ < accept_ns_) {
    log_warn_once("control accept", "control: accept at %s: %s; trying again; remedy: %s",
                  at.c_str(), std::strerror(error), remedy_of(error));
    return set_listening(false);
  }
  log_error("control: accept at %s: %s: this process takes no more connections; remedy: %s",
            at.c_str(), std::strerror(error), remedy_of(error));
  stop_accepting(error);
}

/// Peers in the backlog see their connections end. Reports the peers down that this process has
/// connected to and that could not connect back.
void PlaneImpl::stop_accepting(int error) {
  const Reason reason{{Errc::kSystem, error},
                      std::string("its connection can't be accepted: ") + std::strerror(error)};
  const auto end = [this](UniqueFd& listener) {
    control::unwatch(epoll(), listener.get());
    listener.reset();
  };
  for (Listener& listener : own_) end(listener.fd);
  if (remote_) end(remote_->listener.fd);
  is_listening_ = true;  // no listener is to be turned on again
  const std::lock_guard lock(mutex_);
  accept_error_ = reason.status;
  for (const auto& peer : peers_)
    if (peer->nonce == 0) doom(*peer, reason);
}

void PlaneImpl::accept_all(std::uint64_t grace_ns) {
  if (!own_.front().fd) return;  // see stop_accepting()
  for (const Listener& listener : own_) accept_local(listener, grace_ns);
  if (remote_) accept_remote(grace_ns);
}

/// False: the waiting connections have their time first.
bool PlaneImpl::make_room(Unproven<Incoming>& unproven, std::uint64_t grace_ns) {
  const auto room = unproven.room(now_ns(), grace_ns);
  if (room.pushed_out != nullptr) send_away(*room.pushed_out);
  if (!room.is_there) set_listening(false);
  return room.is_there;
}

void PlaneImpl::accept_local(const Listener& listener, std::uint64_t grace_ns) {
  for (int count = accepts_max(grace_ns);
       count > 0 && listener.fd && make_room(unproven_local_, grace_ns); --count) {
    UniqueFd fd(accept_connection(listener.fd.get()));
    if (!fd) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN) cannot_accept(listener.address, errno);
      return;
    }
    unaccepted_since_ns_ = 0;
    const Credentials credentials = peer_credentials(fd.get());
    if (!is_own_user(credentials)) {
      log_warn_once("control foreign",
                    "control: process %d of user %u tried to connect: refused (as will be others)",
                    credentials.pid, credentials.uid);
      continue;
    }
    take(std::make_unique<LocalIncoming>(std::move(fd), credentials), unproven_local_);
  }
}

void PlaneImpl::accept_remote(std::uint64_t grace_ns) {
  for (int count = accepts_max(grace_ns);
       count > 0 && remote_->listener.fd && make_room(unproven_remote_, grace_ns); --count) {
    Result<UniqueFd> fd = accept_from(remote_->listener.fd.get());
    if (!fd) {
      const int error = fd.error().detail();
      if (error != EAGAIN) cannot_accept(remote_->listener.address, error);
      return;
    }
    unaccepted_since_ns_ = 0;
    auto incoming = std::make_unique<RemoteIncoming>(std::move(*fd), terms_);
    if (!incoming->challenge().ok()) continue;  // the peer has gone
    take(std::move(incoming), unproven_remote_);
  }
}

/// On one host the hello usually comes with the connection.
void PlaneImpl::take(std::unique_ptr<Incoming> incoming, Unproven<Incoming>& unproven) {
  if (!control::watch(epoll(), incoming->fd(), EPOLLIN, incoming->source()).ok()) return;
  Incoming& taken = *incoming;
  unproven.add(taken, now_ns());
  incoming_.push_back(std::move(incoming));
  if (!taken.is_remote()) serve(taken);
}

/// Another connection needs the place. On one host the helper takes all that the peer could send,
/// and the peer sends the rest again. Between hosts the peer sends nothing before the answer, and
/// dials again by itself.
void PlaneImpl::send_away(Incoming& incoming) {
  if (!incoming.is_remote()) {
    serve(incoming);  // its hello may have come since it was accepted
    if (incoming.is_closed() || incoming.claim || incoming.peer != nullptr) return;
    incoming.is_sent_away = true;
    ::send(incoming.fd(), &kComeAgain, sizeof kComeAgain, MSG_NOSIGNAL | MSG_DONTWAIT);
    ::shutdown(incoming.fd(), SHUT_RD);
  }
  drain_and_close(incoming);
}

/// A claim stays: judge_again() drains it.
void PlaneImpl::drain_and_close(Incoming& incoming) {
  for (int reads = 0; incoming.is_sent_away && reads < kDrainReadsMax && serve(incoming); ++reads) {
  }
  if (!incoming.is_closed() && !incoming.claim) close(incoming);
}

/// Reads once and serves all complete messages. False: there was nothing to read.
bool PlaneImpl::serve(Incoming& incoming) {
  if (incoming.is_closed() || incoming.claim) return false;
  switch (incoming.read()) {
    case Incoming::Read::nothing:
      return false;
    case Incoming::Read::end:
      end(incoming);
      return false;
    case Incoming::Read::data:
      break;
  }
  while (!incoming.is_closed() &&
         (incoming.peer == nullptr ? serve_hello(incoming) : serve_record(incoming))) {
  }
  return true;
}

void PlaneImpl::end(Incoming& incoming) {
  if (incoming.is_sent_away) return close(incoming);
  // a stranger may end its connection anywhere
  if (incoming.has_rest() && incoming.peer != nullptr) {
    log_warn("control: the connection from %s ended within a record", incoming.origin().c_str());
  }
  if (QueuedPeer* const peer = incoming.peer; peer != nullptr) {
    const int error = incoming.end_error();
    doom(*peer, incoming.is_remote() ? RemotePeer::reason_of(error)
                : error == 0 ? Reason{Errc::kPeerDown, static_cast<LocalPeer&>(*peer).end_text()}
                             : Reason{{Errc::kPeerDown, error},
                                      std::string("its connection can't be read (recvmsg): ") +
                                          std::strerror(error)});
  }
  close(incoming);
}

/// Refuses a broken message.
bool PlaneImpl::is_complete(Incoming& incoming, Incoming::Parsed parsed) {
  if (parsed == Incoming::Parsed::broken) refuse(incoming);
  return parsed == Incoming::Parsed::complete;
}

bool PlaneImpl::serve_hello(Incoming& incoming) {
  Introduction introduction;
  if (!is_complete(incoming, incoming.parse_hello(&introduction))) return false;
  return judge(incoming, std::move(introduction));
}

/// @return true: the peer's records follow
bool PlaneImpl::judge(Incoming& incoming, Introduction introduction) {
  Belief belief = belief_in(incoming, introduction);
  if (belief != Belief::wrong && follows_claim(incoming, introduction)) belief = Belief::later;
  if (belief == Belief::gone) {
    introduction.is_gone = true;
    if (!has_left_record(incoming)) {  // then that process has no record for this one
      close(incoming);
      return false;
    }
  }
  if (belief == Belief::later) {
    park(incoming, std::move(introduction));
    return false;
  }
  if (belief == Belief::wrong) {
    disbelieve(incoming, "it does not listen at the address that it names as its own");
    return false;
  }
  if (introduction.version != kProtocolVersion) {
    reject_version(incoming, std::move(introduction));
    return false;
  }
  identify(incoming, introduction);
  return !incoming.is_closed();
}

/// True: an older connection, from which the process was sent away, holds earlier records.
bool PlaneImpl::follows_claim(const Incoming& incoming, const Introduction& introduction) const {
  for (const auto& older : incoming_) {
    if (older.get() == &incoming) break;
    if (older->claim && older->is_sent_away && older->claim->nonce == introduction.nonce &&
        older->credentials().pid == incoming.credentials().pid)
      return true;
  }
  return false;
}

/// Its hello is complete, so it takes no place among silent connections. It has a limit of its own:
/// a listener with a full backlog for ever proves nothing.
void PlaneImpl::park(Incoming& incoming, Introduction introduction) {
  const std::uint64_t now = now_ns();
  if (incoming.claim_since_ns == 0) {
    incoming.claim_since_ns = now;
    const pid_t pid = incoming.credentials().pid;
    const auto claims = std::count_if(incoming_.begin(), incoming_.end(), [&](const auto& other) {
      return other->claim && other->credentials().pid == pid;
    });
    if (claims >= (pid != 0 ? kClaimsMax : kClaimsUnseenMax))
      return disbelieve(incoming, "its process has too many connections that can't be checked yet");
  }
  if (now - incoming.claim_since_ns > accept_ns_)
    return disbelieve(incoming,
                      "the address that it names as its own could not be checked in time");
  // even without events epoll reports a hang-up, again and again
  control::unwatch(epoll(), incoming.fd());
  unproven_local_.remove(incoming);
  incoming.claim = std::move(introduction);
  has_claims_ = true;
}

void PlaneImpl::judge_again() {
  has_claims_ = false;
  std::vector<Incoming*> all;
  for (const auto& incoming : incoming_)
    if (incoming->claim) all.push_back(incoming.get());
  for (Incoming* const incoming : all) {
    if (incoming->is_closed()) continue;
    Introduction claim = std::move(*incoming->claim);
    incoming->claim.reset();
    if (!judge(*incoming, std::move(claim))) continue;
    const Status watched = control::watch(epoll(), incoming->fd(), EPOLLIN, incoming->source());
    if (!watched.ok()) doom(*incoming->peer, {watched, "its connection can't be watched"});
    while (!incoming->is_closed() && serve_record(*incoming)) {
    }
    if (incoming->is_sent_away && !incoming->is_closed()) drain_and_close(*incoming);
  }
}

PlaneImpl::Belief PlaneImpl::belief_in(Incoming& incoming, const Introduction& introduction) {
  if (incoming.is_remote()) return Belief::right;  // it is proven, or of another version
  Belief all = Belief::right;
  for (const Address& address : introduction.addresses) {
    const Belief belief = belief_in(incoming, introduction.nonce, address);
    all = std::max(all, belief);
  }
  return all;
}

PlaneImpl::Belief PlaneImpl::belief_in(Incoming& incoming, std::uint64_t nonce,
                                       const Address& address) {
  const pid_t pid = incoming.credentials().pid;
  if (pid == ::getpid()) return Belief::right;
  bool is_another = false, may_be_it = false;
  {
    const std::lock_guard lock(mutex_);
    const QueuedPeer* const known = find_live_locked(address);
    // the process that listened when this one connected to it
    if (known != nullptr && pid != 0 && known->pid() == pid) return Belief::right;
    // without a process id: of another pid namespace, or this process is still connecting to it
    is_another = known != nullptr && known->pid() != 0;
    may_be_it = known != nullptr && !is_another && (known->nonce == 0 || known->nonce == nonce);
  }
  Result<bool> is_listener = control::is_listener(address, incoming.fd());
  if (is_listener) return *is_listener ? Belief::right : Belief::wrong;
  if (is_listener.error().code() != Errc::kUnreachable) return Belief::later;
  if (has_ended(incoming.fd(), incoming.credentials()))
    return is_another ? Belief::wrong : may_be_it ? Belief::right : Belief::gone;
  // an ending process closes its listener a moment before its pidfd reports the end
  const std::uint64_t now = now_ns();
  if (incoming.unreachable_since_ns == 0) incoming.unreachable_since_ns = now;
  return now - incoming.unreachable_since_ns < kEndingNs ? Belief::later : Belief::wrong;
}

void PlaneImpl::reject_version(Incoming& incoming, Introduction introduction) {
  const bool is_named = !introduction.addresses.empty();
  log_warn_once(
      "control version",
      "control: %s%s%s speaks version %u of the control protocol, this process %u: another "
      "Larklane is installed there; not served (nor will be others)",
      incoming.origin().c_str(), is_named ? " at " : "",
      is_named ? introduction.addresses.front().c_str() : "", introduction.version,
      kProtocolVersion);
  QueuedPeer* const peer =
      is_named && !introduction.is_gone ? peer_of(introduction, incoming.is_remote()) : nullptr;
  if (peer != nullptr)
    doom(*peer, {Errc::kVersion, "another version of Larklane is installed there"});
  close(incoming);
}

bool PlaneImpl::serve_record(Incoming& incoming) {
  Record record{};
  if (!is_complete(incoming, incoming.parse_record(&record))) return false;
  // relaxed: statistics
  records_received_.fetch_add(1, std::memory_order_relaxed);
  handler_.on_record(*incoming.peer, record);
  return true;
}

void PlaneImpl::identify(Incoming& incoming, const Introduction& introduction) {
  QueuedPeer* const peer = introduction.is_gone ? gone_peer_of(incoming, introduction)
                                                : peer_of(introduction, incoming.is_remote());
  if (peer == nullptr)
    return disbelieve(incoming, introduction.is_gone
                                    ? "too many processes have left records, and ended"
                                    : "it goes by the nonce of another process");
  if (peer->is_down()) return close(incoming);
  incoming.peer = peer;
  incoming.grow();
  unproven_local_.remove(incoming);
  unproven_remote_.remove(incoming);
  const Status watched = peer->accepted(incoming);
  if (watched.code() == Errc::kPeerDown) {
    doom(*peer, {Errc::kPeerDown, "its process has ended"});
  }
}

/// Finds or makes the peer of a believed introduction. Null: its nonce belongs to another process.
QueuedPeer* PlaneImpl::peer_of(const Introduction& introduction, bool is_remote) {
  const std::pair key(is_remote, introduction.nonce);
  const auto known = by_nonce_.find(key);
  const std::lock_guard lock(mutex_);
  if (known != by_nonce_.end()) {
    const auto at = by_address_.find(introduction.addresses.front());
    return at != by_address_.end() && at->second == known->second ? known->second : nullptr;
  }
  QueuedPeer* peer = nullptr;
  for (const Address& address : introduction.addresses) {
    QueuedPeer* const at_address = find_live_locked(address);
    if (at_address == nullptr || peer != nullptr) continue;
    if (at_address->nonce == 0) {
      peer = at_address;  // this process connected to it before it connected back
    } else {
      doom(*at_address, {Errc::kPeerDown, "another process has its address now"});
    }
  }
  if (peer == nullptr) peer = &add_peer_locked(introduction.addresses.front());
  for (const Address& address : introduction.addresses) by_address_[address] = peer;
  peer->nonce = introduction.nonce;
  by_nonce_[key] = peer;
  return peer;
}

bool PlaneImpl::has_left_record(Incoming& incoming) {
  incoming.grow();
  while (!incoming.has_record())
    if (incoming.read() != Incoming::Read::data) return false;
  return true;
}

/// The peer gets no address, since another process may own it by now. Null: there are too many.
QueuedPeer* PlaneImpl::gone_peer_of(const Incoming& incoming, const Introduction& introduction) {
  const std::pair key(introduction.nonce, incoming.credentials().pid);
  if (const auto known = gone_.find(key); known != gone_.end()) return known->second;
  if (gone_.size() == kGoneMax) return nullptr;
  const std::lock_guard lock(mutex_);
  QueuedPeer& peer = add_peer_locked(introduction.addresses.front());
  peer.nonce = introduction.nonce;
  return gone_[key] = &peer;
}

/// A peer that sends invalid data is down.
void PlaneImpl::refuse(Incoming& incoming) {
  if (incoming.peer == nullptr) return disbelieve(incoming, incoming.complaint());
  log_warn("control: %s at %s: %s; connection closed", incoming.origin().c_str(),
           incoming.peer->address().c_str(), incoming.complaint());
  doom(*incoming.peer, {Errc::kProtocol, incoming.complaint()});
  close(incoming);
}

/// Any process can connect, as often as it likes, so each complaint warns once.
void PlaneImpl::disbelieve(Incoming& incoming, const char* complaint) {
  log_warn_once(std::string("control stranger ") + complaint,
                "control: %s tried to connect: %s; refused (as will be others)",
                incoming.origin().c_str(), complaint);
  close(incoming);
}

void PlaneImpl::drop_silent(Unproven<Incoming>& unproven, std::uint64_t now_ns) {
  while (Incoming* const late = unproven.late(now_ns)) {
    send_away(*late);
    if (late->is_closed() && late->peer == nullptr)
      log_warn_once("control silent",
                    "control: %s has connected and not said who it is; refused (as will be others)",
                    late->origin().c_str());
  }
}

void PlaneImpl::close(Incoming& incoming) {
  unproven_local_.remove(incoming);
  unproven_remote_.remove(incoming);
  control::unwatch(epoll(), incoming.fd());
  incoming.close();
  const auto at = std::find_if(incoming_.begin(), incoming_.end(),
                               [&](const auto& candidate) { return candidate.get() == &incoming; });
  closed_.push_back(std::move(*at));
  incoming_.erase(at);
}

}  // namespace larklane::control
