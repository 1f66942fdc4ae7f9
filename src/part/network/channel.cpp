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

bool NetHalf::lacks_peer(std::uint64_t round) const noexcept {
  return is_cut_off() || round > peer_rounds();
}

void NetHalf::give_up_on_peer() {
  if (peer_is_down() || !is_cut_off())
    fail_without_peer();
  else
    // acquire: as in is_cut_off().
    fail(Errc::kUnreachable, "there is no way over the network to " + other_half() + ": " +
                                 (link().is_lost.load(std::memory_order_acquire)
                                      ? link().why_lost
                                      : "the device is lost, see the warnings"));
  shut();
}

void NetHalf::cut_off() {
  (void)in_use_.shut();
  unregister_lost();
}

void NetHalf::on_quiet() {
  unregister_lost();
  ChannelLifetime::on_quiet();
}

bool NetHalf::is_out_of_reach() const {
  // acquire: pairs with NetLinks::cut()'s release.
  return link().is_cut.load(std::memory_order_acquire) || is_peer_quiet() ||
         peer_->peer->has_ended();
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

void NetHalf::on_peer_fail(Status status, std::string text) {
  ChannelLifetime::on_peer_fail(status, std::move(text));
  if (!in_use_.is_quiet()) (void)settle();  // the last completion sends FAIL: the peer waits for it
}

/// The half has failed. The program gets its buffer back only when no thread or operation of either
/// side uses it.
Completion NetHalf::failed_once_quiet() {
  shut();
  if (!in_use_.is_quiet()) progress();
  const Completion ended = ChannelLifetime::failed_once_quiet(is_cut_off() || peer_closed());
  if (ended == Completion::pending) return ended;
  vci().drain();  // writes that were complete for the peer at their post may not be moved yet
  return ended;
}

}  // namespace larklane::part
