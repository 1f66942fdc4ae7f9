#include "net/ofi/endpoint.hpp"

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/clock.hpp"
#include "net/ofi/link.hpp"

namespace larklane::ofi {
namespace {

/// Of one fi_cq_read: 640 bytes of stack.
constexpr std::uint32_t kEntriesAtOnce = 16;
/// A look at a peer's process or at connections costs a system call: each time after so many polls;
/// at a process if it is long enough since the last one, too.
constexpr std::uint32_t kPollsPerLook = 4096;
/// While a connection is awaited: a look is a system call or two.
constexpr std::uint32_t kPollsPerConnectionLook = 8;
constexpr std::uint64_t kLookNs = 100'000'000;
/// As many as may be under way, and as many immediates before they wait elsewhere.
constexpr std::size_t kCompletions = 4 * kQueueDepth;
/// libfabric's shm names an endpoint by its process's number and by how many that process has
/// opened. One that was killed leaves its files, and a process that gets its number hears that the
/// name is busy; the next one may not be. (libfabric unlinks each of them, whoever has them: so
/// processes of two spaces of numbers must not share /dev/shm.)
constexpr int kNames = 64;
/// Endpoints that are left to receive; see leave_slow().
constexpr std::size_t kLeftMost = 8;

}  // namespace

Status status_of(int error, Errc code) noexcept {
  switch (error) {
    case FI_ECANCELED:  // what waits on a connection that ends
    case FI_ECONNRESET:
    case FI_ECONNABORTED:
    case FI_ECONNREFUSED:
    case FI_ENOTCONN:
    case FI_ESHUTDOWN:
    case FI_EHOSTUNREACH:
    case FI_EHOSTDOWN:
    case FI_ENETUNREACH:
    case FI_ETIMEDOUT:
    case EPIPE:
      return Status(Errc::kPeerDown, error);
    case FI_ENOMEM:
      return Status(code == Errc::kTransfer ? code : Errc::kNoMemory, error);
    default:
      return Status(code, error);
  }
}

Endpoint::Endpoint(const Domain& domain, net::Receiver& receiver)
    : domain_(domain), receiver_(receiver) {}

Result<std::unique_ptr<net::Endpoint>> Endpoint::open(const Domain& domain,
                                                      net::Receiver& receiver) {
  std::unique_ptr<Endpoint> endpoint(new Endpoint(domain, receiver));
  LARKLANE_TRY(endpoint->open_queue());
  if (domain.has_connections()) {
    LARKLANE_TRY(endpoint->open_connections());
  } else {
    LARKLANE_TRY(endpoint->open(endpoint->sender_));
    LARKLANE_TRY(endpoint->make_offer());
  }
  return std::unique_ptr<net::Endpoint>(std::move(endpoint));
}

Status Endpoint::open_queue() {
  fi_cq_attr attributes{};
  attributes.size = kCompletions;
  attributes.format = FI_CQ_FORMAT_DATA;
  // With a descriptor the tcp provider watches its sockets by epoll, for which the sender's system
  // call pays.
  attributes.wait_obj = receiver_.sleeps ? FI_WAIT_FD : FI_WAIT_NONE;
  fid_cq* queue = nullptr;
  int error = ::fi_cq_open(domain_.domain.get(), &attributes, &queue, nullptr);
  const bool can_wait = error == 0 && receiver_.sleeps;
  if (error != 0 && receiver_.sleeps) {
    attributes.wait_obj = FI_WAIT_NONE;
    error = ::fi_cq_open(domain_.domain.get(), &attributes, &queue, nullptr);
  }
  if (error != 0) return status_of(-error, Errc::kSystem);
  queue_.reset(queue);
  if (can_wait && ::fi_control(&queue->fid, FI_GETWAIT, &wait_fd_) != 0) wait_fd_ = -1;
  return Status();
}

Status Endpoint::open_connections() {
  connections_ = std::make_unique<Connections>(domain_, *queue_);
  const int error = connections_->open(wait_fd_ >= 0);
  wait_fd_ = connections_->wait_fd();
  origin_ = {domain_.info().addr_format, this_host(), ::getpid()};
  return error == 0 ? Status() : status_of(error, Errc::kSystem);
}

Status Endpoint::open(Sender& sender) const {
  const int error = sender.addresses.open(*domain_.domain);
  if (error != 0) return status_of(error, Errc::kSystem);
  Status status = try_open(sender);
  for (int tries = 1; tries < kNames && status.detail() == FI_EBUSY; ++tries)
    status = try_open(sender);
  return status;
}

Status Endpoint::try_open(Sender& sender) const {
  fid_ep* endpoint = nullptr;
  int error = ::fi_endpoint(domain_.domain.get(), domain_.choice.info.get(), &endpoint, nullptr);
  if (error != 0) return status_of(-error, Errc::kSystem);
  sender.endpoint.reset(endpoint);
  error = ::fi_ep_bind(endpoint, &queue_->fid, FI_TRANSMIT | FI_RECV);
  if (error == 0) error = ::fi_ep_bind(endpoint, &sender.addresses.table().fid, 0);
  if (error == 0) error = ::fi_enable(endpoint);
  return error == 0 ? Status() : status_of(-error, Errc::kSystem);
}

Status Endpoint::make_offer() {
  std::array<std::byte, net::kOfferBytesMax / 2> name{};
  std::size_t length = name.size();
  const int error = ::fi_getname(&raw()->fid, name.data(), &length);
  if (error != 0) return status_of(-error, Errc::kSystem);
  origin_ = {domain_.info().addr_format, this_host(), ::getpid()};
  offer_ = encode_offer(origin_, {}, std::span(name).first(length));
  return Status();
}

Result<std::unique_ptr<net::Link>> Endpoint::open_link() {
  if (!failure_.ok()) return failure_;
  auto link = std::make_unique<Link>(*this);
  if (connections_ != nullptr) LARKLANE_TRY(link->await_connection());
  return std::unique_ptr<net::Link>(std::move(link));
}

Result<std::uint32_t> Endpoint::poll(std::uint32_t most) {
  if (!failure_.ok()) [[unlikely]]
    return failure_;
  std::array<fi_cq_data_entry, kEntriesAtOnce> entries;
  std::uint32_t served = 0;
  while (served < most) {
    const std::size_t wanted = std::min(most - served, kEntriesAtOnce);
    const ssize_t count = ::fi_cq_read(queue_.get(), entries.data(), wanted);
    if (count > 0) {
      for (ssize_t i = 0; i < count; ++i) serve(entries[static_cast<std::size_t>(i)]);
      served += static_cast<std::uint32_t>(count);
      if (static_cast<std::size_t>(count) < wanted) break;
    } else if (count == -FI_EAVAIL) {
      if (!serve_error_slow()) break;
      ++served;
    } else if (count == -FI_EAGAIN || count == 0 || count == -FI_EINTR) {
      break;
    } else {
      return die_slow(static_cast<int>(-count));
    }
  }
  if (++polls_ % kPollsPerLook == 0) [[unlikely]]
    look_around_slow();
  if (is_any_awaited_ && polls_ % kPollsPerConnectionLook == 0) [[unlikely]]
    look_at_connections_slow();
  return served;
}

void Endpoint::look_around_slow() {
  look_at_peers_slow();
  if (!left_.empty() && slots_.has_held_up())
    for (std::size_t i = 0; i < links_.size(); ++i) links_[i]->pass_held_up_slow();
  if (connections_ != nullptr) look_at_connections_slow();
}

void Endpoint::look_at_connections_slow() { is_any_awaited_ = connections_->look_slow(); }

void Endpoint::serve(const fi_cq_data_entry& entry) {
  if (Slot* slot = slots_.find(entry.op_context)) {
    if (net::Operation* operation = slots_.give_back(*slot))
      operation->complete(*operation, Status());
  } else if ((entry.flags & FI_REMOTE_CQ_DATA) != 0) {
    if (entry.data <= UINT32_MAX) [[likely]]
      receiver_.on_immediate(static_cast<std::uint32_t>(entry.data));
    else
      receiver_.on_wide_immediate(entry.data);
  }
}

bool Endpoint::serve_error_slow() {
  fi_cq_err_entry entry{};
  if (::fi_cq_readerr(queue_.get(), &entry, 0) <= 0) return false;
  // Without a slot of ours it is something that a peer has tried and that has been refused.
  Slot* slot = slots_.find(entry.op_context);
  if (slot == nullptr) return true;
  const Status status = status_of(entry.err, Errc::kTransfer);
  Link* link = slot->link;
  if (connections_ != nullptr) is_any_awaited_ = true;  // it may have ended
  if (net::Operation* operation = slots_.give_back(*slot)) {
    link->fail(status);
    operation->complete(*operation, status);
  }
  return true;
}

Status Endpoint::die_slow(int error) {
  failure_ = Status(Errc::kSystem, error);
  for (Link* link : links_) link->fail(failure_);
  slots_.end_slow(nullptr, failure_);
  return failure_;
}

/// Within a host, libfabric tells nobody that a process is gone.
void Endpoint::look_at_peers_slow() {
  const std::uint64_t now = now_ns();
  if (now - looked_at_ns_ < kLookNs) return;
  looked_at_ns_ = now;
  std::uint64_t first = UINT64_MAX;
  for (std::size_t i = 0; i < links_.size(); ++i)
    first = std::min(first, links_[i]->look_at_peer_slow());
  if (first != UINT64_MAX && is_answered_in_order()) leave_slow(first);
}

/// libfabric's shm before 2.5.
bool Endpoint::is_answered_in_order() const noexcept {
  return is_host_only(domain_.info()) && FI_VERSION_LT(::fi_version(), FI_VERSION(2, 5));
}

/// `first` never ends, and behind it nothing does. So another endpoint sends from now on, and this
/// one is left to receive, with its addresses: what comes back to it may still need them. Peers
/// know 256 endpoints, so there are few of these; then this one is of no use any more.
void Endpoint::leave_slow(std::uint64_t first) {
  // Who is gone must not be known to the next one, which would take it for one that can't be
  // attached to.
  for (std::size_t i = 0; i < links_.size(); ++i)
    first = std::min(first, links_[i]->look_at_peer_slow());
  if (links_.empty()) return;
  Sender next;
  if (left_.size() == kLeftMost || !open(next).ok()) return (void)die_slow(ENOTRECOVERABLE);
  slots_.hold_up_slow(first);
  left_.push_back(std::exchange(sender_, std::move(next)));
  for (std::size_t i = 0; i < links_.size(); ++i) links_[i]->leave_slow();
}

/// Progress is manual: whatever comes needs us.
bool Endpoint::arm(net::Wake /*wake*/) {
  if (wait_fd_ < 0 || !failure_.ok()) return false;
  if (connections_ != nullptr) {
    look_at_connections_slow();
    return connections_->can_sleep();
  }
  fid* waited = &queue_->fid;
  return ::fi_trywait(domain_.fabric.get(), &waited, 1) == 0;
}

}  // namespace larklane::ofi
