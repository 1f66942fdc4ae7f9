// The public calls: they check arguments and forward to connections. gnu::flatten inlines the
// callees of short messages into their calls; rare callees are marked noinline.

#include "larklane/message.hpp"

#include <cstdlib>
#include <optional>

#include "base/log.hpp"
#include "msg/memory/buffer.hpp"
#include "msg/protocol/connection.hpp"
#include "msg/protocol/engine.hpp"

namespace larklane {
namespace {

using msg::Connection;
using msg::UserBytes;

UserBytes bytes_at(const void* start, std::uint64_t bytes) noexcept {
  return {const_cast<std::byte*>(static_cast<const std::byte*>(start)), bytes};
}
bool is_legal(const void* start, std::uint64_t bytes) noexcept {
  return start != nullptr || bytes == 0;
}
/// Has the options' completion an object? It is required where the library writes user memory.
bool is_told(const PostOptions& options) noexcept {
  return options.completion != nullptr && options.completion->inside() != nullptr;
}
bool may_write(const void* start, const PostOptions& options) noexcept {
  return start == nullptr || is_told(options);
}
/// If the options name a region, the bytes lie in it.
bool lies_as_told(const Vci& vci, const void* start, std::uint64_t bytes,
                  const PostOptions& options) noexcept {
  return options.region == nullptr || !vci.is_open() ||
         vci.inside().engine().memory_of(*options.region, start, bytes) != nullptr;
}
/// Nothing: these buffers can't be sent.
std::optional<msg::UserBuffers> legal(const Vci& vci, std::span<const Buffer> buffers,
                                      const PostOptions& options) noexcept {
  if (buffers.size() > kBuffersMax) return std::nullopt;
  std::uint64_t bytes = 0;
  for (const Buffer& buffer : buffers) {
    if (!is_legal(buffer.start, buffer.bytes) || buffer.bytes > UINT64_MAX - bytes ||
        !lies_as_told(vci, buffer.start, buffer.bytes, options))
      return std::nullopt;
    bytes += buffer.bytes;
  }
  return msg::UserBuffers{buffers, bytes};
}
bool is_rank(const Vci& vci, int rank) noexcept {
  return rank >= 0 && rank < vci.inside().engine().size();
}
bool is_legal(MatchSpace space, Match match) noexcept {
  return space.number < msg::kSpaces && match <= Match::none;
}

/// In debug builds: aborts if another thread owns the lane.
void expect_own([[maybe_unused]] const Vci& vci) noexcept {
#ifndef NDEBUG
  if (!vci.inside().vci().is_anothers()) return;
  log_error("a thread uses a single-threaded lane that another one has made");
  std::abort();
#endif
}

/// The result of `call` on the connection to `rank`.
template <class Call>
Result<Post> post_to(Vci& vci, int rank, Call&& call) noexcept {
  if (!vci.is_open() || !is_rank(vci, rank)) return Errc::kInvalidArgument;
  expect_own(vci);
  msg::MessageLane& lane = vci.inside();
  Connection* const connection = lane.engine().connection(lane, rank);
  if (connection == nullptr) return Errc::kNoMemory;
  return call(*connection);
}

/// The result of `call` on the connection and the packet. If it is not posted, the user still owns
/// the packet.
template <class Call>
Result<Post> post_packet_to(Vci& vci, int rank, Packet& packet, std::uint64_t bytes,
                            Call&& call) noexcept {
  if (!vci.is_open() || packet.lane() != &vci.inside() || bytes > vci.packet_bytes_max())
    return Errc::kInvalidArgument;
  msg::Packet* const held = vci.inside().packets().pool().held(packet.number());
  if (held == nullptr) return Errc::kInvalidArgument;
  // Before the call: once posted, the packet may be another thread's.
  msg::PacketPool::let_go(*held);
  Result<Post> answer =
      post_to(vci, rank, [&](Connection& connection) { return call(connection, *held); });
  if (answer && *answer != Post::retry) [[likely]] {
    packet.forget();
    return answer;
  }
  msg::PacketPool::hold_again(*held, packet.number());
  return answer;
}

constexpr RemoteCompletion kNumbers = 1u << 24;

}  // namespace

Vci::~Vci() {
  if (inside_ != nullptr && inside_->engine().is_made_here()) inside_->engine().give_back(*inside_);
}

std::uint32_t Vci::progress() noexcept {
  if (!is_open()) return 0;
  expect_own(*this);
  return inside_->engine().progress(*inside_);
}

std::uint64_t Vci::eager_bytes_max() const noexcept { return inside_->engine().eager_bytes_max(); }

std::uint64_t Vci::packet_bytes_max() const noexcept {
  return inside_->engine().record_bytes_max();
}

RetryCounts Vci::retry_counts() const noexcept {
  const msg::MessageCounts of_lane = inside_->counts();
  const msg::PacketCounts of_packets = inside_->packets().counts();
  return {.not_connected = of_lane.no_connection,
          .no_room = of_packets.no_room,
          .no_packet = of_packets.no_packet,
          .no_operation = of_lane.no_operation,
          .no_memory = of_lane.no_memory,
          .behind = of_lane.behind};
}

Region::~Region() {
  if (inside_ != nullptr && inside_->engine.is_made_here()) inside_->engine.remove_region(*inside_);
}

RemoteRegion Region::remote() const noexcept {
  const net::RemoteMemory memory = inside_->memory->remote();
  return {inside_->bytes, memory.address, memory.key, inside_->engine.rank(), inside_->number};
}

void* Region::start() const noexcept { return inside_->start; }

std::uint64_t Region::bytes() const noexcept { return inside_->bytes; }

[[gnu::flatten]] Result<Post> post_send(Vci& vci, int rank, std::uint32_t tag, const void* buffer,
                                        std::uint64_t bytes, const PostOptions& options,
                                        Match match, MatchSpace space) noexcept {
  if (!is_legal(buffer, bytes) || !is_legal(space, match) ||
      !lies_as_told(vci, buffer, bytes, options))
    return Errc::kInvalidArgument;
  return post_to(vci, rank, [&](Connection& connection) {
    return connection.send({match, space}, tag, bytes_at(buffer, bytes), options);
  });
}

[[gnu::flatten]] Result<Post> post_send(Vci& vci, int rank, std::uint32_t tag,
                                        std::span<const Buffer> buffers, const PostOptions& options,
                                        Match match, MatchSpace space) noexcept {
  const auto from = legal(vci, buffers, options);
  if (!from || !is_legal(space, match)) return Errc::kInvalidArgument;
  return post_to(vci, rank, [&](Connection& connection) {
    return connection.send({match, space}, tag, *from, options);
  });
}

Packet take_packet(Vci& vci) noexcept {
  if (!vci.is_open()) return {};
  msg::MessageLane& lane = vci.inside();
  msg::Packet* const taken = lane.packets().take_user_packet();
  if (taken == nullptr) return {};
  return {lane, msg::PacketPool::hold(*taken), taken->payload().data()};
}

Packet::~Packet() {
  if (number_ == 0) return;
  msg::PacketLane& packets = lane_->packets();
  msg::Packet* const held = packets.pool().held(number_);
  if (held == nullptr) return;
  msg::PacketPool::let_go(*held);
  packets.give_back(*held);
}

[[gnu::flatten]] Result<Post> post_send(Vci& vci, int rank, std::uint32_t tag, Packet& packet,
                                        std::uint64_t bytes, const PostOptions& options,
                                        Match match, MatchSpace space) noexcept {
  if (!is_legal(space, match)) return Errc::kInvalidArgument;
  const msg::MatchWord word{match, space};
  return post_packet_to(vci, rank, packet, bytes, [&](Connection& connection, msg::Packet& held) {
    return connection.post_packet({first_word(msg::RecordKind::send, word.word()), tag, 0}, held,
                                  static_cast<std::uint32_t>(bytes), tag, options);
  });
}

[[gnu::flatten]] Result<Post> post_recv(Vci& vci, int rank, std::uint32_t tag, void* buffer,
                                        std::uint64_t bytes, const PostOptions& options,
                                        Completion* done, Match match, MatchSpace space) noexcept {
  if (!vci.is_open() || !is_legal(buffer, bytes) || !is_legal(space, match) || !is_told(options) ||
      !lies_as_told(vci, buffer, bytes, options))
    return Errc::kInvalidArgument;
  expect_own(vci);
  msg::MessageLane& lane = vci.inside();
  const bool names_rank = match == Match::rank_tag || match == Match::rank;
  if (names_rank && !is_rank(vci, rank)) return Errc::kInvalidArgument;
  // The connection reports the rank's death.
  if (names_rank && lane.engine().connection(lane, rank) == nullptr) return Errc::kNoMemory;
  return msg::receive(lane, {match, space}, names_rank ? rank : 0, tag, bytes_at(buffer, bytes),
                      done, options);
}

[[gnu::flatten]] Result<Post> post_am(Vci& vci, int rank, RemoteCompletion there, std::uint32_t tag,
                                      const void* buffer, std::uint64_t bytes,
                                      const PostOptions& options) noexcept {
  if (!is_legal(buffer, bytes) || there == 0 || there >= kNumbers ||
      !lies_as_told(vci, buffer, bytes, options))
    return Errc::kInvalidArgument;
  return post_to(vci, rank, [&](Connection& connection) {
    return connection.active_message(there, tag, bytes_at(buffer, bytes), options);
  });
}

[[gnu::flatten]] Result<Post> post_am(Vci& vci, int rank, RemoteCompletion there, std::uint32_t tag,
                                      std::span<const Buffer> buffers,
                                      const PostOptions& options) noexcept {
  const auto from = legal(vci, buffers, options);
  if (!from || there == 0 || there >= kNumbers) return Errc::kInvalidArgument;
  return post_to(vci, rank, [&](Connection& connection) {
    return connection.active_message(there, tag, *from, options);
  });
}

[[gnu::flatten]] Result<Post> post_am(Vci& vci, int rank, RemoteCompletion there, std::uint32_t tag,
                                      Packet& packet, std::uint64_t bytes,
                                      const PostOptions& options) noexcept {
  if (there == 0 || there >= kNumbers) return Errc::kInvalidArgument;
  return post_packet_to(vci, rank, packet, bytes, [&](Connection& connection, msg::Packet& held) {
    return connection.post_packet({first_word(msg::RecordKind::am, there), tag, 0}, held,
                                  static_cast<std::uint32_t>(bytes), tag, options);
  });
}

void free_buffer(void* buffer) noexcept { msg::give_back_buffer(buffer); }

Result<Post> post_put(Vci& vci, const RemoteRegion& region, std::uint64_t offset,
                      const void* buffer, std::uint64_t bytes, const PostOptions& options,
                      RemoteCompletion there, std::uint32_t tag) noexcept {
  if (!is_legal(buffer, bytes) || there >= kNumbers || !lies_as_told(vci, buffer, bytes, options))
    return Errc::kInvalidArgument;
  return post_to(vci, region.rank, [&](Connection& connection) {
    return connection.put(region, offset, bytes_at(buffer, bytes), there, tag, options);
  });
}

Result<Post> post_get(Vci& vci, const RemoteRegion& region, std::uint64_t offset, void* buffer,
                      std::uint64_t bytes, const PostOptions& options, RemoteCompletion there,
                      std::uint32_t tag) noexcept {
  if (!is_legal(buffer, bytes) || !may_write(buffer, options) || there >= kNumbers ||
      !lies_as_told(vci, buffer, bytes, options))
    return Errc::kInvalidArgument;
  return post_to(vci, region.rank, [&](Connection& connection) {
    return connection.get(region, offset, bytes_at(buffer, bytes), there, tag, options);
  });
}

Result<Post> post_fetch_add(Vci& vci, const RemoteRegion& region, std::uint64_t offset,
                            std::uint64_t value, std::uint64_t* before,
                            const PostOptions& options) noexcept {
  if (!may_write(before, options)) return Errc::kInvalidArgument;
  return post_to(vci, region.rank, [&](Connection& connection) {
    return connection.atomic(msg::RecordKind::fetch_add, region, {offset, value, 0}, before,
                             options);
  });
}

Result<Post> post_compare_swap(Vci& vci, const RemoteRegion& region, std::uint64_t offset,
                               std::uint64_t expected, std::uint64_t value, std::uint64_t* before,
                               const PostOptions& options) noexcept {
  if (!may_write(before, options)) return Errc::kInvalidArgument;
  return post_to(vci, region.rank, [&](Connection& connection) {
    return connection.atomic(msg::RecordKind::compare_swap, region, {offset, value, expected},
                             before, options);
  });
}

Result<Post> post_accumulate(Vci& vci, const RemoteRegion& region, std::uint64_t offset,
                             const double* values, std::uint32_t count,
                             const PostOptions& options) noexcept {
  if (!is_legal(values, count)) return Errc::kInvalidArgument;
  return post_to(vci, region.rank, [&](Connection& connection) {
    return connection.accumulate(region, offset, values, count, options);
  });
}

}  // namespace larklane
