// The fake RDMA device: carries out work requests in memory.

#include "device.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace larklane::verbs {
namespace {

FakeDevice* current = nullptr;

FakeQueuePair& fake(ibv_qp* pair) { return *static_cast<FakeQueuePair*>(pair); }
FakeCompletionQueue& fake(ibv_cq* queue) { return *static_cast<FakeCompletionQueue*>(queue); }
FakeReceiveQueue& fake(ibv_srq* queue) { return *static_cast<FakeReceiveQueue*>(queue); }

bool is_signalled(const FakeRequest& request) {
  return (request.work.send_flags & IBV_SEND_SIGNALED) != 0;
}

int post_send(ibv_qp* pair, ibv_send_wr* work, ibv_send_wr** bad) {
  FakeQueuePair& queue = fake(pair);
  for (; work != nullptr; work = work->next) {
    *bad = work;
    if (current->post_send_error != 0) return current->post_send_error;
    if (queue.requests.size() + queue.unfreed >= queue.made.cap.max_send_wr) return ENOMEM;
    FakeRequest request{*work, {work->sg_list, work->sg_list + work->num_sge}, {}};
    if ((work->send_flags & IBV_SEND_INLINE) != 0) {
      for (ibv_sge& element : request.elements) {
        if (element.length > queue.made.cap.max_inline_data) return EINVAL;
        const auto* from = reinterpret_cast<const std::byte*>(element.addr);
        request.inlined.assign(from, from + element.length);
      }
    }
    if (queue.state == IBV_QPS_ERR) {
      ibv_wc flushed{};
      flushed.wr_id = work->wr_id;
      flushed.status = IBV_WC_WR_FLUSH_ERR;
      current->complete(fake(queue.send_cq), flushed);
      continue;
    }
    queue.requests.push_back(std::move(request));
  }
  return 0;
}

int poll_cq(ibv_cq* queue, int most, ibv_wc* completions) {
  if (current->is_poll_broken) return -1;
  auto& waiting = fake(queue).completions;
  int count = 0;
  for (; count < most && !waiting.empty(); ++count) {
    completions[count] = waiting.front();
    waiting.pop_front();
    const auto pair = current->pairs.find(completions[count].qp_num);
    if (pair != current->pairs.end()) pair->second->unfreed = 0;
  }
  return count;
}

int req_notify_cq(ibv_cq* queue, int only_solicited) {
  FakeCompletionQueue& armed = fake(queue);
  armed.is_for_solicited = only_solicited != 0 && (armed.is_for_solicited || !armed.is_armed);
  armed.is_armed = true;
  return 0;
}

int post_srq_recv(ibv_srq* queue, ibv_recv_wr* work, ibv_recv_wr** bad) {
  for (; work != nullptr; work = work->next) {
    *bad = work;
    if (current->post_receive_error != 0) return current->post_receive_error;
    if (fake(queue).posted == fake(queue).posted_max) return ENOMEM;
    ++fake(queue).posted;
    fake(queue).wr_id = work->wr_id;
  }
  return 0;
}

/// Where a request's bytes are on our side.
std::byte* local_bytes(FakeRequest& request) {
  if (!request.inlined.empty()) return request.inlined.data();
  return reinterpret_cast<std::byte*>(request.elements[0].addr);
}

// ibv_wr_*, built up and then posted as above.

FakeQueuePair& fake(ibv_qp_ex* pair) {
  return *static_cast<FakeQueuePair*>(pair->qp_base.qp_context);
}

void build(ibv_qp_ex* pair, ibv_wr_opcode opcode, std::uint32_t key, std::uint64_t address) {
  ibv_send_wr& work = fake(pair).building;
  work = {};
  work.wr_id = pair->wr_id;
  work.send_flags = pair->wr_flags;
  work.opcode = opcode;
  work.wr.rdma.remote_addr = address;
  work.wr.rdma.rkey = key;
}
void wr_write(ibv_qp_ex* pair, std::uint32_t key, std::uint64_t address) {
  build(pair, IBV_WR_RDMA_WRITE, key, address);
}
void wr_write_immediate(ibv_qp_ex* pair, std::uint32_t key, std::uint64_t address, __be32 data) {
  build(pair, IBV_WR_RDMA_WRITE_WITH_IMM, key, address);
  fake(pair).building.imm_data = data;
}
void wr_read(ibv_qp_ex* pair, std::uint32_t key, std::uint64_t address) {
  build(pair, IBV_WR_RDMA_READ, key, address);
}
void wr_element(ibv_qp_ex* pair, std::uint32_t key, std::uint64_t address, std::uint32_t bytes) {
  FakeQueuePair& queue = fake(pair);
  queue.element = {address, bytes, key};
  queue.building.num_sge = bytes == 0 ? 0 : 1;
}
void wr_inline(ibv_qp_ex* pair, void* from, std::size_t bytes) {
  wr_element(pair, 0, reinterpret_cast<std::uintptr_t>(from), static_cast<std::uint32_t>(bytes));
  fake(pair).building.send_flags |= IBV_SEND_INLINE;
}
void wr_start(ibv_qp_ex*) {}
int wr_complete(ibv_qp_ex* pair) {
  FakeQueuePair& queue = fake(pair);
  queue.building.sg_list = &queue.element;
  ibv_send_wr* bad = nullptr;
  return post_send(&queue, &queue.building, &bad);
}

ibv_qp* create_extended(ibv_context*, ibv_qp_init_attr_ex* attributes) {
  // The plain attributes are the beginning of these.
  ibv_qp* const made =
      ibv_create_qp(attributes->pd, reinterpret_cast<ibv_qp_init_attr*>(attributes));
  if (made == nullptr) return nullptr;
  ibv_qp_ex& extended = fake(made).extended;
  extended.qp_base.qp_context = &fake(made);
  extended.wr_rdma_write = &wr_write;
  extended.wr_rdma_write_imm = &wr_write_immediate;
  extended.wr_rdma_read = &wr_read;
  extended.wr_set_sge = &wr_element;
  extended.wr_set_inline_data = &wr_inline;
  extended.wr_start = &wr_start;
  extended.wr_complete = &wr_complete;
  return made;
}

ibv_td* make_thread_domain(ibv_context* context, ibv_td_init_attr*) {
  ++current->thread_domains;
  return new ibv_td{context};
}
int end_thread_domain(ibv_td* domain) {
  --current->thread_domains;
  delete domain;
  return 0;
}
ibv_pd* make_parent_domain(ibv_context* context, ibv_parent_domain_init_attr*) {
  return *current->parent_domains.insert(new ibv_pd{context, 0}).first;
}

}  // namespace

void FakeDevice::offer_extended() {
  context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  whole_context.sz = sizeof whole_context;
  whole_context.create_qp_ex = &create_extended;
  whole_context.alloc_td = &make_thread_domain;
  whole_context.dealloc_td = &end_thread_domain;
  whole_context.alloc_parent_domain = &make_parent_domain;
}

FakeDevice::FakeDevice() {
  current = this;
  std::strcpy(device.name, "fake0");
  context.device = &device;
  context.async_fd = -1;
  context.ops.post_send = &post_send;
  context.ops.poll_cq = &poll_cq;
  context.ops.req_notify_cq = &req_notify_cq;
  context.ops.post_srq_recv = &post_srq_recv;
  attributes.phys_port_cnt = 1;
  attributes.max_srq_wr = 1000;
  attributes.max_cq = 10;
  attributes.max_cqe = 32767;
  attributes.max_qp = 1000;
  attributes.max_qp_wr = 4096;
  attributes.max_qp_rd_atom = 128;
  attributes.max_qp_init_rd_atom = 8;
  port.state = IBV_PORT_ACTIVE;
  port.active_mtu = IBV_MTU_4096;
  port.max_msg_sz = 1u << 23;
  port.gid_tbl_len = 1;
  port.link_layer = IBV_LINK_LAYER_ETHERNET;
  ibv_gid_entry gid{};
  gid.gid_type = IBV_GID_TYPE_ROCE_V2;
  gid.gid.raw[10] = gid.gid.raw[11] = 0xff;
  gid.gid.raw[12] = 10;
  gid.gid.raw[15] = 1;
  gids = {gid};
  if (::pipe2(event_pipe, O_CLOEXEC | O_NONBLOCK) != 0) std::abort();
}

FakeDevice::~FakeDevice() {
  ::close(event_pipe[0]);
  ::close(event_pipe[1]);
  current = nullptr;
}

FakeDevice& FakeDevice::get() { return *current; }

/// As Soft-RoCE does: of those that are not solicited those with errors raise no event, either.
void FakeDevice::complete(FakeCompletionQueue& queue, const ibv_wc& completion, bool is_solicited) {
  if (queue.completions.size() >= static_cast<std::size_t>(queue.cqe)) {
    ++overruns;
    return;
  }
  queue.completions.push_back(completion);
  if (!queue.is_armed || (queue.is_for_solicited && !is_solicited)) return;
  queue.is_armed = false;
  const char event = 1;
  if (::write(event_pipe[1], &event, 1) == 1) ++events_unacknowledged;
}

void FakeDevice::fail(FakeQueuePair& pair, ibv_wc_status status) {
  pair.state = IBV_QPS_ERR;
  pair.unfreed = 0;
  while (!pair.requests.empty()) {
    ibv_wc failed{};
    failed.wr_id = pair.requests.front().work.wr_id;
    failed.status = std::exchange(status, IBV_WC_WR_FLUSH_ERR);
    failed.qp_num = pair.qp_num;
    pair.requests.pop_front();
    complete(fake(pair.send_cq), failed);
  }
}

void FakeDevice::fail_receive(FakeQueuePair& pair, ibv_wc_status status,
                              ibv_wc_status request_status) {
  FakeReceiveQueue& receives = fake(pair.srq);
  if (receives.posted == 0) std::abort();
  --receives.posted;
  ibv_wc failed{};
  failed.wr_id = receives.wr_id;
  failed.status = status;
  failed.qp_num = pair.qp_num;
  // The other fields mean nothing.
  failed.wc_flags = IBV_WC_WITH_IMM;
  failed.imm_data = 1;
  complete(fake(pair.recv_cq), failed);
  fail(pair, request_status);
}

void FakeDevice::carry_out(FakeQueuePair& pair, const FakeRequest& posted) {
  FakeRequest request = posted;
  const bool has_immediate = request.work.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  const auto peer = pairs.find(pair.peer);
  if (peer == pairs.end()) return fail(pair, IBV_WC_RETRY_EXC_ERR);
  FakeReceiveQueue& receives = fake(peer->second->srq);
  if (has_immediate && receives.posted == 0) {
    ++not_ready;
    return fail(pair, IBV_WC_RNR_RETRY_EXC_ERR);
  }
  pair.requests.pop_front();
  if (!request.elements.empty()) {
    auto* remote = reinterpret_cast<std::byte*>(request.work.wr.rdma.remote_addr);
    const bool is_read = request.work.opcode == IBV_WR_RDMA_READ;
    std::byte* local = local_bytes(request);
    std::memcpy(is_read ? local : remote, is_read ? remote : local, request.elements[0].length);
  }
  if (has_immediate) {
    --receives.posted;
    ibv_wc arrived{};
    arrived.wr_id = receives.wr_id;
    arrived.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
    arrived.wc_flags = IBV_WC_WITH_IMM;
    arrived.imm_data = request.work.imm_data;
    arrived.qp_num = peer->second->qp_num;
    complete(fake(peer->second->recv_cq), arrived,
             (request.work.send_flags & IBV_SEND_SOLICITED) != 0);
  }
  if (!is_signalled(request)) {
    ++pair.unfreed;
    return;
  }
  ibv_wc done{};
  done.wr_id = request.work.wr_id;
  done.qp_num = pair.qp_num;
  complete(fake(pair.send_cq), done);
}

std::uint32_t FakeDevice::run(std::uint32_t most) {
  std::uint32_t count = 0;
  for (bool moved = true; moved && count < most;) {
    moved = false;
    for (const auto& [number, pair] : pairs) {
      if (pair->requests.empty() || count == most) continue;
      const FakeRequest request = pair->requests.front();
      carry_out(*pair, request);
      moved = true;
      ++count;
      ++carried_out;
    }
  }
  return count;
}

std::uint32_t FakeDevice::waiting() const {
  std::size_t count = 0;
  for (const auto& [number, pair] : pairs) count += pair->requests.size();
  return static_cast<std::uint32_t>(count);
}

}  // namespace larklane::verbs
