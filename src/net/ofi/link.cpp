#include "net/ofi/link.hpp"

#include <poll.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/clock.hpp"
#include "base/random.hpp"
#include "net/ofi/memory.hpp"

namespace larklane::ofi {
namespace {

/// A look at the clock and at the peer's process.
constexpr std::uint32_t kRefusalsPerLook = 1024;
/// Of what is written last: the first word is never cut.
constexpr std::uint64_t kFrontBytesMin = 8;
/// ... unless a stream is, anywhere: then as few as tell that all is there.
constexpr std::uint64_t kLastPartBytes = 4;

void* descriptor_of(const net::Transfer& transfer) {
  return static_cast<const Memory*>(transfer.memory)->descriptor();
}

bool is_set_for_libfabric(std::string_view name) {
  fi_param* all = nullptr;
  int count = 0;
  if (::fi_getparams(&all, &count) != 0) return true;
  const bool is_set = std::any_of(all, all + count, [&](const fi_param& each) {
    return name == each.name && each.value != nullptr;
  });
  ::fi_freeparams(all);
  return is_set;
}

}  // namespace

Link::Link(Endpoint& endpoint)
    : endpoint_(endpoint),
      finish_flag_(endpoint.domain().choice.finish == Finish::delivered ? FI_DELIVERY_COMPLETE : 0),
      queued_bytes_max_(queued_bytes_max(endpoint.domain().choice)),
      is_over_tcp_(is_over_tcp(endpoint.domain().info())) {
  passing_.complete = &Link::passed;
  passing_.link = this;
  endpoint_.add(*this);
}

Link::~Link() {
  // What is refused by the peer's keys is never heard of again from shm: then something is.
  const std::uint64_t first = endpoint_.slots().first_of(*this);
  if (connection_) endpoint_.connections()->remove(*connection_);
  endpoint_.slots().end_slow(this, Status(Errc::kPeerDown));
  endpoint_.remove(*this);
  if (connection_) return;
  if (first != UINT64_MAX && endpoint_.is_answered_in_order())
    endpoint_.leave_slow(first);  // the address stays: answers may still come from there
  else if (peer_ != FI_ADDR_UNSPEC)
    endpoint_.addresses().remove(peer_);
}

// What is under way must not be ended behind libfabric's back: it would still write into the
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
  offer_ = encode_offer(endpoint_.origin(), ticket, endpoint_.connections()->address());
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
  const bool is_host_bound = is_host_only(endpoint_.domain().info());
  if (is_host_bound && offer->origin.host != endpoint_.origin().host)
    return Status(Errc::kUnreachable, EHOSTUNREACH);
  if (connection_) return connect(*offer, peer_offer);
  address_ = offer->address;
  peer_ = endpoint_.addresses().add(address_);
  if (peer_ == FI_ADDR_UNSPEC) return Status(Errc::kUnreachable, EADDRNOTAVAIL);
  if (is_host_bound) watch_process(offer->origin);
  from_ = endpoint_.raw();
  failure_ = Status();
  return Status();
}

/// Best effort: a process in another name space can't be watched.
void Link::watch_process(const Origin& peer) noexcept {
  process_id_ = peer.process;
  process_.reset(static_cast<int>(::syscall(SYS_pidfd_open, process_id_, 0)));
}

std::uint64_t Link::look_at_peer_slow() {
  if (!process_) return UINT64_MAX;
  pollfd look{process_.get(), POLLIN, 0};
  if (::poll(&look, 1, 0) != 1) return UINT64_MAX;
  process_.reset();
  is_gone_ = true;
  fail(Status(Errc::kPeerDown, ESRCH));
  const std::uint64_t first = endpoint_.slots().first_of(*this);
  endpoint_.slots().end_slow(this, failure_);
  return first;
}

/// Its endpoint has another one to send by, which does not know of peers that are gone.
void Link::leave_slow() {
  if (peer_ == FI_ADDR_UNSPEC) return;
  from_ = endpoint_.raw();
  peer_ = is_gone_ ? FI_ADDR_UNSPEC : endpoint_.addresses().add(address_);
  if (peer_ == FI_ADDR_UNSPEC) fail(Status(Errc::kUnreachable, EADDRNOTAVAIL));
  if (std::exchange(passing_.is_under_way, false))  // by what has been left
    endpoint_.slots().end_slow(passing_, Status(Errc::kTransfer));
  pass_held_up_slow();
}

/// The peer serves what comes in the order in which it comes, whichever endpoint has sent it. So
/// what is held up is complete when a read is, of nothing, that was posted after it.
void Link::pass_held_up_slow() {
  if (passing_.is_under_way || !endpoint_.slots().has_held_up_of(*this)) return;
  if (peer_ == FI_ADDR_UNSPEC || !is_moved_at_once()) {
    fail(Status(Errc::kTransfer, ENOTRECOVERABLE));
    return endpoint_.slots().end_slow(this, failure_);
  }
  Slot* slot = endpoint_.slots().take(*this, passing_);
  if (slot == nullptr) return;
  fi_msg_rma nothing{};
  nothing.addr = peer_;
  nothing.context = slot;
  auto answer = posted(*slot, ::fi_readmsg(from_, &nothing, FI_COMPLETION));
  passing_.is_under_way = answer && *answer == net::Post::posted;
}

void Link::passed(net::Operation& operation, Status status) {
  auto& passing = static_cast<Passing&>(operation);
  if (std::exchange(passing.is_under_way, false))
    passing.link->endpoint_.slots().end_held_up_slow(*passing.link, status);
}

/// By one process that attaches to the other, as libfabric does where the kernel lets it: then only
/// the address is wrong. If not, it hands over piece by piece, for which it has to hear of each.
bool Link::is_moved_at_once() const noexcept {
  std::byte byte{};
  const iovec local{&byte, 1}, nowhere{nullptr, 1};
  return queued_bytes_max_ != 0 && !is_set_for_libfabric("FI_SHM_DISABLE_CMA") &&
         ::process_vm_readv(process_id_, &local, 1, &nowhere, 1, 0) == -1 && errno == EFAULT;
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
    has_posted_ = true;
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
  endpoint_.look_at_peers_slow();
  if (!failure_.ok()) return failure_;
  if (now_ns() - refused_since_ns_ < kUnreachableNs) return net::Post::retry;
  // It lives, and has been reached: it lets us wait.
  if (process_ && has_posted_) return net::Post::retry;
  // What libfabric has it may still do: whoever knows that the peer is gone ends that.
  if (endpoint_.slots().has_some_of(*this)) return net::Post::retry;
  const bool is_refused = connection_ && connection_->last_error != 0;
  fail(Status(Errc::kUnreachable, is_refused ? connection_->last_error : ETIMEDOUT));
  if (connection_) close_connection();
  return failure_;
}

Result<net::Post> Link::write(const net::Transfer& transfer, net::Operation& operation) {
  return write_any({transfer.local, transfer.bytes, descriptor_of(transfer), transfer.remote, 0, 0},
                   operation);
}

Result<net::Post> Link::write_immediate(const net::Transfer& transfer, std::uint32_t immediate,
                                        net::Operation& operation) {
  return write_any({transfer.local, transfer.bytes, descriptor_of(transfer), transfer.remote,
                    FI_REMOTE_CQ_DATA, immediate},
                   operation);
}

/// The beginning last, with the immediate, by a write of its own: the peer copies the rest
/// meanwhile.
Result<net::Post> Link::write_any(Out out, net::Operation& operation) {
  if (!is_queued(out.length)) return write_out(out, operation);
  if (out.length > queued_bytes_max_) {
    Out rest = cut(out, std::max(out.length - queued_bytes_max_, kFrontBytesMin));
    rest.flags = 0;
    auto answer = inject(rest);
    if (!answer || *answer == net::Post::retry) return answer;
  }
  return inject(out);
}

/// Shortens `out` to `bytes`. @return what is behind them
Link::Out Link::cut(Out& out, std::uint64_t bytes) noexcept {
  Out rest = out;
  rest.bytes = static_cast<const std::byte*>(out.bytes) + bytes;
  rest.length -= bytes;
  rest.to.address += bytes;
  out.length = bytes;
  return rest;
}

Result<net::Post> Link::write_small(std::span<const std::byte> bytes, net::RemoteMemory to,
                                    net::Operation& operation) {
  return write_small_out({bytes.data(), bytes.size(), nullptr, to, 0, 0}, operation);
}

Result<net::Post> Link::write_small_immediate(std::span<const std::byte> bytes,
                                              net::RemoteMemory to, std::uint32_t immediate,
                                              net::Operation& operation) {
  return write_small_out({bytes.data(), bytes.size(), nullptr, to, FI_REMOTE_CQ_DATA, immediate},
                         operation);
}

Result<net::Post> Link::write_small_wide(std::span<const std::byte> bytes, net::RemoteMemory to,
                                         std::uint64_t immediate, net::Operation& operation) {
  return write_small_out({bytes.data(), bytes.size(), nullptr, to, FI_REMOTE_CQ_DATA, immediate},
                         operation);
}

// Over sockets FI_INJECT, not fi_inject_write: that one is never heard of again, and what it has
// queued on a full socket goes out only while somebody polls.
Result<net::Post> Link::write_small_out(Out out, net::Operation& operation) {
  if (queued_bytes_max_ != 0) return inject(out);
  out.flags |= FI_INJECT;
  return write_out(out, operation);
}

/// Is copied on its way to the peer's queue, and never heard of again. @pre no more than
/// queued_bytes_max_
Result<net::Post> Link::inject(const Out& out) {
  if (!failure_.ok()) [[unlikely]]
    return failure_;
  const ssize_t result =
      (out.flags & FI_REMOTE_CQ_DATA) != 0
          ? ::fi_inject_writedata(from_, out.bytes, out.length, out.immediate, peer_,
                                  out.to.address, out.to.key)
          : ::fi_inject_write(from_, out.bytes, out.length, peer_, out.to.address, out.to.key);
  if (result == 0) [[likely]] {
    has_posted_ = true;
    refused_ = 0;
    return net::Post::done;
  }
  return refused_slow(result);
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

// The tcp provider looks at a key when a message begins, and goes on with it whatever becomes of
// the key. The answer to a read comes behind that on the same stream, and no answer when the stream
// has ended. Local memory needs no registration there.
Result<net::Post> Link::settle(net::RemoteMemory there, net::Operation& operation) {
  if (!is_over_sockets(endpoint_.domain().info())) return net::Post::done;
  if (connection_ && connection_->stage == Connection::Stage::over) return failure_;
  return read_out({reinterpret_cast<std::byte*>(&settled_), nullptr, there, sizeof settled_},
                  nullptr, operation);
}

}  // namespace larklane::ofi
