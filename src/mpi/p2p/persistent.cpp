// MPI_Send_init, MPI_Ssend_init, MPI_Rsend_init, MPI_Bsend_init and MPI_Recv_init.
//
// The carrier is the MPI's own request with the same arguments, which is never started.

#include <memory>
#include <new>
#include <string>
#include <utility>

#include "mpi/p2p/buffered.hpp"
#include "mpi/p2p/message_request.hpp"
#include "mpi/p2p/target.hpp"
#include "mpi/requests/error.hpp"

namespace larklane::mpi::p2p {
namespace {

enum class Mode : std::uint8_t { standard, synchronous, buffered, receive };

/// The arguments of an init call. Thread safety: immutable.
struct Arguments {
  msg::Communicator* owner;
  Mode mode;
  void* buffer;
  MPI_Count count;
  MPI_Datatype datatype;
  int peer, tag;

  bool is_receive() const noexcept { return mode == Mode::receive; }
};

/// A message for each round, with the same arguments. It keeps no datatype: the program may free
/// it. Thread safety: as Request.
class PersistentRequest final : public Request, public FreedMessage {
 public:
  PersistentRequest(MPI_Comm comm, const Arguments& arguments, msg::UserBytes bytes,
                    std::unique_ptr<Packed> packed) noexcept
      : Request(Kind::message),
        owner_(arguments.owner),
        mode_(arguments.mode),
        peer_(arguments.peer),
        tag_(arguments.tag),
        bytes_(bytes),
        packed_(std::move(packed)) {
    target_.set(comm);
  }

  /// The program gets the handle.
  void begin(MPI_Request carrier, MPI_Request* handle) {
    carrier_ = carrier;
    add_carrier(carrier, this);
    *handle = carrier;
  }

  bool is_active() const noexcept override { return is_active_; }
  Completion poll(Pass& pass) override {
    if (!is_active_) return Completion::inactive;
    const Completion completion = poll_own(pass);
    if (is_over(completion) && any_freed()) [[unlikely]]
      look_at_freed();
    return completion;
  }
  void fill(MPI_Status* status) const override { transfer_.fill(status); }
  int failure_code() const override { return transfer_.failure_code(description()); }
  void finish(MPI_Request*) override {
    transfer_.reset();
    is_active_ = false;
  }
  Status start() override;
  int cancel() override;
  int free(MPI_Request* handle) override;
  MPI_Comm error_target() const noexcept override { return target_.get(); }
  std::string description() const override {
    return "persistent " + describe_message(mode_ == Mode::receive, peer_, tag_);
  }
  std::string reason() const override { return problem_; }
  void keep_target(MPI_Comm freed, const std::shared_ptr<Communicator>& record) override {
    target_.keep(freed, record);
  }
  bool end_if_done() override;

 private:
  Completion poll_own(Pass& pass);
  Status post(const Peer& peer);

  Target target_;
  msg::Communicator* const owner_;
  const Mode mode_;
  const int peer_, tag_;
  const msg::UserBytes bytes_;            // of the program, or those in packed_
  const std::unique_ptr<Packed> packed_;  // null: the program's bytes lie in one piece
  MPI_Request carrier_{};
  Transfer transfer_;
  bool is_active_ = false, is_unpacked_ = false;
  std::string problem_;  // of the last start
};

Completion PersistentRequest::poll_own(Pass& pass) {
  if (!transfer_.poll(pass)) return Completion::pending;
  if (packed_ != nullptr && !std::exchange(is_unpacked_, true)) {
    if (const std::uint64_t received = transfer_.received_bytes(); received != 0)
      packed_->unpack(received);
  }
  return transfer_.has_failed() ? Completion::failed : Completion::complete;
}

Status PersistentRequest::post(const Peer& peer) {
  if (mode_ == Mode::receive) {
    if (peer_ != MPI_PROC_NULL) return transfer_.post_receive(peer, bytes_);
    transfer_.receive_null();
    return {};
  }
  if (packed_ != nullptr) packed_->pack(bytes_.bytes);
  // The copy completes without the request.
  if (mode_ == Mode::buffered) return send_buffered(peer, bytes_, nullptr, &problem_);
  return transfer_.post_send(peer,
                             mode_ == Mode::synchronous ? msg::Communicator::Mode::synchronous
                                                        : msg::Communicator::Mode::standard,
                             bytes_);
}

Status PersistentRequest::start() {
  problem_.clear();
  if (is_active_) return Errc::kAlreadyActive;
  // relaxed: see `ordinary`
  msg::Communicator* const owner = target_.record() != nullptr
                                       ? target_.record()->ordinary.load(std::memory_order_relaxed)
                                       : owner_;
  if (owner == nullptr) {
    problem_ = "its communicator has been freed";
    return Errc::kInvalidArgument;
  }
  is_unpacked_ = false;
  const Status posted = post({*owner, peer_, tag_});
  is_active_ = posted.ok();
  return posted;
}

int PersistentRequest::cancel() {
  if (!is_active_) return raise_refused(*this, "MPI_Cancel", Errc::kNotActive);
  static_cast<void>(transfer_.cancel());
  return MPI_SUCCESS;
}

int PersistentRequest::free(MPI_Request* handle) {
  Pass pass;
  if (poll(pass) == Completion::pending) return free_incomplete(*this, *this, carrier_, handle);
  // Remove it from the table first: once freed, the handle may at once belong to another thread.
  remove_carrier(carrier_);
  delete this;
  return next_pmpi().Request_free(handle);
}

bool PersistentRequest::end_if_done() {
  Pass pass;
  if (poll_own(pass) == Completion::pending) return false;
  delete this;
  return true;
}

/// @param make_native  (MPI_Request*) -> error code: the MPI's call
template <class MakeNative>
int init(const Call& call, const Arguments& arguments, MPI_Request* request,
         MakeNative&& make_native) {
  if (request == nullptr) [[unlikely]]
    return call.refuse(MPI_ERR_ARG, "request is a null pointer");
  const Peer peer{*arguments.owner, arguments.peer, arguments.tag};
  int code = MPI_SUCCESS;
  if (arguments.peer != MPI_PROC_NULL)
    code = arguments.is_receive() ? check_receive(call, peer) : check_send(call, peer);
  Payload payload;
  if (code == MPI_SUCCESS)
    code = find_payload(call, arguments.buffer, arguments.count, arguments.datatype, &payload);
  if (code != MPI_SUCCESS) return code;
  std::unique_ptr<Packed> packed;
  if (payload.is_scattered) {
    packed = make_packed(call, payload, arguments.datatype, &code);
    if (packed == nullptr) return code;
    payload.start = packed->bytes.get();
  }
  std::unique_ptr<PersistentRequest> made(new (std::nothrow) PersistentRequest(
      call.comm, arguments, payload.user_bytes(), std::move(packed)));
  if (made == nullptr) return call.refuse(MPI_ERR_NO_MEM, "no memory for a request");
  MPI_Request carrier;
  code = make_native(&carrier);
  if (code == MPI_SUCCESS) made.release()->begin(carrier, request);
  return code;
}

}  // namespace
}  // namespace larklane::mpi::p2p

namespace larklane::mpi::face {

#define LARKLANE_INIT(Name, Count, Buffer, mode, owner_of_call)                                    \
  int Name(const Next& next, Buffer* buf, Count count, MPI_Datatype datatype, int peer, int tag,   \
           MPI_Comm comm, MPI_Request* request) {                                                  \
    msg::Communicator* const owner = owner_of_call;                                                \
    if (owner == nullptr)                                                                          \
      return p2p::forward(next.Name, buf, count, datatype, peer, tag, comm, request);              \
    return p2p::init({"MPI_" #Name, comm},                                                         \
                     {owner, p2p::Mode::mode, const_cast<void*>(buf), count, datatype, peer, tag}, \
                     request, [&](MPI_Request* carrier) {                                          \
                       return p2p::forward(next.Name, buf, count, datatype, peer, tag, comm,       \
                                           carrier);                                               \
                     });                                                                           \
  }
#define LARKLANE_SEND_INIT(Name, Count, mode) \
  LARKLANE_INIT(Name, Count, const void, mode, p2p::owner_of(comm, peer))
// MPICH reports another status of a receive from MPI_PROC_NULL.
#define LARKLANE_EACH(Count, suffix)                         \
  LARKLANE_SEND_INIT(Send_init##suffix, Count, standard)     \
  LARKLANE_SEND_INIT(Rsend_init##suffix, Count, standard)    \
  LARKLANE_SEND_INIT(Bsend_init##suffix, Count, buffered)    \
  LARKLANE_SEND_INIT(Ssend_init##suffix, Count, synchronous) \
  LARKLANE_INIT(Recv_init##suffix, Count, void, receive, p2p::owner_of(comm, MPI_ANY_SOURCE))

LARKLANE_EACH(int, )
LARKLANE_EACH(MPI_Count, _c)

}  // namespace larklane::mpi::face
