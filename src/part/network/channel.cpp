#include "part/network/channel.hpp"

#include <new>

namespace larklane::part {

Result<NetBuffer> NetBuffer::make(net::Fabric& fabric, const InitArgs& args) {
  const std::uint64_t bytes =
      static_cast<std::uint64_t>(args.partitions) * args.count * args.type->size_bytes();
  NetBuffer buffer;
  if (args.type->is_contiguous() || bytes == 0) {
    buffer.start_ = static_cast<std::byte*>(args.buffer);
  } else {
    buffer.user_ = {args.type.get(), reinterpret_cast<std::uintptr_t>(args.buffer)};
    buffer.packed_.reset(new (std::nothrow) std::byte[bytes]);
    if (!buffer.packed_) return Errc::kNoMemory;
    buffer.start_ = buffer.packed_.get();
  }
  auto memory = fabric.register_memory(buffer.start_, bytes);
  if (!memory) return memory.error();
  buffer.memory_ = std::move(memory).value();
  return buffer;
}

void NetBuffer::pack(std::uint64_t offset, std::uint64_t length) const noexcept {
  if (packed_ && length != 0) shm::pack(user_, offset, length, at(offset));
}

void NetBuffer::unpack(std::uint64_t offset, std::uint64_t length) const noexcept {
  if (packed_ && length != 0) shm::unpack(user_, offset, length, at(offset));
}

bool NetHalf::is_cut_off() const noexcept {
  const NetLink& way = link();
  // acquire: pairs with on_peer_down's and NetLink::on_over()'s release.
  return peer_is_down() || way.is_lost.load(std::memory_order_acquire) || way.vci.is_dead();
}

bool NetHalf::peer_is_gone() const noexcept { return is_cut_off() || peer_closed(); }

bool NetHalf::lacks_peer(std::uint64_t round) const noexcept {
  // acquire: pairs with on_peer_closed()'s release.
  return is_cut_off() || round > peer_rounds_.load(std::memory_order_acquire);
}

void NetHalf::give_up_on_peer(const InitArgs& args) {
  const std::string other =
      describe(args, kind_ == Kind::send ? Kind::receive : Kind::send) + " at " + args.peer;
  // acquire: as in is_cut_off().
  if (peer_is_down())
    give_up(Errc::kPeerDown, "the " + other + ": " + path_.peer->why_down());
  else if (link().is_lost.load(std::memory_order_acquire))
    give_up(Errc::kUnreachable,
            "there is no way over the network to the " + other + ": " + link().why_lost);
  else if (is_cut_off())
    give_up(Errc::kUnreachable, "there is no way over the network to the " + other +
                                    ": the device is lost, see the warnings");
  else
    give_up(Errc::kPeerFreed, "the " + other + " has been freed");
}

void NetHalf::give_up(Status status, std::string text) {
  failure_.set(status, std::move(text));
  if (in_use_.shut()) on_quiet();
}

void NetHalf::cut_off() {
  (void)in_use_.shut();
  unregister_lost();
}

void NetHalf::on_quiet() {
  unregister_lost();
  if (failure_.failed()) tell_failure();
}

bool NetHalf::is_out_of_reach() const {
  // acquire, twice: pairs with NetLinks::cut()'s release and on_peer_fail()'s.
  return link().is_cut.load(std::memory_order_acquire) ||
         peer_quiet_.load(std::memory_order_acquire) || path_.peer->peer->has_ended();
}

/// Over a working link a write of the peer may still be in flight though it has completed there.
/// Without the key that write would fail and end the link. A freed half has no buffer, and its link
/// may have ended.
void NetHalf::unregister_lost() {
  // An unmatched receive may still get another link, and publishes its key only then.
  if (!is_key_told()) return;
  const std::scoped_lock lock(buffer_mutex_);
  if (buffer_ && is_cut_off() && in_use_.is_quiet() && is_out_of_reach()) buffer_->unregister();
}

void NetHalf::drop_buffer() {
  const std::scoped_lock lock(buffer_mutex_);
  buffer_.reset();
}

bool NetHalf::settle() {
  NetLink& link = this->link();
  if (!is_idle()) (void)link.vci.progress();  // most have completed, but no thread has polled since
  if (!is_idle()) {
    if (!std::exchange(is_awaited_, true)) link.lane.want_all();
    return false;
  }
  if (std::exchange(is_awaited_, false)) link.lane.want_needed();
  return true;
}

void NetHalf::tell_failure() {
  // relaxed: one record is enough, from any thread.
  if (told_.exchange(true, std::memory_order_relaxed)) return;
  const record::Fail record{channel(),
                            kind_ == Kind::send ? 1u : 0u,
                            static_cast<std::int32_t>(failure_.status().code()),
                            failure_.status().detail(),
                            0,
                            0};
  // If send() fails the peer is gone, and the engine detects that by itself.
  (void)path_.peer->peer->send(static_cast<std::uint16_t>(record::NetType::fail),
                               std::as_bytes(std::span(&record, 1)));
}

void NetHalf::on_peer_fail(Status status, std::string text) {
  failure_.set(status, std::move(text));
  // release: pairs with failed_once_quiet()'s acquire.
  peer_quiet_.store(true, std::memory_order_release);
  if (in_use_.shut())
    on_quiet();
  else
    (void)settle();  // the last completion sends FAIL, which the peer waits for
}

/// The half has failed. The program gets its buffer back only when no thread or operation of either
/// side uses it.
Completion NetHalf::failed_once_quiet() {
  if (in_use_.shut()) on_quiet();
  if (!in_use_.is_quiet()) progress();
  // acquire: pairs with on_peer_fail()'s release.
  const bool peer_is_quiet = peer_quiet_.load(std::memory_order_acquire) || peer_is_gone();
  if (!in_use_.is_quiet() || !peer_is_quiet) return Completion::pending;
  vci().drain();  // writes that were complete for the peer at their post may not be moved yet
  return Completion::failed;
}

}  // namespace larklane::part
