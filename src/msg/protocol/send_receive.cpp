// Send and receive. A short message travels in its record. The receiver copies it into the matching
// receive, or, without one, into a buffer. The record of a long message states where the bytes lie
// (rendezvous.cpp).

#include <utility>

#include "base/copy_small.hpp"
#include "msg/protocol/connection.hpp"
#include "msg/protocol/engine.hpp"

namespace larklane::msg {
namespace {

/// Sets the message's fields in the completion of `receive`.
void describe(Operation& receive, const MatchKey& message, std::uint64_t bytes) noexcept {
  receive.completion.rank = static_cast<std::int32_t>(message.rank);
  receive.completion.tag = message.tag;
  receive.completion.bytes = bytes;
  receive.completion.status = bytes > receive.local_bytes ? Status(Errc::kSizeMismatch) : Status();
}

}  // namespace

inline void Connection::copy_to(Operation& receive, const MatchKey& message,
                                std::span<const std::byte> bytes) noexcept {
  msg::describe(receive, message, bytes.size());
  if (receive.completion.status.ok()) copy_small(receive.local, bytes.data(), bytes.size());
}

Operation& Connection::whole_of(MatchReceive& receive) noexcept {
  return *static_cast<PartOf<MatchReceive>&>(receive).whole;
}
Operation& Connection::whole_of(MatchMessage& message) noexcept {
  return *static_cast<PartOf<MatchMessage>&>(message).whole;
}

[[gnu::noinline]] bool Connection::hand_over(Operation& receive, Operation& message) noexcept {
  const bool is_fetched = message.is_offer;
  if (is_fetched) {
    message.connection->begin_fetch(receive, message.message.key(), message.offer, message.there);
  } else {
    copy_to(receive, message.message.key(), {message.local, message.local_bytes});
    give_back_buffer(message.local);
  }
  message.lane->give_back(message);
  return is_fetched;
}

MatchKey Connection::key_of(MatchWord match, std::uint32_t tag) const noexcept {
  return {static_cast<std::uint32_t>(rank_), tag, static_cast<MatchPolicy>(match.match)};
}

/// Fetches bytes from the sender. @pre `receive` is the caller's alone
void Connection::begin_fetch(Operation& receive, const MatchKey& message, const Offer& offer,
                             std::uint32_t there) noexcept {
  if (receive.is_polled()) MessageLane::prepare_transfer(receive);
  msg::describe(receive, message, offer.bytes);
  receive.connection = this;
  receive.offer = offer;
  receive.there = there;
  fetch(receive);
}

Result<Post> Connection::send(MatchWord match, std::uint32_t tag, UserBytes from,
                              const PostOptions& options) {
  if (from.bytes <= eager_bytes_max())
    return post_bytes({first_word(RecordKind::send, match.word()), tag, 0}, {}, from, tag, options);
  return post_offer({first_word(RecordKind::send_offer, match.word()), tag, 0}, from, tag, options);
}

Result<Post> Connection::send(MatchWord match, std::uint32_t tag, UserBuffers from,
                              const PostOptions& options) {
  if (from.bytes <= eager_bytes_max())
    return post_buffers({first_word(RecordKind::send, match.word()), tag, 0}, from, tag, options);
  return post_offer({first_word(RecordKind::send_offer, match.word()), tag, 0}, from, tag, options);
}

Result<Post> receive(MessageLane& lane, MatchWord match, int rank, std::uint32_t tag, UserBytes to,
                     Completion* done, const PostOptions& options) noexcept {
  Engine& engine = lane.engine();
  MatchingEngine* const space = engine.space(match.space);
  if (space == nullptr) return Errc::kNoMemory;
  Operation* const operation = lane.take(options.completion->inside());
  if (operation == nullptr) return Post::retry;
  operation->completion = {.status = {},
                           .rank = rank,
                           .tag = tag,
                           .buffer = to.start,
                           .bytes = to.bytes,
                           .user_context = options.user_context};
  operation->local = to.start;
  operation->local_bytes = to.bytes;
  operation->region = options.region;
  operation->receive.rank = static_cast<std::uint32_t>(rank);
  operation->receive.tag = tag;
  operation->receive.policy = static_cast<MatchPolicy>(match.match);

  MatchMessage* const matched = space->insert_receive(operation->receive);
  if (matched == nullptr) {
    // Either the search for receives of a dead rank finds it, or this thread sees that the rank is
    // dead.
    const bool names_rank = match.match == Match::rank_tag || match.match == Match::rank;
    if (names_rank && engine.is_lost(rank) && space->cancel(operation->receive))
      lane.finish(*operation, engine.why_lost(rank));
    return Post::posted;
  }
  Operation& message = Connection::whole_of(*matched);
  // acq_rel: of the receive; pairs with the exchange in wait(), of the bytes.
  if (message.met.exchange(operation, std::memory_order_acq_rel) != Operation::message_is_here())
    return Post::posted;
  if (message.is_offer) {
    (void)Connection::hand_over(*operation, message);
    return Post::posted;
  }
  Connection::copy_to(*operation, message.message.key(), {message.local, message.local_bytes});
  give_back_buffer(message.local);
  message.lane->give_back(message);
  if (done == nullptr || options.signals_always) {
    lane.finish(*operation);
    return Post::posted;
  }
  *done = operation->completion;
  lane.ledger().take_back(*operation->object);
  lane.give_back(*operation);
  return Post::done;
}

Result<bool> Connection::on_send(const PacketHeader& header,
                                 std::span<const std::byte> payload) noexcept {
  if (!MatchWord::is_legal(rest_of(header))) return Errc::kProtocol;
  const MatchWord match = MatchWord::of(rest_of(header));
  MatchingEngine* const space = lane_.engine().space(match.space);
  if (space == nullptr) return false;
  const MatchKey key = key_of(match, header[1]);
  if (MatchReceive* const matched = space->match_now(key)) [[likely]] {
    copy_to(whole_of(*matched), key, payload);
    lane_.finish_heard_locked(whole_of(*matched));
    return true;
  }
  if (!lane_.make_room_locked(static_cast<std::uint32_t>(payload.size()))) return false;
  Operation& operation = lane_.take_arrival_locked();
  operation.message.set(key);
  operation.is_offer = false;
  operation.met.store(nullptr, std::memory_order_relaxed);  // the engine's lock publishes it
  MatchReceive* const matched = space->insert_message(operation.message);
  if (matched == nullptr) {
    wait(operation, payload);
    return true;
  }
  copy_to(whole_of(*matched), key, payload);
  lane_.put_arrival_locked(operation);
  lane_.finish_heard_locked(whole_of(*matched));
  return true;
}

/// Keeps a message without a receive.
[[gnu::noinline]] void Connection::wait(Operation& message,
                                        std::span<const std::byte> payload) noexcept {
  message.local = payload.empty() ? nullptr : lane_.take_buffer_locked();
  message.local_bytes = payload.size();
  copy_small(message.local, payload.data(), payload.size());
  // acq_rel: of the bytes; pairs with receive()'s, of the receive.
  Operation* const receive =
      message.met.exchange(Operation::message_is_here(), std::memory_order_acq_rel);
  if (receive == nullptr) return;
  copy_to(*receive, message.message.key(), payload);
  give_back_buffer(message.local);
  lane_.put_arrival_locked(message);
  lane_.finish_locked(*receive);
}

[[gnu::noinline]] Result<bool> Connection::on_send_offer(
    const PacketHeader& header, std::span<const std::byte> payload) noexcept {
  const auto offer = Offer::of(payload);
  if (!MatchWord::is_legal(rest_of(header)) || !offer) return Errc::kProtocol;
  const MatchWord match = MatchWord::of(rest_of(header));
  MatchingEngine* const space = lane_.engine().space(match.space);
  if (space == nullptr) return false;
  const MatchKey key = key_of(match, header[1]);
  MatchReceive* matched = space->match_now(key);
  if (matched == nullptr) {
    if (!lane_.make_room_locked(0)) return false;
    Operation& operation = lane_.take_arrival_locked();
    operation.message.set(key);
    operation.is_offer = true;
    operation.offer = *offer;
    operation.there = header[2];
    operation.connection = this;
    // relaxed: the engine's lock publishes it.
    operation.met.store(Operation::message_is_here(), std::memory_order_relaxed);
    matched = space->insert_message(operation.message);
    if (matched == nullptr) return true;
    lane_.put_arrival_locked(operation);
  }
  begin_fetch(whole_of(*matched), key, *offer, header[2]);
  return true;
}

}  // namespace larklane::msg
