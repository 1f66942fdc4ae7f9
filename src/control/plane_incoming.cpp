// Connections in: accept, hello, records.

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.hpp"
#include "base/kernel_calls.hpp"
#include "base/log.hpp"
#include "control/plane_impl.hpp"
#include "control/remote_peer.hpp"
#include "control/socket.hpp"
#include "control/tcp.hpp"

namespace larklane::control {

/// Off while we can't accept: the backlog would wake the helper again and again.
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

/// A shortage passes; a refusal does not, and peers that waited for it would wait for ever.
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

/// Peers in the backlog see their connections end. Peers that this process has connected to, and
/// that could not connect back, are reported down.
void PlaneImpl::stop_accepting(int error) {
  const Reason reason{{Errc::kSystem, error},
                      std::string("its connection can't be accepted: ") + std::strerror(error)};
  const auto end = [this](UniqueFd& listener) {
    control::unwatch(epoll(), listener.get());
    listener.reset();
  };
  for (Listener& listener : own_) end(listener.fd);
  if (remote_) end(remote_->listener.fd);
  is_listening_ = true;  // nothing is to be turned on again
  const std::lock_guard lock(mutex_);
  accept_error_ = reason.status;
  for (const auto& peer : peers_)
    if (peer->nonce == 0) doom(*peer, reason);
}

void PlaneImpl::accept_all() {
  if (!own_.front().fd) return;  // see stop_accepting()
  for (const Listener& listener : own_) accept_local(listener);
  if (remote_) accept_remote();
}

void PlaneImpl::accept_local(const Listener& listener) {
  while (listener.fd) {
    UniqueFd fd(accept_connection(listener.fd.get()));
    if (!fd) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN) cannot_accept(listener.address, errno);
      return;
    }
    unaccepted_since_ns_ = 0;
    const Credentials credentials = peer_credentials(fd.get());
    if (!is_own_user(credentials)) {
      log_warn_once("control foreign " + std::to_string(credentials.uid),
                    "control: process %d of user %u tried to connect: refused", credentials.pid,
                    credentials.uid);
      continue;
    }
    take(std::make_unique<LocalIncoming>(std::move(fd), credentials));
  }
}

void PlaneImpl::accept_remote() {
  while (remote_->listener.fd) {
    Result<UniqueFd> fd = accept_from(remote_->listener.fd.get());
    if (!fd) {
      const int error = fd.error().detail();
      if (error != EAGAIN) cannot_accept(remote_->listener.address, error);
      return;
    }
    unaccepted_since_ns_ = 0;
    auto incoming = std::make_unique<RemoteIncoming>(std::move(*fd), terms_);
    if (!incoming->challenge().ok()) continue;  // it has gone
    RemoteIncoming* const stranger = incoming.get();
    take(std::move(incoming));
    if (!incoming_.empty() && incoming_.back().get() == stranger) strangers_.push_back(stranger);
  }
}

void PlaneImpl::take(std::unique_ptr<Incoming> incoming) {
  if (!control::watch(epoll(), incoming->fd(), EPOLLIN, incoming->source()).ok()) return;
  incoming_.push_back(std::move(incoming));
}

/// Reads once and serves all that is complete. False when there was nothing to read.
bool PlaneImpl::serve(Incoming& incoming) {
  if (incoming.is_closed()) return false;
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
  // whoever has not been heard out may go when it likes: on the network it may be anybody
  if (incoming.has_rest() && !(incoming.is_remote() && incoming.peer == nullptr)) {
    log_warn("control: the connection from %s ended within a record", incoming.origin().c_str());
  }
  if (incoming.peer != nullptr) {
    const int error = incoming.end_error();
    doom(*incoming.peer, incoming.is_remote() ? RemotePeer::reason_of(error)
                         : error == 0
                             ? Reason{Errc::kPeerDown, "it has closed its connection"}
                             : Reason{{Errc::kPeerDown, error},
                                      std::string("its connection can't be read (recvmsg): ") +
                                          std::strerror(error)});
  }
  close(incoming);
}

bool PlaneImpl::serve_hello(Incoming& incoming) {
  Introduction introduction;
  switch (incoming.parse_hello(&introduction)) {
    case Incoming::Parsed::incomplete:
      return false;
    case Incoming::Parsed::broken:
      refuse(incoming);
      return false;
    case Incoming::Parsed::complete:
      break;
  }
  if (introduction.version != kProtocolVersion) {
    reject_version(incoming, std::move(introduction));
    return false;
  }
  identify(incoming, introduction);
  return true;
}

void PlaneImpl::reject_version(Incoming& incoming, Introduction introduction) {
  const bool is_named = !introduction.addresses.empty();
  log_warn(
      "control: %s%s%s speaks version %u of the control protocol, this process %u: another "
      "Larklane is installed there; not served",
      incoming.origin().c_str(), is_named ? " at " : "",
      is_named ? introduction.addresses.front().c_str() : "", introduction.version,
      kProtocolVersion);
  if (is_named) {
    doom(peer_of(introduction, incoming.is_remote()),
         {Errc::kVersion, "another version of Larklane is installed there"});
  }
  close(incoming);
}

bool PlaneImpl::serve_record(Incoming& incoming) {
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

void PlaneImpl::identify(Incoming& incoming, const Introduction& introduction) {
  QueuedPeer& peer = peer_of(introduction, incoming.is_remote());
  if (peer.is_down()) return close(incoming);
  incoming.peer = &peer;
  std::erase(strangers_, &incoming);
  const Status watched = peer.accepted(incoming);
  if (watched.code() == Errc::kPeerDown) {
    doom(peer, {Errc::kPeerDown, "its process has ended"});
  }
}

/// Finds or makes the peer that introduces itself.
QueuedPeer& PlaneImpl::peer_of(const Introduction& introduction, bool is_remote) {
  const std::pair key(is_remote, introduction.nonce);
  const auto known = by_nonce_.find(key);
  if (known != by_nonce_.end()) return *known->second;
  const std::lock_guard lock(mutex_);
  QueuedPeer* peer = nullptr;
  for (const Address& address : introduction.addresses) {
    QueuedPeer* const at_address = find_live_locked(address);
    if (at_address == nullptr || peer != nullptr) continue;
    if (at_address->nonce == 0) {
      peer = at_address;  // we connected to it before it connected to us
    } else {
      doom(*at_address, {Errc::kPeerDown, "another process has its address now"});
    }
  }
  if (peer == nullptr) peer = &add_peer_locked(introduction.addresses.front());
  for (const Address& address : introduction.addresses) by_address_[address] = peer;
  peer->nonce = introduction.nonce;
  by_nonce_[key] = peer;
  return *peer;
}

/// Whoever sends what makes no sense is not talked to any more. Anybody can reach a port: there one
/// warning a host and complaint has to do.
void PlaneImpl::refuse(Incoming& incoming) {
  const std::string origin = incoming.origin();
  if (incoming.peer != nullptr) {
    log_warn("control: %s at %s: %s; connection closed", origin.c_str(),
             incoming.peer->address().c_str(), incoming.complaint());
    doom(*incoming.peer, {Errc::kProtocol, incoming.complaint()});
  } else if (incoming.is_remote()) {
    const std::string& host = static_cast<const RemoteIncoming&>(incoming).host();
    log_warn_once("control stranger " + host + incoming.complaint(),
                  "control: %s tried to connect: %s; refused", origin.c_str(),
                  incoming.complaint());
  } else {
    log_warn("control: %s: %s; connection closed", origin.c_str(), incoming.complaint());
  }
  close(incoming);
}

void PlaneImpl::drop_silent(std::uint64_t now_ns) {
  for (const std::vector<RemoteIncoming*> all = strangers_; RemoteIncoming* const stranger : all) {
    if (now_ns < stranger->deadline_ns()) continue;
    log_warn_once("control silent " + stranger->host(),
                  "control: %s has connected and not said who it is; refused",
                  stranger->origin().c_str());
    close(*stranger);
  }
}

void PlaneImpl::close(Incoming& incoming) {
  std::erase(strangers_, &incoming);
  control::unwatch(epoll(), incoming.fd());
  incoming.close();
  const auto at = std::find_if(incoming_.begin(), incoming_.end(),
                               [&](const auto& candidate) { return candidate.get() == &incoming; });
  closed_.push_back(std::move(*at));
  incoming_.erase(at);
}

}  // namespace larklane::control
