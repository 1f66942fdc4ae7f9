#include "net/ofi/endpoint.hpp"

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "net/ofi/link.hpp"

namespace larklane::ofi {
namespace {

/// Of one fi_cq_read: 640 bytes of stack.
constexpr std::uint32_t kEntriesAtOnce = 16;
/// Polls between two looks at connections, each of which is a system call.
constexpr std::uint32_t kPollsPerLook = 4096;
/// The same while a connection is awaited.
constexpr std::uint32_t kPollsPerConnectionLook = 8;
/// As many as may be pending, and as many immediates before they wait elsewhere.
constexpr std::size_t kCompletions = 4 * kQueueDepth;

}  // namespace

Status status_of(int error, Errc code) noexcept {
  switch (error) {
    case FI_ECANCELED:  // an operation that waits on a connection that ends
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
    LARKLANE_TRY(endpoint->open_sender());
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
  return error == 0 ? Status() : status_of(error, Errc::kSystem);
}

Status Endpoint::open_sender() {
  int error = addresses_.open(*domain_.domain);
  if (error != 0) return status_of(error, Errc::kSystem);
  fid_ep* endpoint = nullptr;
  error = ::fi_endpoint(domain_.domain.get(), domain_.choice.info.get(), &endpoint, nullptr);
  if (error != 0) return status_of(-error, Errc::kSystem);
  sender_.reset(endpoint);
  error = ::fi_ep_bind(endpoint, &queue_->fid, FI_TRANSMIT | FI_RECV);
  if (error == 0) error = ::fi_ep_bind(endpoint, &addresses_.table().fid, 0);
  if (error == 0) error = ::fi_enable(endpoint);
  return error == 0 ? Status() : status_of(-error, Errc::kSystem);
}

Status Endpoint::make_offer() {
  std::array<std::byte, net::kOfferBytesMax / 2> name{};
  std::size_t length = name.size();
  const int error = ::fi_getname(&raw()->fid, name.data(), &length);
  if (error != 0) return status_of(-error, Errc::kSystem);
  offer_ = encode_offer(domain_.info().addr_format, {}, std::span(name).first(length));
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
  const std::uint32_t polls_per_look = is_any_awaited_ ? kPollsPerConnectionLook : kPollsPerLook;
  if (++polls_ % polls_per_look == 0 && connections_ != nullptr) [[unlikely]]
    look_at_connections_slow();
  return served;
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

/// Progress is manual: each arrival needs us.
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
