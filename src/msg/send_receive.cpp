// Send and receive. A short message travels in its record, and is copied into its receive, or, if
// there is none yet, into a buffer. Of a long one the record says where it lies; who has the
// receive reads it from there, and says so.

#include <cstring>
#include <utility>

#include "msg/connection.hpp"
#include "msg/engine.hpp"

namespace larklane::msg {
namespace {

Operation& whole_of(MatchReceive& receive) noexcept {
  return *static_cast<PartOf<MatchReceive>&>(receive).whole;
}
Operation& whole_of(MatchMessage& message) noexcept {
  return *static_cast<PartOf<MatchMessage>&>(message).whole;
}

/// What the completion of `receive` says of its message.
void describe(Operation& receive, const MatchMessage& message, std::uint64_t bytes) noexcept {
  receive.completion.rank = static_cast<std::int32_t>(message.rank);
  receive.completion.tag = message.tag;
  receive.completion.bytes = bytes;
  receive.completion.status = bytes > receive.local_bytes ? Status(Errc::kSizeMismatch) : Status();
}

void copy_to(Operation& receive, const MatchMessage& message,
             std::span<const std::byte> bytes) noexcept {
  describe(receive, message, bytes.size());
  if (receive.completion.status.ok() && !bytes.empty())
    std::memcpy(receive.local, bytes.data(), bytes.size());
}

}  // namespace

void Connection::describe(MatchMessage& message, MatchWord match, std::uint32_t tag) noexcept {
  message.rank = static_cast<std::uint32_t>(rank_);
  message.tag = tag;
  message.policy = static_cast<MatchPolicy>(match.match);
}

/// What lies at the sender. @pre `receive` is the caller's alone
void Connection::begin_fetch(Operation& receive, const MatchMessage& message,
                             const Offered& offered, std::uint32_t there) noexcept {
  msg::describe(receive, message, offered.bytes);
  receive.connection = this;
  receive.offered = offered;
  receive.there = there;
  fetch(receive);
}

Result<Post> Connection::send(MatchWord match, std::uint32_t tag, UserBytes from,
                              const PostOptions& options) {
  if (from.bytes <= eager_bytes_max())
    return post_bytes({first_word(RecordKind::send, match.word()), tag, 0}, {}, from, tag, options);
  return post_offer({first_word(RecordKind::send_offer, match.word()), tag, 0}, from, tag, options);
}

Result<Post> receive(MessageLane& lane, MatchWord match, int rank, std::uint32_t tag, UserBytes to,
                     Completion* done, const PostOptions& options) noexcept {
  Engine& engine = lane.engine();
  MatchingEngine* const space = engine.space(match.space);
  if (space == nullptr) return Errc::kNoMemory;
  Operation* const operation = lane.take();
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
  operation->object = options.completion->inside();
  operation->receive.rank = static_cast<std::uint32_t>(rank);
  operation->receive.tag = tag;
  operation->receive.policy = static_cast<MatchPolicy>(match.match);
  lane.ledger().post(*operation->object);

  MatchMessage* const matched = space->insert_receive(operation->receive);
  if (matched == nullptr) {
    // Either the search for receives of a dead rank finds it, or we see that it is dead.
    const bool names_rank = match.match == Match::rank_tag || match.match == Match::rank;
    if (names_rank && engine.is_lost(rank) && space->cancel(operation->receive))
      lane.finish(*operation, engine.why_lost(rank));
    return Post::posted;
  }
  Operation& message = whole_of(*matched);
  // acq_rel: of the receive; pairs with on_message()'s, of the bytes.
  if (message.met.exchange(operation, std::memory_order_acq_rel) != Operation::message_is_here())
    return Post::posted;
  if (message.is_offer) {
    message.connection->begin_fetch(*operation, message.message, message.offered, message.there);
    message.lane->give_back(message);
    return Post::posted;
  }
  copy_to(*operation, message.message, {message.local, message.local_bytes});
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
  const auto match = MatchWord::of(rest_of(header));
  if (!match) return Errc::kProtocol;
  MatchingEngine* const space = lane_.engine().space(match->space);
  if (space == nullptr) return false;
  MatchMessage alone;
  const bool may_wait = lane_.make_room_locked(static_cast<std::uint32_t>(payload.size()));
  MatchMessage& message = may_wait ? lane_.arrival_locked().message : alone;
  describe(message, *match, header[1]);
  if (!may_wait) {
    MatchReceive* const matched = space->match_now(message);
    if (matched == nullptr) return false;
    copy_to(whole_of(*matched), message, payload);
    lane_.finish(whole_of(*matched));
    return true;
  }
  Operation& operation = lane_.take_arrival_locked();
  operation.is_offer = false;
  operation.met.store(nullptr, std::memory_order_relaxed);  // the engine's lock publishes it
  if (MatchReceive* const matched = space->insert_message(message)) [[likely]] {
    copy_to(whole_of(*matched), message, payload);
    lane_.put_arrival_locked(operation);
    lane_.finish(whole_of(*matched));
  } else {
    wait(operation, payload);
  }
  return true;
}

/// Nobody has wanted it yet.
void Connection::wait(Operation& message, std::span<const std::byte> payload) noexcept {
  message.local = payload.empty() ? nullptr : lane_.take_buffer_locked();
  message.local_bytes = payload.size();
  if (!payload.empty()) std::memcpy(message.local, payload.data(), payload.size());
  // acq_rel: of the bytes; pairs with receive()'s, of the receive.
  Operation* const receive =
      message.met.exchange(Operation::message_is_here(), std::memory_order_acq_rel);
  if (receive == nullptr) return;
  copy_to(*receive, message.message, payload);
  give_back_buffer(message.local);
  lane_.put_arrival_locked(message);
  lane_.finish(*receive);
}

Result<bool> Connection::on_send_offer(const PacketHeader& header,
                                       std::span<const std::byte> payload) noexcept {
  const auto match = MatchWord::of(rest_of(header));
  const auto offered = front_of<Offered>(payload);
  if (!match || !offered) return Errc::kProtocol;
  MatchingEngine* const space = lane_.engine().space(match->space);
  if (space == nullptr) return false;
  MatchMessage alone;
  const bool may_wait = lane_.make_room_locked(0);
  MatchMessage& message = may_wait ? lane_.arrival_locked().message : alone;
  describe(message, *match, header[1]);
  if (may_wait) {
    Operation& operation = lane_.arrival_locked();
    operation.is_offer = true;
    operation.offered = *offered;
    operation.there = header[2];
    operation.connection = this;
    // relaxed: the engine's lock publishes it.
    operation.met.store(Operation::message_is_here(), std::memory_order_relaxed);
  }
  MatchReceive* const matched =
      may_wait ? space->insert_message(message) : space->match_now(message);
  if (matched != nullptr) {
    begin_fetch(whole_of(*matched), message, *offered, header[2]);
    return true;
  }
  if (may_wait) (void)lane_.take_arrival_locked();  // the engine's
  return may_wait;
}

// --- fetching -----------------------------------------------------------------------------------

void Connection::fetch(Operation& operation) noexcept {
  PostOptions options;
  options.region = operation.region;
  net::Transfer& transfer = operation.work.transfer;
  Status status = operation.completion.status;
  if (status.ok()) {
    const std::uint64_t room = std::exchange(operation.local_bytes, operation.offered.bytes);
    status = prepare_local(operation, options, transfer);
    operation.local_bytes = room;
  }
  if (!status.ok()) return fetched(operation.work, status);
  transfer.remote = operation.offered.memory;
  operation.work.kind = vci::Work::Kind::read;
  operation.work.complete = &Connection::fetched;
  operation.work.link = &link_.load(std::memory_order_acquire)->net_link();  // pairs with begin()
  lane_.vci().post(operation.work);
}

void Connection::fetched(net::Operation& work, Status status) {
  Operation& operation = *static_cast<PartOf<vci::Work>&>(work).whole;
  Connection& connection = *operation.connection;
  release_memory(operation);
  operation.completion.status = status;
  if (!status.ok() && operation.is_dynamic)
    give_back_buffer(std::exchange(operation.completion.buffer, nullptr));
  // That a receive is too short is no matter of the sender's.
  const Errc told = status.code() == Errc::kSizeMismatch ? Errc::kOk : status.code();
  operation.header = {first_word(RecordKind::fetched, static_cast<std::uint32_t>(told)), 0,
                      operation.there};
  operation.payload = {};
  operation.small_bytes = 0;
  operation.then = Operation::Then::finish_anyway;
  connection.send_record(operation);
}

}  // namespace larklane::msg
