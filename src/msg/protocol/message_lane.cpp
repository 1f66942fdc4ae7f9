#include "msg/protocol/message_lane.hpp"

#include <algorithm>
#include <new>

#include "base/clock.hpp"
#include "msg/protocol/connection.hpp"
#include "msg/protocol/engine.hpp"

namespace larklane::msg {
namespace {

/// Peers may ask for writes only from registered memory, so there are no copies then.
std::uint64_t bounce_bytes_max(const MessageLane::Options& options, const net::Limits& network) {
  return Engine::can_ask_for_writes(network)
             ? 0
             : std::min(options.bounce_bytes_max, network.bounce_bytes_max);
}

}  // namespace

MessageLane::MessageLane(Engine& engine, std::uint32_t index, const Options& options,
                         std::unique_ptr<PacketLane> packets, std::unique_ptr<Ledger> ledger,
                         Pool<Operation> pool, Pool<Operation> arrivals, BufferPool buffers,
                         LongBufferPool long_buffers, Ordinary ordinary) noexcept
    : engine_(engine),
      index_(index),
      packets_(std::move(packets)),
      ledger_(std::move(ledger)),
      awaited_(options.operations),
      offer_words_(engine.fabric()),
      bounce_buffers_(engine.fabric(), bounce_bytes_max(options, engine.fabric().limits())),
      arrivals_(std::move(arrivals)),
      buffers_(std::move(buffers)),
      long_buffers_(std::move(long_buffers)),
      ordinary_(std::move(ordinary)),
      pool_(std::move(pool)) {}

Result<std::unique_ptr<MessageLane>> MessageLane::create(Engine& engine, std::uint32_t index,
                                                         net::Fabric& fabric,
                                                         CompletionDomain& domain,
                                                         Options options) {
  if (RingShape{RingShape::kCellsMax, options.packets.record_cells}.payload_bytes_max() >
      BufferPool::kLargeBytes)
    return Errc::kInvalidArgument;
  auto packets = PacketLane::create(fabric, options.packets);
  if (!packets) return packets.error();
  auto ledger = Ledger::create(domain);
  if (!ledger) return ledger.error();
  auto pool = Pool<Operation>::create(options.operations);
  if (!pool) return pool.error();
  auto arrivals = Pool<Operation>::create(options.operations);
  if (!arrivals) return arrivals.error();
  auto buffers = BufferPool::create(options.buffers);
  if (!buffers) return buffers.error();
  auto long_buffers = LongBufferPool::create();
  if (!long_buffers) return long_buffers.error();
  auto ordinary = Ordinary::create();
  if (!ordinary) return ordinary.error();
  std::unique_ptr<MessageLane> lane(new (std::nothrow) MessageLane(
      engine, index, options, std::move(packets).value(), std::move(ledger).value(),
      std::move(pool).value(), std::move(arrivals).value(), std::move(buffers).value(),
      std::move(long_buffers).value(), std::move(ordinary).value()));
  if (lane == nullptr) return Errc::kNoMemory;
  return lane;
}

MessageLane::~MessageLane() {
  run_handlers_slow();
  if (arrival_ != nullptr) give_back(*arrival_);
  give_back_buffer(buffer_);
}

Result<MessageLane::Ordinary> MessageLane::Ordinary::create() noexcept {
  auto pendings = Pool<Operation>::create(UINT32_MAX);
  if (!pendings) return pendings.error();
  auto kept = Pool<Operation>::create(UINT32_MAX);
  if (!kept) return kept.error();
  auto buffers = BufferPool::create(UINT32_MAX);
  if (!buffers) return buffers.error();
  return Ordinary{std::move(pendings).value(), std::move(kept).value(), std::move(buffers).value()};
}

/// @param pool  (MessageLane&): the lane's pool
template <class PoolOf>
inline Operation* MessageLane::take_of(PoolOf&& pool, Object* object) noexcept {
  MessageLane& of_pool = vci::switches.has_own_requests ? *this : engine_.first_lane(*this);
  const vci::BiasedGuard guard(of_pool.pool_bias_, of_pool.pool_lock_);
  Operation* const operation = pool(of_pool).get();
  if (operation != nullptr && object != nullptr) ledger_->post(*object);
  return operation;
}

Operation* MessageLane::take_unprepared() noexcept {
  Operation* const operation = take_of(
      [](MessageLane& lane) -> Pool<Operation>& { return lane.ordinary_.pendings; }, nullptr);
  if (operation != nullptr) operation->lane = this;
  return operation;
}

Operation* MessageLane::take_ordinary(Operation::Polled polled) noexcept {
  Operation* const operation = take_unprepared();
  if (operation == nullptr) [[unlikely]]
    return nullptr;
  prepare_transfer(*operation);
  operation->communicator = nullptr;
  operation->is_cancelled = false;
  operation->role = Operation::Role::receive;
  // relaxed, both: the owner publishes the operation
  operation->polled.store(polled, std::memory_order_relaxed);
  operation->is_posted.store(false, std::memory_order_relaxed);
  return operation;
}

Operation* MessageLane::take(Object* object) noexcept {
  Operation* const operation =
      take_of([](MessageLane& lane) -> Pool<Operation>& { return lane.pool_; }, object);
  if (operation == nullptr) [[unlikely]] {
    note(no_operation_);
    return nullptr;
  }
  prepare(*operation, *this);
  operation->object = object;
  return operation;
}

inline void MessageLane::conclude(Operation& operation, Held held) noexcept {
  Object* const object = operation.object;
  if (object == nullptr)
    return operation.is_polled() ? operation.end_polled() : give_back(operation);
  if (object->runs_user_code) return handlers_.push(operation);
  if (ledger_->signal(*object, operation, held == Held::lane_lock)) give_back(operation);
}

void MessageLane::finish(Operation& operation) noexcept { conclude(operation, Held::nothing); }

void MessageLane::finish_locked(Operation& operation) noexcept {
  conclude(operation, Held::lane_lock);
}

void MessageLane::finish_heard_locked(Operation& receive) noexcept {
  if (receive.object == nullptr) return receive.end_polled();
  if (receive.object->runs_user_code) return handlers_.push(receive);
  if (!ledger_->signal(*receive.object, receive, true)) return;
  heard_.add(receive);
  if (heard_.count() == kHeardMost) heard_.give_back();
}

[[gnu::noinline]] void MessageLane::run_handlers_slow() noexcept {
  while (Node* const node = handlers_.pop()) {
    auto& operation = static_cast<Operation&>(*node);
    if (ledger_->signal(*operation.object, operation)) give_back(operation);
  }
}

[[gnu::noinline]] void MessageLane::look_away() noexcept {
  const Away away = why_away();
  for (std::uint32_t left = away.turns; left != 0; --left) asm volatile("");  // or it is left out
  while (now_ns() < away.until_ns) {
  }
}

MessageLane::Away MessageLane::why_away() noexcept {
  using Pause = net::Receiver::Pause;
  const net::Limits& limits = engine_.fabric().limits();
  // Less than the time of an answer. Twice as long if polls keep peers from posting, or are system
  // calls: then an answer takes the peer's poll, too.
  const Away usual{limits.is_progress_manual ? 600U : 250U, 0};
  if (!limits.is_post_system_call) {
    packets_->pause.store(Pause::none, std::memory_order_relaxed);
    return usual;
  }
  const Pause pause = packets_->pause.exchange(Pause::poll_is_dear, std::memory_order_relaxed);
  if (pause != Pause::peer_sends_on) return usual;
  // Each of the peer's calls takes 3 us or more. Of several, the messages of the first calls wait
  // for the later ones. This side's own awaited answers do not wait.
  constexpr std::uint64_t kCallNs = 2'200, kCallsMost = 3;
  const std::uint64_t most = awaited_.count() == 0 ? kCallsMost : 1;
  return {0, packets_->looked_at_ns() + kCallNs * std::min(packets_->calls_ahead(), most)};
}

/// The work that needs the lane's lock to be free. @param served  of the turn before
[[gnu::always_inline]] inline std::uint32_t MessageLane::follow_up(std::uint32_t served) noexcept {
  if (!handlers_.looks_empty()) [[unlikely]]
    run_handlers_slow();
  // relaxed: hints; the thread that sets one makes progress before or after.
  if (has_backlog_.load(std::memory_order_relaxed)) [[unlikely]]
    send_backlog_slow();
  if (has_held_.load(std::memory_order_relaxed)) [[unlikely]]
    resume_held_slow();
  if (has_paused_.load(std::memory_order_relaxed)) [[unlikely]]
    read_on_slow();
  return served;
}

std::uint32_t MessageLane::progress() noexcept {
  return follow_up(vci().is_anothers() ? vci().progress_by_asking() : vci().progress());
}

std::uint32_t MessageLane::serve() noexcept {
  return follow_up(vci().is_anothers() ? vci().progress_by_asking() : vci().progress_patiently());
}

std::uint32_t MessageLane::try_progress(std::uint32_t most) noexcept {
  if (vci().is_anothers()) return 0;
  const std::uint32_t served = vci().progress(most);
  // relaxed: as in progress()
  if (has_backlog_.load(std::memory_order_relaxed)) send_backlog_slow();
  if (has_held_.load(std::memory_order_relaxed)) try_resume_held();
  if (has_paused_.load(std::memory_order_relaxed)) read_on_slow();
  return served;
}

bool MessageLane::make_room_locked(std::uint32_t bytes) noexcept {
  if (arrival_ == nullptr) {
    arrival_ = arrivals_.get();
    if (arrival_ != nullptr) prepare(*arrival_, *this);
  }
  if (const std::uint32_t size = BufferPool::size_of(bytes);
      bytes != 0 && (buffer_ == nullptr || buffer_bytes_ != size)) {
    give_back_buffer(std::exchange(buffer_, buffers_.take(size)));
    buffer_bytes_ = size;
  }
  if (arrival_ != nullptr && (bytes == 0 || buffer_ != nullptr)) [[likely]]
    return true;
  note(held_count_);
  return false;
}

Operation* MessageLane::keep_locked(std::uint64_t bytes) noexcept {
  Operation* const operation = ordinary_.kept.get();
  if (operation == nullptr) return nullptr;
  prepare(*operation, *this);
  operation->object = nullptr;
  operation->message.offer = {};
  operation->local_bytes = bytes;
  operation->local = nullptr;
  if (bytes == 0) return operation;
  operation->local =
      bytes <= BufferPool::kMiddleBytes
          ? ordinary_.buffers.take(BufferPool::size_of(static_cast<std::uint32_t>(bytes)))
          : take_heap_buffer(bytes);
  if (operation->local != nullptr) return operation;
  ordinary_.kept.put(*operation);
  return nullptr;
}

void MessageLane::put_arrival_locked(Operation& operation) noexcept {
  if (arrival_ == nullptr && operation.lane == this)
    arrival_ = &operation;
  else
    give_back(operation);
}

void MessageLane::hold_locked(Connection& connection) noexcept {
  if (std::exchange(connection.is_held_, true)) return;
  connection.next_held_ = std::exchange(held_, &connection);
  has_held_.store(true, std::memory_order_relaxed);  // a hint
}

void MessageLane::resume_held_slow() noexcept {
  Connection* held = nullptr;
  vci().exclusively([&] {
    held = std::exchange(held_, nullptr);
    has_held_.store(false, std::memory_order_relaxed);  // a hint
  });
  while (held != nullptr) {
    Connection& connection = *std::exchange(held, held->next_held_);
    connection.resume();
  }
  engine_.serve_woken(*this);
}

/// The same, unless another thread holds the lane's lock.
void MessageLane::try_resume_held() noexcept {
  (void)vci().try_exclusively([this] {
    Connection* held = std::exchange(held_, nullptr);
    has_held_.store(false, std::memory_order_relaxed);  // a hint
    while (held != nullptr) std::exchange(held, held->next_held_)->resume_locked();
  });
  engine_.serve_woken(*this);
}

thread_local constinit std::uint64_t MessageLane::hook_bytes_left = MessageLane::kNoLimit;

void MessageLane::pause(Operation& operation) noexcept {
  const SpinGuard guard(pause_lock_);
  operation.next = nullptr;
  Node** end = &paused_;
  while (*end != nullptr) end = &(*end)->next;
  *end = &operation;
  has_paused_.store(true, std::memory_order_relaxed);  // a hint
}

void MessageLane::read_on_slow() noexcept {
  while (hook_bytes_left != 0) {
    Node* node = nullptr;
    {
      const SpinGuard guard(pause_lock_);
      node = paused_;
      if (node != nullptr) paused_ = node->next;
      if (paused_ == nullptr) has_paused_.store(false, std::memory_order_relaxed);  // a hint
    }
    if (node == nullptr) return;
    auto& operation = static_cast<Operation&>(*node);
    operation.connection->read_piece(operation);
  }
}

void MessageLane::add_backlog(Connection& connection) noexcept {
  const SpinGuard guard(backlog_lock_);
  connection.next_backlog_ = std::exchange(backlog_, &connection);
  has_backlog_.store(true, std::memory_order_relaxed);  // a hint
}

/// By one thread at a time, so that each connection's records keep their order.
void MessageLane::send_backlog_slow() noexcept {
  // acquire: pairs with the release below; the previous thread's changes to the backlogs.
  if (is_sending_.exchange(true, std::memory_order_acquire)) return;
  Connection* waiting = nullptr;
  {
    const SpinGuard guard(backlog_lock_);
    waiting = std::exchange(backlog_, nullptr);
    has_backlog_.store(false, std::memory_order_relaxed);  // a hint
  }
  while (waiting != nullptr) {
    Connection& connection = *std::exchange(waiting, waiting->next_backlog_);
    connection.send_backlog();
  }
  if (!engine_.drain_backlogs()) note_backlog();
  is_sending_.store(false, std::memory_order_release);
}

MessageCounts MessageLane::counts() const noexcept {
  const auto value = [](const std::atomic<std::uint64_t>& counter) {
    return counter.load(std::memory_order_relaxed);  // relaxed: statistics
  };
  return {value(no_connection_), value(no_operation_), value(no_memory_),
          value(behind_),        value(held_count_),   value(lost_)};
}

}  // namespace larklane::msg
