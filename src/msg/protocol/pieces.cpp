// Messages in several buffers, or in a packet of the user. A short message is gathered as its
// record is assembled. The record of a long message states the place of each piece.

#include <array>
#include <memory>
#include <new>
#include <utility>

#include "msg/protocol/connection.hpp"
#include "msg/protocol/engine.hpp"

namespace larklane::msg {
namespace {

/// The registrations of one operation, freed together. Thread safety: single-owner.
struct RegisteredPieces final : net::Memory {
  std::array<std::unique_ptr<net::Memory>, kBuffersMax> pieces;
  net::RemoteMemory remote() const noexcept override { return pieces[0]->remote(); }
};

}  // namespace

Result<Post> Connection::post_buffers(const PacketHeader& header, UserBuffers user,
                                      std::uint32_t tag, const PostOptions& options) noexcept {
  if (PacketLink* const link = open_link(options)) [[likely]]
    return answered(
        link->post_gathered(header, Gathered{user.all, user.bytes}, options.more_follow));
  return post_buffers_slow(header, user, tag, options);
}

[[gnu::noinline]] Result<Post> Connection::post_buffers_slow(const PacketHeader& header,
                                                             UserBuffers user, std::uint32_t tag,
                                                             const PostOptions& options) noexcept {
  Operation* const operation = begin_operation(user.whole(), tag, options);
  if (operation == nullptr) return Post::retry;
  operation->header = header;
  operation->set_buffers(user.all);
  operation->then = Operation::Then::gather;
  return post_record(*operation, options);
}

Result<Post> Connection::post_packet(const PacketHeader& header, Packet& packet,
                                     std::uint32_t bytes, std::uint32_t tag,
                                     const PostOptions& options) noexcept {
  if (PacketLink* const link = open_link(options)) [[likely]]
    return answered(link->post(packet, header, bytes));
  return post_packet_slow(header, packet, bytes, tag, options);
}

[[gnu::noinline]] Result<Post> Connection::post_packet_slow(const PacketHeader& header,
                                                            Packet& packet, std::uint32_t bytes,
                                                            std::uint32_t tag,
                                                            const PostOptions& options) noexcept {
  Operation* const operation = begin_operation({nullptr, bytes}, tag, options);
  if (operation == nullptr) return Post::retry;
  operation->header = header;
  operation->packet = &packet;
  operation->then = Operation::Then::post_packet;
  return post_record(*operation, options);
}

[[gnu::noinline]] Result<Post> Connection::post_offer(const PacketHeader& header, UserBuffers user,
                                                      std::uint32_t tag,
                                                      const PostOptions& options) noexcept {
  Operation* const operation = begin_operation(user.whole(), tag, options);
  if (operation == nullptr) return Post::retry;
  const std::uint64_t before = lane_.engine().registrations();
  if (const Status status = offer_buffers(*operation, user.all, options); !status.ok())
    return unprepared(*operation, status, before);
  operation->header = header;
  if (operation->offer.count == 1)
    operation->set_small(operation->offer.pieces[0]);
  else
    operation->payload = operation->offer.payload();
  operation->then = Operation::Then::await;
  return post_record(*operation, options);
}

Status Connection::offer_buffers(Operation& operation, std::span<const Buffer> buffers,
                                 const PostOptions& options) noexcept {
  Engine& engine = lane_.engine();
  RegisteredPieces* registered = nullptr;
  if (options.region == nullptr) {
    operation.registered = registered = new (std::nothrow) RegisteredPieces;
    if (registered == nullptr) return Errc::kNoMemory;
    engine.note_registered();
  }
  operation.region = options.region;
  Offer offer{};
  for (const Buffer& buffer : buffers) {
    if (buffer.bytes == 0) continue;
    std::byte* const start = UserBuffers::start_of(buffer);
    const net::Memory* memory = nullptr;
    if (registered != nullptr) {
      auto piece = engine.fabric().register_memory(start, buffer.bytes);
      if (!piece) return piece.error();
      memory = (registered->pieces[offer.count] = std::move(piece).value()).get();
    } else {
      memory = engine.memory_of(*options.region, start, buffer.bytes);
    }
    // For on_ask(), if it is the only one
    operation.work.transfer = {start, memory, {}, buffer.bytes};
    offer.pieces[offer.count++] = {buffer.bytes, remote_of(operation, operation.work.transfer)};
  }
  operation.offer = offer;
  // Fails where records are shorter than the list.
  return offer.payload().size() <= engine.record_bytes_max() ? Errc::kOk : Errc::kInvalidArgument;
}

}  // namespace larklane::msg
