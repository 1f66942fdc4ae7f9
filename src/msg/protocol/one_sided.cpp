// Put and get: stores and loads where this process has mapped the peer's region, otherwise writes
// and reads of the network. Networks keep no order, so the signal follows when the transfer is
// complete. A short put with a signal travels as one record, which the peer copies.

#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "msg/protocol/connection.hpp"
#include "msg/protocol/engine.hpp"

namespace larklane::msg {
namespace {

bool is_within(const RemoteRegion& region, std::uint64_t offset, std::uint64_t bytes) noexcept {
  return offset <= region.bytes && bytes <= region.bytes - offset;
}

}  // namespace

/// Where a put or get without a signal, and without a completion, takes place. Null: the network
/// carries it out.
inline std::byte* Connection::find_mapped(const RemoteRegion& region, std::uint64_t offset,
                                          std::uint64_t bytes, RemoteCompletion there,
                                          const PostOptions& options) noexcept {
  if ((region.key & net::Mapping::kKeyBit) == 0) return nullptr;
  if (there != 0 || options.signals_always || options.queues) return nullptr;
  const net::RemoteMemory memory{region.address + offset, region.key};
  // acquire: pairs with map_slow()'s release.
  const MappedRegions* const table = mapped_.load(std::memory_order_acquire);
  MappedRegions::Found found{};
  if (table != nullptr) [[likely]]
    found = table->find(memory, bytes);
  if (!found.is_known) [[unlikely]]
    return map_slow(memory, bytes);
  if (found.place == nullptr) [[unlikely]]
    return nullptr;
  // Relaxed would do: the link has made the mapping.
  const PacketLink* const link = link_.load(std::memory_order_acquire);
  return link->failure().ok() ? found.place : nullptr;
}

/// Enters the peer's region into the table, unless another thread holds the lane.
[[gnu::noinline]] std::byte* Connection::map_slow(net::RemoteMemory memory,
                                                  std::uint64_t bytes) noexcept {
  PacketLink* const link = link_.load(std::memory_order_acquire);  // pairs with begin()
  if (link == nullptr || !link->failure().ok() ||
      !lane_.engine().fabric().limits().has_mapped_memory)
    return nullptr;
  std::byte* place = nullptr;
  (void)lane_.vci().post_directly(link->net_link(), [&]() -> std::optional<vci::Work::Kind> {
    auto mapping = link->net_link().map(memory.key);
    if (!mapping || mapping->start == nullptr) return std::nullopt;
    // relaxed: written with the lock held
    MappedRegions* table = mapped_.load(std::memory_order_relaxed);
    if (table == nullptr) table = new (std::nothrow) MappedRegions;
    if (table == nullptr) return std::nullopt;
    table->add(memory.key, *mapping);
    mapped_.store(table, std::memory_order_release);  // pairs with find_mapped()
    place = table->find(memory, bytes).place;
    return std::nullopt;
  });
  return place;
}

Result<Post> Connection::put(const RemoteRegion& region, std::uint64_t offset, UserBytes from,
                             RemoteCompletion there, std::uint32_t tag,
                             const PostOptions& options) {
  if (!is_within(region, offset, from.bytes)) return Errc::kInvalidArgument;
  if (std::byte* const to = find_mapped(region, offset, from.bytes, there, options)) {
    mapped::store(to, from.start, from.bytes);
    return Post::done;
  }
  if (there == 0 || from.bytes > eager_bytes_max() ||
      sizeof(PutPlace) + from.bytes > lane_.engine().record_bytes_max())
    return transfer(vci::Work::Kind::write, region, offset, from, there, tag, options);
  const PutPlace place{offset};
  return post_bytes({first_word(RecordKind::put, there), tag, region.number},
                    std::as_bytes(std::span(&place, 1)), from, tag, options);
}

Result<Post> Connection::get(const RemoteRegion& region, std::uint64_t offset, UserBytes to,
                             RemoteCompletion there, std::uint32_t tag,
                             const PostOptions& options) {
  if (!is_within(region, offset, to.bytes)) return Errc::kInvalidArgument;
  if (std::byte* const from = find_mapped(region, offset, to.bytes, there, options)) {
    mapped::load(to.start, from, to.bytes);
    return Post::done;
  }
  return transfer(vci::Work::Kind::read, region, offset, to, there, tag, options);
}

Result<Post> Connection::transfer(vci::Work::Kind kind, const RemoteRegion& region,
                                  std::uint64_t offset, UserBytes user, RemoteCompletion there,
                                  std::uint32_t tag, const PostOptions& options) noexcept {
  Operation* const operation = begin_operation(user, tag, options);
  if (operation == nullptr) return Post::retry;
  vci::Work& work = operation->work;
  work.kind = kind;
  work.transfer = {user.start, nullptr, {region.address + offset, region.key}, user.bytes};
  if (kind == vci::Work::Kind::write && user.bytes <= lane_.engine().small_bytes_max()) {
    work.kind = vci::Work::Kind::small;  // from any memory
    work.small_bytes = vci::Work::kSmallOfTransfer;
  } else {
    const std::uint64_t before = lane_.engine().registrations();
    if (const Status status = prepare_local(*operation, options, work.transfer, false);
        !status.ok())
      return unprepared(*operation, status, before);
  }
  work.complete = &Connection::transferred;
  operation->signals = there;
  operation->then = Operation::Then::transfer;
  // For the owner, if it has to copy.
  operation->there = region.number;
  operation->region_offset = offset;
  return post_record(*operation, options);
}

void Connection::transferred(net::Operation& work, Status status) {
  Operation& operation = *static_cast<PartOf<vci::Work>&>(work).whole;
  Connection& connection = *operation.connection;
  if (!status.ok() && connection.ask_owner(operation, status)) return;
  connection.transfer_is_over(operation, status);
}

void Connection::transfer_is_over(Operation& operation, Status status) noexcept {
  release_memory(operation);
  operation.completion.status = status;
  if (!status.ok() || operation.signals == 0) return lane_.finish(operation);
  operation.header = {first_word(RecordKind::signal, operation.signals),
                      static_cast<std::uint32_t>(operation.completion.tag), 0};
  operation.set_small(operation.completion.bytes);
  operation.payload = {};
  operation.then = Operation::Then::finish;
  send_record(operation);
}

Result<bool> Connection::on_put(const PacketHeader& header,
                                std::span<const std::byte> payload) noexcept {
  const auto place = front_of<PutPlace>(payload);
  if (!place) return Errc::kProtocol;
  if (!lane_.make_room_locked(0)) return false;
  const std::span<const std::byte> bytes = payload.subspan(sizeof(PutPlace));
  std::byte* const to = lane_.engine().find(header[2], place->offset, bytes.size());
  if (to == nullptr) {
    lane_.note_lost_locked();
    return true;
  }
  if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
  signal(rest_of(header), completion_of(header[1], to, bytes.size()), false);
  return true;
}

Result<bool> Connection::on_signal(const PacketHeader& header,
                                   std::span<const std::byte> payload) noexcept {
  const auto bytes = front_of<std::uint64_t>(payload);
  if (!bytes) return Errc::kProtocol;
  if (!lane_.make_room_locked(0)) return false;
  signal(rest_of(header), completion_of(header[1], nullptr, *bytes), false);
  return true;
}

}  // namespace larklane::msg
