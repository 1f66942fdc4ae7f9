#include "net/verbs/endpoint.hpp"

#include <arpa/inet.h>
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.hpp"
#include "net/verbs/link.hpp"

namespace larklane::verbs {
namespace {

constexpr int kCompletionsFirst = 4096;
/// With less than this for receives there is no use in going on.
constexpr std::uint32_t kReceivesLeast = 512;

/// Of a call that made something on the device: the exhausted resource, and the remedy.
Status refusal(const char* what, int error, const std::string& limits, std::string* reason) {
  *reason = std::string(what) + ": " + std::strerror(error) + " (" + limits + ")";
  if (error == ENOMEM && is_locked_memory_limited()) {
    *reason += ": locked memory is limited to " + locked_memory_limit() +
               " (RLIMIT_MEMLOCK): raise it, `ulimit -l unlimited` or in"
               " /etc/security/limits.d, for the daemon that starts the ranks, too";
  } else if (error == ENOMEM) {
    *reason += ": the device has no more, take fewer lanes or fewer processes on this host";
  }
  return {error == ENOMEM ? Errc::kNoMemory : Errc::kSystem, error};
}

Status start(ibv_qp* pair, const Device& device, std::string* reason) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = device.port_number;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  const int error = ibv_modify_qp(
      pair, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error == 0) return {};
  return refusal("a queue pair can't be initialized", error, device.name, reason);
}

}  // namespace

Result<std::unique_ptr<Endpoint>> Endpoint::create(const Device& device, ibv_pd* domain,
                                                   net::Receiver& receiver, std::string* reason) {
  std::unique_ptr<Endpoint> endpoint(new Endpoint(device, domain, receiver));
  ibv_context* context = device.context.get();
  endpoint->channel_.reset(ibv_create_comp_channel(context));
  if (!endpoint->channel_) return refusal("no completion channel", errno, device.name, reason);
  const int fd = endpoint->channel_->fd;
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) {
    return refusal("the completion channel can't be made non-blocking", errno, device.name, reason);
  }
  const int completions = std::min(kCompletionsFirst, device.attributes.max_cqe);
  endpoint->completions_.reset(
      ibv_create_cq(context, completions, nullptr, endpoint->channel_.get(), 0));
  if (!endpoint->completions_) {
    return refusal("no completion queue", errno,
                   device.name + " has " + std::to_string(device.attributes.max_cq), reason);
  }
  LARKLANE_TRY(endpoint->open_receives(reason));
  endpoint->take_thread_domain();
  return endpoint;
}

/// As many as are wished; where memory is short, fewer: most programs do with a few hundred.
Status Endpoint::open_receives(std::string* reason) {
  ibv_srq_init_attr attributes{};
  attributes.attr.max_sge = 1;
  for (receives_max_ = device_.receives_max; !receives_; receives_max_ /= 2) {
    attributes.attr.max_wr = receives_max_;
    receives_.reset(ibv_create_srq(domain_, &attributes));
    if (receives_) return {};
    if (errno != ENOMEM || receives_max_ / 2 < kReceivesLeast) break;
  }
  return refusal("no shared receive queue", errno,
                 device_.name + " has " + std::to_string(device_.attributes.max_srq) + " of " +
                     std::to_string(device_.attributes.max_srq_wr) + " work requests",
                 reason);
}

void Endpoint::take_thread_domain() noexcept {
  ibv_td_init_attr none{};
  thread_domain_.reset(ibv_alloc_td(device_.context.get(), &none));
  if (!thread_domain_) return;
  ibv_parent_domain_init_attr parent{};
  parent.pd = domain_;
  parent.td = thread_domain_.get();
  parent_domain_.reset(ibv_alloc_parent_domain(device_.context.get(), &parent));
}

QueuePair Endpoint::make_pair(ibv_qp_init_attr_ex attributes, ibv_qp_ex** extended) noexcept {
  attributes.pd = parent_domain_ ? parent_domain_.get() : domain_;
  attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attributes.send_ops_flags =
      IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ;
  *extended = nullptr;
  if (takes_extended_) {
    QueuePair pair(ibv_create_qp_ex(device_.context.get(), &attributes));
    if (pair) *extended = ibv_qp_to_qp_ex(pair.get());
    if (pair) return pair;
    if (errno == EOPNOTSUPP || errno == ENOSYS) takes_extended_ = false;
    // Any other error is reported by the plain call, or does not matter.
  }
  attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
  return QueuePair(ibv_create_qp_ex(device_.context.get(), &attributes));
}

std::string Endpoint::offers() const {
  return std::string("posts by ") + (takes_extended_ ? "ibv_wr_*" : "ibv_post_send") +
         (parent_domain_ ? ", a thread domain for each lane" : ", no thread domains");
}

Result<std::unique_ptr<net::Link>> Endpoint::open_link() {
  if (!dead_.ok()) return dead_;
  std::string reason;
  auto link = Link::create(*this, &reason);
  if (!link) {
    log_warn("verbs: no further link: %s", reason.c_str());
    return link.error();
  }
  return std::unique_ptr<net::Link>(std::move(*link));
}

Status Endpoint::make_room(std::uint64_t queues, std::uint64_t receives, std::string* reason) {
  const auto is_short = [&] {
    return queues + retired_room_ + receives > static_cast<std::uint64_t>(completions_->cqe);
  };
  // Closed queues have left something, or no poll has looked since.
  if (is_short() && retired_room_ != 0 && left_begin_ == left_end_) {
    LARKLANE_TRY(look_for_left());
  }
  const std::uint64_t needed = queues + retired_room_ + receives;
  const auto present = static_cast<std::uint64_t>(completions_->cqe);
  if (needed <= present) return {};
  const auto most = static_cast<std::uint64_t>(std::max(device_.attributes.max_cqe, 0));
  const std::string numbers = std::to_string(needed) + " entries are needed, " + device_.name +
                              " allows " + std::to_string(most);
  if (needed > most) return refusal("the completion queue is full", ENOMEM, numbers, reason);
  const std::uint64_t wanted = std::min(most, std::max(needed, 2 * present));
  const int error = ibv_resize_cq(completions_.get(), static_cast<int>(wanted));
  if (error != 0) return refusal("the completion queue can't grow", error, numbers, reason);
  return {};
}

Result<std::unique_ptr<SendQueue>> Endpoint::open_queue(SendQueue::Shape shape,
                                                        std::uint32_t inline_bytes,
                                                        std::string* reason) {
  const auto free = std::find(queues_.begin() + 1, queues_.end(), nullptr);
  const auto place = static_cast<std::size_t>(free - queues_.begin());
  if (place >= 0xffff) return refusal("no further queue pair", ENOMEM, "65535 are in use", reason);
  LARKLANE_TRY(make_room(queues_room_ + shape.depth,
                         std::max(receives_most(reserved_), posted_receives()), reason));
  ibv_qp_init_attr_ex attributes{};
  attributes.send_cq = attributes.recv_cq = completions_.get();
  attributes.srq = receives_.get();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = shape.depth;
  attributes.cap.max_send_sge = 1;
  attributes.cap.max_inline_data = inline_bytes;
  ibv_qp_ex* extended = nullptr;
  QueuePair pair = make_pair(attributes, &extended);
  if (!pair) {
    return refusal("no queue pair", errno,
                   device_.name + " has " + std::to_string(device_.attributes.max_qp) + " of " +
                       std::to_string(device_.attributes.max_qp_wr) + " work requests",
                   reason);
  }
  LARKLANE_TRY(start(pair.get(), device_, reason));
  if (place == queues_.size()) {
    queues_.push_back(nullptr);
    lives_.push_back(0);
  }
  const auto id = static_cast<std::uint32_t>(std::size_t{lives_[place]} << 16 | place);
  auto queue = std::make_unique<SendQueue>(std::move(pair), extended, shape, id, counters_, alarm_);
  queues_[place] = queue.get();
  queues_room_ += shape.depth;
  return queue;
}

void Endpoint::close_queue(SendQueue& queue) noexcept {
  SendQueue** at = &pending_first_;
  pending_last_ = nullptr;
  while (*at != nullptr) {
    if (*at == &queue) {
      *at = queue.next_pending;
    } else {
      pending_last_ = *at;
      at = &(*at)->next_pending;
    }
  }
  // A queue pair made later may have its number: a receive that failed here counts, and fails none.
  for (std::uint32_t left = left_begin_; left != left_end_; ++left)
    if (fetched_[left].status != IBV_WC_SUCCESS && fetched_[left].qp_num == queue.pair()->qp_num)
      fetched_[left].qp_num = 0;
  const std::size_t place = queue.id() & 0xffff;
  queues_[place] = nullptr;
  ++lives_[place];
  queues_room_ -= queue.shape().depth;
  if (queue.may_be_heard_of()) retired_room_ += queue.shape().depth;
}

void Endpoint::set_pending(SendQueue& queue) noexcept {
  if (queue.is_pending) return;
  queue.is_pending = true;
  queue.next_pending = nullptr;
  (pending_last_ != nullptr ? pending_last_->next_pending : pending_first_) = &queue;
  pending_last_ = &queue;
}

SendQueue* Endpoint::queue_of(std::uint32_t id) noexcept {
  const std::size_t place = id & 0xffff;
  SendQueue* queue = place < queues_.size() ? queues_[place] : nullptr;
  return queue != nullptr && queue->id() == id ? queue : nullptr;
}

Status Endpoint::reserve_immediates(std::uint32_t count) {
  if (!dead_.ok()) return dead_;
  if (count > receives_max_ - reserved_) {
    log_warn(
        "verbs: no room for %u more immediates: %u of %u are reserved on this lane (%s: max_srq_wr "
        "%d); take more lanes (LARKLANE_VCI_COUNT_MAX), or more of them if the device has them "
        "(LARKLANE_VERBS_RECEIVES_MAX)",
        count, reserved_, receives_max_, device_.name.c_str(), device_.attributes.max_srq_wr);
    return {Errc::kNoMemory, ENOMEM};
  }
  std::string reason;
  const std::uint32_t posted = posted_receives();
  const std::uint32_t wanted = std::max(reserved_ + count, posted);
  const std::uint32_t room = std::max(receives_most(reserved_ + count), posted);
  if (const Status status = make_room(queues_room_, room, &reason); !status.ok()) {
    log_warn("verbs: no room for %u more immediates: %s", count, reason.c_str());
    return status;
  }
  if (const Status status = post_receives(wanted - posted); !status.ok()) {
    log_warn("verbs: no room for %u more immediates: receives are refused: %s", count,
             std::strerror(status.detail()));
    return status;
  }
  reserved_ += count;
  receives_ahead_ -= static_cast<std::int32_t>(count);
  return {};
}

void Endpoint::release_immediates(std::uint32_t count) {
  const std::uint32_t released = std::min(count, reserved_);
  reserved_ -= released;
  receives_ahead_ += static_cast<std::int32_t>(released);
}

Endpoint::Endpoint(const Device& device, ibv_pd* domain, net::Receiver& receiver)
    : device_(device), domain_(domain), receiver_(receiver) {
  for (std::uint32_t index = 0; index < kReceiveChain; ++index) {
    chain_[index].wr_id = device.channel_queues == 0 ? kReceiveId : kChannelReceiveId;
    chain_[index].next = index + 1 < kReceiveChain ? &chain_[index + 1] : nullptr;
  }
}

/// @param count  at most kReceiveChain
Status Endpoint::post_chain(std::uint32_t count) noexcept {
  ibv_recv_wr* const first = &chain_[kReceiveChain - count];
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_srq_recv(receives_.get(), first, &bad);
  const std::uint32_t posted =
      error == 0 ? count : static_cast<std::uint32_t>(bad != nullptr ? bad - first : 0);
  receives_ahead_ += static_cast<std::int32_t>(posted);
  counters_.receives += posted;
  ++counters_.receive_posts;
  if (error != 0) [[unlikely]]
    return {error == ENOMEM ? Errc::kNoMemory : Errc::kSystem, error};
  return {};
}

Status Endpoint::post_receives(std::uint32_t count) noexcept {
  while (count != 0) {
    const std::uint32_t now = std::min(count, kReceiveChain);
    LARKLANE_TRY(post_chain(now));
    count -= now;
  }
  return {};
}

std::uint32_t Endpoint::receives_most(std::uint32_t reserved) const noexcept {
  return std::min(reserved + kReceiveChain, receives_max_);
}

[[gnu::noinline]] Status Endpoint::replace_receives() noexcept {
  const std::uint32_t posted = posted_receives();
  return post_chain(std::min(kReceiveChain, receives_max_ - posted));
}

/// A failed one has left its queue pair in the error state (IBTA, 9.9.3, the responder's classes):
/// the link ends, even without pending operations. A flushed one does not say why; a pending
/// operation does.
[[gnu::noinline]] void Endpoint::fail_receive_slow(const ibv_wc& completion) noexcept {
  if (completion.status == IBV_WC_SUCCESS) return;  // without an immediate that is ours
  const auto found = std::find_if(queues_.begin(), queues_.end(), [&](SendQueue* queue) {
    return queue != nullptr && queue->pair()->qp_num == completion.qp_num;
  });
  if (found == queues_.end()) return;  // of a link that is gone
  SendQueue& queue = **found;
  const bool is_flushed = completion.status == IBV_WC_WR_FLUSH_ERR;
  if (queue.is_dead() || (is_flushed && queue.may_be_heard_of())) return;
  const Status error = status_of(completion.status);
  queue.fail_all(error);
  fail_partners(queue, error);
  set_pending(queue);
}

/// An immediate that came. Its receive is replaced before the receiver is called.
[[gnu::always_inline]] inline Status Endpoint::hear(const ibv_wc& completion) {
  if (--receives_ahead_ < 0) [[unlikely]]
    LARKLANE_TRY(replace_receives());
  if (completion.status != IBV_WC_SUCCESS || (completion.wc_flags & IBV_WC_WITH_IMM) == 0)
      [[unlikely]] {
    fail_receive_slow(completion);
    return {};
  }
  ++counters_.immediates;
  receiver_.on_immediate(ntohl(completion.imm_data));
  return {};
}

/// The paper's immediate, as a lane's receiver knows it.
[[gnu::noinline]] Status Endpoint::hear_of_channel(const ibv_wc& completion) {
  ibv_wc heard = completion;
  const auto known = channels_.find(completion.qp_num);
  const auto immediate = known == channels_.end()
                             ? std::nullopt
                             : known->second->immediate_here(ntohl(completion.imm_data));
  if (immediate)
    heard.imm_data = htonl(*immediate);
  else
    heard.wc_flags &= ~static_cast<unsigned>(IBV_WC_WITH_IMM);
  return hear(heard);
}

/// Of work requests, on some queue.
void Endpoint::finish(const ibv_wc& completion) {
  SendQueue* queue = queue_of(static_cast<std::uint32_t>(completion.wr_id >> 32));
  if (queue == nullptr) return;  // of a link that is gone
  const auto sequence = static_cast<std::uint32_t>(completion.wr_id);
  if (completion.status == IBV_WC_SUCCESS) {
    queue->finish(sequence);
  } else {
    const Status error = status_of(completion.status);
    queue->fail(sequence, error);
    fail_partners(*queue, error);
  }
  set_pending(*queue);
}

void Endpoint::fail_partners(SendQueue& queue, Status error) noexcept {
  for (SendQueue* other = queue.partner; other != &queue; other = other->partner) {
    other->fail_all(error);
    set_pending(*other);
  }
}

std::uint32_t Endpoint::deliver(std::uint32_t most) {
  std::uint32_t served = 0;
  while (pending_first_ != nullptr) {
    SendQueue* queue = pending_first_;
    if (!queue->has_deliverable()) {
      queue->settle();  // after the callbacks: their posts may have made it superfluous
      if (queue->has_deliverable()) continue;
      pending_first_ = queue->next_pending;
      if (pending_first_ == nullptr) pending_last_ = nullptr;
      queue->is_pending = false;
      continue;
    }
    if (served == most) break;
    Status status;
    net::Operation* operation = queue->take(&status);
    if (operation == nullptr) continue;
    ++served;
    operation->complete(*operation, status);  // the queue may be gone from here on
  }
  return served;
}

Status Endpoint::die(Status error) {
  log_error("verbs: the queues of a lane on %s are lost: %s", device_.name.c_str(),
            std::strerror(error.detail()));
  dead_ = error;
  for (SendQueue* queue : queues_) {
    if (queue == nullptr) continue;
    queue->fail_all(error);
    set_pending(*queue);
  }
  deliver(~0u);
  return error;
}

/// For a later poll. @pre nothing is left
Status Endpoint::look_for_left() noexcept {
  const int got = ibv_poll_cq(completions_.get(), int{kBatch}, fetched_.data());
  if (got < 0) return {Errc::kSystem, EIO};
  if (got < int{kBatch}) retired_room_ = 0;
  left_begin_ = 0;
  left_end_ = static_cast<std::uint32_t>(got);
  return {};
}

/// Fetched completions, but for pending queues. @errors as hear()'s @pre at != end
[[gnu::always_inline]] inline Status Endpoint::serve(const ibv_wc* at, const ibv_wc* end,
                                                     std::uint32_t* served) {
  do
    if (at->wr_id == kReceiveId) [[likely]] {
      ++*served;
      LARKLANE_TRY(hear(*at));
    } else if (at->wr_id == kChannelReceiveId) {
      ++*served;
      LARKLANE_TRY(hear_of_channel(*at));
    } else {
      finish(*at);
    }
  while (++at != end);
  return {};
}

[[gnu::noinline]] Result<std::uint32_t> Endpoint::poll_broken(Status status) { return die(status); }

// One construction of the result, and calls: a value held in registers costs an arrival.
[[gnu::always_inline]] inline Result<std::uint32_t> Endpoint::poll_device(std::uint32_t most,
                                                                          std::uint32_t served) {
  const ibv_wc* const first = fetched_.data();
  while (true) {
    const int got =
        ibv_poll_cq(completions_.get(), int(std::min(kBatch, most - served)), fetched_.data());
    if (got <= 0) {
      if (got < 0) [[unlikely]]
        return poll_broken({Errc::kSystem, EIO});
      retired_room_ = 0;
      return served;
    }
    const ibv_wc* const end = first + got;
    if (const Status status = serve(first, end, &served); !status.ok()) [[unlikely]]
      return poll_broken(status);
    if (pending_first_ != nullptr) [[unlikely]]
      served += deliver(most - served);
    if (end != first + kBatch || served >= most) [[likely]]
      return served;  // the next poll finds later ones
  }
}

Result<std::uint32_t> Endpoint::poll(std::uint32_t most) {
  if (pending_first_ != nullptr || left_begin_ != left_end_ || !dead_.ok()) [[unlikely]]
    return poll_left(most);
  return poll_device(most, 0);
}

/// First the completions that an earlier poll and arm() have left.
[[gnu::noinline]] Result<std::uint32_t> Endpoint::poll_left(std::uint32_t most) {
  std::uint32_t served = 0;
  const std::uint32_t count = std::min(most, left_end_ - left_begin_);
  if (count != 0) {
    const ibv_wc* const at = fetched_.data() + left_begin_;
    left_begin_ += count;
    if (const Status status = serve(at, at + count, &served); !status.ok()) return die(status);
  }
  served += deliver(most - served);
  if (!dead_.ok()) return dead_;
  if (served >= most) return served;
  return poll_device(most, served);
}

bool Endpoint::arm(net::Wake wake) {
  // relaxed: see Device.
  if (dead_.ok() && device_.is_lost->load(std::memory_order_relaxed)) {
    static_cast<void>(die({Errc::kSystem, ENODEV}));
    return false;
  }
  if (!dead_.ok() || pending_first_ != nullptr || left_begin_ != left_end_) return false;
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  unsigned events = 0;
  while (ibv_get_cq_event(channel_.get(), &queue, &context) == 0) ++events;
  if (events != 0) ibv_ack_cq_events(completions_.get(), events);
  if (!alarm_.set(completions_.get(), wake).ok()) return false;
  // Arrivals before the request raise no event.
  if (const Status status = look_for_left(); !status.ok()) {
    static_cast<void>(die(status));
    return false;
  }
  return left_begin_ == left_end_;
}

}  // namespace larklane::verbs
