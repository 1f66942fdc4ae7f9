#include "msg/protocol/connection.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "msg/protocol/engine.hpp"
#include "msg/protocol/pair.hpp"

namespace larklane::msg {
namespace {

constexpr std::uint64_t kNever = UINT64_MAX;

}  // namespace

void Connection::begin(PacketLink& link) noexcept {
  bool is_to_tell = false;
  {
    const SpinGuard guard(backlog_lock_);
    // release: of the link; pairs with the acquires of posters.
    link_.store(&link, std::memory_order_release);
    // relaxed: under the lock
    is_to_tell = backlog_.load(std::memory_order_relaxed) != 0 && set_backlog_locked();
  }
  if (is_to_tell) link.tell_backlog();
  if (pair_ != nullptr) pair_->tell(this);
}

void Connection::refuse(Status status) noexcept {
  refused_ = status;
  is_refused_.store(true, std::memory_order_release);  // pairs with failure()
}

Status Connection::failure() const noexcept {
  if (const PacketLink* const link = link_.load(std::memory_order_acquire)) return link->failure();
  return is_refused_.load(std::memory_order_acquire) ? refused_ : Status();
}

bool Connection::is_quiet() noexcept {
  const PacketLink* const link = link_.load(std::memory_order_acquire);  // pairs with begin()
  // relaxed: the caller has posted itself, or knows of the posts.
  return backlog_.load(std::memory_order_relaxed) == 0 &&
         (pair_ == nullptr || !pair_->has_backlog()) && (link == nullptr || link->is_quiet());
}

std::uint32_t Connection::eager_bytes_max() const noexcept {
  return lane_.engine().eager_bytes_max();
}

// --- posts --------------------------------------------------------------------------------------

Operation* Connection::begin_operation(UserBytes user, std::uint32_t tag,
                                       const PostOptions& options) noexcept {
  Operation* const operation =
      lane_.take(options.completion == nullptr ? nullptr : options.completion->inside());
  if (operation == nullptr) return nullptr;
  set_up(*operation, user, tag, options.user_context);
  return operation;
}

inline void Connection::set_up(Operation& operation, UserBytes user, std::uint32_t tag,
                               void* context) noexcept {
  operation.connection = this;
  operation.completion = completion_of(tag, user.start, user.bytes);
  operation.completion.user_context = context;
  operation.local = user.start;
  operation.local_bytes = user.bytes;
  operation.payload = {};
  operation.small_bytes = 0;
  operation.then = Operation::Then::finish;
}

void Connection::take_back(Operation& operation) noexcept {
  release_memory(operation);
  if (operation.object != nullptr) lane_.ledger().take_back(*operation.object);
  lane_.give_back(operation);
}

/// @param end  not ok: the peer may still read offered memory, or write lent memory
void Connection::release_memory(Operation& operation, Status end) noexcept {
  if (operation.registered == nullptr) return;
  if (!end.ok() && operation.is_bounced) BounceBuffers::abandon(*operation.registered);
  const net::Memory* const memory = std::exchange(operation.registered, nullptr);
  // Else the memory leaks: no operation may reuse it
  if (end.ok() || !operation.is_lent) delete memory;
  if (!operation.is_bounced) operation.lane->engine().note_given_back();
}

inline PacketLink* Connection::open_link(const PostOptions& options) const noexcept {
  if (options.signals_always || options.queues) [[unlikely]]
    return nullptr;
  PacketLink* const link = link_.load(std::memory_order_acquire);  // pairs with begin()
  // relaxed: as in post_record()
  return backlog_.load(std::memory_order_relaxed) == 0 ? link : nullptr;
}

Result<Post> Connection::answered(Result<net::Post> answer) noexcept {
  if (!answer) return answer.error();
  return *answer == net::Post::retry ? Post::retry : Post::done;
}

/// Null: no packet is free.
Packet* Connection::assemble(std::span<const std::byte> own,
                             std::span<const std::byte> user) noexcept {
  Packet* const packet = lane_.packets().take_packet();
  if (packet == nullptr) return nullptr;
  std::byte* const payload = packet->payload().data();
  std::memcpy(payload, own.data(), own.size());
  std::memcpy(payload + own.size(), user.data(), user.size());
  return packet;
}

Result<net::Post> Connection::post_parts(PacketLink& link, const PacketHeader& header,
                                         std::span<const std::byte> own,
                                         std::span<const std::byte> user,
                                         bool more_follow) noexcept {
  if (own.empty()) return link.post(header, user, more_follow);
  if (user.empty()) return link.post(header, own);
  Packet* const packet = assemble(own, user);
  if (packet == nullptr) return net::Post::retry;
  auto answer = link.post(*packet, header, static_cast<std::uint32_t>(own.size() + user.size()));
  if (!answer || *answer == net::Post::retry) lane_.packets().give_back(*packet);
  return answer;
}

Result<Post> Connection::post_bytes(const PacketHeader& header, std::span<const std::byte> own,
                                    UserBytes user, std::uint32_t tag,
                                    const PostOptions& options) noexcept {
  if (PacketLink* const link = open_link(options)) [[likely]]
    return answered(post_parts(*link, header, own, user.span(), options.more_follow));
  Operation* const operation = begin_operation(user, tag, options);
  if (operation == nullptr) return Post::retry;
  operation->header = header;
  std::copy(own.begin(), own.end(), operation->small.begin());
  operation->small_bytes = static_cast<std::uint32_t>(own.size());
  operation->payload = user.span();
  return post_record(*operation, options);
}

Result<Post> Connection::post_offer(const PacketHeader& header, UserBytes user, std::uint32_t tag,
                                    const PostOptions& options) noexcept {
  Operation* const operation = begin_operation(user, tag, options);
  return operation == nullptr ? Post::retry : post_offer(header, *operation, options);
}

/// Offers the operation's memory.
Result<Post> Connection::post_offer(const PacketHeader& header, Operation& operation,
                                    const PostOptions& options) noexcept {
  auto answer = prepare_offer(header, operation, options);
  if (!answer || *answer != Post::done) return answer;
  return post_record(operation, options);
}

Result<Post> Connection::prepare_offer(const PacketHeader& header, Operation& operation,
                                       const PostOptions& options) noexcept {
  net::Transfer& place = operation.work.transfer;  // for on_ask()
  operation.header = header;
  if (!offer_copy(operation, place)) {
    const std::uint64_t before = lane_.engine().registrations();
    if (const Status status = prepare_local(operation, options, place, true); !status.ok())
      return unprepared(operation, status, before);
    operation.region = options.region;
  }
  operation.set_small(Offered{operation.local_bytes, remote_of(operation, place)});
  operation.then = Operation::Then::await;
  return Post::done;
}

bool Connection::offer_copy(Operation& operation, net::Transfer& place) noexcept {
  // A post that has to wait would copy each time that it is posted; a post to this process itself
  // is copied once anyway. relaxed: a hint
  if (link_.load(std::memory_order_relaxed) == nullptr || rank_ == lane_.engine().rank() ||
      backlog_.load(std::memory_order_relaxed) != 0)
    return false;
  BounceBuffers::Copy copy =
      lane_.bounce_buffers().copy_of({operation.local, operation.local_bytes});
  if (copy.memory == nullptr) return false;
  place = {copy.start, copy.memory.get(), {}, operation.local_bytes};
  operation.registered = copy.memory.release();
  operation.is_bounced = true;
  return true;
}

net::RemoteMemory Connection::remote_of(const Operation& operation,
                                        const net::Transfer& place) const noexcept {
  net::RemoteMemory memory = place.memory->remote();
  memory.address += lane_.engine().offset_in(operation.region, place.local);
  return memory;
}

void Connection::set_status(Operation& operation, Status status) noexcept {
  operation.completion.status = status;
  if (!status.ok() && operation.is_dynamic)
    give_back_buffer(std::exchange(operation.completion.buffer, nullptr));
}

Status Connection::prepare_local(Operation& operation, const PostOptions& options,
                                 net::Transfer& transfer, bool is_for_peer) noexcept {
  Engine& engine = lane_.engine();
  transfer.local = operation.local;
  transfer.bytes = operation.local_bytes;
  if (options.region != nullptr) {
    transfer.memory = engine.memory_of(*options.region, operation.local, transfer.bytes);
    return transfer.memory == nullptr ? Errc::kInvalidArgument : Errc::kOk;
  }
  if (!is_for_peer && !engine.fabric().limits().is_local_memory_registered) {
    transfer.memory = nullptr;
    return {};
  }
  auto registered = engine.fabric().register_memory(operation.local, transfer.bytes);
  if (!registered) return registered.error();
  engine.note_registered();
  operation.registered = std::move(registered).value().release();
  transfer.memory = operation.registered;
  return {};
}

Result<Post> Connection::unprepared(Operation& operation, Status status,
                                    std::uint64_t before) noexcept {
  const std::uint32_t own = operation.registered != nullptr ? 1 : 0;
  const bool do_others_end = lane_.engine().have_others_registered(before, own);
  take_back(operation);
  if (status.code() != Errc::kNoMemory || !do_others_end) return status;
  lane_.note_no_memory();
  return Post::retry;
}

Result<Post> Connection::post_record(Operation& operation, const PostOptions& options) noexcept {
  if (const Status status = failure(); !status.ok()) {
    take_back(operation);
    return status;
  }
  PacketLink* const link = link_.load(std::memory_order_acquire);  // pairs with begin()
  // relaxed: this thread sees posts that it has queued, or knows of.
  if (link != nullptr && backlog_.load(std::memory_order_relaxed) == 0) {
    const Operation::Then then = operation.then;  // once posted, it may be over
    auto answer = try_record(*link, operation);
    if (!answer) {
      take_back(operation);
      return answer.error();
    }
    if (*answer != net::Post::retry) {
      if (!is_over_when_out(then)) return Post::posted;
      // The link opened after open_link() looked.
      if (!options.signals_always && !options.queues) {
        take_back(operation);
        return Post::done;
      }
      lane_.finish(operation, {});
      return Post::posted;
    }
  } else {
    link == nullptr ? lane_.note_no_connection() : lane_.note_behind();
  }
  if (!options.queues) {
    take_back(operation);
    return Post::retry;
  }
  join_backlog(operation);
  return Post::posted;
}

Result<net::Post> Connection::try_record(PacketLink& link, Operation& operation) noexcept {
  if (operation.then == Operation::Then::transfer) {
    LARKLANE_TRY(link.failure());
    operation.work.link = &link.net_link();
    lane_.vci().post(operation.work);
    return net::Post::posted;
  }
  const std::span own(operation.small.data(), operation.small_bytes);
  if (operation.then == Operation::Then::await) return try_awaited(link, operation);
  if (operation.then == Operation::Then::skip) return net::Post::posted;
  if (operation.then == Operation::Then::gather)
    return link.post_gathered(operation.header,
                              Gathered{std::span(operation.buffers).first(operation.buffer_count),
                                       operation.local_bytes});
  if (operation.then == Operation::Then::post_packet)
    return link.post(*operation.packet, operation.header,
                     static_cast<std::uint32_t>(operation.local_bytes));
  return post_parts(link, operation.header, own, operation.payload, false);
}

/// If the link fails meanwhile, on_failure() may finish the operation. So this copies the
/// operation's fields before add() publishes it.
[[gnu::noinline]] Result<net::Post> Connection::try_awaited(PacketLink& link,
                                                            Operation& operation) noexcept {
  PacketHeader header = operation.header;
  const auto small = operation.small;
  const auto own = std::span(small).first(operation.small_bytes);
  const auto bytes = static_cast<std::uint32_t>(own.size() + operation.payload.size());
  Packet* packet = nullptr;
  if (!operation.payload.empty()) {
    packet = assemble(own, operation.payload);
    if (packet == nullptr) return net::Post::retry;
  }
  const bool is_ask = is_kind(header, RecordKind::ask);
  header[2] = lane_.awaited().add(operation, is_ask ? link.notifications() : UINT32_MAX);
  if (header[2] != 0 && is_ordinary(header)) lane_.offer_words().of(header[2]).begin();
  if (is_ask && header[2] == 0) {  // an ask must not wait for other operations
    read(operation);
    return net::Post::posted;
  }
  Result<net::Post> answer = net::Post::retry;
  if (header[2] == 0) [[unlikely]]
    lane_.note_no_operation();
  else
    answer = packet == nullptr ? link.post(header, own) : link.post(*packet, header, bytes);
  if (answer && *answer != net::Post::retry) return answer;
  if (packet != nullptr) lane_.packets().give_back(*packet);
  if (header[2] != 0 && lane_.awaited().take(header[2], *this) == nullptr) return net::Post::posted;
  return answer;
}

void Connection::send_record(Operation& operation) noexcept {
  PacketLink* const link = link_.load(std::memory_order_acquire);          // pairs with begin()
  if (link != nullptr && backlog_.load(std::memory_order_relaxed) == 0) {  // relaxed: no order
    const Operation::Then then = operation.then;  // once posted, it may be over
    auto answer = try_record(*link, operation);
    if (!answer || (*answer != net::Post::retry && is_over_when_out(then)))
      return record_is_out(operation, answer.error());
    if (*answer != net::Post::retry) return;
  }
  join_backlog(operation);
}

/// The record is out, or failed with `status`. @pre the operation awaits nothing any more
void Connection::record_is_out(Operation& operation, Status status) noexcept {
  if (operation.then != Operation::Then::finish_anyway && operation.completion.status.ok())
    set_status(operation, status);
  release_memory(operation, operation.completion.status);
  if (operation.then == Operation::Then::finish_copy) give_back_buffer(operation.local);
  lane_.finish(operation);
}

void Connection::join_backlog(Operation& operation) noexcept {
  bool is_first = false, is_to_tell = false;
  {
    const SpinGuard guard(backlog_lock_);
    operation.next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = &operation;
    last_ = &operation;
    // relaxed: under the lock; a reader without the lock needs only a number.
    is_first = backlog_.fetch_add(1, std::memory_order_relaxed) == 0;
    is_to_tell = is_first && set_backlog_locked();
  }
  if (is_first) lane_.add_backlog(*this);
  if (is_to_tell) tell_backlog();
}

/// True: the peer is to be told, with the lock released.
bool Connection::set_backlog_locked() noexcept {
  if (!tells_backlog()) return false;
  PacketLink* const link = link_.load(std::memory_order_acquire);  // pairs with begin()
  if (link == nullptr) return false;                               // begin() does it
  // relaxed: under the lock
  link->set_backlog(has_pair_backlog_ || backlog_.load(std::memory_order_relaxed) != 0);
  return true;
}

bool Connection::tells_backlog() const noexcept { return lane_.engine().stall_ns() != 0; }

bool Connection::set_pair_backlog(bool has) noexcept {
  const SpinGuard guard(backlog_lock_);
  if (link_.load(std::memory_order_acquire) == nullptr) return false;  // as above
  has_pair_backlog_ = has;
  (void)set_backlog_locked();
  return true;
}

void Connection::tell_backlog() noexcept {
  link_.load(std::memory_order_acquire)->tell_backlog();  // pairs with begin()
}

bool Connection::is_stalled(std::uint64_t now_ns, std::uint64_t stall_ns) noexcept {
  constexpr std::uint64_t kPauseNsMost = 10'000'000;
  PacketLink* const link = link_.load(std::memory_order_acquire);  // pairs with begin()
  if (link == nullptr || !link->failure().ok()) return false;
  const bool has_peer_backlog = link->has_peer_backlog();
  // relaxed: a hint
  const bool waits = backlog_.load(std::memory_order_relaxed) != 0 ||
                     (pair_ != nullptr && pair_->has_backlog()) ||
                     lane_.awaited().may_have_one_of(*this);
  if (!has_peer_backlog && !(waits && link->has_unread())) return false;
  if (const std::uint64_t activity = link->activity(); activity != stall_.activity) {
    stall_ = {activity, now_ns + stall_ns, stall_ns};
    return false;
  }
  if (now_ns < stall_.due_ns && !(has_peer_backlog && stall_.due_ns == kNever)) return false;
  stall_.pause_ns = std::min(2 * stall_.pause_ns, kPauseNsMost);
  stall_.due_ns = has_peer_backlog ? now_ns + stall_.pause_ns : kNever;
  return true;
}

/// By one thread at a time.
void Connection::send_backlog() noexcept {
  while (true) {
    PacketLink* const link = link_.load(std::memory_order_acquire);  // pairs with begin()
    const Status status = failure();
    if (link == nullptr && status.ok()) return lane_.add_backlog(*this);
    Node* node = nullptr;
    {
      const SpinGuard guard(backlog_lock_);
      node = std::exchange(first_, first_->next);
    }
    auto& operation = static_cast<Operation&>(*node);
    const Operation::Then then = operation.then;  // once posted, it may be over
    Result<net::Post> answer =
        status.ok() ? try_record(*link, operation) : Result<net::Post>(status);
    if (answer && *answer == net::Post::retry) {
      const SpinGuard guard(backlog_lock_);
      node->next = first_;
      if (first_ == nullptr) last_ = node;
      first_ = node;
      return lane_.add_backlog(*this);
    }
    if (!answer) {
      if (then == Operation::Then::post_packet) lane_.packets().give_back(*operation.packet);
      record_is_out(operation, answer.error());
    } else if (is_over_when_out(then)) {
      record_is_out(operation, {});
    }
    bool is_last = false, is_to_tell = false;
    {
      const SpinGuard guard(backlog_lock_);
      // relaxed: as above
      is_last = backlog_.fetch_sub(1, std::memory_order_relaxed) == 1;
      is_to_tell = is_last && set_backlog_locked();
    }
    if (is_to_tell) tell_backlog();
    if (is_last) return;
  }
}

// --- arrivals -----------------------------------------------------------------------------------

Result<bool> Connection::on_packet(PacketLink& link, const PacketHeader& header,
                                   std::span<const std::byte> payload) {
  const auto handle = [&]() -> Result<bool> {
    // The peer's records may arrive before the mesh calls begin().
    if (link_.load(std::memory_order_relaxed) == nullptr) [[unlikely]]  // relaxed: as posters do
      return false;
    const auto kind = static_cast<RecordKind>(header[0] & kKindMask);
    switch (kind) {
      case RecordKind::send:
        return on_send(header, payload);
      case RecordKind::send_offer:
        return on_send_offer(header, payload);
      case RecordKind::am:
        return on_active_message(header, payload);
      case RecordKind::am_offer:
        return on_active_offer(header, payload);
      case RecordKind::put:
        return on_put(header, payload);
      case RecordKind::signal:
        return on_signal(header, payload);
      case RecordKind::fetch_add:
      case RecordKind::compare_swap:
        return on_atomic(kind, header, payload);
      case RecordKind::accumulate:
        return on_accumulate(header, payload);
      case RecordKind::fetched:
      case RecordKind::reply:
        return on_answer(link, header, payload);
      case RecordKind::ask:
        return on_ask(link, header, payload);
      case RecordKind::copy:
        return on_copy(link, header, payload);
      case RecordKind::copied:
        return on_copied(link, header);
      case RecordKind::ordinary_send:
        return on_ordinary_send(header, payload);
      case RecordKind::ordinary:
        return on_ordinary(link, header, payload);
    }
    return Errc::kProtocol;
  };
  Result<bool> taken = handle();
  if (taken && !*taken) [[unlikely]] {
    held_link_ = &link;
    lane_.hold_locked(*this);
  }
  return taken;
}

void Connection::resume() noexcept {
  PacketLink* link = nullptr;
  lane_.vci().exclusively([&] {
    is_held_ = false;
    link = held_link_;
  });
  link->resume();
}

void Connection::resume_locked() noexcept {
  is_held_ = false;
  held_link_->resume_locked();
}

void Connection::on_failure(PacketLink&, Status status) {
  Awaited::Sweep sweep;
  while (Operation* const operation =
             lane_.awaited().take_one_of(*this, Awaited::Which::answers, sweep))
    end_awaited(*operation, status);
  Awaited::Sweep asked;
  while (const net::Memory* const memory = lane_.awaited().take_memory_of_asking(*this, asked)) {
    delete memory;
    lane_.engine().note_given_back();
    is_written_to_ = true;
  }
  lane_.engine().lose(rank_, status);
}

void Connection::on_settled(PacketLink& link) {
  Awaited::Sweep sweep;
  while (Operation* const operation =
             lane_.awaited().take_one_of(*this, Awaited::Which::all, sweep))
    end_awaited(*operation, link.failure());
}

void Connection::end_awaited(Operation& operation, Status status) noexcept {
  release_memory(operation, status);
  set_status(operation, status);
  lane_.finish(operation);
}

Result<bool> Connection::unexpected(const PacketLink& link) noexcept {
  if (link.failure().ok()) return Errc::kProtocol;
  return true;
}

[[gnu::noinline]] Result<bool> Connection::on_answer(PacketLink& link, const PacketHeader& header,
                                                     std::span<const std::byte> payload) noexcept {
  Operation* const operation = lane_.awaited().take(header[2], *this);
  if (operation == nullptr) return unexpected(link);
  if (operation->before != nullptr)
    if (const auto value = front_of<std::uint64_t>(payload)) *operation->before = *value;
  release_memory(*operation);  // the peer no longer uses it, with any result
  end_awaited(*operation, status_of(rest_of(header)));
  return true;
}

void Connection::answer(RecordKind kind, std::uint32_t there, Status status,
                        std::uint64_t value) noexcept {
  Operation& operation = lane_.take_arrival_locked();
  operation.connection = this;
  operation.object = nullptr;
  operation.header = {first_word(kind, static_cast<std::uint32_t>(status.code())), 0, there};
  operation.set_small(value);
  operation.payload = {};
  operation.then = Operation::Then::finish;
  send_record(operation);
}

void Connection::signal(RemoteCompletion number, const Completion& completion,
                        bool is_dynamic) noexcept {
  auto object = lane_.engine().domain().find(lane_.ledger(), number);
  if (!object) {
    if (is_dynamic) give_back_buffer(completion.buffer);
    return lane_.note_lost_locked();
  }
  Operation& operation = lane_.take_arrival_locked();
  operation.object = *object;
  operation.completion = completion;
  lane_.finish_locked(operation);
}

}  // namespace larklane::msg
