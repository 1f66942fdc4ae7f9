#pragma once
// One message that a call has posted: the engine's operation, and the packed copy of a scattered
// buffer.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "mpi/p2p/call.hpp"
#include "mpi/p2p/tally.hpp"
#include "mpi/requests/request.hpp"
#include "mpi/requests/status.hpp"
#include "mpi/types/types.hpp"

namespace larklane::mpi::p2p {

/// A scattered buffer of the program, and its bytes in typemap order. Thread safety: single-owner.
struct Packed {
  std::unique_ptr<std::byte[]> bytes;
  FlatType type;
  std::byte* buffer;

  void pack(std::uint64_t length) noexcept;
  void unpack(std::uint64_t length) noexcept;
};
/// Memory for the bytes of a scattered payload; null after an error, which is noted in `code`.
std::unique_ptr<Packed> make_packed(const Call& call, const Payload& payload, MPI_Datatype datatype,
                                    int* code);

/// A send or a receive from its post on. Keeps the engine's operation for its next receive: then
/// neither the post nor the end touches the engine's pool. Thread safety: single-owner.
class Transfer {
 public:
  Transfer() noexcept = default;
  /// An operation in flight stays the engine's.
  ~Transfer() {
    if (state_ != State::open) keep(nullptr);
  }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  /// Post a message. @return MPI_SUCCESS, or the error code, which is noted: nothing is posted
  int send(const Call& call, const Peer& to, msg::Communicator::Mode mode, const void* buffer,
           MPI_Count count, MPI_Datatype datatype) {
    Payload payload;
    int code = check_send(call, to);
    if (code == MPI_SUCCESS) code = find_payload(call, buffer, count, datatype, &payload);
    if (code == MPI_SUCCESS && payload.is_scattered) code = pack(call, payload, datatype);
    return code == MPI_SUCCESS ? send(call, to, mode, payload) : code;
  }
  int receive(const Call& call, const Peer& from, void* buffer, MPI_Count count,
              MPI_Datatype datatype) {
    Payload payload;
    int code = check_receive(call, from);
    if (code == MPI_SUCCESS) code = find_payload(call, buffer, count, datatype, &payload);
    if (code == MPI_SUCCESS && payload.is_scattered) code = make_room(call, payload, datatype);
    return code == MPI_SUCCESS ? receive(call, from, payload) : code;
  }
  /// Of bytes in one piece. @pre the arguments are good
  int send(const Call& call, const Peer& to, msg::Communicator::Mode mode, const Payload& payload) {
    const Status posted = post_send(to, mode, payload.user_bytes());
    if (!posted.ok()) [[unlikely]]
      return refuse(call, posted, to.rank);
    if (state_ == State::none && packed_ != nullptr) packed_.reset();
    return MPI_SUCCESS;
  }
  int receive(const Call& call, const Peer& from, const Payload& payload) {
    const Status posted = post_receive(from, payload.user_bytes());
    return posted.ok() ? MPI_SUCCESS : refuse(call, posted, from.rank);
  }
  /// Of a matched message; it becomes null once it is used up. @return as above
  int receive(const Call& call, msg::Taken*& message, void* buffer, MPI_Count count,
              MPI_Datatype datatype);

  /// The same, without a noted error. @errors those of msg::Communicator
  Status post_send(const Peer& to, msg::Communicator::Mode mode, msg::UserBytes from) noexcept {
    auto posted = to.communicator.send(to.rank, static_cast<std::uint32_t>(to.tag), from, mode);
    if (!posted) [[unlikely]]
      return posted.error();
    tally.note_sent(from.bytes);
    if (*posted == nullptr) return {};
    keep(*posted);
    state_ = State::open;
    return {};
  }
  Status post_receive(const Peer& from, msg::UserBytes to) noexcept {
    auto posted = from.communicator.receive(source_of(from), tag_of(from), to, operation_);
    if (!posted) [[unlikely]]
      return posted.error();
    if (*posted != operation_) [[unlikely]]
      keep(*posted);
    state_ = State::open;
    is_receive_ = true;
    return {};
  }

  /// From MPI_PROC_NULL: complete at once.
  int receive_null() noexcept;

  /// The message is complete, and its bytes are in the program's buffer. Makes no progress.
  bool is_done() {
    if (is_pending()) return false;
    if (state_ == State::open) end();
    return true;
  }
  bool is_pending() const noexcept { return state_ == State::open && !msg::is_done(*operation_); }
  /// Polls the engine if it is pending. @return as is_done()
  bool poll(Pass& pass) { return is_pending() ? poll_pending(pass) : is_done(); }
  /// @pre is_pending()
  bool poll_pending(Pass& pass) {
    if (msg::poll_once(*operation_, pass.lanes) == 0) [[likely]]
      return false;
    pass.moved = true;
    return is_done();
  }
  void wait();
  /// False: too late.
  bool cancel() noexcept { return state_ == State::open && msg::Communicator::cancel(*operation_); }

  // Once done.
  bool has_failed() const noexcept { return state_ == State::ended && !outcome().status.ok(); }
  /// The error code, without a note. @pre has_failed()
  int failure_code(const std::string& description) const;
  /// A receive: its message, a send: the empty status. Does nothing if the status is ignored.
  void fill(MPI_Status* status) const {
    if (state_ != State::ended || !is_receive_ || outcome().is_cancelled) [[unlikely]]
      return fill_other(status);
    const msg::Envelope message = outcome().envelope;
    set_received(status, message.source, static_cast<int>(message.tag), message.bytes);
  }
  bool is_receive() const noexcept { return is_receive_; }
  /// A receive has its message.
  bool has_received() const noexcept {
    return state_ == State::ended && is_receive_ && outcome().status.ok() &&
           !outcome().is_cancelled;
  }
  /// The bytes that a receive has written; 0 for a send.
  std::uint64_t received_bytes() const noexcept {
    return has_received() ? outcome().envelope.bytes : 0;
  }

  /// The same object carries another message.
  void reset() noexcept {
    state_ = State::none;
    is_receive_ = false;
  }

 private:
  enum class State : std::uint8_t {
    none,  ///< nothing is posted, or it was complete at once
    open,
    ended,  ///< the operation has the outcome
  };
  /// Memory for a scattered payload, which then names it; pack() fills it.
  int make_room(const Call& call, Payload& payload, MPI_Datatype datatype);
  int pack(const Call& call, Payload& payload, MPI_Datatype datatype);
  int refuse(const Call& call, Status status, int peer);
  void fill_other(MPI_Status* status) const;
  /// @pre ended
  msg::Outcome outcome() const noexcept { return msg::outcome(*operation_); }
  void keep(msg::Pending* operation) noexcept {
    msg::Pending* const before = std::exchange(operation_, operation);
    if (before != nullptr) msg::release(*before);
  }
  void end() {
    state_ = State::ended;
    if (has_received()) [[likely]]
      tally.note_received(outcome().envelope.bytes);
    if (packed_ != nullptr) [[unlikely]]
      end_packed();
  }
  void end_packed();

  msg::Pending* operation_ = nullptr;
  State state_ = State::none;
  bool is_receive_ = false;
  std::unique_ptr<Packed> packed_;
};

/// Raises the error of a failed message in a call that waits. @param action  "send to rank 3"
int raise_failed(const Call& call, const Transfer& transfer, const std::string& action);

}  // namespace larklane::mpi::p2p
