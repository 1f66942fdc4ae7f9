// The program's calls on a communicator.

#include "msg/protocol/communicator.hpp"

#include <bit>
#include <new>

#include "msg/protocol/by_tag.hpp"
#include "msg/protocol/engine.hpp"

namespace larklane::msg {
namespace {

constexpr std::uint32_t kFirstBuckets = 64;  // 4 KiB

MatchPolicy policy_of(int from, std::int64_t tag) noexcept {
  // Bit 0 leaves the tag out, bit 1 the rank
  return static_cast<MatchPolicy>((tag == kAnyTag ? 1 : 0) | (from == kAnySource ? 2 : 0));
}
MatchKey key_of(int from, std::int64_t tag) noexcept {
  return {from == kAnySource ? 0 : static_cast<std::uint32_t>(from),
          tag == kAnyTag ? 0 : static_cast<std::uint32_t>(tag), policy_of(from, tag)};
}

}  // namespace

void release(Pending& pending) noexcept { pending.home->give_back(pending); }

std::uint32_t progress(const Pending& waits_for) noexcept {
  Engine& engine = waits_for.lane->engine();
  if (waits_for.role == Operation::Role::receive_on_all_lanes) [[unlikely]]
    return engine.progress_everywhere(*waits_for.lane);
  return engine.progress_if_busy(*waits_for.lane);
}

std::uint32_t poll(const Pending& waits_for) noexcept {
  Engine& engine = waits_for.lane->engine();
  if (waits_for.role == Operation::Role::receive_on_all_lanes) [[unlikely]]
    return engine.poll_everywhere(*waits_for.lane);
  return engine.poll_if_busy(*waits_for.lane);
}

thread_local constinit Communicator::Miss Communicator::last_miss_{};

// --- its parts ----------------------------------------------------------------------------------

Communicator::Communicator(Engine& engine, const ContextId& id) noexcept
    : engine_(engine), eager_bytes_max_(engine.eager_bytes_max()), id_(id), number_([] {
        static std::atomic<std::uint64_t> last{0};
        return last.fetch_add(1, std::memory_order_relaxed) + 1;  // relaxed: a number
      }()) {}

void Communicator::go_by_tag() {
  by_tag_ = std::make_unique<ByTag>(*this);
  eager_bytes_max_ -= static_cast<std::uint32_t>(sizeof(Stamp));
}

Status Communicator::prepare(std::span<const int> members, int own_rank, const Hints& hints,
                             bool is_sighted) {
  const std::uint32_t lanes = engine_.lane_count_max();
  const bool is_by_tag = hints.lanes_by_tag == Hints::LanesByTag::by_visibility &&
                         !hints.allow_lanes_by_tag() && engine_.has_lanes_by_tag();
  if (is_sighted && is_by_tag != (by_tag_ != nullptr)) return Errc::kInvalidArgument;
  if (is_by_tag && by_tag_ == nullptr) go_by_tag();
  // The identity is a hash
  first_lane_ =
      (hints.lane == Hints::kByIdentity ? static_cast<std::uint32_t>(id_.low >> 32) : hints.lane) %
      lanes;
  ways_count_ = hints.allow_lanes_by_tag() ? std::bit_floor(lanes) : 1;
  if (is_by_tag) {
    first_lane_ = ByTag::first_lane_of(id_, engine_);
    ways_count_ = ByTag::ways_of(engine_);
    stamps_.reset(new std::unique_ptr<Stamps>[members.size()]);
    by_tag_->open(static_cast<std::uint32_t>(members.size()));
  }
  ways_.reset(new std::atomic<Way*>[ways_count_] {});
  members_.assign(members.begin(), members.end());
  own_rank_ = own_rank;
  return {};
}

Communicator::~Communicator() {
  for (std::uint32_t index = 0; ways_ != nullptr && index < ways_count_; ++index)
    delete ways_[index].load(std::memory_order_relaxed);  // no other thread is left
  const std::unique_ptr<MatchingEngine> matching(matching_.load(std::memory_order_relaxed));
  if (matching != nullptr) Engine::empty(*matching);
}

inline std::uint32_t Communicator::way_of(std::int64_t tag) const noexcept {
  if (ways_count_ == 1 || tag == kAnyTag) return 0;
  return ByTag::way_of(static_cast<std::uint32_t>(tag), ways_count_);
}

[[gnu::noinline]] Communicator::Way* Communicator::make_way_slow(std::uint32_t index) noexcept {
  auto lane = engine_.lane_of((first_lane_ + index) % engine_.lane_count_max());
  if (!lane) return nullptr;
  const std::scoped_lock lock(making_);
  // relaxed: written under the mutex
  if (Way* const made = ways_[index].load(std::memory_order_relaxed)) return made;
  std::unique_ptr<Way> way(new (std::nothrow) Way{**lane, nullptr});
  if (way == nullptr) return nullptr;
  way->routes.reset(new (std::nothrow) Route[members_.size()]);
  if (way->routes == nullptr) return nullptr;
  ways_[index].store(way.get(), std::memory_order_release);  // pairs with find_way()
  return way.release();
}

[[gnu::noinline]] MatchingEngine* Communicator::make_matching_slow() noexcept {
  const std::scoped_lock lock(making_);
  // relaxed: written under the mutex
  if (MatchingEngine* const made = matching_.load(std::memory_order_relaxed)) return made;
  auto made =
      MatchingEngine::create({.kind = MatchingEngine::Kind::lazy, .bucket_count = kFirstBuckets});
  if (!made) return nullptr;
  matching_.store(made->get(), std::memory_order_release);  // pairs with matching()
  return std::move(made).value().release();
}

/// Gives it a number on the link, and announces that before any other thread can use it.
[[gnu::noinline]] Result<Connection*> Communicator::announce_slow(Way& way, int to) noexcept {
  Connection* const connection =
      engine_.connection(way.lane, members_[static_cast<std::size_t>(to)]);
  if (connection == nullptr) return Errc::kNoMemory;
  Route& route = way.routes[static_cast<std::size_t>(to)];
  const std::scoped_lock lock(announcing_);
  // relaxed: written under the mutex
  if (Connection* const made = route.connection.load(std::memory_order_relaxed)) return made;
  if (by_tag_ != nullptr) {
    std::unique_ptr<Stamps>& stamps = stamps_[static_cast<std::size_t>(to)];
    if (stamps == nullptr) stamps.reset(new (std::nothrow) Stamps(ProcessorClock::is_usable()));
    if (stamps == nullptr) return Errc::kNoMemory;
    route.stamps = stamps.get();
  }
  auto number =
      connection->announce(id_, static_cast<std::uint32_t>(own_rank_), by_tag_ != nullptr);
  if (!number) return number.error();
  route.number = *number;
  // release: of the number; pairs with send(). The announcement is in the ring, or in the backlog.
  route.connection.store(connection, std::memory_order_release);
  return connection;
}

// --- sends --------------------------------------------------------------------------------------

Result<Pending*> Communicator::send(int to, std::uint32_t tag, UserBytes from, Mode mode) noexcept {
  // acquire: pairs with make_way_slow()
  Way* const way = ways_[way_of(tag)].load(std::memory_order_acquire);
  if (way == nullptr) [[unlikely]]
    return send_first_slow(to, tag, from, mode);
  Route& route = way->routes[static_cast<std::size_t>(to)];
  // acquire: pairs with announce_slow()'s release.
  Connection* const connection = route.connection.load(std::memory_order_acquire);
  if (connection == nullptr) [[unlikely]]
    return send_first_slow(to, tag, from, mode);
  if (route.stamps != nullptr) [[unlikely]]
    return send_by_tag(to, tag, from, mode);
  if (from.bytes > eager_bytes_max_) return connection->offer(route.number, tag, from);
  if (mode == Mode::synchronous) return connection->send_synchronous(route.number, tag, from);
  return connection->send(route.number, tag, from);
}

/// @pre it has a connection
[[gnu::noinline]] Result<Pending*> Communicator::send_by_tag(int to, std::uint32_t tag,
                                                             UserBytes from, Mode mode) noexcept {
  Way* const way = ways_[way_of(tag)].load(std::memory_order_acquire);  // as in send()
  const Route& route = way->routes[static_cast<std::size_t>(to)];
  Connection& connection = *route.connection.load(std::memory_order_acquire);
  const Stamp stamp = route.stamps->next();
  if (from.bytes > eager_bytes_max_)
    return connection.offer_stamped(route.number, tag, from, stamp);
  if (mode == Mode::synchronous)
    return connection.send_synchronous_stamped(route.number, tag, from, stamp);
  return connection.send_stamped(route.number, tag, from, stamp);
}

/// The first message to a peer by a way.
[[gnu::noinline]] Result<Pending*> Communicator::send_first_slow(int to, std::uint32_t tag,
                                                                 UserBytes from,
                                                                 Mode mode) noexcept {
  Way* const way = find_way(way_of(tag));
  if (way == nullptr) return Errc::kNoMemory;
  auto announced = announce_slow(*way, to);
  if (!announced) return announced.error();
  return send(to, tag, from, mode);
}

// --- receives -----------------------------------------------------------------------------------

void meet(Operation& receive, Operation& message) noexcept {
  if (!message.is_offer && message.there != 0)
    return Connection::meet_synchronous(receive, message);
  if (!Connection::hand_over(receive, message)) receive.lane->finish(receive);
}

/// Null: memory ran out.
[[gnu::always_inline]] inline Operation* Communicator::begin_receive(MessageLane& lane,
                                                                     const MatchKey& key,
                                                                     UserBytes to) noexcept {
  Operation* const operation = lane.take_pending(engine_.communicators().pendings());
  if (operation == nullptr) return nullptr;
  operation->completion = {};
  operation->local = to.start;
  operation->local_bytes = to.bytes;
  operation->communicator = this;
  operation->receive.rank = key.rank;
  operation->receive.tag = key.tag;
  operation->receive.policy = key.policy;
  operation->is_posted.store(true, std::memory_order_relaxed);  // the engine's lock publishes it
  return operation;
}

Result<Pending*> Communicator::receive(int from, std::int64_t tag, UserBytes to) noexcept {
  if (by_tag_ != nullptr) [[unlikely]]
    return receive_by_tag(from, tag, to);
  MatchingEngine* const matching = this->matching();
  Way* const way = find_way(way_of(tag));
  if (way == nullptr || matching == nullptr) [[unlikely]]
    return Errc::kNoMemory;
  const bool names_rank = from != kAnySource;
  const int member = names_rank ? members_[static_cast<std::size_t>(from)] : -1;
  // The connection reports the rank's death.
  if (names_rank && engine_.connection(way->lane, member) == nullptr) return Errc::kNoMemory;
  Operation* const operation = begin_receive(way->lane, key_of(from, tag), to);
  if (operation == nullptr) return Errc::kNoMemory;
  MatchMessage* const matched = matching->insert_receive(operation->receive);
  Connection::drop_withdrawn(*matching);
  if (matched != nullptr) {
    operation->is_posted.store(false, std::memory_order_relaxed);
    meet(*operation, Connection::whole_of(*matched));
    return operation;
  }
  // Either the search for receives of a dead rank finds it, or this thread sees that it is dead.
  if (names_rank && engine_.is_lost(member) && matching->cancel(operation->receive))
    operation->lane->finish(*operation, engine_.why_lost(member));
  return operation;
}

[[gnu::noinline]] Result<Pending*> Communicator::receive_by_tag(int from, std::int64_t tag,
                                                                UserBytes to) noexcept {
  Way* const way = find_way(way_of(tag));
  if (way == nullptr) return Errc::kNoMemory;
  const bool names_rank = from != kAnySource;
  const int member = names_rank ? members_[static_cast<std::size_t>(from)] : -1;
  if (names_rank && engine_.connection(way->lane, member) == nullptr) return Errc::kNoMemory;
  Operation* const operation = begin_receive(way->lane, key_of(from, tag), to);
  if (operation == nullptr) return Errc::kNoMemory;
  if (tag == kAnyTag) operation->role = Operation::Role::receive_on_all_lanes;
  auto posted = by_tag_->post(operation->receive);
  if (!posted) {
    operation->lane->ledger().take_back(*operation->object);
    operation->lane->give_back(*operation);
    return posted.error();
  }
  if (*posted != nullptr) {
    operation->is_posted.store(false, std::memory_order_relaxed);
    meet(*operation, Connection::whole_of(**posted));
  } else if (names_rank && engine_.is_lost(member) && by_tag_->cancel(operation->receive)) {
    operation->lane->finish(*operation, engine_.why_lost(member));  // as above
  }
  return operation;
}

Result<Pending*> Communicator::receive(Taken& taken, UserBytes to) noexcept {
  auto& message = reinterpret_cast<Operation&>(taken);
  MessageLane& lane = *message.lane;
  Operation* const operation = lane.take_pending(lane.engine().communicators().pendings());
  if (operation == nullptr) {
    Connection::drop(message);
    return Errc::kNoMemory;
  }
  operation->completion = {};
  operation->local = to.start;
  operation->local_bytes = to.bytes;
  meet(*operation, message);
  return operation;
}

bool Communicator::look(int from, std::int64_t tag, Envelope* found) noexcept {
  const MatchKey key = key_of(from, tag);
  if (by_tag_ != nullptr) {
    (void)poll_for(tag);
    const auto seen = by_tag_->look(key);
    if (seen) *found = {static_cast<int>(seen->rank), seen->tag, seen->bytes};
    return seen.has_value();
  }
  (void)poll();
  const Miss miss = next_miss(key);
  if (miss == last_miss_) return false;
  // acquire: as in matching(). Without an engine there has been no message.
  MatchingEngine* const matching = matching_.load(std::memory_order_acquire);
  const auto seen = matching == nullptr ? std::nullopt : matching->look(key);
  if (matching != nullptr) Connection::drop_withdrawn(*matching);
  if (!seen) {
    last_miss_ = miss;
    return false;
  }
  void_misses();
  *found = {static_cast<int>(seen->rank), seen->tag, seen->bytes};
  return true;
}

Taken* Communicator::take(int from, std::int64_t tag, Envelope* found) noexcept {
  const MatchKey key = key_of(from, tag);
  if (by_tag_ != nullptr) {
    (void)poll_for(tag);
    MatchMessage* const taken = by_tag_->take(key);
    if (taken == nullptr) return nullptr;
    *found = {static_cast<int>(taken->rank), taken->tag, taken->bytes};
    return reinterpret_cast<Taken*>(&Connection::whole_of(*taken));
  }
  (void)poll();
  const Miss miss = next_miss(key);
  if (miss == last_miss_) return nullptr;
  MatchingEngine* const matching = matching_.load(std::memory_order_acquire);  // as in look()
  MatchMessage* const message = matching == nullptr ? nullptr : matching->take(key);
  if (matching != nullptr) Connection::drop_withdrawn(*matching);
  if (message == nullptr) {
    last_miss_ = miss;
    return nullptr;
  }
  void_misses();
  *found = {static_cast<int>(message->rank), message->tag, message->bytes};
  return reinterpret_cast<Taken*>(&Connection::whole_of(*message));
}

bool Communicator::cancel(Pending& pending) noexcept {
  // relaxed: a receive that has left the engine is not found there; see close()
  if (is_done(pending)) return false;
  if (pending.role == Operation::Role::send) return Connection::cancel(pending);
  if (!pending.is_posted.load(std::memory_order_relaxed)) return false;
  Communicator& communicator = *pending.communicator;
  if (!(communicator.by_tag_ == nullptr ? communicator.matching()->cancel(pending.receive)
                                        : communicator.by_tag_->cancel(pending.receive)))
    return false;
  pending.is_cancelled = true;
  pending.lane->finish(pending, {});
  return true;
}

Status Communicator::failure_of(int rank) noexcept {
  const int member = members_[static_cast<std::size_t>(rank)];
  // The connection reports the rank's death, as in receive().
  if (MessageLane* const lane = first_lane()) (void)engine_.connection(*lane, member);
  return engine_.is_lost(member) ? engine_.why_lost(member) : Status();
}

// --- the rest -----------------------------------------------------------------------------------

bool Communicator::are_sends_over() noexcept {
  for (std::uint32_t index = 0; index < ways_count_; ++index) {
    Way* const way = ways_[index].load(std::memory_order_acquire);  // pairs with make_way_slow()
    if (way == nullptr) continue;
    for (std::size_t to = 0; to < members_.size(); ++to) {
      const Route& route = way->routes[to];
      Connection* const connection =
          route.connection.load(std::memory_order_acquire);  // as in send()
      if (connection != nullptr &&
          (!connection->is_quiet() || way->lane.awaited().has_ordinary(*connection, route.number)))
        return false;
    }
  }
  return true;
}

void Communicator::close() noexcept {
  for (std::uint32_t index = 0; index < ways_count_; ++index) {
    Way* const way = ways_[index].load(std::memory_order_acquire);  // pairs with make_way_slow()
    if (way == nullptr) continue;
    for (std::size_t to = 0; to < members_.size(); ++to) {
      const Route& route = way->routes[to];
      // acquire: as in send()
      if (Connection* const connection = route.connection.load(std::memory_order_acquire))
        connection->mark_end(route.number);
    }
  }
  engine_.communicators().close(*this);
}

MessageLane* Communicator::first_lane() noexcept {
  Way* const way = find_way(0);
  return way == nullptr ? nullptr : &way->lane;
}

std::uint32_t Communicator::progress() noexcept {
  MessageLane* const lane = first_lane();
  if (lane == nullptr) return 0;
  if (by_tag_ != nullptr) return engine_.progress_everywhere(*lane);
  return engine_.progress_if_busy(*lane);
}

std::uint32_t Communicator::poll() noexcept {
  MessageLane* const lane = first_lane();
  if (lane == nullptr) return 0;
  if (by_tag_ != nullptr) return engine_.poll_everywhere(*lane);
  return engine_.poll_if_busy(*lane);
}

/// The turn of a probe on lanes by tag.
std::uint32_t Communicator::poll_for(std::int64_t tag) noexcept {
  if (tag == kAnyTag) return poll();
  Way* const way = find_way(way_of(tag));
  return way == nullptr ? 0 : engine_.poll_if_busy(way->lane);
}

bool Communicator::has_wide_order() const noexcept {
  return by_tag_ != nullptr && by_tag_->is_wide();
}

MatchCounts Communicator::match_counts() noexcept {
  if (by_tag_ != nullptr) return by_tag_->counts();
  // acquire: as in matching()
  MatchingEngine* const matching = matching_.load(std::memory_order_acquire);
  return matching == nullptr ? MatchCounts{} : matching->counts();
}

}  // namespace larklane::msg
