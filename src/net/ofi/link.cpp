#include "net/ofi/link.hpp"

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.hpp"
#include "base/random.hpp"
#include "net/ofi/memory.hpp"

namespace larklane::ofi {
namespace {

/// Refusals between two looks at the clock.
constexpr std::uint32_t kRefusalsPerLook = 1024;
/// Of a write in parts the bytes that go last: as few as tell that all is there.
constexpr std::uint64_t kLastPartBytes = 4;

void* descriptor_of(const net::Transfer& transfer) {
  return static_cast<const Memory*>(transfer.memory)->descriptor();
}

}  // namespace

Link::Link(Endpoint& endpoint)
    : endpoint_(endpoint),
      finish_flag_(endpoint.domain().choice.finish == Finish::delivered ? FI_DELIVERY_COMPLETE : 0),
      is_over_tcp_(is_over_tcp(endpoint.domain().info())) {
  endpoint_.add(*this);
}

Link::~Link() {
  if (connection_) endpoint_.connections()->remove(*connection_);
  endpoint_.slots().end_slow(this, Status(Errc::kPeerDown));
  endpoint_.remove(*this);
  if (!connection_ && peer_ != FI_ADDR_UNSPEC) endpoint_.addresses().remove(peer_);
}

// A pending operation must not be ended behind libfabric's back: it would still write into the
// buffers. So its connection is.
void Link::end(Status status) {
  fail(status);
  if (connection_) close_connection();
}

void Link::close_connection() {
  from_ = nullptr;
  endpoint_.connections()->close(*connection_);
  endpoint_.slots().end_slow(this, failure_);
}

/// @pre connections()
Status Link::await_connection() {
  connection_ = std::make_unique<Connection>(*this);
  Ticket& ticket = connection_->ticket;
  LARKLANE_TRY(fill_random(ticket.request));
  LARKLANE_TRY(fill_random(ticket.answer));
  if (const int error = endpoint_.connections()->await(*connection_); error != 0)
    return status_of(error, Errc::kSystem);
  offer_ = encode_offer(endpoint_.domain().info().addr_format, ticket,
                        endpoint_.connections()->address());
  endpoint_.look_at_connections();
  return {};
}

/// Of two links the one with the greater offer requests.
Status Link::connect(const Offer& offer, std::span<const std::byte> bytes) {
  if (std::ranges::equal(bytes, offer_)) return Status(Errc::kUnreachable, ELOOP);
  // The peer may have connected, and gone, before its offer has come here.
  if (connection_->stage == Connection::Stage::over)
    return Status(Errc::kPeerDown,
                  connection_->last_error != 0 ? connection_->last_error : ENOTCONN);
  connection_->peer_ticket = offer.ticket;
  connection_->peer_address = offer.address;
  connection_->is_ours_to_request = std::ranges::lexicographical_compare(bytes, offer_);
  failure_ = Status();
  peer_ = 0;
  if (connection_->is_ours_to_request && connection_->stage == Connection::Stage::offered)
    endpoint_.connections()->request(*connection_);
  endpoint_.look_at_connections();
  return {};
}

void Link::on_disconnected(int error) {
  from_ = nullptr;
  fail(Status(Errc::kPeerDown, error));
  endpoint_.slots().end_slow(this, failure_);
}

Status Link::connect(std::span<const std::byte> peer_offer) {
  auto offer = decode_offer(peer_offer, this->offer());
  if (!offer) return offer.error();
  if (connection_) return connect(*offer, peer_offer);
  peer_ = endpoint_.addresses().add(offer->address);
  if (peer_ == FI_ADDR_UNSPEC) return Status(Errc::kUnreachable, EADDRNOTAVAIL);
  from_ = endpoint_.raw();
  failure_ = Status();
  return Status();
}

Result<net::Post> Link::write_out(const Out& out, net::Operation& operation) {
  if (!failure_.ok()) [[unlikely]]
    return failure_;
  if (from_ == nullptr) [[unlikely]]
    return not_now_slow();
  Slot* slot = endpoint_.slots().take(*this, operation);
  if (slot == nullptr) return net::Post::retry;
  const bool is_in_parts = operation.is_looked_for && is_over_tcp_ && out.length > kLastPartBytes;
  const std::uint64_t last = is_in_parts ? kLastPartBytes : 0;
  auto* const bytes = static_cast<std::byte*>(const_cast<void*>(out.bytes));
  const iovec local[] = {{bytes + last, out.length - last}, {bytes, last}};
  const fi_rma_iov remote[] = {{out.to.address + last, out.length - last, out.to.key},
                               {out.to.address, last, out.to.key}};
  void* descriptors[] = {out.descriptor, out.descriptor};
  fi_msg_rma message{};
  message.msg_iov = local;
  message.desc = descriptors;
  message.iov_count = message.rma_iov_count = is_in_parts ? 2 : 1;
  message.addr = peer_;
  message.rma_iov = remote;
  message.context = slot;
  message.data = out.immediate;
  return posted(*slot, ::fi_writemsg(from_, &message, out.flags | finish_flag_ | FI_COMPLETION));
}

Result<net::Post> Link::posted(Slot& slot, ssize_t result) {
  if (result == 0) [[likely]] {
    refused_ = 0;
    return net::Post::posted;
  }
  endpoint_.slots().give_back(slot);
  return refused_slow(result);
}

Result<net::Post> Link::refused_slow(ssize_t result) {
  if (result == -FI_EAGAIN) return not_now_slow();
  fail(status_of(static_cast<int>(-result), Errc::kTransfer));
  return failure_;
}

/// The queue is full, or there is no connection yet, or there will be none.
Result<net::Post> Link::not_now_slow() {
  if (++refused_ == 1) refused_since_ns_ = now_ns();
  if (refused_ % kRefusalsPerLook != 0) return net::Post::retry;
  if (now_ns() - refused_since_ns_ < kUnreachableNs) return net::Post::retry;
  // libfabric may still complete pending operations: the layer that knows that the peer is gone
  // ends them.
  if (endpoint_.slots().has_some_of(*this)) return net::Post::retry;
  const bool is_refused = connection_ && connection_->last_error != 0;
  fail(Status(Errc::kUnreachable, is_refused ? connection_->last_error : ETIMEDOUT));
  if (connection_) close_connection();
  return failure_;
}

Result<net::Post> Link::write(const net::Transfer& transfer, net::Operation& operation) {
  return write_out({transfer.local, transfer.bytes, descriptor_of(transfer), transfer.remote, 0, 0},
                   operation);
}

Result<net::Post> Link::write_immediate(const net::Transfer& transfer, std::uint32_t immediate,
                                        net::Operation& operation) {
  return write_out({transfer.local, transfer.bytes, descriptor_of(transfer), transfer.remote,
                    FI_REMOTE_CQ_DATA, immediate},
                   operation);
}

// FI_INJECT, not fi_inject_write: that one reports no completion, and bytes that it has queued on a
// full socket go out only while a thread polls.
Result<net::Post> Link::write_small(std::span<const std::byte> bytes, net::RemoteMemory to,
                                    net::Operation& operation) {
  return write_out({bytes.data(), bytes.size(), nullptr, to, FI_INJECT, 0}, operation);
}

Result<net::Post> Link::write_small_immediate(std::span<const std::byte> bytes,
                                              net::RemoteMemory to, std::uint32_t immediate,
                                              net::Operation& operation) {
  return write_out(
      {bytes.data(), bytes.size(), nullptr, to, FI_INJECT | FI_REMOTE_CQ_DATA, immediate},
      operation);
}

Result<net::Post> Link::write_small_wide(std::span<const std::byte> bytes, net::RemoteMemory to,
                                         std::uint64_t immediate, net::Operation& operation) {
  return write_out(
      {bytes.data(), bytes.size(), nullptr, to, FI_INJECT | FI_REMOTE_CQ_DATA, immediate},
      operation);
}

Result<net::Post> Link::read(const net::Transfer& transfer, net::Operation& operation) {
  if (!failure_.ok()) [[unlikely]]
    return failure_;
  return read_out(transfer, descriptor_of(transfer), operation);
}

Result<net::Post> Link::read_out(const net::Transfer& transfer, void* descriptor,
                                 net::Operation& operation) {
  if (from_ == nullptr) [[unlikely]]
    return not_now_slow();
  Slot* slot = endpoint_.slots().take(*this, operation);
  if (slot == nullptr) return net::Post::retry;
  return posted(*slot, ::fi_read(from_, transfer.local, transfer.bytes, descriptor, peer_,
                                 transfer.remote.address, transfer.remote.key, slot));
}

// The tcp provider checks a key when a message begins, and goes on with the message even if the key
// is removed. The answer to a read comes behind that on the same stream, and no answer when the
// stream has ended. Local memory needs no registration there.
Result<net::Post> Link::settle(net::RemoteMemory there, net::Operation& operation) {
  if (!is_over_sockets(endpoint_.domain().info())) return net::Post::done;
  if (connection_ && connection_->stage == Connection::Stage::over) return failure_;
  return read_out({reinterpret_cast<std::byte*>(&settled_), nullptr, there, sizeof settled_},
                  nullptr, operation);
}

}  // namespace larklane::ofi
