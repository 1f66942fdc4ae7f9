// libibverbs' calls that make and change objects, on the device of the running test.

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "device.hpp"

#undef ibv_query_port
#undef ibv_reg_mr

using namespace larklane::verbs;

namespace {

FakeDevice& device() { return FakeDevice::get(); }

void* page_of(void* start) {
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(start) & ~std::uintptr_t{4095});
}

template <class T>
T* refuse(int error) {
  errno = error;
  return nullptr;
}

}  // namespace

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  *count = device().is_present ? 1 : 0;
  return new ibv_device* [2] { device().is_present ? &device().device : nullptr, nullptr };
}
void ibv_free_device_list(ibv_device** list) { delete[] list; }
const char* ibv_get_device_name(ibv_device* one) { return one->name; }

ibv_context* ibv_open_device(ibv_device*) {
  if (device().open_error != 0) return refuse<ibv_context>(device().open_error);
  return &device().context;
}
int ibv_close_device(ibv_context*) { return 0; }

int ibv_query_device(ibv_context*, ibv_device_attr* attributes) {
  *attributes = device().attributes;
  return 0;
}
int ibv_query_port(ibv_context*, std::uint8_t, _compat_ibv_port_attr* port) {
  std::memcpy(port, &device().port, offsetof(ibv_port_attr, port_cap_flags2));
  return 0;
}
int _ibv_query_gid_ex(ibv_context*, std::uint32_t, std::uint32_t index, ibv_gid_entry* entry,
                      std::uint32_t, std::size_t) {
  if (index >= device().gids.size()) return ENODATA;
  *entry = device().gids[index];
  entry->gid_index = index;
  return 0;
}

ibv_pd* ibv_alloc_pd(ibv_context* context) { return new ibv_pd{context, 0}; }
int ibv_dealloc_pd(ibv_pd* domain) {
  device().parent_domains.erase(domain);
  delete domain;
  return 0;
}

ibv_mr* ibv_reg_mr(ibv_pd* domain, void* start, std::size_t bytes, int access) {
  // As a constant buffer does.
  const int error = device().register_error;
  if (error != 0 && !(error == EFAULT && (access & IBV_ACCESS_LOCAL_WRITE) == 0)) {
    return refuse<ibv_mr>(error);
  }
  if (bytes == 0) return refuse<ibv_mr>(EINVAL);
  if (device().does_withhold_at_fork) ::madvise(page_of(start), 4096, MADV_DONTFORK);
  auto* registration = new ibv_mr{domain->context, domain, start, bytes, 0, 0, 0};
  registration->lkey = registration->rkey = 100 + ++device().next_number;
  device().registrations.insert(registration);
  return registration;
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd* domain, void* start, std::size_t bytes, std::uint64_t,
                         unsigned access) {
  return ibv_reg_mr(domain, start, bytes, static_cast<int>(access));
}
int ibv_dereg_mr(ibv_mr* registration) {
  device().registrations.erase(registration);
  delete registration;
  return 0;
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  return new ibv_comp_channel{context, device().event_pipe[0], 0};
}
int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  delete channel;
  return 0;
}
int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** queue, void** context) {
  char event = 0;
  if (::read(channel->fd, &event, 1) != 1) return -1;
  *queue = *device().completion_queues.begin();
  *context = nullptr;
  return 0;
}
void ibv_ack_cq_events(ibv_cq*, unsigned events) { device().events_unacknowledged -= events; }

ibv_cq* ibv_create_cq(ibv_context* context, int entries, void*, ibv_comp_channel* channel, int) {
  if (device().create_cq_error != 0) return refuse<ibv_cq>(device().create_cq_error);
  auto* queue = new FakeCompletionQueue{};
  queue->context = context;
  queue->channel = channel;
  queue->cqe = entries;
  device().completion_queues.insert(queue);
  return queue;
}
int ibv_resize_cq(ibv_cq* queue, int entries) {
  queue->cqe = entries;
  return 0;
}
int ibv_destroy_cq(ibv_cq* queue) {
  auto* own = static_cast<FakeCompletionQueue*>(queue);
  device().completion_queues.erase(own);
  delete own;
  return 0;
}

int ibv_get_async_event(ibv_context*, ibv_async_event* event) {
  if (device().events.empty()) {
    errno = device().events_end;
    return -1;
  }
  *event = device().events.front();
  device().events.pop_front();
  return 0;
}
void ibv_ack_async_event(ibv_async_event*) {}
const char* ibv_event_type_str(ibv_event_type) { return "an event"; }
const char* ibv_wc_status_str(ibv_wc_status status) {
  static std::string text;
  text = "status " + std::to_string(status);
  return text.c_str();
}

ibv_srq* ibv_create_srq(ibv_pd* domain, ibv_srq_init_attr* attributes) {
  if (attributes->attr.max_wr > device().receives_memory) return refuse<ibv_srq>(ENOMEM);
  auto* queue = new FakeReceiveQueue{};
  queue->context = domain->context;
  queue->posted_max = attributes->attr.max_wr;
  device().receive_queues.insert(queue);
  return queue;
}
int ibv_destroy_srq(ibv_srq* queue) {
  auto* own = static_cast<FakeReceiveQueue*>(queue);
  device().receive_queues.erase(own);
  delete own;
  return 0;
}

ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* attributes) {
  if (device().create_qp_error != 0) return refuse<ibv_qp>(device().create_qp_error);
  if (attributes->cap.max_inline_data > device().inline_max) return refuse<ibv_qp>(EINVAL);
  auto* pair = new FakeQueuePair{};
  pair->context = domain->context;
  pair->send_cq = attributes->send_cq;
  pair->recv_cq = attributes->recv_cq;
  pair->srq = attributes->srq;
  pair->made = *attributes;
  pair->domain = domain;
  pair->qp_num = device().next_number++;
  device().pairs[pair->qp_num] = pair;
  return pair;
}
ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* pair) { return &static_cast<FakeQueuePair*>(pair)->extended; }
int ibv_modify_qp(ibv_qp* pair, ibv_qp_attr* attributes, int mask) {
  auto& own = *static_cast<FakeQueuePair*>(pair);
  if (attributes->qp_state == IBV_QPS_ERR) {
    device().fail(own, IBV_WC_WR_FLUSH_ERR);
    return 0;
  }
  const std::array<ibv_qp_state, 3> before{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR};
  if (attributes->qp_state > IBV_QPS_RTS || own.state != before[attributes->qp_state - 1]) {
    return EINVAL;
  }
  own.state = attributes->qp_state;
  if (attributes->qp_state == IBV_QPS_RTR) {
    own.to_receive = *attributes;
    own.peer = attributes->dest_qp_num;
  }
  if ((mask & IBV_QP_RNR_RETRY) != 0) own.to_send = *attributes;
  return 0;
}
int ibv_destroy_qp(ibv_qp* pair) {
  auto* own = static_cast<FakeQueuePair*>(pair);
  device().pairs.erase(own->qp_num);
  delete own;
  return 0;
}

}  // extern "C"
