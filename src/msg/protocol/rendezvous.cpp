// Long messages: an offer states where the bytes lie. The receiver reads them and confirms; or it
// asks the sender to write them, with an immediate that announces their arrival.

#include <utility>

#include "msg/protocol/connection.hpp"
#include "msg/protocol/engine.hpp"

namespace larklane::msg {

/// @pre `operation` is the caller's alone
void Connection::fetch(Operation& operation) noexcept {
  // The peer would keep the key of a region after the operation has failed.
  const bool asks =
      lane_.engine().asks_for_writes() && operation.offer.count == 1 && operation.region == nullptr;
  PostOptions options;
  options.region = operation.region;
  net::Transfer& transfer = operation.work.transfer;
  Status status = operation.completion.status;
  if (status.ok()) {
    const std::uint64_t room = std::exchange(operation.local_bytes, operation.offer.bytes);
    status = prepare_local(operation, options, transfer, asks);
    operation.local_bytes = room;
  }
  if (!status.ok()) return fetched(operation.work, status);
  asks ? ask(operation, transfer) : read(operation);
}

// --- reads --------------------------------------------------------------------------------------

void Connection::read(Operation& operation) noexcept {
  operation.work.kind = vci::Work::Kind::read;
  operation.work.complete = &Connection::piece_read;
  operation.work.link = &link_.load(std::memory_order_acquire)->net_link();  // pairs with begin()
  operation.pieces_posted = 0;
  operation.piece_offset = 0;
  read_piece(operation);
}

/// Posts the read of the next piece, or of the rest of the last one; in a progress hook of as much
/// as its turn may still read.
void Connection::read_piece(Operation& operation) noexcept {
  const bool begins = operation.piece_offset == 0;
  const Offered& piece = operation.offer.pieces[operation.pieces_posted - (begins ? 0 : 1)];
  const std::uint64_t left = piece.bytes - operation.piece_offset;
  const std::uint64_t bytes = MessageLane::take_hook_bytes(left);
  if (bytes == 0 && left != 0) return lane_.pause(operation);
  if (begins) ++operation.pieces_posted;
  operation.work.transfer.remote = piece.memory;
  operation.work.transfer.remote.address += operation.piece_offset;
  operation.work.transfer.bytes = bytes;
  lane_.vci().post(operation.work);
}

void Connection::piece_read(net::Operation& work, Status status) {
  Operation& operation = *static_cast<PartOf<vci::Work>&>(work).whole;
  if (!status.ok() && operation.connection->ask_owner(operation, status)) return;
  operation.piece_offset += operation.work.transfer.bytes;
  operation.work.transfer.local += operation.work.transfer.bytes;
  if (operation.piece_offset == operation.offer.pieces[operation.pieces_posted - 1].bytes) {
    operation.piece_offset = 0;
    if (operation.pieces_posted == operation.offer.count) return fetched(work, status);
  }
  if (!status.ok()) return fetched(work, status);
  operation.connection->read_piece(operation);
}

void Connection::fetched(net::Operation& work, Status status) {
  Operation& operation = *static_cast<PartOf<vci::Work>&>(work).whole;
  set_status(operation, status);
  // A receive that is too short is no error for the sender.
  operation.connection->tell_fetched(operation,
                                     status.code() == Errc::kSizeMismatch ? Status() : status);
}

/// Ends the peer's operation.
void Connection::tell_fetched(Operation& operation, Status status) noexcept {
  release_memory(operation);
  operation.header = {first_word(RecordKind::fetched, static_cast<std::uint32_t>(status.code())), 0,
                      operation.there};
  operation.payload = {};
  operation.small_bytes = 0;
  operation.then = Operation::Then::finish_anyway;
  send_record(operation);
}

// --- writes -------------------------------------------------------------------------------------

void Connection::ask(Operation& operation, const net::Transfer& place) noexcept {
  operation.header = {first_word(RecordKind::ask, 0), 0, 0};
  operation.set_small(Asked{remote_of(operation, place), operation.there});
  operation.payload = {};
  operation.then = Operation::Then::await;
  send_record(operation);
}

[[gnu::noinline]] Result<bool> Connection::on_ask(PacketLink& link, const PacketHeader& header,
                                                  std::span<const std::byte> payload) noexcept {
  const auto asked = front_of<Asked>(payload);
  const auto immediate = link.immediate_of_notification(Awaited::place_of(header[2]));
  if (!asked || !immediate) return Errc::kProtocol;
  Operation* const operation = lane_.awaited().take(asked->offer, *this);
  if (operation == nullptr) return unexpected(link);
  if (!is_offer(operation->header) ||
      !operation->payload.empty()) {  // an offer of several pieces can't be asked for
    end_awaited(*operation, Errc::kProtocol);
    return Errc::kProtocol;
  }
  operation->there = header[2];
  vci::Work& work = operation->work;
  work.kind = vci::Work::Kind::write_immediate;
  work.immediate = *immediate;
  work.complete = &Connection::written;
  work.link = &link.net_link();
  work.transfer.remote = asked->to;
  lane_.vci().post(work);
  return true;
}

void Connection::written(net::Operation& work, Status status) {
  Operation& operation = *static_cast<PartOf<vci::Work>&>(work).whole;
  Connection& connection = *operation.connection;
  set_status(operation, status);
  if (!status.ok()) return connection.tell_fetched(operation, status);
  release_memory(operation);
  connection.lane_.finish(operation);
}

Status Connection::on_notification(PacketLink& link, std::uint32_t number) {
  Operation* const operation = lane_.awaited().take_asking(number, *this);
  if (operation == nullptr) return unexpected(link).error();
  release_memory(*operation);
  lane_.finish_locked(*operation);
  return {};
}

}  // namespace larklane::msg
