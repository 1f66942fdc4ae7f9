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
                     Counters& counters)
    : pair_(std::move(pair)),
      extended_(extended),
      shape_(shape),
      id_(id),
      counters_(counters),
      operations_(std::make_unique<net::Operation*[]>(shape.depth)) {
  work_.sg_list = &element_;
}

void SendQueue::use_copies(std::unique_ptr<std::byte[]> copies, Registration registration) {
  copies_registration_.reset();
  copies_ = std::move(copies);
  copies_registration_ = std::move(registration);
}

/// The device has not taken it.
Result<net::Post> SendQueue::refused_slow(int error) noexcept {
  if (error == ENOMEM && !is_idle()) {  // full by the device's own count
    ++counters_.full;
    return net::Post::retry;
  }
  const Status status(Errc::kSystem, error);
  fail_all(status);
  return status;
}

/// The device takes none with the work request: it gets a copy that stays.
void SendQueue::copy_small_slow(const Request& request) noexcept {
  std::byte* copy = copies_.get() + (posted_ & (shape_.depth - 1)) * kSmallBytesMax;
  std::memcpy(copy, request.local, request.bytes);
  element_.addr = reinterpret_cast<std::uintptr_t>(copy);
  element_.lkey = copies_registration_->lkey;
}

/// Straight into the device's queue: no list to be walked, no opcode to be looked up.
int SendQueue::post_extended(const Request& request, unsigned flags) noexcept {
  const auto key = static_cast<std::uint32_t>(request.remote.key);
  ibv_wr_start(extended_);
  extended_->wr_id = std::uint64_t{id_} << 32 | posted_;
  extended_->wr_flags = flags;  // Soft-RoCE wants to be told of inline data here, too
  if (request.opcode == IBV_WR_RDMA_WRITE)
    ibv_wr_rdma_write(extended_, key, request.remote.address);
  else if (request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
    ibv_wr_rdma_write_imm(extended_, key, request.remote.address, htonl(request.immediate));
  else
    ibv_wr_rdma_read(extended_, key, request.remote.address);
  if ((flags & IBV_SEND_INLINE) != 0)
    ibv_wr_set_inline_data(extended_, request.local, request.bytes);
  else
    ibv_wr_set_sge(extended_, element_.lkey, element_.addr, element_.length);
  const int error = ibv_wr_complete(extended_);
  if (error == 0) ++counters_.extended;
  return error;
}

void SendQueue::finish(std::uint32_t sequence) noexcept {
  if (is_dead() || sequence - finished_ >= posted_ - finished_) return;  // of an earlier life
  finished_ = sequence + 1;
}

void SendQueue::fail(std::uint32_t sequence, Status error) noexcept {
  if (is_dead()) return;
  if (sequence - finished_ > posted_ - finished_) sequence = finished_;
  // What the device has not begun it may not begin any more: the posters get their memory back.
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  static_cast<void>(ibv_modify_qp(pair_.get(), &attributes, IBV_QP_STATE));
  error_ = error;
  failed_from_ = sequence;
  finished_ = posted_;
}

net::Operation* SendQueue::take(Status* status) noexcept {
  const std::uint32_t sequence = delivered_++;
  const bool failed = is_dead() && static_cast<std::int32_t>(sequence - failed_from_) >= 0;
  *status = failed ? error_ : Status();
  return std::exchange(slot(sequence), nullptr);
}

void SendQueue::settle() {
  if (is_dead() || finished_ == posted_) return;
  if (static_cast<std::int32_t>(last_signalled_ - finished_) > 0) return;
  static constexpr Request kFlush{.opcode = IBV_WR_RDMA_WRITE,
                                  .local = nullptr,
                                  .bytes = 0,
                                  .local_key = 0,
                                  .remote = {0, 0},
                                  .immediate = 0,
                                  .is_small = false};
  slot(posted_) = nullptr;
  auto posted = post_request(kFlush, true);
  if (!posted) return;
  if (*posted == net::Post::retry) {  // although one place is kept: nothing would ever complete
    fail_all({Errc::kSystem, ENOMEM});
    return;
  }
  ++counters_.flushes;
}

}  // namespace larklane::verbs
