#include "net/verbs/link.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/random.hpp"
#include "net/verbs/memory.hpp"
#include "net/verbs/registration.hpp"

namespace larklane::verbs {
namespace {

constexpr std::uint8_t kHopLimit = 64;
constexpr std::uint8_t kReadsAtOnceMax = 16;

/// Of an earlier queue pair of that number no packet is taken for ours, and a stranger has to guess
/// it.
Result<QueueAddress> address_of(const SendQueue& queue) noexcept {
  std::uint32_t packet_number = 0;
  LARKLANE_TRY(fill_random(std::as_writable_bytes(std::span(&packet_number, 1))));
  return QueueAddress{queue.pair()->qp_num, packet_number & kNumberBits24};
}

std::uint8_t at_once(int device_max) noexcept {
  return static_cast<std::uint8_t>(std::clamp(device_max, 1, int{kReadsAtOnceMax}));
}

Status connect_error(int error) noexcept {
  const bool is_path = error == ENETUNREACH || error == EHOSTUNREACH || error == ETIMEDOUT;
  return {is_path ? Errc::kUnreachable : Errc::kSystem, error};
}

}  // namespace

Link::Link(Endpoint& endpoint, std::vector<std::unique_ptr<SendQueue>> writes,
           std::unique_ptr<SendQueue> reads)
    : endpoint_(endpoint),
      bytes_max_(endpoint.device().port.max_msg_sz),
      writes_(std::move(writes)),
      reads_(std::move(reads)),
      first_writes_(*writes_.front()) {
  const Device& device = endpoint.device();
  offer_ = {.is_ethernet = device.is_ethernet,
            .mtu_code = device.mtu_code,
            .reads_at_once = at_once(device.attributes.max_qp_rd_atom),
            .lid = device.port.lid,
            .gid = device.gid,
            .is_of_channel = device.channel_queues != 0,
            .read_queue = {},
            .write_queues = {}};
  SendQueue* last = reads_.get();
  for (const auto& queue : writes_) {
    last = last->partner = queue.get();
    if (offer_.is_of_channel) endpoint_.hear_by(*queue->pair(), *this);
  }
  last->partner = reads_.get();
}

Status Link::make_offer() {
  auto reads = address_of(*reads_);
  if (!reads) return reads.error();
  offer_.read_queue = *reads;
  for (const auto& queue : writes_) {
    auto address = address_of(*queue);
    if (!address) return address.error();
    offer_.write_queues.push_back(*address);
  }
  offer_bytes_ = encode(offer_);
  return {};
}

Link::~Link() {
  for (const auto& queue : writes_) {
    endpoint_.stop_hearing_by(*queue->pair());
    endpoint_.close_queue(*queue);
  }
  endpoint_.close_queue(*reads_);
}

Result<std::unique_ptr<Link>> Link::create(Endpoint& endpoint, std::string* reason) {
  std::vector<std::unique_ptr<SendQueue>> writes;
  const auto give_up = [&](Status error) {
    for (const auto& queue : writes) endpoint.close_queue(*queue);
    return error;
  };
  std::uint32_t inline_bytes = kSmallBytesMax;
  while (writes.size() < std::max(endpoint.device().channel_queues, 1u)) {
    auto queue = endpoint.open_queue(kWriteShape, inline_bytes, reason);
    if (!queue && inline_bytes != 0 && queue.error() == Status(Errc::kSystem, EINVAL)) {
      inline_bytes = 0;  // it sends nothing inline
      continue;
    }
    if (!queue) return give_up(queue.error());
    writes.push_back(std::move(*queue));
  }
  auto reads = endpoint.open_queue(kReadShape, 0, reason);
  if (!reads) return give_up(reads.error());
  std::unique_ptr<Link> link(new Link(endpoint, std::move(writes), std::move(*reads)));
  LARKLANE_TRY(link->make_offer());
  for (const auto& queue : link->writes_)
    if (inline_bytes == 0) LARKLANE_TRY(link->make_copies(*queue, reason));
  return link;
}

/// The others end unused: nothing has been posted.
void Link::use_queues(std::uint32_t count) {
  if (!offer_.is_of_channel || count == 0 || count >= writes_.size()) return;
  while (writes_.size() > count) {
    SendQueue& last = *writes_.back();
    endpoint_.stop_hearing_by(*last.pair());
    endpoint_.close_queue(last);
    writes_.pop_back();
  }
  writes_.back()->partner = reads_.get();
  offer_.write_queues.resize(count);
  offer_bytes_ = encode(offer_);
}

Status Link::make_copies(SendQueue& writes, std::string* reason) {
  const std::size_t bytes = std::size_t{kWriteShape.depth} * kSmallBytesMax;
  auto copies = std::make_unique<std::byte[]>(bytes);
  constexpr int kLocal = IBV_ACCESS_LOCAL_WRITE;
  Registration registration = register_range(endpoint_.domain(), copies.get(), bytes, kLocal);
  if (!registration) {
    *reason = std::string("small writes can't be registered: ") + std::strerror(errno);
    return {Errc::kNoMemory, errno};
  }
  writes.use_copies(std::move(copies), std::move(registration));
  return {};
}

Status Link::connect(std::span<const std::byte> peer_offer) {
  auto peer = decode(peer_offer);
  if (!peer) return peer.error();
  if (is_connected_) return Errc::kProtocol;
  if (peer->is_ethernet != offer_.is_ethernet) return {Errc::kUnreachable, EPROTONOSUPPORT};
  if (peer->is_of_channel != offer_.is_of_channel) return net::kUnlikeLinks;
  use_queues(static_cast<std::uint32_t>(peer->write_queues.size()));
  for (std::size_t i = 0; i < writes_.size(); ++i)
    LARKLANE_TRY(
        connect_pair(writes_[i]->pair(), offer_.write_queues[i], peer->write_queues[i], *peer));
  LARKLANE_TRY(connect_pair(reads_->pair(), offer_.read_queue, peer->read_queue, *peer));
  is_connected_ = true;
  return {};
}

Status Link::connect_pair(ibv_qp* pair, const QueueAddress& own, const QueueAddress& peers,
                          const Offer& peer) {
  const Device& device = endpoint_.device();
  ibv_qp_attr ready_to_receive{};
  ready_to_receive.qp_state = IBV_QPS_RTR;
  ready_to_receive.path_mtu = static_cast<ibv_mtu>(std::min(device.mtu_code, peer.mtu_code));
  ready_to_receive.dest_qp_num = peers.number;
  ready_to_receive.rq_psn = peers.first_packet;
  ready_to_receive.max_dest_rd_atomic = offer_.reads_at_once;
  ready_to_receive.min_rnr_timer = 12;  // never used: no receiver is ever not ready
  ibv_ah_attr& path = ready_to_receive.ah_attr;
  path.port_num = device.port_number;
  path.sl = device.service_level;
  path.dlid = peer.lid;
  // Within an InfiniBand subnet the LID is enough.
  const bool same_subnet = std::equal(device.gid.begin(), device.gid.begin() + 8, peer.gid.begin());
  if (device.is_ethernet || !same_subnet || peer.lid == 0) {
    path.is_global = 1;
    path.grh.hop_limit = kHopLimit;
    path.grh.sgid_index = device.gid_index;
    std::memcpy(path.grh.dgid.raw, peer.gid.data(), peer.gid.size());
  }
  int error = ibv_modify_qp(pair, &ready_to_receive,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error != 0) return connect_error(error);
  ibv_qp_attr ready_to_send{};
  ready_to_send.qp_state = IBV_QPS_RTS;
  ready_to_send.timeout = kAckTimeout;
  ready_to_send.retry_cnt = kAckRetries;
  ready_to_send.rnr_retry = 0;  // a receiver that is not ready is our error: seen at once
  ready_to_send.sq_psn = own.first_packet;
  ready_to_send.max_rd_atomic =
      std::min(at_once(device.attributes.max_qp_init_rd_atom), peer.reads_at_once);
  error = ibv_modify_qp(pair, &ready_to_send,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  return error != 0 ? connect_error(error) : Status();
}

[[gnu::always_inline]] inline Result<net::Post> Link::post(SendQueue& queue,
                                                           const SendQueue::Request& request,
                                                           net::Operation& operation) {
  auto posted = queue.post(request, operation);
  if (!posted) [[unlikely]]
    return broken_slow(queue, posted.error());
  return posted;
}

Result<net::Post> Link::broken_slow(SendQueue& queue, Status error) {
  endpoint_.fail_partners(queue, error);
  endpoint_.set_pending(queue);
  return error;
}

void Link::carry_only(net::ChannelHalf half, std::optional<std::uint16_t> slot,
                      std::uint32_t partitions) {
  channel_ = {half, slot, net::Cells(partitions)};
}

std::optional<std::uint32_t> Link::immediate_here(std::uint32_t immediate) const noexcept {
  if (!channel_ || !channel_->slot) return std::nullopt;
  const std::uint16_t token = net::paper::to_token(immediate, channel_->cells);
  const bool is_to_send = token == net::kDemandToken;
  if (is_to_send != (channel_->half == net::ChannelHalf::send)) return std::nullopt;
  return net::make_immediate(*channel_->slot, token);
}

std::uint32_t Link::immediate_there(std::uint32_t immediate) const noexcept {
  if (!channel_) return immediate;
  return net::paper::of_token(net::token_of(immediate), channel_->cells);
}

/// Neighbours go by one queue.
SendQueue& Link::queue_of(std::uint32_t immediate) const noexcept {
  if (!channel_ || net::token_of(immediate) == net::kDemandToken) return first_writes_;
  const std::uint32_t cell = net::first_of(net::token_of(immediate));
  return *writes_[cell * writes_.size() / channel_->cells.count()];
}

[[gnu::always_inline]] inline Result<net::Post> Link::post_transfer(SendQueue& queue,
                                                                    ibv_wr_opcode opcode,
                                                                    const net::Transfer& transfer,
                                                                    std::uint32_t immediate,
                                                                    net::Operation& operation) {
  if (transfer.bytes > bytes_max_) [[unlikely]]
    return Errc::kInvalidArgument;
  const auto* memory = static_cast<const Memory*>(transfer.memory);
  return post(queue,
              {.opcode = opcode,
               .local = transfer.local,
               .bytes = static_cast<std::uint32_t>(transfer.bytes),
               .local_key = memory != nullptr ? memory->local_key() : 0,
               .remote = transfer.remote,
               .immediate = immediate},
              operation);
}

Result<net::Post> Link::post_small(ibv_wr_opcode opcode, std::span<const std::byte> bytes,
                                   net::RemoteMemory to, std::uint32_t immediate, unsigned flags,
                                   net::Operation& operation) {
  if (bytes.size() > kSmallBytesMax) return Errc::kInvalidArgument;
  return post(first_writes_,
              {.opcode = opcode,
               .local = const_cast<std::byte*>(bytes.data()),  // read only
               .bytes = static_cast<std::uint32_t>(bytes.size()),
               .local_key = 0,
               .remote = to,
               .immediate = immediate,
               .is_small = true,
               .flags = flags},
              operation);
}

Result<net::Post> Link::write(const net::Transfer& transfer, net::Operation& operation) {
  return post_transfer(first_writes_, IBV_WR_RDMA_WRITE, transfer, 0, operation);
}

Result<net::Post> Link::write_immediate(const net::Transfer& transfer, std::uint32_t immediate,
                                        net::Operation& operation) {
  return post_transfer(queue_of(immediate), IBV_WR_RDMA_WRITE_WITH_IMM, transfer,
                       immediate_there(immediate), operation);
}

net::PostPrepared Link::prepare(const net::Transfer& transfer, std::uint32_t immediate,
                                net::Operation& operation) {
  const auto* memory = static_cast<const Memory*>(transfer.memory);
  if (operation.wakes || transfer.bytes == 0 || transfer.bytes > bytes_max_ || memory == nullptr)
    return nullptr;
  new (operation.provider_space) SendQueue::Prepared{
      {reinterpret_cast<std::uintptr_t>(transfer.local), static_cast<std::uint32_t>(transfer.bytes),
       memory->local_key()},
      {transfer.remote.address, static_cast<std::uint32_t>(transfer.remote.key)},
      htonl(immediate_there(immediate)),
      this,
      &queue_of(immediate)};
  return post_prepared_to(queue_of(immediate));
}

template <bool kIsExtended>
Result<net::Post> Link::post_prepared(net::Operation& operation) {
  auto& prepared = *std::launder(reinterpret_cast<SendQueue::Prepared*>(operation.provider_space));
  SendQueue& queue = *prepared.queue;
  const int error = queue.hand_over<kIsExtended>(prepared, operation);
  if (error != 0) [[unlikely]]
    return prepared.link->not_posted_slow(queue, operation, error);
  return queue.posted();
}

net::PostPrepared Link::post_prepared_to(const SendQueue& queue) noexcept {
  return queue.is_extended() ? &Link::post_prepared<true> : &Link::post_prepared<false>;
}

[[gnu::noinline]] Result<net::Post> Link::not_posted_slow(SendQueue& queue,
                                                          net::Operation& operation, int error) {
  if (error == SendQueue::kNoRoom && queue.find_room_slow())
    return post_prepared_to(queue)(operation);
  auto answer = queue.not_posted_slow(error);
  return answer ? answer : broken_slow(queue, answer.error());
}

Result<net::Post> Link::write_small(std::span<const std::byte> bytes, net::RemoteMemory to,
                                    net::Operation& operation) {
  return post_small(IBV_WR_RDMA_WRITE, bytes, to, 0, 0, operation);
}

Result<net::Post> Link::write_small_immediate(std::span<const std::byte> bytes,
                                              net::RemoteMemory to, std::uint32_t immediate,
                                              net::Operation& operation) {
  return post_small(IBV_WR_RDMA_WRITE_WITH_IMM, bytes, to, immediate_there(immediate),
                    IBV_SEND_SOLICITED, operation);
}

Result<net::Post> Link::read(const net::Transfer& transfer, net::Operation& operation) {
  return post_transfer(*reads_, IBV_WR_RDMA_READ, transfer, 0, operation);
}

void Link::end(Status status) {
  first_writes_.fail_all(status);
  endpoint_.set_pending(first_writes_);
  endpoint_.fail_partners(first_writes_, status);
}

/// A write of no bytes: the peer's device acknowledges it, and looks at no key (IBTA, C9-88).
Result<net::Post> Link::probe(net::Operation& operation) {
  return post_transfer(first_writes_, IBV_WR_RDMA_WRITE, {}, 0, operation);
}

}  // namespace larklane::verbs
