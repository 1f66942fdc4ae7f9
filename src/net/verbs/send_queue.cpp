#include "net/verbs/send_queue.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

namespace larklane::verbs {

Status status_of(ibv_wc_status status) noexcept {
  switch (status) {
    case IBV_WC_SUCCESS:
      return {};
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
    case IBV_WC_WR_FLUSH_ERR:
      return {Errc::kPeerDown, status};
    default:
      return {Errc::kTransfer, status};
  }
}

SendQueue::SendQueue(QueuePair pair, ibv_qp_ex* extended, Shape shape, std::uint32_t id,
                     Counters& counters, Alarm& alarm)
    : pair_(std::move(pair)),
      extended_(extended),
      shape_(shape),
      slot_mask_(shape.depth - 1),
      id_(id),
      tag_(std::uint64_t{id} << 32),
      counters_(counters),
      alarm_(alarm),
      operations_(std::make_unique<net::Operation*[]>(shape.depth)) {
  work_.sg_list = &element_;
  prepared_work_.num_sge = 1;
  prepared_work_.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  set_room();
}

/// The last place is the flush's.
void SendQueue::set_room() noexcept {
  const std::uint32_t used = posted_ - delivered_, half = shape_.depth / 2;
  if (is_crowded_ && (is_dead() || used < half)) {
    is_crowded_ = false;
    alarm_.no_longer();
  }
  const std::uint32_t most = is_crowded_ ? shape_.depth - 1 : half;
  room_end_ = !is_dead() && used < most ? delivered_ + most : posted_;
}

[[gnu::noinline]] bool SendQueue::find_room_slow() noexcept {
  if (is_dead() || is_crowded_) return false;
  is_crowded_ = true;
  alarm_.await();
  static_cast<void>(alarm_.want_all());
  set_room();
  return posted_ != room_end_;
}

void SendQueue::set_signal() noexcept {
  const bool none_outstanding = static_cast<std::int32_t>(last_signalled_ - finished_) <= 0;
  signal_at_ = none_outstanding ? posted_ : last_signalled_ + shape_.signal_every - 1;
}

void SendQueue::use_copies(std::unique_ptr<std::byte[]> copies, Registration registration) {
  copies_registration_.reset();
  copies_ = std::move(copies);
  copies_registration_ = std::move(registration);
}

Result<net::Post> SendQueue::not_posted_slow(int error) noexcept {
  prepared_work_.send_flags = 0;  // another one may be the next
  if (is_dead()) return error_;
  if (error == kNoRoom || (error == ENOMEM && !is_idle())) {  // or full by the device's own count
    ++counters_.full;
    if (!is_crowded_) static_cast<void>(find_room_slow());
    return net::Post::retry;
  }
  const Status status(Errc::kSystem, error);
  fail_all(status);
  return status;
}

/// The device takes none with the work request: it gets a copy that stays.
void SendQueue::copy_small_slow(const Request& request) noexcept {
  std::byte* copy = copies_.get() + (posted_ & slot_mask_) * kSmallBytesMax;
  std::memcpy(copy, request.local, request.bytes);
  element_.addr = reinterpret_cast<std::uintptr_t>(copy);
  element_.lkey = copies_registration_->lkey;
}

/// Straight into the device's queue: no list to be walked, no opcode to be looked up.
/// @param immediate  as it travels
int SendQueue::post_extended(ibv_wr_opcode opcode, net::RemoteMemory remote,
                             std::uint32_t immediate, unsigned flags) noexcept {
  const auto key = static_cast<std::uint32_t>(remote.key);
  ibv_wr_start(extended_);
  extended_->wr_id = tag_ | posted_;
  extended_->wr_flags = flags;  // Soft-RoCE wants to be told of inline data here, too
  if (opcode == IBV_WR_RDMA_WRITE)
    ibv_wr_rdma_write(extended_, key, remote.address);
  else if (opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
    ibv_wr_rdma_write_imm(extended_, key, remote.address, immediate);
  else
    ibv_wr_rdma_read(extended_, key, remote.address);
  if ((flags & IBV_SEND_INLINE) != 0)
    ibv_wr_set_inline_data(extended_, reinterpret_cast<void*>(element_.addr), element_.length);
  else
    ibv_wr_set_sge(extended_, element_.lkey, element_.addr, element_.length);
  const int error = ibv_wr_complete(extended_);
  if (error == 0) ++counters_.extended;
  return error;
}

void SendQueue::finish(std::uint32_t sequence) noexcept {
  if (is_dead() || sequence - finished_ >= posted_ - finished_) return;  // of an earlier life
  finished_ = sequence + 1;
  set_signal();
}

void SendQueue::fail(std::uint32_t sequence, Status error) noexcept {
  if (is_dead()) return;
  if (sequence - finished_ > posted_ - finished_) sequence = finished_;
  // The device may not begin requests any more that it has not begun: the posters get their memory
  // back.
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  static_cast<void>(ibv_modify_qp(pair_.get(), &attributes, IBV_QP_STATE));
  error_ = error;
  failed_from_ = sequence;
  finished_ = posted_;
  set_room();
}

net::Operation* SendQueue::take(Status* status) noexcept {
  const std::uint32_t sequence = delivered_++;
  set_room();
  const bool failed = is_dead() && static_cast<std::int32_t>(sequence - failed_from_) >= 0;
  *status = failed ? error_ : Status();
  net::Operation* const operation = std::exchange(slot(sequence), nullptr);
  if (operation != nullptr && operation->wakes) alarm_.no_longer();
  return operation;
}

void SendQueue::settle() {
  if (is_dead() || finished_ == posted_) return;
  if (static_cast<std::int32_t>(last_signalled_ - finished_) > 0) return;
  static constexpr Request kFlush{.opcode = IBV_WR_RDMA_WRITE,
                                  .local = nullptr,
                                  .bytes = 0,
                                  .local_key = 0,
                                  .remote = {0, 0},
                                  .immediate = 0};
  slot(posted_) = nullptr;
  auto posted = post_request(kFlush);  // signalled: none is outstanding
  if (!posted) return;
  set_room();
  if (*posted == net::Post::retry) {  // although one place is kept: nothing would ever complete
    fail_all({Errc::kSystem, ENOMEM});
    return;
  }
  ++counters_.flushes;
}

}  // namespace larklane::verbs
