// Records of ordinary messages, on one connection: sends, offers, announcements, close marks.
// (docs/design/protocols/ordinary_messages.md)

#include <utility>

#include "base/copy_small.hpp"
#include "msg/protocol/communicators.hpp"
#include "msg/protocol/connection.hpp"
#include "msg/protocol/engine.hpp"
#include "msg/protocol/pair.hpp"

namespace larklane::msg {

Connection::~Connection() {
  delete mapped_.load(std::memory_order_relaxed);  // no thread posts
  peer_numbers_.for_each([](Communicator& named) { Communicators::end_use(named); });
}

// --- posts --------------------------------------------------------------------------------------

/// One function down to the network's: its frames took a tenth of a message's instructions.
[[gnu::flatten]] Result<Operation*> Connection::send(std::uint32_t number, std::uint32_t tag,
                                                     UserBytes from) noexcept {
  const PacketHeader header{OrdinaryWord::send(number, false), tag, 0};
  // acquire: pairs with begin(). relaxed: as in post_record()
  PacketLink* const link = link_.load(std::memory_order_acquire);
  if (link != nullptr && backlog_.load(std::memory_order_relaxed) == 0) [[likely]] {
    auto answer = link->post(header, from.span());
    if (!answer) return answer.error();
    if (*answer != net::Post::retry) return static_cast<Operation*>(nullptr);
  }
  return keep_back_slow(header, from);
}

/// A copy of the message, which waits for room. Null: memory ran out.
Operation* Connection::begin_copy(const PacketHeader& header, UserBytes from) noexcept {
  Operation* const operation = lane_.take_ordinary(Operation::Polled::no);
  std::byte* const copy = take_heap_buffer(from.bytes);
  if (operation == nullptr || copy == nullptr) {
    if (operation != nullptr) lane_.give_back(*operation);
    give_back_buffer(copy);
    return nullptr;
  }
  copy_small(copy, from.start, from.bytes);
  set_up(*operation, {copy, from.bytes}, header[1], nullptr);
  operation->header = header;
  operation->payload = {copy, from.bytes};
  operation->then = Operation::Then::finish_copy;
  return operation;
}

/// Copies the message behind those that wait for room.
[[gnu::noinline]] Result<Operation*> Connection::keep_back_slow(const PacketHeader& header,
                                                                UserBytes from) noexcept {
  LARKLANE_TRY(failure());
  Operation* const operation = begin_copy(header, from);
  if (operation == nullptr) return Errc::kNoMemory;
  join_backlog(*operation);
  return static_cast<Operation*>(nullptr);
}

/// A send that its owner polls. Null: memory ran out.
Operation* Connection::begin_pending(UserBytes from, std::uint32_t tag) noexcept {
  Operation* const operation = lane_.take_ordinary(Operation::Polled::open);
  if (operation == nullptr) return nullptr;
  set_up(*operation, from, tag, nullptr);
  operation->role = Operation::Role::send;
  return operation;
}

Result<Operation*> Connection::send_synchronous(std::uint32_t number, std::uint32_t tag,
                                                UserBytes from) noexcept {
  Operation* const operation = begin_pending(from, tag);
  if (operation == nullptr) return Errc::kNoMemory;
  operation->header = {OrdinaryWord::send(number, true), tag, 0};
  operation->payload = from.span();
  operation->then = Operation::Then::await;
  return posted(*operation, post_record(*operation, queued()));
}

Result<Operation*> Connection::offer(std::uint32_t number, std::uint32_t tag,
                                     UserBytes from) noexcept {
  Operation* const operation = begin_pending(from, tag);
  if (operation == nullptr) return Errc::kNoMemory;
  return posted(*operation, post_offer({OrdinaryWord::other(OrdinaryKind::offer, number), tag, 0},
                                       *operation, queued()));
}

PostOptions Connection::queued() noexcept {
  PostOptions options;
  options.signals_always = options.queues = true;
  return options;
}

Result<Operation*> Connection::posted(Operation& operation, Result<Post> answer) noexcept {
  if (!answer) return answer.error();
  if (*answer == Post::retry) return Errc::kNoMemory;  // its memory can't be registered
  return &operation;
}

/// A record of the library, which no operation waits for. Null: memory ran out.
Operation* Connection::begin_record(const PacketHeader& header) noexcept {
  Operation* const operation = lane_.take_ordinary(Operation::Polled::no);
  if (operation == nullptr) return nullptr;
  set_up(*operation, {nullptr, 0}, 0, nullptr);
  operation->header = header;
  return operation;
}

Result<std::uint32_t> Connection::announce(const ContextId& id, std::uint32_t own_rank,
                                           bool is_by_tag) noexcept {
  const std::uint32_t number = own_numbers_.take();
  if (number == OwnNumbers::kNone) return Errc::kNoMemory;
  Operation* const record =
      begin_record({OrdinaryWord::other(OrdinaryKind::context, number), own_rank, is_by_tag});
  if (record == nullptr) {
    own_numbers_.close(number);
    (void)own_numbers_.give_back(number);
    return Errc::kNoMemory;
  }
  record->set_small(Announced{id, lane_.offer_words().remote()});
  send_record(*record);
  return number;
}

// --- cancel -------------------------------------------------------------------------------------

/// Another thread may complete the send meanwhile, but not release it.
bool Connection::cancel(Operation& operation) noexcept {
  Connection& connection = *operation.connection;
  MessageLane& lane = connection.lane_;
  // Takes its place in the backlog, or waits for the peer's answer. Without memory: too late.
  Operation* const substitute = connection.begin_record({OrdinaryWord::send(0, true), 0, 0});
  if (substitute == nullptr) return false;
  substitute->then = Operation::Then::skip;
  substitute->work.transfer = {};  // a peer may ask for bytes of any operation
  bool keeps_substitute = false;
  const bool is_cancelled = lane.while_none_sends([&] {
    keeps_substitute = connection.cancel_waiting(operation, *substitute);
    return keeps_substitute || connection.withdraw(operation, *substitute, &keeps_substitute);
  });
  if (!keeps_substitute) lane.give_back(*substitute);
  if (!is_cancelled) return false;
  release_memory(operation);  // no peer reads it
  operation.is_cancelled = true;
  lane.finish(operation, {});
  return true;
}

/// Cancels a record that is not out.
bool Connection::cancel_waiting(Operation& operation, Operation& substitute) noexcept {
  if (pair_ != nullptr && pair_->replace(operation, substitute)) return true;
  const SpinGuard guard(backlog_lock_);
  Node* before = nullptr;
  for (Node* node = first_; node != nullptr; before = std::exchange(node, node->next)) {
    if (node != &operation) continue;
    substitute.next = operation.next;
    (before == nullptr ? first_ : before->next) = &substitute;
    if (last_ == &operation) last_ = &substitute;
    return true;
  }
  return false;
}

/// Cancels an offer that the peer has not taken.
bool Connection::withdraw(Operation& operation, Operation& substitute,
                          bool* keeps_substitute) noexcept {
  using Decision = Awaited::Decision;
  const Decision decision =
      lane_.awaited().release(operation, substitute, [this](std::uint32_t number) {
        const MatchOffer offer = lane_.offer_words().of(number);
        if (!offer.has_word()) return Decision::stays;
        switch (offer.withdraw()) {
          case MatchOffer::State::offered:
            return Decision::leaves_substitute;
          case MatchOffer::State::dropped:
            return Decision::leaves;
          default:
            return Decision::stays;
        }
      });
  *keeps_substitute = decision == Decision::leaves_substitute;
  return decision != Decision::stays;
}

void Connection::mark_end(std::uint32_t number) noexcept {
  own_numbers_.close(number);
  // Without memory for it the number stays in use, here and there.
  if (Operation* const record =
          begin_record({OrdinaryWord::other(OrdinaryKind::close, number), 0, 0})) {
    if (pair_ == nullptr)
      send_record(*record);
    else
      send_by_pair(*record);  // behind the messages that wait
  }
}

// --- arrivals -----------------------------------------------------------------------------------

void Connection::drop(Operation& message) noexcept {
  if (!message.message.offer.drop()) return drop_withdrawn(message);
  if (!message.is_offer) give_back_buffer(message.local);
  message.lane->give_back(message);
}

[[gnu::noinline]] void Connection::drop_withdrawn_slow(MatchingEngine& matching) noexcept {
  matching.for_each_withdrawn([](MatchMessage& message) { drop_withdrawn(whole_of(message)); });
}

void Connection::drop_withdrawn(Operation& message) noexcept {
  if (!message.is_offer) give_back_buffer(std::exchange(message.local, nullptr));
  message.connection->tell_matched(message);
}

/// Drops an offer that no communicator here can take. False: not now.
Result<bool> Connection::refuse_locked(std::uint32_t there) noexcept {
  Operation* const answer = lane_.keep_locked(0);
  if (answer == nullptr) return false;
  answer->connection = this;
  answer->is_offer = true;
  answer->there = there;
  answer->message.offer = OfferWords::at(peer_offer_words_, there);
  drop(*answer);
  return true;
}

/// The message's sender waits for the match, or has withdrawn it.
void Connection::meet_synchronous(Operation& receive, Operation& message) noexcept {
  copy_to(receive, message.message.key(), {message.local, message.local_bytes});
  give_back_buffer(std::exchange(message.local, nullptr));
  message.connection->tell_matched(message);
  receive.lane->finish(receive);
}

/// @param message  becomes the record that says so
void Connection::tell_matched(Operation& message) noexcept {
  message.header = {first_word(RecordKind::fetched, 0), 0, message.there};
  message.payload = {};
  message.small_bytes = 0;
  message.then = Operation::Then::finish;
  message.completion.status = {};
  send_record(message);
}

Result<bool> Connection::on_ordinary_send(const PacketHeader& header,
                                          std::span<const std::byte> payload) noexcept {
  const OrdinaryWord word = OrdinaryWord::of_send(header);
  const PeerNumbers::Named* const named = peer_numbers_.find(word.number);
  if (named == nullptr) [[unlikely]]
    return Errc::kProtocol;
  if ((word.variant | static_cast<std::uint32_t>(named->is_by_tag)) != 0) [[unlikely]]
    return named->is_by_tag ? on_stamped_send(*named, word.variant != 0, header, payload)
                            : on_synchronous(*named, header, payload);
  if (named->communicator == nullptr) [[unlikely]]
    return true;
  MatchingEngine* const matching = named->communicator->matching();
  if (matching == nullptr) return false;
  const MatchKey key{named->source, header[1], MatchPolicy::rank_tag};
  if (MatchReceive* const matched = matching->match_now(key)) [[likely]] {
    copy_to(whole_of(*matched), key, payload);
    lane_.finish_heard_locked(whole_of(*matched));
    return true;
  }
  return keep_locked(*named, key, 0, payload);
}

/// Keeps a message without a receive. Its bytes are in place before it can be matched.
[[gnu::noinline]] Result<bool> Connection::keep_locked(
    const PeerNumbers::Named& named, const MatchKey& key, std::uint32_t there,
    std::span<const std::byte> payload) noexcept {
  Communicator& communicator = *named.communicator;
  // relaxed: see Communicators::drop_messages()
  if (communicator.is_closed_.load(std::memory_order_relaxed))
    return there == 0 ? Result<bool>(true) : refuse_locked(there);
  Operation* const message = lane_.keep_locked(payload.size());
  if (message == nullptr) return false;
  copy_small(message->local, payload.data(), payload.size());
  message->is_offer = false;
  message->there = there;
  message->message.offer = OfferWords::at(peer_offer_words_, there);
  return insert_locked(communicator, *message, key, payload.size());
}

Result<bool> Connection::insert_locked(Communicator& communicator, Operation& message,
                                       const MatchKey& key, std::uint64_t bytes) noexcept {
  message.connection = this;
  message.message.set(key);
  message.message.bytes = bytes;
  // relaxed: of one source one lane's holder keeps the messages, so the number has grown since.
  message.message.arrival = communicator.arrivals_.load(std::memory_order_relaxed);
  MatchReceive* const matched = communicator.matching()->insert_message(message.message);
  if (matched == nullptr) {
    communicator.void_misses();
    return true;
  }
  if (matched == MatchingEngine::withdrawn()) {
    drop_withdrawn(message);
    return true;
  }
  // A receive has been posted meanwhile.
  Operation& receive = whole_of(*matched);
  receive.is_posted.store(false, std::memory_order_relaxed);
  if (!message.is_offer && message.there != 0)
    meet_synchronous(receive, message);
  else if (!hand_over(receive, message))
    lane_.finish_locked(receive);
  return true;
}

[[gnu::noinline]] Result<bool> Connection::on_synchronous(
    const PeerNumbers::Named& named, const PacketHeader& header,
    std::span<const std::byte> payload) noexcept {
  if (header[2] == 0) return Errc::kProtocol;
  if (named.communicator == nullptr) return refuse_locked(header[2]);
  MatchingEngine* const matching = named.communicator->matching();
  Operation* const answer = matching == nullptr ? nullptr : lane_.keep_locked(0);
  if (answer == nullptr) return false;
  const MatchKey key{named.source, header[1], MatchPolicy::rank_tag};
  MatchReceive* const matched =
      matching->match_now(key, OfferWords::at(peer_offer_words_, header[2]));
  if (matched == nullptr) {
    lane_.give_back(*answer);
    return keep_locked(named, key, header[2], payload);
  }
  const bool is_withdrawn = matched == MatchingEngine::withdrawn();
  if (!is_withdrawn) copy_to(whole_of(*matched), key, payload);
  answer->connection = this;
  answer->there = header[2];
  tell_matched(*answer);
  if (!is_withdrawn) lane_.finish_locked(whole_of(*matched));
  return true;
}

[[gnu::noinline]] Result<bool> Connection::on_ordinary(
    PacketLink& link, const PacketHeader& header, std::span<const std::byte> payload) noexcept {
  const OrdinaryWord word = OrdinaryWord::of_other(header);
  switch (static_cast<OrdinaryKind>(word.variant)) {
    case OrdinaryKind::context:
      return on_context(link, word.number, header, payload);
    case OrdinaryKind::offer:
      return on_ordinary_offer(word.number, header, payload);
    case OrdinaryKind::close:
      return on_close(word.number);
    case OrdinaryKind::retired:
      if (own_numbers_.give_back(word.number)) return true;
      return unexpected(link);
    case OrdinaryKind::native_payload:
      break;
  }
  return Errc::kProtocol;
}

Result<bool> Connection::on_context(PacketLink& link, std::uint32_t number,
                                    const PacketHeader& header,
                                    std::span<const std::byte> payload) noexcept {
  const auto announced = front_of<Announced>(payload);
  const std::uint32_t source = header[1];
  const bool is_by_tag = header[2] != 0;
  if (is_by_tag && !lane_.engine().has_lanes_by_tag()) return Errc::kProtocol;
  if (!announced || number >= OrdinaryWord::kNumbersMax || source >= MatchingEngine::kRankCount ||
      peer_numbers_.find(number) != nullptr)
    return Errc::kProtocol;
  if (!peer_numbers_.make_room(number)) return false;
  if (peer_offer_words_ == nullptr) {
    auto words = map_offer_words(link.net_link(), announced->words);
    if (!words) return words.error();
    peer_offer_words_ = *words;
  }
  auto communicator = lane_.engine().communicators().sight(announced->id, is_by_tag);
  if (!communicator && communicator.error().code() == Errc::kProtocol) return Errc::kProtocol;
  if (!communicator) return false;
  peer_numbers_.name(number, *communicator, source, is_by_tag);
  return true;
}

Result<bool> Connection::on_ordinary_offer(std::uint32_t number, const PacketHeader& header,
                                           std::span<const std::byte> payload) noexcept {
  const PeerNumbers::Named* const named = peer_numbers_.find(number);
  if (named != nullptr && named->is_by_tag) return on_stamped_offer(*named, header, payload);
  const auto offer = Offer::of(payload);
  if (named == nullptr || !offer) return Errc::kProtocol;
  if (named->communicator == nullptr) return refuse_locked(header[2]);
  MatchingEngine* const matching = named->communicator->matching();
  Operation* const message = matching == nullptr ? nullptr : lane_.keep_locked(0);
  if (message == nullptr) return false;
  message->is_offer = true;
  message->offer = *offer;
  message->there = header[2];
  message->connection = this;
  message->message.offer = OfferWords::at(peer_offer_words_, header[2]);
  const MatchKey key{named->source, header[1], MatchPolicy::rank_tag};
  if (MatchReceive* const matched = matching->match_now(key, message->message.offer)) {
    if (matched == MatchingEngine::withdrawn()) {
      drop_withdrawn(*message);
      return true;
    }
    lane_.give_back(*message);
    Operation& receive = whole_of(*matched);
    receive.is_posted.store(false, std::memory_order_relaxed);
    begin_fetch(receive, key, *offer, header[2]);
    return true;
  }
  if (named->communicator->is_closed_.load(std::memory_order_relaxed)) {  // as above
    drop(*message);
    return true;
  }
  return insert_locked(*named->communicator, *message, key, offer->bytes);
}

Result<bool> Connection::on_close(std::uint32_t number) noexcept {
  if (peer_numbers_.find(number) == nullptr) return Errc::kProtocol;
  Operation* const answer = lane_.keep_locked(0);
  if (answer == nullptr) return false;
  if (Communicator* const communicator = peer_numbers_.retire(number))
    Communicators::end_use(*communicator);
  set_up(*answer, {nullptr, 0}, 0, nullptr);
  answer->header = {OrdinaryWord::other(OrdinaryKind::retired, number), 0, 0};
  send_record(*answer);
  return true;
}

}  // namespace larklane::msg
