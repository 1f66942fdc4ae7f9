// MPI_Mprobe, MPI_Improbe, MPI_Mrecv and MPI_Imrecv.
//
// The handle of a matched message of ours is a message of the MPI: of no bytes, sent to oneself on
// the private communicator, and taken by MPI_Mprobe. So it is unique, and survives c2f and f2c.

#include "mpi/p2p/matched_probe.hpp"

#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "mpi/p2p/message_request.hpp"
#include "mpi/p2p/probe.hpp"
#include "mpi/requests/batch.hpp"
#include "mpi/requests/error.hpp"
#include "mpi/requests/handle_table.hpp"
#include "mpi/world/process.hpp"

namespace larklane::mpi::p2p {
namespace {

/// Tag of the messages behind handles; Process::poke_native() receives those of tag 0.
constexpr int kHandleTag = 1;

/// A message between its matched probe and its receive. Thread safety: single-owner.
struct Matched {
  MPI_Message handle;
  MPI_Request sent;   ///< of the empty message behind the handle
  msg::Taken* taken;  ///< null: used up
  msg::Envelope envelope;
  MPI_Comm comm;             ///< of the probe
  msg::Communicator* owner;  ///< the same; may have ended meanwhile
};

/// The handles of matched messages, and the spare ones. Never destroyed. Thread safety:
/// thread-safe; a handle is found by one thread at a time.
class MessageHandles {
 public:
  static MessageHandles& get() {
    static MessageHandles* const handles = new MessageHandles;
    return *handles;
  }

  /// Null: the MPI makes no handle, or memory ran out; `code` is noted.
  Matched* take(const Call& call, int* code) {
    {
      const std::scoped_lock lock(mutex_);
      if (!spare_.empty()) {
        Matched* const spare = spare_.back();
        spare_.pop_back();
        return spare;
      }
    }
    return make(call, code);
  }
  void give(Matched& unused) noexcept {
    const std::scoped_lock lock(mutex_);
    spare_.push_back(&unused);  // has the room: see make()
  }
  /// Null: the message is not ours.
  Matched* find(const MPI_Message* handle) const noexcept {
    return handle != nullptr ? static_cast<Matched*>(in_use_.find(handle_bits(*handle))) : nullptr;
  }
  void begin(Matched& matched) { in_use_.insert(handle_bits(matched.handle), &matched); }
  void end(Matched& matched) noexcept {
    in_use_.remove(handle_bits(matched.handle));
    give(matched);
  }
  void free_spare() noexcept {
    const std::scoped_lock lock(mutex_);
    for (Matched* const spare : std::exchange(spare_, {})) {
      end_native(*spare);
      delete spare;
      --made_count_;
    }
  }

 private:
  /// The send is freed last: MPICH 4.0's message is its request, and ends with it.
  static void end_native(Matched& spare) noexcept {
    next_pmpi().Mrecv(nullptr, 0, handles().byte, &spare.handle, MPI_STATUS_IGNORE);
    next_pmpi().Request_free(&spare.sent);
  }
  [[gnu::noinline]] Matched* make(const Call& call, int* code) {
    const Next& real = next_pmpi();
    const MPI_Comm comm = Process::get().private_comm();
    Matched made{};
    int result = real.Isend(nullptr, 0, handles().byte, 0, kHandleTag, comm, &made.sent);
    if (result == MPI_SUCCESS)
      result = real.Mprobe(0, kHandleTag, comm, &made.handle, MPI_STATUS_IGNORE);
    if (result != MPI_SUCCESS) {
      *code = raise_code_at(call.comm, result);
      return nullptr;
    }
    try {
      const std::scoped_lock lock(mutex_);
      spare_.reserve(made_count_ + 1);
      Matched* const kept = new Matched(made);
      ++made_count_;
      return kept;
    } catch (const std::bad_alloc&) {
      end_native(made);
      *code = call.refuse(MPI_ERR_NO_MEM, "no memory for a message handle");
      return nullptr;
    }
  }

  HandleTable in_use_;
  std::mutex mutex_;             // guards the rest
  std::vector<Matched*> spare_;  // room for all that were made
  std::size_t made_count_ = 0;
};

/// Takes the message of a probe: `*handle` stands for it from now on.
void begin(Matched& matched, msg::Taken* taken, const msg::Envelope& envelope, const Call& call,
           const Peer& from, MPI_Message* handle) {
  matched.taken = taken;
  matched.envelope = envelope;
  matched.comm = call.comm;
  matched.owner = &from.communicator;
  MessageHandles::get().begin(matched);
  *handle = matched.handle;
}

int improbe(const Call& call, const Peer& from, int* flag, MPI_Message* message,
            MPI_Status* status) {
  if (any_null(status, flag, message)) [[unlikely]]
    return raise_null(call.name);
  int code = check_receive(call, from);
  if (code != MPI_SUCCESS) return code;
  // Before the message is taken: without a handle it stays.
  Matched* const matched = MessageHandles::get().take(call, &code);
  if (matched == nullptr) return code;
  msg::Envelope found;
  msg::Taken* const taken = from.communicator.take(source_of(from), tag_of(from), &found);
  *flag = taken != nullptr ? 1 : 0;
  if (taken == nullptr) {
    MessageHandles::get().give(*matched);
    poke_now_and_then();
    return MPI_SUCCESS;
  }
  begin(*matched, taken, found, call, from, message);
  fill(status, found);
  return MPI_SUCCESS;
}

int mprobe(const Call& call, const Peer& from, MPI_Message* message, MPI_Status* status) {
  if (any_null(status, message)) [[unlikely]]
    return raise_null(call.name);
  int code = check_receive(call, from);
  if (code != MPI_SUCCESS) return code;
  Matched* const matched = MessageHandles::get().take(call, &code);
  if (matched == nullptr) return code;
  msg::Envelope found;
  msg::Taken* taken = nullptr;
  code = await_message(call, from, status, &found, [&] {
    taken = from.communicator.take(source_of(from), tag_of(from), &found);
    return taken != nullptr;
  });
  if (code == MPI_SUCCESS)
    begin(*matched, taken, found, call, from, message);
  else
    MessageHandles::get().give(*matched);
  return code;
}

/// The arguments of a matched receive. Thread safety: immutable.
struct ReceiveArguments {
  void* buffer;
  MPI_Count count;
  MPI_Datatype datatype;
};

/// The communicator for errors: that of the probe, if the program has not freed it since.
MPI_Comm error_target_of(const Matched& matched) noexcept {
  return find_ordinary(matched.comm) == matched.owner ? matched.comm : handles().comm_world;
}

/// Posts the receive. After an error of the arguments the message stays, as does its handle.
int post_receive(const Call& call, Matched& matched, const ReceiveArguments& wanted,
                 MPI_Message* message, Transfer& transfer) {
  const int code =
      transfer.receive(call, matched.taken, wanted.buffer, wanted.count, wanted.datatype);
  if (matched.taken != nullptr) return code;
  MessageHandles::get().end(matched);
  *message = handles().message_null;
  return code;
}

int mrecv(const char* name, Matched& matched, const ReceiveArguments& wanted, MPI_Message* message,
          MPI_Status* status) {
  if (any_null(status)) [[unlikely]]
    return raise_null(name);
  const Call call{name, error_target_of(matched)};
  const msg::Envelope envelope = matched.envelope;  // soon the handle is another message's
  Transfer transfer;
  const int code = post_receive(call, matched, wanted, message, transfer);
  if (code != MPI_SUCCESS) return code;
  transfer.wait();
  transfer.fill(status);
  if (!transfer.has_failed()) return MPI_SUCCESS;
  return raise_failed(call, transfer,
                      describe_message(true, envelope.source, static_cast<int>(envelope.tag)));
}

int imrecv(const char* name, Matched& matched, const ReceiveArguments& wanted, MPI_Message* message,
           MPI_Request* request) {
  const Call call{name, error_target_of(matched)};
  if (request == nullptr) [[unlikely]]
    return call.refuse(MPI_ERR_ARG, "request is a null pointer");
  // Read before the handle is another message's.
  const Peer from{*matched.owner, matched.envelope.source, static_cast<int>(matched.envelope.tag)};
  return post(call, from, request, [&](Transfer& transfer) {
    return post_receive(call, matched, wanted, message, transfer);
  });
}

/// Open MPI's handler for it would end the job.
bool is_no_message(const MPI_Message* message) noexcept {
  return message != nullptr && *message == handles().message_null;
}
int refuse_no_message(const char* name) {
  return raise(nullptr, MPI_ERR_REQUEST,
               std::string(name) +
                   ": the message is MPI_MESSAGE_NULL: expected one that a matched "
                   "probe has found");
}

}  // namespace

void free_spare_message_handles() noexcept { MessageHandles::get().free_spare(); }

}  // namespace larklane::mpi::p2p

namespace larklane::mpi::face {

int Mprobe(const Next& next, int source, int tag, MPI_Comm comm, MPI_Message* message,
           MPI_Status* status) {
  msg::Communicator* const owner = p2p::owner_of(comm, source);
  if (owner == nullptr) {
    if (p2p::is_refused(comm)) return p2p::refuse_null({"MPI_Mprobe", comm});
    return next.Mprobe(source, tag, comm, message, status);
  }
  return p2p::mprobe({"MPI_Mprobe", comm}, {*owner, source, tag}, message, status);
}

int Improbe(const Next& next, int source, int tag, MPI_Comm comm, int* flag, MPI_Message* message,
            MPI_Status* status) {
  msg::Communicator* const owner = p2p::owner_of(comm, source);
  if (owner == nullptr) {
    if (p2p::is_refused(comm)) return p2p::refuse_null({"MPI_Improbe", comm});
    return next.Improbe(source, tag, comm, flag, message, status);
  }
  return p2p::improbe({"MPI_Improbe", comm}, {*owner, source, tag}, flag, message, status);
}

#define LARKLANE_MATCHED_RECEIVE(Name, call, Count, Result)                                       \
  int Name(const Next& next, void* buf, Count count, MPI_Datatype datatype, MPI_Message* message, \
           Result* result) {                                                                      \
    if (p2p::is_no_message(message)) return p2p::refuse_no_message("MPI_" #Name);                 \
    p2p::Matched* const ours = p2p::MessageHandles::get().find(message);                          \
    if (ours == nullptr) return p2p::forward(next.Name, buf, count, datatype, message, result);   \
    return p2p::call("MPI_" #Name, *ours, {buf, count, datatype}, message, result);               \
  }

LARKLANE_MATCHED_RECEIVE(Mrecv, mrecv, int, MPI_Status)
LARKLANE_MATCHED_RECEIVE(Mrecv_c, mrecv, MPI_Count, MPI_Status)
LARKLANE_MATCHED_RECEIVE(Imrecv, imrecv, int, MPI_Request)
LARKLANE_MATCHED_RECEIVE(Imrecv_c, imrecv, MPI_Count, MPI_Request)

}  // namespace larklane::mpi::face
