#include "part/lifetime.hpp"

#include <sched.h>

#include <span>
#include <utility>

#include "part/error_text.hpp"
#include "part/records.hpp"

namespace larklane::part {

void FailureSlot::set(Status status, std::string text) {
  const std::scoped_lock lock(mutex_);
  // relaxed: under the mutex.
  if (failed_.load(std::memory_order_relaxed)) return;
  status_ = status;
  text_ = std::move(text);
  // release: pairs with failed()'s acquire.
  failed_.store(true, std::memory_order_release);
}

void InUse::wait_until_free() const noexcept {
  while (!is_free()) ::sched_yield();
}

Status FailureSlot::status() const noexcept { return failed() ? status_ : Status{}; }

std::string FailureSlot::text() const { return failed() ? text_ : std::string{}; }

void ChannelLifetime::on_quiet() {
  // relaxed: one record is enough, from any thread.
  if (!has_failed() || told_.exchange(true, std::memory_order_relaxed)) return;
  const Status status = failure_.status();
  const record::Fail record{
      channel(), is_send_ ? 1u : 0u, static_cast<std::int32_t>(status.code()), status.detail(), 0,
      0};
  // If send() fails the peer is gone, and the engine detects that by itself.
  (void)peer_->peer->send(fail_kind_, std::as_bytes(std::span(&record, 1)));
}

std::string ChannelLifetime::own_half() const {
  return "the " + describe(args_, is_send_ ? Kind::send : Kind::receive) +
         (is_send_ ? " to " : " from ") + args_.peer;
}

std::string ChannelLifetime::other_half() const {
  return "the " + describe(args_, is_send_ ? Kind::receive : Kind::send) + " at " + args_.peer;
}

void ChannelLifetime::fail_without_peer() {
  if (!peer_is_down()) return fail_freed();
  fail(Errc::kPeerDown, other_half() + ": " + peer_->why_down());
}

}  // namespace larklane::part
