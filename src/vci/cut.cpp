// Works that are longer than one operation of the provider may be. The chunks of one may take
// effect in any order; the chunk with the immediate is posted when all others are complete.

#include <algorithm>
#include <utility>

#include "vci/vci.hpp"

namespace larklane::vci {
namespace {

bool has_immediate(const Work& work) noexcept { return work.kind == Work::Kind::write_immediate; }

net::Transfer part_of(const net::Transfer& whole, std::uint64_t offset, std::uint64_t bytes) {
  return {
      whole.local + offset, whole.memory, {whole.remote.address + offset, whole.remote.key}, bytes};
}

}  // namespace

bool Vci::send_cut_slow(Work& work) noexcept {
  if (!work.cut.is_out && !send_chunks_locked(work)) return false;
  work.cut.is_out = true;
  if (work.cut.under_way != 0) return true;  // the last one's completion goes on
  if (work.cut.failure.ok() && has_immediate(work)) return send_last_locked(work);
  work.complete(work, work.cut.failure);
  return true;
}

/// False: there is no room for all of them now.
bool Vci::send_chunks_locked(Work& work) noexcept {
  const std::uint64_t most = bytes_max(work);
  while (work.cut.failure.ok()) {
    const std::uint64_t left = work.transfer.bytes - work.cut.bytes;
    if (left == 0 || (has_immediate(work) && left <= most)) return true;
    if (!send_chunk_locked(work, std::min(left, most))) return false;
  }
  return true;
}

bool Vci::send_chunk_locked(Work& work, std::uint64_t bytes) noexcept {
  // Not all for one Work: its link may never answer.
  if (free_chunks_ == nullptr || work.cut.under_way == kChunkCount / 2) {
    count(counters_.chunk_waits);
    return false;
  }
  Chunk& chunk = *std::exchange(free_chunks_, free_chunks_->next);
  chunk.work = &work;
  const net::Transfer transfer = part_of(work.transfer, work.cut.bytes, bytes);
  auto answer = work.kind == Work::Kind::read ? work.link->read(transfer, chunk)
                                              : work.link->write(transfer, chunk);
  if (answer && *answer == net::Post::retry) {
    count(counters_.retries);
    free_chunk_locked(chunk);
    return false;
  }
  count(counters_.chunks);
  if (answer) count_operation(work.kind == Work::Kind::read ? Work::Kind::read : Work::Kind::write);
  work.cut.bytes += bytes;
  if (answer && *answer == net::Post::posted) {
    ++work.cut.under_way;
    return true;
  }
  if (!answer) work.cut.failure = answer.error();
  free_chunk_locked(chunk);
  return true;
}

/// The Work itself is the operation.
bool Vci::send_last_locked(Work& work) noexcept {
  const std::uint64_t done = work.cut.bytes;
  return is_answered_locked(
      work, work.link->write_immediate(part_of(work.transfer, done, work.transfer.bytes - done),
                                       work.immediate, work));
}

void Vci::free_chunk_locked(Chunk& chunk) noexcept {
  chunk.work = nullptr;
  chunk.next = std::exchange(free_chunks_, &chunk);
}

void Vci::chunk_complete(net::Operation& operation, Status status) {
  auto& chunk = static_cast<Chunk&>(operation);
  Vci& vci = *chunk.vci;
  vci.lock_.assert_held();
  Work& work = *chunk.work;
  vci.free_chunk_locked(chunk);
  --work.cut.under_way;
  if (!status.ok() && work.cut.failure.ok()) work.cut.failure = status;
  if (!work.cut.is_out || work.cut.under_way != 0) return;
  if (work.cut.failure.ok() && has_immediate(work)) {
    // Ahead of the deferred works: it is older. It goes out after the current poll: no provider is
    // given a post while it polls.
    vci.deferred_.push_front(work);
    vci.has_deferred_.store(true, std::memory_order_relaxed);  // a hint
  } else {
    work.complete(work, work.cut.failure);
  }
}

}  // namespace larklane::vci
