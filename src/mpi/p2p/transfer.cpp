#include "mpi/p2p/transfer.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "base/status_text.hpp"
#include "mpi/p2p/message_request.hpp"
#include "mpi/requests/error.hpp"
#include "mpi/requests/waiting.hpp"
#include "shm/copy.hpp"

namespace larklane::mpi::p2p {
namespace {

shm::Buffer buffer_of(const Packed& packed) noexcept {
  return {packed.type.map.get(), reinterpret_cast<std::uintptr_t>(packed.buffer) +
                                     static_cast<std::uintptr_t>(packed.type.first_byte)};
}

}  // namespace

void Packed::pack(std::uint64_t length) noexcept {
  shm::pack(buffer_of(*this), 0, length, bytes.get());
}

void Packed::unpack(std::uint64_t length) noexcept {
  shm::unpack(buffer_of(*this), 0, length, bytes.get());
}

std::unique_ptr<Packed> make_packed(const Call& call, const Payload& payload, MPI_Datatype datatype,
                                    int* code) {
  try {
    std::string problem;
    auto type = flatten_once(datatype, &problem);
    if (!type) {
      *code = call.refuse(MPI_ERR_TYPE, problem);
      return nullptr;
    }
    auto packed = std::make_unique<Packed>(Packed{nullptr, std::move(type).value(), payload.start});
    packed->bytes.reset(new std::byte[payload.bytes]);  // not zeroed
    return packed;
  } catch (const std::bad_alloc&) {
    *code = call.refuse(MPI_ERR_NO_MEM,
                        "no memory to pack " + std::to_string(payload.bytes) + " bytes");
    return nullptr;
  }
}

int Transfer::make_room(const Call& call, Payload& payload, MPI_Datatype datatype) {
  int code = MPI_SUCCESS;
  packed_ = make_packed(call, payload, datatype, &code);
  if (packed_ != nullptr) payload.start = packed_->bytes.get();
  return code;
}

int Transfer::pack(const Call& call, Payload& payload, MPI_Datatype datatype) {
  const int code = make_room(call, payload, datatype);
  if (code == MPI_SUCCESS) packed_->pack(payload.bytes);
  return code;
}

int Transfer::refuse(const Call& call, Status status, int peer) {
  packed_.reset();
  return call.refuse(status, peer);
}

int Transfer::receive(const Call& call, msg::Taken*& message, void* buffer, MPI_Count count,
                      MPI_Datatype datatype) {
  Payload payload;
  int code = find_payload(call, buffer, count, datatype, &payload);
  if (code != MPI_SUCCESS) return code;
  if (payload.is_scattered) code = make_room(call, payload, datatype);
  if (code != MPI_SUCCESS) return code;
  auto posted = msg::Communicator::receive(*std::exchange(message, nullptr), payload.user_bytes());
  if (!posted) return refuse(call, posted.error(), MPI_ANY_SOURCE);
  keep(*posted);
  state_ = State::open;
  is_receive_ = true;
  return MPI_SUCCESS;
}

int Transfer::receive_null() noexcept {
  is_receive_ = true;
  return MPI_SUCCESS;
}

void Transfer::end_packed() {
  if (const std::uint64_t received = received_bytes(); received != 0) packed_->unpack(received);
  packed_.reset();
}

[[gnu::noinline]] void Transfer::wait() {
  if (is_done()) return;
  Waiting waiting;
  for (;;) {
    const Pass pass{.moved = msg::progress(*operation_) != 0};
    if (is_done()) break;
    waiting.idle(pass);
  }
  if (any_freed()) [[unlikely]]
    look_at_freed();
}

int Transfer::failure_code(const std::string& description) const {
  const msg::Outcome end = outcome();
  const std::string why = end.status.code() == Errc::kSizeMismatch
                              ? "the message of rank " + std::to_string(end.envelope.source) +
                                    ", tag " + std::to_string(end.envelope.tag) + ", has " +
                                    std::to_string(end.envelope.bytes) +
                                    " bytes: longer than the receive"
                              : status_text(end.status);
  return error_code(error_class_of(end.status.code()), description + ": " + why);
}

/// Of a send, a cancelled message, or a receive from MPI_PROC_NULL.
void Transfer::fill_other(MPI_Status* status) const {
  if (state_ == State::none && is_receive_)
    return set_received(status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
  set_empty(status);
  if (state_ == State::ended && outcome().is_cancelled && is_wanted(status)) set_cancelled(status);
}

int raise_failed(const Call& call, const Transfer& transfer, const std::string& action) {
  return raise_code_at(call.comm, transfer.failure_code(std::string(call.name) + ": " + action));
}

}  // namespace larklane::mpi::p2p
