#pragma once
// One lane's connection to one peer: posts to it, and records from it. Each flow has a file:
// send_receive.cpp, active_message.cpp, one_sided.cpp, atomics.cpp. connection.cpp holds their
// shared part, rendezvous.cpp long messages, pieces.cpp messages in several buffers.
// owner_copies.cpp handles memory that only its owner can copy.

#include <atomic>
#include <cstdint>
#include <span>

#include "base/context_id.hpp"
#include "base/spin_lock.hpp"
#include "base/status.hpp"
#include "base/thread_safety.hpp"
#include "larklane/context.hpp"
#include "larklane/message.hpp"
#include "msg/packet/packet_link.hpp"
#include "msg/protocol/link_numbers.hpp"
#include "msg/protocol/mapped_regions.hpp"
#include "msg/protocol/message_lane.hpp"
#include "msg/protocol/operation.hpp"
#include "msg/protocol/user_bytes.hpp"
#include "msg/protocol/wire.hpp"

namespace larklane::msg {

class Communicator;
class Pair;
struct LocalRegion;

/// As UserBytes, in several buffers.
struct UserBuffers {
  std::span<const Buffer> all;  ///< the caller's, during the call
  std::uint64_t bytes;
  UserBytes whole() const noexcept { return {all.empty() ? nullptr : start_of(all[0]), bytes}; }
  static std::byte* start_of(const Buffer& buffer) noexcept {
    return const_cast<std::byte*>(static_cast<const std::byte*>(buffer.start));
  }
};

/// Posts a receive on `lane`. A message on any lane may match it.
Result<Post> receive(MessageLane& lane, MatchWord match, int rank, std::uint32_t tag, UserBytes to,
                     Completion* done, const PostOptions& options) noexcept;

// Thread safety: thread-safe; on_packet(), on_failure() and their callees run with the lane's lock
// held.
// Invariants:
// 1. The posts of one thread go out in its order: a post that finds a backlog joins it, or returns
//    retry.
// 2. Operations of a failed connection end soon: on_failure() and on_settled() finish those that
//    wait for an answer. The network ends its own, a turn of the lane the backlog.
// 3. A peer's values are never trusted: numbers are looked up, lengths compared.
class Connection final : public PacketListener {
 public:
  /// @param pair  of the peer, if this engine has lanes by tag
  Connection(MessageLane& lane, int rank, Pair* pair = nullptr) noexcept
      : lane_(lane), rank_(rank), pair_(pair) {}
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int rank() const noexcept { return rank_; }

  /// From now on posts go out. @param link  outlives all use
  void begin(PacketLink& link) noexcept;
  /// There will never be a link: posts fail.
  void refuse(Status status) noexcept;
  bool is_quiet() noexcept;
  /// For Engine::look_for_stalls(): the peer has to read records of this side, or has records of
  /// its own without room, and nothing has moved for `stall_ns`. True once a stall; again, ever
  /// more rarely, as long as the peer says that it has such records. One thread at a time.
  bool is_stalled(std::uint64_t now_ns, std::uint64_t stall_ns) noexcept;

  // Posts.
  Result<Post> send(MatchWord match, std::uint32_t tag, UserBytes from, const PostOptions& options);
  Result<Post> active_message(RemoteCompletion there, std::uint32_t tag, UserBytes from,
                              const PostOptions& options);
  Result<Post> send(MatchWord match, std::uint32_t tag, UserBuffers from,
                    const PostOptions& options);
  Result<Post> active_message(RemoteCompletion there, std::uint32_t tag, UserBuffers from,
                              const PostOptions& options);
  /// If it is not posted, the packet is still the caller's. @param bytes  of its payload
  Result<Post> post_packet(const PacketHeader& header, Packet& packet, std::uint32_t bytes,
                           std::uint32_t tag, const PostOptions& options) noexcept;
  Result<Post> put(const RemoteRegion& region, std::uint64_t offset, UserBytes from,
                   RemoteCompletion there, std::uint32_t tag, const PostOptions& options);
  Result<Post> get(const RemoteRegion& region, std::uint64_t offset, UserBytes to,
                   RemoteCompletion there, std::uint32_t tag, const PostOptions& options);
  Result<Post> atomic(RecordKind kind, const RemoteRegion& region, const AtomicOrder& order,
                      std::uint64_t* before, const PostOptions& options);
  Result<Post> accumulate(const RemoteRegion& region, std::uint64_t offset, const double* values,
                          std::uint32_t count, const PostOptions& options);

  // Posts of ordinary messages. They never return retry: a record waits in the backlog. The result
  // is null: complete; else the operation that its owner polls. `number`: the communicator's here.
  /// A copy of the bytes waits.
  Result<Operation*> send(std::uint32_t number, std::uint32_t tag, UserBytes from) noexcept;
  Result<Operation*> send_synchronous(std::uint32_t number, std::uint32_t tag,
                                      UserBytes from) noexcept;
  Result<Operation*> offer(std::uint32_t number, std::uint32_t tag, UserBytes from) noexcept;
  /// The same three, on lanes by tag (by_tag.cpp).
  Result<Operation*> send_stamped(std::uint32_t number, std::uint32_t tag, UserBytes from,
                                  Stamp stamp) noexcept;
  Result<Operation*> send_synchronous_stamped(std::uint32_t number, std::uint32_t tag,
                                              UserBytes from, Stamp stamp) noexcept;
  Result<Operation*> offer_stamped(std::uint32_t number, std::uint32_t tag, UserBytes from,
                                   Stamp stamp) noexcept;
  /// Of the pair's backlog. False: no room now. True: the operation is out, or over.
  bool push_waiting(Operation& operation) noexcept;
  Pair* pair() const noexcept { return pair_; }
  /// The pair has a backlog, or no longer has one: this connection's link says so, after
  /// tell_pair_backlog(). False: it has no link yet. The pair orders the calls.
  bool set_pair_backlog(bool has) noexcept;
  void tell_pair_backlog() noexcept {
    if (tells_backlog()) tell_backlog();
  }
  /// Announces a communicator to the peer. @return its number on this link
  Result<std::uint32_t> announce(const ContextId& id, std::uint32_t own_rank,
                                 bool is_by_tag) noexcept;
  /// Of a send that is still the caller's. True: it is done with is_cancelled. False: too late.
  static bool cancel(Operation& operation) noexcept;
  /// No more records with the number follow.
  void mark_end(std::uint32_t number) noexcept;

  /// A message's bytes into its receive, and its description.
  static void copy_to(Operation& receive, const MatchKey& message,
                      std::span<const std::byte> bytes) noexcept;
  static Operation& whole_of(MatchMessage& message) noexcept;
  static Operation& whole_of(MatchReceive& receive) noexcept;
  /// Frees a message that matches no receive.
  static void drop(Operation& message) noexcept;
  /// The same of one that its sender has withdrawn; says so.
  static void drop_withdrawn(Operation& message) noexcept;
  /// The same of those that the caller has met in this engine.
  static void drop_withdrawn(MatchingEngine& matching) noexcept {
    if (matching.has_withdrawn()) [[unlikely]]
      drop_withdrawn_slow(matching);
  }
  /// The message's bytes into the receive; ends the message. False: the caller finishes the
  /// receive. True: the bytes are being fetched. @pre both are the caller's alone
  static bool hand_over(Operation& receive, Operation& message) noexcept;
  /// The same for a synchronous message; finishes the receive.
  static void meet_synchronous(Operation& receive, Operation& message) noexcept;

  /// A matched receive fetches the offered bytes. By any thread.
  void begin_fetch(Operation& receive, const MatchKey& message, const Offer& offer,
                   std::uint32_t there) noexcept;

  // PacketListener
  Result<bool> on_packet(PacketLink& link, const PacketHeader& header,
                         std::span<const std::byte> payload) override;
  Status on_notification(PacketLink& link, std::uint32_t number) override;
  void on_all_heard() override { lane_.give_back_heard_locked(); }
  void on_failure(PacketLink& link, Status status) override;
  bool is_written_to() override { return is_written_to_; }
  void on_settled(PacketLink& link) override;

 private:
  friend class ByTag;
  friend class MessageLane;

  std::uint32_t eager_bytes_max() const noexcept;
  /// The link for a post that needs no operation. Null: it needs one.
  PacketLink* open_link(const PostOptions& options) const noexcept;
  static Result<Post> answered(Result<net::Post> answer) noexcept;
  /// The common start of most posts. Null: no operation is free.
  Operation* begin_operation(UserBytes user, std::uint32_t tag,
                             const PostOptions& options) noexcept;
  void set_up(Operation& operation, UserBytes user, std::uint32_t tag, void* context) noexcept;
  Operation* begin_pending(UserBytes from, std::uint32_t tag) noexcept;
  Operation* begin_record(const PacketHeader& header) noexcept;
  Operation* begin_copy(const PacketHeader& header, UserBytes from) noexcept;
  Result<Operation*> keep_back_slow(const PacketHeader& header, UserBytes from) noexcept;
  static PostOptions queued() noexcept;
  static Result<Operation*> posted(Operation& operation, Result<Post> answer) noexcept;
  void send_by_pair(Operation& operation) noexcept;
  Result<Operation*> keep_back_stamped_slow(const PacketHeader& header, UserBytes from,
                                            Stamp stamp) noexcept;
  void tell_matched(Operation& message) noexcept;
  static void drop_withdrawn_slow(MatchingEngine& matching) noexcept;
  bool cancel_waiting(Operation& operation, Operation& substitute) noexcept;
  bool withdraw(Operation& operation, Operation& substitute, bool* keeps_substitute) noexcept;
  Result<bool> refuse_locked(std::uint32_t there) noexcept;
  /// Undoes begin_operation().
  void take_back(Operation& operation) noexcept;
  /// Uses no operation if the post needs no completion.
  Result<Post> post_bytes(const PacketHeader& header, std::span<const std::byte> own,
                          UserBytes user, std::uint32_t tag, const PostOptions& options) noexcept;
  /// Offers the bytes to the peer, which fetches them.
  Result<Post> post_offer(const PacketHeader& header, UserBytes user, std::uint32_t tag,
                          const PostOptions& options) noexcept;
  Result<Post> post_offer(const PacketHeader& header, Operation& operation,
                          const PostOptions& options) noexcept;
  /// Its part before the post. Not done: `operation` is taken back.
  Result<Post> prepare_offer(const PacketHeader& header, Operation& operation,
                             const PostOptions& options) noexcept;
  /// The same two, of several buffers.
  Result<Post> post_buffers(const PacketHeader& header, UserBuffers user, std::uint32_t tag,
                            const PostOptions& options) noexcept;
  Result<Post> post_offer(const PacketHeader& header, UserBuffers user, std::uint32_t tag,
                          const PostOptions& options) noexcept;
  Result<Post> post_packet_slow(const PacketHeader& header, Packet& packet, std::uint32_t bytes,
                                std::uint32_t tag, const PostOptions& options) noexcept;
  Result<Post> post_buffers_slow(const PacketHeader& header, UserBuffers user, std::uint32_t tag,
                                 const PostOptions& options) noexcept;
  Status offer_buffers(Operation& operation, std::span<const Buffer> buffers,
                       const PostOptions& options) noexcept;
  /// For an operation whose record is complete. If it is not posted, there is no effect.
  Result<Post> post_record(Operation& operation, const PostOptions& options) noexcept;
  Result<net::Post> try_record(PacketLink& link, Operation& operation) noexcept;
  Result<net::Post> try_awaited(PacketLink& link, Operation& operation) noexcept;
  Packet* assemble(std::span<const std::byte> own, std::span<const std::byte> user) noexcept;
  Result<net::Post> post_parts(PacketLink& link, const PacketHeader& header,
                               std::span<const std::byte> own, std::span<const std::byte> user,
                               bool more_follow) noexcept;
  /// For records of the library itself: posts it, or queues it.
  void send_record(Operation& operation) noexcept;
  void record_is_out(Operation& operation, Status status) noexcept;
  void join_backlog(Operation& operation) noexcept;
  void send_backlog() noexcept;
  bool set_backlog_locked() noexcept LARKLANE_REQUIRES(backlog_lock_);
  void tell_backlog() noexcept;
  bool tells_backlog() const noexcept;
  void resume() noexcept;
  void resume_locked() noexcept;
  Status failure() const noexcept;

  /// @param is_for_peer  the peer reads or writes this memory
  Status prepare_local(Operation& operation, const PostOptions& options, net::Transfer& transfer,
                       bool is_for_peer) noexcept;
  /// Offers a copy in a bounce buffer. @return false: there is no copy
  bool offer_copy(Operation& operation, net::Transfer& place) noexcept;
  /// The peer's view of `place`. @pre prepare_local() of it, for the peer; or offer_copy()
  net::RemoteMemory remote_of(const Operation& operation,
                              const net::Transfer& place) const noexcept;
  /// The result of a post whose memory can't be registered. @param before  Engine::registrations()
  /// from before the attempt: memory that others have registered since will be freed, so a retry
  /// may succeed
  Result<Post> unprepared(Operation& operation, Status status, std::uint64_t before) noexcept;
  std::byte* find_mapped(const RemoteRegion& region, std::uint64_t offset, std::uint64_t bytes,
                         RemoteCompletion there, const PostOptions& options) noexcept;
  std::byte* map_slow(net::RemoteMemory memory, std::uint64_t bytes) noexcept;
  Result<Post> transfer(vci::Work::Kind kind, const RemoteRegion& region, std::uint64_t offset,
                        UserBytes user, RemoteCompletion there, std::uint32_t tag,
                        const PostOptions& options) noexcept;
  void fetch(Operation& operation) noexcept;
  void ask(Operation& operation, const net::Transfer& place) noexcept;
  void read(Operation& operation) noexcept;
  void read_piece(Operation& operation) noexcept;
  static void piece_read(net::Operation& work, Status status);
  static void transferred(net::Operation& work, Status status);
  void transfer_is_over(Operation& operation, Status status) noexcept;
  /// Makes the owner copy the piece whose transfer has failed with `status`. False: it can't.
  bool ask_owner(Operation& operation, Status status) noexcept;
  void order_copy(Operation& operation) noexcept;
  static bool is_fetch(const Operation& operation) noexcept {
    return operation.work.complete == &Connection::piece_read;
  }
  static void copied_here(net::Operation& work, Status status);
  /// Null: no such memory.
  std::byte* find_ordered(CopyWord what, std::uint32_t number, const CopyOrder& order) noexcept;
  static void fetched(net::Operation& work, Status status);
  static void written(net::Operation& work, Status status);
  void tell_fetched(Operation& operation, Status status) noexcept;
  static void release_memory(Operation& operation, Status end = {}) noexcept;
  /// Sets the status for its completion.
  static void set_status(Operation& operation, Status status) noexcept;
  Completion completion_of(std::uint32_t tag, void* buffer, std::uint64_t bytes) const noexcept {
    return {.status = {},
            .rank = rank_,
            .tag = tag,
            .buffer = buffer,
            .bytes = bytes,
            .user_context = nullptr};
  }

  // Arrivals. False: not now; an error: the record is malformed.
  Result<bool> on_send(const PacketHeader& header, std::span<const std::byte> payload) noexcept;
  Result<bool> on_send_offer(const PacketHeader& header,
                             std::span<const std::byte> payload) noexcept;
  Result<bool> on_active_message(const PacketHeader& header,
                                 std::span<const std::byte> payload) noexcept;
  Result<bool> on_active_offer(const PacketHeader& header,
                               std::span<const std::byte> payload) noexcept;
  Result<bool> on_ask(PacketLink& link, const PacketHeader& header,
                      std::span<const std::byte> payload) noexcept;
  Result<bool> on_copy(PacketLink& link, const PacketHeader& header,
                       std::span<const std::byte> payload) noexcept;
  Result<bool> on_copied(PacketLink& link, const PacketHeader& header) noexcept;
  Result<bool> on_answer(PacketLink& link, const PacketHeader& header,
                         std::span<const std::byte> payload) noexcept;
  Result<bool> on_ordinary_send(const PacketHeader& header,
                                std::span<const std::byte> payload) noexcept;
  Result<bool> on_synchronous(const PeerNumbers::Named& named, const PacketHeader& header,
                              std::span<const std::byte> payload) noexcept;
  Result<bool> keep_locked(const PeerNumbers::Named& named, const MatchKey& key,
                           std::uint32_t there, std::span<const std::byte> payload) noexcept;
  Result<bool> insert_locked(Communicator& communicator, Operation& message, const MatchKey& key,
                             std::uint64_t bytes) noexcept;
  Result<bool> on_ordinary(PacketLink& link, const PacketHeader& header,
                           std::span<const std::byte> payload) noexcept;
  Result<bool> on_context(PacketLink& link, std::uint32_t number, const PacketHeader& header,
                          std::span<const std::byte> payload) noexcept;
  Result<bool> on_stamped_send(const PeerNumbers::Named& named, bool is_synchronous,
                               const PacketHeader& header,
                               std::span<const std::byte> payload) noexcept;
  Result<bool> on_stamped_offer(const PeerNumbers::Named& named, const PacketHeader& header,
                                std::span<const std::byte> payload) noexcept;
  Result<bool> arrive_stamped(const PeerNumbers::Named& named, Operation& message,
                              const MatchKey& key, Stamp stamp, std::uint64_t bytes) noexcept;
  Result<bool> on_ordinary_offer(std::uint32_t number, const PacketHeader& header,
                                 std::span<const std::byte> payload) noexcept;
  Result<bool> on_close(std::uint32_t number) noexcept;
  /// For a record that names no waiting operation: correct only if the link has failed.
  static Result<bool> unexpected(const PacketLink& link) noexcept;
  void end_awaited(Operation& operation, Status status) noexcept;
  Result<bool> on_put(const PacketHeader& header, std::span<const std::byte> payload) noexcept;
  Result<bool> on_signal(const PacketHeader& header, std::span<const std::byte> payload) noexcept;
  Result<bool> on_atomic(RecordKind kind, const PacketHeader& header,
                         std::span<const std::byte> payload) noexcept;
  Result<bool> on_accumulate(const PacketHeader& header,
                             std::span<const std::byte> payload) noexcept;
  MatchKey key_of(MatchWord match, std::uint32_t tag) const noexcept;
  void wait(Operation& message, std::span<const std::byte> payload) noexcept;
  void answer(RecordKind kind, std::uint32_t there, Status status, std::uint64_t value) noexcept;
  /// Signals the object that a peer has named. @pre make_room_locked()
  void signal(RemoteCompletion number, const Completion& completion, bool is_dynamic) noexcept;

  MessageLane& lane_;
  const int rank_;
  Pair* const pair_;
  std::atomic<PacketLink*> link_{nullptr};
  std::atomic<MappedRegions*> mapped_{nullptr};  // made with the lane's lock held
  std::atomic<bool> is_refused_{false};
  Status refused_;  // written before is_refused_

  // With the lane's lock held.
  PacketLink* held_link_ = nullptr;
  bool is_held_ = false, is_written_to_ = false;
  Connection* next_held_ = nullptr;
  PeerNumbers peer_numbers_;
  std::uint32_t* peer_offer_words_ = nullptr;  // of its lane

  alignas(vci::kOwnLineBytes) SpinLock backlog_lock_;
  Node* first_ LARKLANE_GUARDED_BY(backlog_lock_) = nullptr;
  Node* last_ LARKLANE_GUARDED_BY(backlog_lock_) = nullptr;
  bool has_pair_backlog_ LARKLANE_GUARDED_BY(backlog_lock_) = false;
  /// Number of records that are not out, including the record of the current attempt.
  std::atomic<std::uint32_t> backlog_{0};
  Connection* next_backlog_ = nullptr;  // in the lane's list
  /// Of is_stalled(), with the engine's turn to look.
  struct Stall {
    std::uint64_t activity = 0;  ///< PacketLink::activity() when it began
    std::uint64_t due_ns = 0;    ///< time of the next ring
    std::uint64_t pause_ns = 0;  ///< up to there
  };
  Stall stall_;
  OwnNumbers own_numbers_;
};

}  // namespace larklane::msg
