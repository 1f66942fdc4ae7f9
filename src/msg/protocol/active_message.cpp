// Active messages: bytes for an object of the peer, in memory that the receiver allocates on
// arrival.

#include <utility>

#include "base/copy_small.hpp"
#include "msg/protocol/connection.hpp"
#include "msg/protocol/engine.hpp"

namespace larklane::msg {

Result<Post> Connection::active_message(RemoteCompletion there, std::uint32_t tag, UserBytes from,
                                        const PostOptions& options) {
  if (from.bytes <= eager_bytes_max())
    return post_bytes({first_word(RecordKind::am, there), tag, 0}, {}, from, tag, options);
  return post_offer({first_word(RecordKind::am_offer, there), tag, 0}, from, tag, options);
}

Result<Post> Connection::active_message(RemoteCompletion there, std::uint32_t tag, UserBuffers from,
                                        const PostOptions& options) {
  if (from.bytes <= eager_bytes_max())
    return post_buffers({first_word(RecordKind::am, there), tag, 0}, from, tag, options);
  return post_offer({first_word(RecordKind::am_offer, there), tag, 0}, from, tag, options);
}

Result<bool> Connection::on_active_message(const PacketHeader& header,
                                           std::span<const std::byte> payload) noexcept {
  if (!lane_.make_room_locked(static_cast<std::uint32_t>(payload.size()))) return false;
  std::byte* buffer = nullptr;
  if (!payload.empty()) {
    buffer = lane_.take_buffer_locked();
    copy_small(buffer, payload.data(), payload.size());
  }
  signal(rest_of(header), completion_of(header[1], buffer, payload.size()), true);
  return true;
}

[[gnu::noinline]] Result<bool> Connection::on_active_offer(
    const PacketHeader& header, std::span<const std::byte> payload) noexcept {
  const auto offer = Offer::of(payload);
  if (!offer) return Errc::kProtocol;
  if (!lane_.make_room_locked(0)) return false;
  auto object = lane_.engine().domain().find(lane_.ledger(), rest_of(header));
  if (!object) {
    lane_.note_lost_locked();
    answer(RecordKind::fetched, header[2], object.error(), 0);
    return true;
  }
  Operation& operation = lane_.take_arrival_locked();
  operation.connection = this;
  operation.object = *object;
  operation.offer = *offer;
  operation.there = header[2];
  operation.region = nullptr;
  operation.local = lane_.take_long_buffer_locked(offer->bytes);
  operation.local_bytes = offer->bytes;
  operation.is_dynamic = true;
  operation.completion = completion_of(header[1], operation.local, offer->bytes);
  if (operation.local == nullptr) operation.completion.status = Errc::kNoMemory;
  fetch(operation);
  return true;
}

}  // namespace larklane::msg
