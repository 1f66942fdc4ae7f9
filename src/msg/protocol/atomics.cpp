// Atomics: the owner's lane executes these records one after the other, and answers. Between lanes,
// the processor's atomics keep them apart; sums take a lock for each stripe of memory. An atomic
// for each double would cost ten times as much as the sum.

#include <algorithm>
#include <atomic>
#include <cstring>

#include "msg/protocol/connection.hpp"
#include "msg/protocol/engine.hpp"

namespace larklane::msg {
namespace {

bool is_word_within(const RemoteRegion& region, std::uint64_t offset, std::uint64_t bytes) {
  return offset % sizeof(std::uint64_t) == 0 && offset <= region.bytes &&
         bytes <= region.bytes - offset;
}

/// Null: as find(), or the address is no multiple of 8, so not atomic.
std::byte* find_words(const Engine& engine, std::uint32_t region, std::uint64_t offset,
                      std::uint64_t bytes) noexcept {
  std::byte* const at = engine.find(region, offset, bytes);
  return reinterpret_cast<std::uintptr_t>(at) % sizeof(std::uint64_t) == 0 ? at : nullptr;
}

/// @pre `to` is a multiple of 8
void add_doubles(Engine& engine, std::byte* to, std::span<const std::byte> values) noexcept {
  while (!values.empty()) {
    const auto at = reinterpret_cast<std::uintptr_t>(to);
    const std::size_t bytes =
        std::min(values.size(), Engine::kStripeBytes - at % Engine::kStripeBytes);
    const SpinGuard guard(engine.lock_of_stripe(at / Engine::kStripeBytes));
    for (std::size_t place = 0; place < bytes; place += sizeof(double)) {
      double value = 0, sum = 0;
      std::memcpy(&value, values.data() + place, sizeof value);
      std::memcpy(&sum, to + place, sizeof sum);
      sum += value;
      std::memcpy(to + place, &sum, sizeof sum);
    }
    to += bytes;
    values = values.subspan(bytes);
  }
}

}  // namespace

Result<Post> Connection::atomic(RecordKind kind, const RemoteRegion& region,
                                const AtomicOrder& order, std::uint64_t* before,
                                const PostOptions& options) {
  if (!is_word_within(region, order.offset, sizeof(std::uint64_t))) return Errc::kInvalidArgument;
  Operation* const operation = begin_operation(
      {reinterpret_cast<std::byte*>(before), sizeof(std::uint64_t)}, region.number, options);
  if (operation == nullptr) return Post::retry;
  operation->header = {first_word(kind, 0), region.number, 0};
  operation->set_small(order);
  operation->before = before;
  operation->then = Operation::Then::await;
  return post_record(*operation, options);
}

static_assert(
    sizeof(std::uint64_t) + kAccumulateMax * sizeof(double) <=
    RingShape{RingShape::kCellsMax, PacketLane::Options().record_cells}.payload_bytes_max());

Result<Post> Connection::accumulate(const RemoteRegion& region, std::uint64_t offset,
                                    const double* values, std::uint32_t count,
                                    const PostOptions& options) {
  const std::uint64_t bytes = std::uint64_t{count} * sizeof(double);
  if (!is_word_within(region, offset, bytes) ||
      sizeof offset + bytes > lane_.engine().record_bytes_max())
    return Errc::kInvalidArgument;
  const auto* const from = reinterpret_cast<const std::byte*>(values);
  Operation* const operation =
      begin_operation({const_cast<std::byte*>(from), bytes}, region.number, options);
  if (operation == nullptr) return Post::retry;
  operation->header = {first_word(RecordKind::accumulate, 0), region.number, 0};
  operation->set_small(offset);
  operation->payload = {from, bytes};
  operation->then = Operation::Then::await;
  return post_record(*operation, options);
}

[[gnu::noinline]] Result<bool> Connection::on_atomic(RecordKind kind, const PacketHeader& header,
                                                     std::span<const std::byte> payload) noexcept {
  const auto order = front_of<AtomicOrder>(payload);
  if (!order) return Errc::kProtocol;
  if (!lane_.make_room_locked(0)) return false;
  std::byte* const at = find_words(lane_.engine(), header[1], order->offset, sizeof(std::uint64_t));
  if (at == nullptr) {
    answer(RecordKind::reply, header[2], Errc::kInvalidArgument, 0);
    return true;
  }
  const std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(at));
  std::uint64_t before = order->expected;
  // acq_rel: users build locks and counters on them; pairs with the same operations of other peers.
  if (kind == RecordKind::fetch_add)
    before = word.fetch_add(order->value, std::memory_order_acq_rel);
  else
    word.compare_exchange_strong(before, order->value, std::memory_order_acq_rel,
                                 std::memory_order_acquire);
  answer(RecordKind::reply, header[2], {}, before);
  return true;
}

[[gnu::noinline]] Result<bool> Connection::on_accumulate(
    const PacketHeader& header, std::span<const std::byte> payload) noexcept {
  const auto offset = front_of<std::uint64_t>(payload);
  if (!offset || payload.size() % sizeof(double) != 0) return Errc::kProtocol;
  if (!lane_.make_room_locked(0)) return false;
  const std::span<const std::byte> bytes = payload.subspan(sizeof *offset);
  std::byte* const at = find_words(lane_.engine(), header[1], *offset, bytes.size());
  if (at != nullptr) add_doubles(lane_.engine(), at, bytes);
  answer(RecordKind::reply, header[2], at == nullptr ? Errc::kInvalidArgument : Errc::kOk, 0);
  return true;
}

}  // namespace larklane::msg
