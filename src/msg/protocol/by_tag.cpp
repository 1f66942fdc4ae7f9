// Communicators on lanes by tag, and the records of their messages.
// (docs/design/protocols/ordinary_messages.md, "Lanes by tag")

#include "msg/protocol/by_tag.hpp"

#include <cstring>
#include <new>

#include "base/copy_small.hpp"
#include "msg/protocol/connection.hpp"
#include "msg/protocol/pair.hpp"

namespace larklane::msg {
namespace {

bool names_tag(const MatchKey& key) noexcept {
  return (static_cast<unsigned>(key.policy) & 1) == 0;
}

std::unique_ptr<MatchingEngine> make_engine() noexcept {
  auto made = MatchingEngine::create(
      {.kind = MatchingEngine::Kind::lazy, .bucket_count = ByTag::kFirstBuckets});
  return made ? std::move(made).value() : nullptr;
}

}  // namespace

ByTag::ByTag(Communicator& owner)
    : owner_(owner),
      engine_(owner.engine_),
      first_lane_(first_lane_of(owner.id(), engine_)),
      ways_count_(ways_of(engine_)),
      lanes_(new Lane[engine_.lane_count_max()]) {}

ByTag::~ByTag() {
  while (LaneEntry* const entry = order_.take_undelivered())
    Engine::free_message(*static_cast<PartOf<LaneEntry>&>(*entry).whole);
  for_each_engine([](MatchingEngine& engine) { Engine::empty(engine); });
  for (std::uint32_t lane = 0; lane < count(); ++lane)
    delete lanes_[lane].engine.load(std::memory_order_relaxed);  // no other thread is left
}

std::uint32_t ByTag::ways_of(const Engine& engine) noexcept {
  return std::bit_floor(engine.lane_count_max());
}

template <class Visit>
void ByTag::for_each_engine(Visit&& visit) noexcept {
  for (std::uint32_t lane = 0; lane < count(); ++lane)
    // acquire: pairs with engine_locked()'s release
    if (MatchingEngine* const engine = lanes_[lane].engine.load(std::memory_order_acquire))
      visit(*engine);
  // acquire: pairs with prepare_wide()'s release.
  if (has_wide_.load(std::memory_order_acquire)) visit(*wide_);
}

// --- the program's calls ------------------------------------------------------------------------

/// Wide mode without memory is entered by no call.
bool ByTag::prepare_wide() noexcept {
  if (has_wide_.load(std::memory_order_acquire)) return true;  // pairs with the release below
  bool has_wide = false;
  (void)order_.with_wide_lock([&] {
    if (wide_ == nullptr) wide_ = make_engine();
    has_wide = wide_ != nullptr;
  });
  if (!has_wide || !order_.prepare()) return false;
  has_wide_.store(true, std::memory_order_release);
  return true;
}

/// A look that was cut short is made again in a turn of the first lane.
void ByTag::after(bool is_whole) noexcept {
  if (is_whole) return;
  if (MessageLane* const lane = engine_.made_lane(first_lane_)) engine_.wake(owner_, *lane);
}

/// Calls work(MatchingEngine&) -> Met with the locks of a call that has this key. False: memory ran
/// out.
template <class Work>
bool ByTag::call(const MatchKey& key, bool looks, Work&& work) noexcept {
  MatchingEngine* used = nullptr;
  bool is_exact_due = false;
  const auto work_in = [&](MatchingEngine* engine) {
    used = engine;
    return engine != nullptr ? work(*engine) : Met::nothing;
  };
  if (!names_tag(key)) {
    if (looks && order_.shows_nothing()) return true;
    if (!prepare_wide()) return false;
    after(order_.with_any_tag(looks, [&] {
      if (work_in(wide_.get()) != Met::nothing || !looks) named_ = 0;
    }));
  } else {
    const std::uint32_t lane = lane_of(key.tag);
    if (engine_.made_lane(lane) == nullptr) return false;
    after(order_.with_tag(
        lane, looks,
        [&] {
          if (work_in(engine_locked(lane)) == Met::taken) lanes_[lane].add_kept(-1);
        },
        [&] {
          is_exact_due = ++named_ % kNamedBeforeExact == 0;
          (void)work_in(wide_.get());
        }));
  }
  if (used == nullptr) return false;
  Connection::drop_withdrawn(*used);
  if (!is_exact_due) return true;
  (void)order_.try_exact();
  after(order_.turn());
  return true;
}

Result<MatchMessage*> ByTag::post(MatchReceive& receive) noexcept {
  MatchMessage* matched = nullptr;
  if (!call({receive.rank, receive.tag, receive.policy}, false, [&](MatchingEngine& engine) {
        matched = engine.insert_receive(receive);
        return matched == nullptr ? Met::nothing : Met::taken;
      }))
    return Errc::kNoMemory;
  return matched;
}

bool ByTag::cancel(MatchReceive& receive) noexcept {
  const MatchKey key{receive.rank, receive.tag, receive.policy};
  bool is_cancelled = false;
  const auto cancel_in = [&](MatchingEngine& engine) {
    is_cancelled = engine.cancel(receive);
    return Met::nothing;
  };
  // A closed communicator may have lived for this receive. relaxed: it is a use.
  owner_.uses_.fetch_add(1, std::memory_order_relaxed);
  if (names_tag(key)) {
    (void)call(key, false, cancel_in);
  } else {  // it waits in wide mode only
    after(order_.with_wide_lock([&] {
      if (order_.is_wide()) (void)cancel_in(*wide_);
    }));
  }
  Communicators::end_use(owner_);
  return is_cancelled;
}

std::optional<MatchingEngine::Seen> ByTag::look(const MatchKey& receive) noexcept {
  std::optional<MatchingEngine::Seen> seen;
  (void)call(receive, true, [&](MatchingEngine& engine) {
    seen = engine.look(receive);
    return seen ? Met::shown : Met::nothing;
  });
  return seen;
}

MatchMessage* ByTag::take(const MatchKey& receive) noexcept {
  MatchMessage* message = nullptr;
  (void)call(receive, true, [&](MatchingEngine& engine) {
    message = engine.take(receive);
    return message == nullptr ? Met::nothing : Met::taken;
  });
  return message;
}

void ByTag::drop_messages() noexcept {
  after(order_.look_if_wide());  // arrived messages meet the receives that are still posted
  after(order_.with_wide_lock([&] {
    for_each_engine([](MatchingEngine& engine) {
      MatchingEngine::Sweep sweep;
      while (MatchMessage* const message = engine.take_message(sweep))
        Connection::drop(Connection::whole_of(*message));
    });
  }));
}

MatchCounts ByTag::counts() noexcept {
  MatchCounts sum{};
  for_each_engine([&](MatchingEngine& engine) {
    const MatchCounts one = engine.counts();
    sum.posted += one.posted;
    sum.unexpected += one.unexpected;
    sum.matched += one.matched;
    sum.waiting += one.waiting;
    sum.cancelled += one.cancelled;
    sum.orphaned += one.orphaned;
    sum.longest_chain = std::max(sum.longest_chain, one.longest_chain);
  });
  return sum;
}

// --- LaneOrder's Lanes --------------------------------------------------------------------------

bool ByTag::look(std::uint32_t lane) noexcept {
  return engine_.find_lane(lane)->packets().look_at_all_locked();
}

bool ByTag::look_alone(std::uint32_t lane) noexcept {
  MessageLane* const made = engine_.find_lane(lane);
  bool is_whole = true;  // no record comes on a lane that is not made
  const auto look = [&] { is_whole = made->packets().look_at_all_locked(); };
  if (made == nullptr) return true;
  if (!MessageLane::is_in_hook())
    made->vci().exclusively(look);
  else if (!made->vci().try_exclusively(look))
    return false;
  return is_whole;
}

bool ByTag::shows_nothing(std::uint32_t lane) noexcept {
  MessageLane* const made = engine_.find_lane(lane);
  if (made == nullptr) return true;  // no record comes on a lane that is not made
  if (made->packets().shows_nothing())
    return lanes_[lane].kept.load(std::memory_order_acquire) == 0;  // pairs with add_kept()
  bool is_empty = false;
  made->vci().exclusively([&] {
    is_empty = made->packets().look_at_all_locked() && !order_.is_wide() &&
               lanes_[lane].kept.load(std::memory_order_relaxed) == 0;
  });
  return is_empty;
}

// --- LaneOrder's Matcher ------------------------------------------------------------------------

void ByTag::wide(LaneEntry& entry) noexcept {
  Operation& message = *static_cast<PartOf<LaneEntry>&>(entry).whole;
  message.message.arrival = entry.stamp;
  (void)match(*wide_, message);
}

/// An arrival meets its receive, waits in the engine, or is dropped. True: it waits.
bool ByTag::match(MatchingEngine& engine, Operation& message) noexcept {
  MatchReceive* matched = nullptr;
  // relaxed: see Communicators::drop_messages()
  if (owner_.is_closed_.load(std::memory_order_relaxed)) {
    matched = engine.match_now(message.message.key(), message.message.offer);
    if (matched == nullptr) {
      Connection::drop(message);
      return false;
    }
  } else {
    matched = engine.insert_message(message.message);
    if (matched == nullptr) return true;
  }
  if (matched == MatchingEngine::withdrawn()) {
    Connection::drop_withdrawn(message);
    return false;
  }
  Operation& receive = Connection::whole_of(*matched);
  receive.is_posted.store(false, std::memory_order_relaxed);
  meet(receive, message);
  return false;
}

void ByTag::move_receives_wide(std::uint32_t lane) noexcept {
  MatchingEngine* const engine = lanes_[lane].engine.load(std::memory_order_relaxed);
  if (engine == nullptr) return;
  engine->take_all([this](MatchReceive& receive) { (void)wide_->insert_receive(receive); },
                   [this](MatchMessage& message) {
                     Operation& whole = Connection::whole_of(message);
                     if (message.rank < sources())
                       moving_.push(whole.entry);
                     else
                       Connection::drop(whole);  // came before the communicator was open
                   });
  lanes_[lane].kept.store(0, std::memory_order_release);  // as add_kept()
}

LaneEntry* ByTag::take_exact(std::uint32_t) noexcept { return moving_.pop(); }

bool ByTag::prepare_exact() noexcept {
  if (wide_->waiting_with(MatchPolicy::rank) != 0 || wide_->waiting_with(MatchPolicy::none) != 0)
    return false;
  bool has_memory = true;
  for (std::uint32_t lane = 0; lane < count(); ++lane)
    with(lane, [&] { has_memory &= engine_locked(lane) != nullptr; });
  return has_memory;
}

void ByTag::move_exact() noexcept {
  wide_->take_all(
      [this](MatchReceive& receive) {
        (void)engine_locked(lane_of(receive.tag))->insert_receive(receive);
      },
      [this](MatchMessage& message) {
        const std::uint32_t lane = lane_of(message.tag);
        message.arrival = lanes_[lane].arrivals++;
        (void)engine_locked(lane)->insert_message(message);
        lanes_[lane].add_kept(1);
      });
}

void ByTag::poked() noexcept {
  for (std::size_t at = 0; at < owner_.members_.size(); ++at) {
    const int member = owner_.members_[at];
    if (!engine_.is_lost(member)) continue;
    for_each_engine([&](MatchingEngine& engine) {
      MatchingEngine::Sweep sweep;
      while (MatchReceive* const receive =
                 engine.take_receive_of(static_cast<std::uint32_t>(at), sweep)) {
        Operation& operation = Connection::whole_of(*receive);
        operation.lane->finish(operation, engine_.why_lost(member));
      }
    });
  }
}

// --- arrivals -----------------------------------------------------------------------------------

MatchingEngine* ByTag::engine_locked(std::uint32_t lane) noexcept {
  std::atomic<MatchingEngine*>& place = lanes_[lane].engine;
  // relaxed: written with the lane's lock held
  if (MatchingEngine* const made = place.load(std::memory_order_relaxed)) return made;
  std::unique_ptr<MatchingEngine> made = make_engine();
  place.store(made.get(), std::memory_order_release);  // pairs with for_each_engine()
  return made.release();
}

Result<bool> ByTag::arrive_locked(MessageLane& lane, Operation& message) noexcept {
  LaneEntry& entry = message.entry;
  entry.source = message.message.rank;
  entry.lane_index = lane.index();
  if (order_.is_wide()) {
    if (entry.source >= sources()) {
      Connection::drop(message);
      return Errc::kProtocol;
    }
    if (order_.put(entry)) {
      engine_.wake(owner_, lane);
      return true;
    }
  }
  MatchingEngine* const engine = engine_locked(lane.index());
  if (engine == nullptr) {  // the record comes again: its offer stays as it is
    Engine::free_message(message);
    return false;
  }
  message.message.arrival = lanes_[lane.index()].arrivals++;
  if (match(*engine, message)) lanes_[lane.index()].add_kept(1);
  return true;
}

Result<bool> Connection::arrive_stamped(const PeerNumbers::Named& named, Operation& message,
                                        const MatchKey& key, Stamp stamp,
                                        std::uint64_t bytes) noexcept {
  message.connection = this;
  message.message.set(key);
  message.message.bytes = bytes;
  message.entry.stamp = stamp;
  return named.communicator->by_tag()->arrive_locked(lane_, message);
}

/// A call of its own, as the next one: records of other communicators keep their short path.
[[gnu::noinline]] Result<bool> Connection::on_stamped_send(
    const PeerNumbers::Named& named, bool is_synchronous, const PacketHeader& header,
    std::span<const std::byte> payload) noexcept {
  const auto stamp = front_of<Stamp>(payload);
  if (!stamp || is_synchronous != (header[2] != 0)) return Errc::kProtocol;
  if (named.communicator == nullptr) [[unlikely]]
    return is_synchronous ? refuse_locked(header[2]) : Result<bool>(true);
  ByTag& by_tag = *named.communicator->by_tag();
  const std::uint32_t tag = header[1];
  if (by_tag.lane_of(tag) != lane_.index()) return Errc::kProtocol;
  payload = payload.subspan(sizeof *stamp);
  const MatchKey key{named.source, tag, MatchPolicy::rank_tag};
  if (!is_synchronous && !by_tag.is_wide()) [[likely]] {
    MatchingEngine* const engine = by_tag.engine_locked(lane_.index());
    if (engine == nullptr) return false;
    if (MatchReceive* const matched = engine->match_now(key)) [[likely]] {
      copy_to(whole_of(*matched), key, payload);
      lane_.finish_heard_locked(whole_of(*matched));
      return true;
    }
  }
  Operation* const message = lane_.keep_locked(payload.size());
  if (message == nullptr) return false;
  copy_small(message->local, payload.data(), payload.size());
  message->is_offer = false;
  message->there = header[2];
  message->message.offer = OfferWords::at(peer_offer_words_, header[2]);
  return arrive_stamped(named, *message, key, *stamp, payload.size());
}

[[gnu::noinline]] Result<bool> Connection::on_stamped_offer(
    const PeerNumbers::Named& named, const PacketHeader& header,
    std::span<const std::byte> payload) noexcept {
  const auto stamp = front_of<Stamp>(payload);
  if (!stamp) return Errc::kProtocol;
  const auto offer = Offer::of(payload.subspan(sizeof *stamp));
  if (!offer) return Errc::kProtocol;
  if (named.communicator == nullptr) return refuse_locked(header[2]);
  if (named.communicator->by_tag()->lane_of(header[1]) != lane_.index()) return Errc::kProtocol;
  Operation* const message = lane_.keep_locked(0);
  if (message == nullptr) return false;
  message->is_offer = true;
  message->offer = *offer;
  message->there = header[2];
  message->message.offer = OfferWords::at(peer_offer_words_, header[2]);
  return arrive_stamped(named, *message, {named.source, header[1], MatchPolicy::rank_tag}, *stamp,
                        offer->bytes);
}

// --- sends --------------------------------------------------------------------------------------

Result<Operation*> Connection::send_stamped(std::uint32_t number, std::uint32_t tag, UserBytes from,
                                            Stamp stamp) noexcept {
  const PacketHeader header{OrdinaryWord::send(number, false), tag, 0};
  // acquire: pairs with begin(). relaxed: an announcement that waits was put there before.
  PacketLink* const link = link_.load(std::memory_order_acquire);
  if (link != nullptr && !pair_->has_backlog() && backlog_.load(std::memory_order_relaxed) == 0)
      [[likely]] {
    auto answer = link->push(header, stamp, from.span());
    if (!answer) return answer.error();
    if (*answer != net::Post::retry) [[likely]]
      return static_cast<Operation*>(nullptr);
  }
  return keep_back_stamped_slow(header, from, stamp);
}

[[gnu::noinline]] Result<Operation*> Connection::keep_back_stamped_slow(const PacketHeader& header,
                                                                        UserBytes from,
                                                                        Stamp stamp) noexcept {
  LARKLANE_TRY(failure());
  Operation* const operation = begin_copy(header, from);
  if (operation == nullptr) return Errc::kNoMemory;
  operation->set_small(stamp);
  send_by_pair(*operation);
  return static_cast<Operation*>(nullptr);
}

Result<Operation*> Connection::send_synchronous_stamped(std::uint32_t number, std::uint32_t tag,
                                                        UserBytes from, Stamp stamp) noexcept {
  LARKLANE_TRY(failure());
  Operation* const operation = begin_pending(from, tag);
  if (operation == nullptr) return Errc::kNoMemory;
  operation->header = {OrdinaryWord::send(number, true), tag, 0};
  operation->set_small(stamp);
  operation->payload = from.span();
  operation->then = Operation::Then::await;
  send_by_pair(*operation);
  return operation;
}

Result<Operation*> Connection::offer_stamped(std::uint32_t number, std::uint32_t tag,
                                             UserBytes from, Stamp stamp) noexcept {
  LARKLANE_TRY(failure());
  Operation* const operation = begin_pending(from, tag);
  if (operation == nullptr) return Errc::kNoMemory;
  auto answer = prepare_offer({OrdinaryWord::other(OrdinaryKind::offer, number), tag, 0},
                              *operation, queued());
  if (!answer || *answer != Post::done) return posted(*operation, answer);
  static_assert(sizeof operation->small == sizeof stamp + sizeof(Offered));
  std::byte* const small = operation->small.data();
  std::memmove(small + sizeof stamp, small, sizeof(Offered));
  std::memcpy(small, &stamp, sizeof stamp);
  operation->small_bytes = sizeof operation->small;
  send_by_pair(*operation);
  return operation;
}

/// Its record goes out, or waits behind those of the pair.
void Connection::send_by_pair(Operation& operation) noexcept {
  if (!pair_->has_backlog() && push_waiting(operation)) return;
  if (!pair_->send(operation)) return;
  pair_->tell(this);
  lane_.engine().list_backlog(*pair_);
  lane_.note_backlog();
}

bool Connection::push_waiting(Operation& operation) noexcept {
  PacketLink* const link = link_.load(std::memory_order_acquire);  // pairs with begin()
  const Status status = failure();
  // relaxed: as in send_stamped()
  if (status.ok() && (link == nullptr || backlog_.load(std::memory_order_relaxed) != 0))
    return false;
  const Operation::Then then = operation.then;  // once posted, it may be over
  Result<net::Post> answer = status.ok() ? try_record(*link, operation) : Result<net::Post>(status);
  if (answer && *answer == net::Post::retry) return false;
  if (!answer)
    record_is_out(operation, answer.error());
  else if (is_over_when_out(then))
    record_is_out(operation, {});
  return true;
}

}  // namespace larklane::msg
