#pragma once
// One message that a call has posted: the engine's operation, and the packed copy of a scattered
// buffer.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "mpi/p2p/call.hpp"
#include "mpi/requests/request.hpp"
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

/// A send or a receive from its post on. Thread safety: single-owner.
class Transfer {
 public:
  Transfer() noexcept = default;
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  /// Post a message. @return MPI_SUCCESS, or the error code, which is noted: nothing is posted
  int send(const Call& call, const Peer& to, msg::Communicator::Mode mode, const void* buffer,
           MPI_Count count, MPI_Datatype datatype);
  int receive(const Call& call, const Peer& from, void* buffer, MPI_Count count,
              MPI_Datatype datatype);
  /// Of a matched message, which is used up. @return as above
  int receive(const Call& call, msg::Taken& message, void* buffer, MPI_Count count,
              MPI_Datatype datatype);

  /// From MPI_PROC_NULL: complete at once.
  int receive_null() noexcept;

  /// The message is complete, and its bytes are in the program's buffer. Makes no progress.
  bool is_done() {
    if (pending_ == nullptr) return true;
    if (!msg::is_done(*pending_)) return false;
    end();
    return true;
  }
  /// Polls the engine if that is not yet so. @return as is_done()
  bool poll(Pass& pass) {
    if (is_done()) return true;
    if (pass.progressed == pending_->lane) return false;
    pass.progressed = pending_->lane;
    pass.moved |= msg::poll(*pending_) != 0;
    return is_done();
  }
  void wait();
  /// False: too late.
  bool cancel() noexcept { return pending_ != nullptr && msg::Communicator::cancel(*pending_); }

  // Once done.
  bool has_failed() const noexcept { return !outcome_.status.ok(); }
  /// The error code, without a note. @pre has_failed()
  int failure_code(const std::string& description) const;
  /// A receive: its message, a send: the empty status. Does nothing if the status is ignored.
  void fill(MPI_Status* status) const;
  bool is_receive() const noexcept { return is_receive_; }

  /// The same object carries another message.
  void reset() noexcept;

 private:
  /// Takes the outcome, unpacks, gives the operation back.
  void end();

  msg::Pending* pending_ = nullptr;  ///< null: done
  bool is_receive_ = false;
  std::unique_ptr<Packed> packed_;
  msg::Outcome outcome_{};
};

/// Raises the error of a failed message in a call that waits. @param what  "send to rank 3"
int raise_failed(const Call& call, const Transfer& transfer, const std::string& what);

}  // namespace larklane::mpi::p2p
