// Memory that only its owner can copy (Limits::has_unreadable_memory). A read or write of it fails.
// Then the asking side lends memory that the owner maps, and the owner copies between the two, part
// by part. It does so in a turn of its lane, by a thread of the program.

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "msg/protocol/connection.hpp"
#include "msg/protocol/engine.hpp"

namespace larklane::msg {
namespace {

constexpr std::uint64_t kLentBytesMax = 256u << 10;

/// Memory lent by one operation, until that is over. Thread safety: single-owner.
struct LentMemory final : net::Memory {
  LentMemory(std::unique_ptr<net::AllocatedMemory> memory_, std::uint64_t bytes_) noexcept
      : memory(std::move(memory_)), bytes(bytes_) {}
  net::RemoteMemory remote() const noexcept override { return memory->remote(); }

  const std::unique_ptr<net::AllocatedMemory> memory;
  const std::uint64_t bytes;
};

LentMemory& lent_to(const Operation& operation) noexcept {
  return static_cast<LentMemory&>(*operation.registered);
}
bool is_write(const Operation& operation) noexcept {
  return operation.work.kind != vci::Work::Kind::read;
}
/// Bytes of the current or next part.
std::uint64_t bytes_of_part(const Operation& operation) noexcept {
  return std::min(operation.work.transfer.bytes - operation.bytes_copied, lent_to(operation).bytes);
}

}  // namespace

bool Connection::ask_owner(Operation& operation, Status status) noexcept {
  Engine& engine = lane_.engine();
  // A key that is no longer valid (EACCES) has another cause than unreadable memory.
  if (!engine.fabric().limits().has_unreadable_memory || status.code() != Errc::kTransfer ||
      status.detail() == EACCES || rank_ == engine.rank())
    return false;
  if (operation.registered == nullptr) {
    const std::uint64_t bytes = std::min(operation.work.transfer.bytes, kLentBytesMax);
    auto memory = engine.fabric().allocate_memory(bytes);
    if (!memory) return false;
    operation.registered = new (std::nothrow) LentMemory(std::move(memory).value(), bytes);
    if (operation.registered == nullptr) return false;
    operation.is_lent = true;
    engine.note_registered();
  }
  operation.bytes_copied = 0;
  order_copy(operation);
  return true;
}

void Connection::order_copy(Operation& operation) noexcept {
  const std::uint64_t bytes = bytes_of_part(operation);
  const CopyWord what{is_write(operation), is_fetch(operation)};
  if (what.is_write)
    std::memcpy(lent_to(operation).memory->start(),
                operation.work.transfer.local + operation.bytes_copied, bytes);
  std::uint64_t offset = operation.bytes_copied;
  offset += what.is_offer ? operation.piece_offset : operation.region_offset;
  for (std::uint32_t piece = 0; what.is_offer && piece + 1 < operation.pieces_posted; ++piece)
    offset += operation.offer.pieces[piece].bytes;
  operation.header = {first_word(RecordKind::copy, what.word()), operation.there, 0};
  operation.set_small(CopyOrder{offset, bytes, operation.registered->remote()});
  operation.payload = {};
  operation.then = Operation::Then::await;
  send_record(operation);
}

[[gnu::noinline]] Result<bool> Connection::on_copied(PacketLink& link,
                                                     const PacketHeader& header) noexcept {
  Operation* const waiting = lane_.awaited().find(header[2], *this);
  if (waiting == nullptr || !is_kind(waiting->header, RecordKind::copy)) return unexpected(link);
  Operation& operation = *lane_.awaited().take(header[2], *this);
  vci::Work& work = operation.work;
  if (const Status status = status_of(rest_of(header)); !status.ok()) {
    is_fetch(operation) ? fetched(work, status) : transfer_is_over(operation, status);
    return true;
  }
  const std::uint64_t bytes = bytes_of_part(operation);
  if (!is_write(operation))
    std::memcpy(work.transfer.local + operation.bytes_copied, lent_to(operation).memory->start(),
                bytes);
  operation.bytes_copied += bytes;
  if (operation.bytes_copied < work.transfer.bytes)
    order_copy(operation);
  else
    work.complete(work, {});
  return true;
}

// --- the owner ----------------------------------------------------------------------------------

std::byte* Connection::find_ordered(CopyWord what, std::uint32_t number,
                                    const CopyOrder& order) noexcept {
  if (!what.is_offer) return lane_.engine().find(number, order.offset, order.bytes);
  const Operation* const offered = lane_.awaited().find(number, *this);
  if (offered == nullptr || !is_offer(offered->header)) return nullptr;
  if (offered->payload.empty()) {
    const net::Transfer& place = offered->work.transfer;  // of the only one that is not empty
    const bool is_within = order.offset <= place.bytes && order.bytes <= place.bytes - order.offset;
    return is_within ? place.local + order.offset : nullptr;
  }
  std::uint64_t offset = order.offset;
  for (const Offered& piece : std::span(offered->offer.pieces).first(offered->offer.count)) {
    if (offset < piece.bytes)
      return order.bytes <= piece.bytes - offset
                 ? reinterpret_cast<std::byte*>(piece.memory.address) + offset
                 : nullptr;
    offset -= piece.bytes;
  }
  return nullptr;
}

[[gnu::noinline]] Result<bool> Connection::on_copy(PacketLink& link, const PacketHeader& header,
                                                   std::span<const std::byte> payload) noexcept {
  const auto order = front_of<CopyOrder>(payload);
  if (!order || !CopyWord::is_legal(rest_of(header)) ||
      !lane_.engine().fabric().limits().has_unreadable_memory)
    return Errc::kProtocol;
  if (!lane_.make_room_locked(0)) return false;
  const CopyWord what = CopyWord::of(rest_of(header));
  std::byte* const local = find_ordered(what, header[1], *order);
  if (local == nullptr) {
    answer(RecordKind::copied, header[2], Errc::kInvalidArgument, 0);
    return true;
  }
  Operation& operation = lane_.take_arrival_locked();
  operation.connection = this;
  operation.object = nullptr;
  operation.there = header[2];
  vci::Work& work = operation.work;
  work.kind = what.is_write ? vci::Work::Kind::read : vci::Work::Kind::write;  // of the lent memory
  work.transfer = {local, nullptr, order->buffer, order->bytes};
  work.complete = &Connection::copied_here;
  work.link = &link.net_link();
  lane_.vci().post(work);
  return true;
}

void Connection::copied_here(net::Operation& work, Status status) {
  Operation& operation = *static_cast<PartOf<vci::Work>&>(work).whole;
  operation.header = {first_word(RecordKind::copied, static_cast<std::uint32_t>(status.code())), 0,
                      operation.there};
  operation.payload = {};
  operation.small_bytes = 0;
  operation.then = Operation::Then::finish;
  operation.connection->send_record(operation);
}

}  // namespace larklane::msg
