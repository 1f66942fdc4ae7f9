// MPI_Psend_init, MPI_Precv_init: checks, and the choice of Larklane or the MPI for each pair.

#include <algorithm>
#include <cerrno>
#include <new>
#include <string>

#include "base/config.hpp"
#include "base/log.hpp"
#include "base/status_text.hpp"
#include "mpi/abi/info.hpp"
#include "mpi/abi/next.hpp"
#include "mpi/partitioned/carrier.hpp"
#include "mpi/partitioned/device_memory.hpp"
#include "mpi/partitioned/null_process.hpp"
#include "mpi/requests/error.hpp"
#include "mpi/types/type_cache.hpp"
#include "mpi/types/types.hpp"
#include "mpi/world/process.hpp"

namespace larklane::mpi {
namespace {

/// The arguments of either call.
struct InitCall {
  part::Kind kind;
  const Next& next;
  void* buffer;  ///< never written for a send
  int partitions;
  MPI_Count count;
  MPI_Datatype datatype;
  int peer, tag;
  MPI_Comm comm;
  MPI_Info info;
  MPI_Request* request;

  const char* name() const {
    return kind == part::Kind::send ? "MPI_Psend_init" : "MPI_Precv_init";
  }
  std::string peer_name() const {
    return (kind == part::Kind::send ? "dest " : "source ") + std::to_string(peer);
  }
};

/// Raises an error on the call's communicator.
int refuse(const InitCall& call, Communicator* communicator, int error_class,
           const std::string& why) {
  return raise(communicator, error_class, std::string(call.name()) + ": " + why);
}

std::string accepted_policies() {
  const auto rows = Config().rows();
  return std::string(std::ranges::find(rows, "policy", &Config::Row::name)->range);
}

/// Leaves the pair to the MPI, as the other side does. An MPI without partitioned calls: an error.
int forward(const InitCall& call, Communicator* communicator, const std::string& why) {
  const Next& next = call.next;
  const bool is_send = call.kind == part::Kind::send;
  if (is_send ? next.Psend_init == nullptr : next.Precv_init == nullptr) {
    return refuse(call, communicator, MPI_ERR_OTHER,
                  why + ", and this MPI has no partitioned communication of its own");
  }
  const int code = is_send
                       ? next.Psend_init(call.buffer, call.partitions, call.count, call.datatype,
                                         call.peer, call.tag, call.comm, call.info, call.request)
                       : next.Precv_init(call.buffer, call.partitions, call.count, call.datatype,
                                         call.peer, call.tag, call.comm, call.info, call.request);
  if (code == MPI_SUCCESS) add_forwarded(*call.request);
  return code;
}

/// The same for an unreachable peer: warns once per process. An error if option `unreachable` is
/// `refuse`.
int forward_unreachable(const InitCall& call, Communicator* communicator, const std::string& why) {
  Process& process = Process::get();
  const std::string sentence = call.peer_name() + " is not reachable: " + why;
  if (process.config().unreachable == "refuse")
    return refuse(call, communicator, MPI_ERR_OTHER, sentence);
  log_warn_once("forwarded", "%s: %s; the pair is left to the MPI, and so are others like it",
                call.name(), sentence.c_str());
  return forward(call, communicator, sentence);
}

/// An error in the arguments; class MPI_SUCCESS: there is none.
struct Problem {
  int error_class = MPI_SUCCESS;
  std::string sentence;
};

Problem check_scalars(const InitCall& call, const Communicator::Members& members) {
  const int size = static_cast<int>(members.peers.size());
  if (call.partitions <= 0) {
    return {MPI_ERR_ARG,
            "partitions is " + std::to_string(call.partitions) + ": expected 1 or more"};
  }
  if (call.count < 0) {
    return {MPI_ERR_COUNT, "count is " + std::to_string(call.count) + ": expected 0 or more"};
  }
  if (call.peer != MPI_PROC_NULL && (call.peer < 0 || call.peer >= size)) {
    return {MPI_ERR_RANK, call.peer_name() +
                              (call.peer == MPI_ANY_SOURCE ? " (MPI_ANY_SOURCE)" : "") +
                              ": expected 0 to " + std::to_string(size - 1) + " or MPI_PROC_NULL"};
  }
  if (call.tag < 0 || (members.tag_max >= 0 && call.tag > members.tag_max)) {
    return {MPI_ERR_TAG, "tag " + std::to_string(call.tag) +
                             (call.tag == MPI_ANY_TAG ? " (MPI_ANY_TAG)" : "") +
                             ": expected 0 to " + std::to_string(members.tag_max)};
  }
  if (call.datatype == handles().datatype_null)
    return {MPI_ERR_TYPE, "datatype is MPI_DATATYPE_NULL"};
  return {};
}

__extension__ using Wide = __int128;

/// No program has memory below this address: one page, the least vm.mmap_min_addr in use.
constexpr Wide kLowestAddress = 4096;

/// The buffer for the engine: the engine's typemaps begin at offset 0.
void* first_byte_of(const InitCall& call, const FlatType& type) {
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(call.buffer) +
                                 static_cast<std::uintptr_t>(type.first_byte));
}

/// The lowest address of all bytes of the request.
Wide lowest_address(const InitCall& call, const FlatType& type) {
  const Wide last = (Wide{call.partitions} * call.count - 1) * type.map->extent_bytes();
  return static_cast<Wide>(reinterpret_cast<std::uintptr_t>(call.buffer)) + type.first_byte +
         type.map->low_bytes() + std::min<Wide>(last, 0);
}

/// MPI_BOTTOM is a null pointer in C with every ABI; for Fortran, to_buffer() replaces the address
/// of the common block by null. So null is valid if the datatype has absolute addresses: if all of
/// its bytes lie where memory can be.
Problem check_buffer(const InitCall& call, const FlatType& flat) {
  const Typemap& type = *flat.map;
  const Wide total = Wide{call.partitions} * call.count * static_cast<Wide>(type.size_bytes());
  if (total > Wide{INT64_MAX}) {
    return {MPI_ERR_COUNT, std::to_string(call.partitions) + " partitions of " +
                               std::to_string(call.count) + " elements of " +
                               std::to_string(type.size_bytes()) +
                               " bytes: more than 2^63 - 1 bytes"};
  }
  if (total > 0 && call.buffer == nullptr && lowest_address(call, flat) < kLowestAddress) {
    return {MPI_ERR_BUFFER, "the buffer is null: expected " +
                                std::to_string(static_cast<std::int64_t>(total)) +
                                " bytes, or MPI_BOTTOM and a datatype of absolute addresses"};
  }
  if (total > 0 && is_device_memory(first_byte_of(call, flat))) {
    return {MPI_ERR_BUFFER, "the buffer is in device memory: expected host memory"};
  }
  return {};
}

/// Makes the engine's request, or returns the engine's error.
Status make_request(const InitCall& call, Communicator& communicator, const FlatType& type,
                    const control::Address& peer, part::Engine& engine, Partitioned* made) {
  part::InitArgs args;
  args.context = communicator.recipe();
  args.source = call.kind == part::Kind::send ? communicator.members().rank : call.peer;
  args.tag = call.tag;
  args.peer = peer;
  args.buffer = first_byte_of(call, type);
  args.partitions = call.partitions;
  args.count = static_cast<std::uint64_t>(call.count);
  args.type = type.map;
  args.policy = info_value(call.info, "larklane_policy");
  if (call.kind == part::Kind::send) {
    auto request = engine.send_init(args);
    if (!request) return request.error();
    made->request = made->send = *request;
  } else {
    auto request = engine.recv_init(args);
    if (!request) return request.error();
    made->request = made->receive = *request;
  }
  return {};
}

void make_null_process_request(const InitCall& call, Partitioned* made) {
  if (call.kind == part::Kind::send) {
    auto request = std::make_unique<NullProcessSend>(call.partitions);
    made->request = made->send = request.get();
    made->own = std::move(request);
  } else {
    auto request = std::make_unique<NullProcessReceive>(call.partitions);
    made->request = made->receive = request.get();
    made->own = std::move(request);
  }
}

/// @param peer  null for MPI_PROC_NULL
int make(const InitCall& call, const std::shared_ptr<Communicator>& communicator,
         const FlatType& type, const control::Address* peer, part::Engine& engine) {
  auto made = std::make_unique<Partitioned>(call.kind);
  made->peer = call.peer;
  made->tag = call.tag;
  made->communicator = communicator;
  // The carrier precedes the engine's request: the MPI checks the datatype before the engine sends
  // INIT to the peer.
  const int code = make_carrier(call.tag, call.datatype, &made->carrier);
  if (code != MPI_SUCCESS) {
    int error_class = MPI_ERR_OTHER;
    next_pmpi().Error_class(code, &error_class);
    return refuse(
        call, communicator.get(), error_class,
        error_class == MPI_ERR_TYPE ? "the datatype is not committed" : "the MPI makes no request");
  }
  if (peer == nullptr) {
    make_null_process_request(call, made.get());
  } else if (const Status status =
                 make_request(call, *communicator, type, *peer, engine, made.get());
             !status.ok()) {
    next_pmpi().Request_free(&made->carrier);
    const std::string why = status.code() == Errc::kBadOption
                                ? "info key larklane_policy is \"" +
                                      info_value(call.info, "larklane_policy") + "\": expected " +
                                      accepted_policies()
                                : "the engine makes no request: " + status_text(status);
    return refuse(call, communicator.get(), error_class_of(status.code()), why);
  }
  *call.request = made->carrier;
  add_partitioned(std::move(made));
  return MPI_SUCCESS;
}

/// Serves a call in a process without an engine. A peer that connected before this process knew
/// that has begun through Larklane. The call is refused then: neither side may wait for the other.
int forward_or_refuse(const InitCall& call, const std::shared_ptr<Communicator>& communicator) {
  const Process& process = Process::get();
  const std::string why = "Larklane does not run in this process: " + process.why_unusable();
  const Communicator::Members& members = communicator->members();
  const bool is_rank =
      members.known && call.peer >= 0 && static_cast<std::size_t>(call.peer) < members.peers.size();
  if (is_rank && process.has_turned_away(members.peers[static_cast<std::size_t>(call.peer)]))
    return refuse(call, communicator.get(), MPI_ERR_OTHER,
                  call.peer_name() + " has begun through Larklane already, and " + why);
  return forward(call, communicator.get(), why);
}

/// @param why_unseen  the known reason why a peer has no socket here; empty: not known
std::string why_not_reached(const Status& status, const std::string& why_unseen) {
  if (status.code() == Errc::kForeignUser)
    return status_text(status) + ": remedy: start all ranks as one user, in one user namespace";
  if (status != Status(Errc::kUnreachable, ECONNREFUSED)) return status_text(status);
  if (!why_unseen.empty()) return why_unseen;
  return "no socket of its name and of this user is in this network namespace: it runs without "
         "Larklane, as another user or in another network namespace, has warned why not, or has "
         "ended";
}

int init_on(const InitCall& call, const std::shared_ptr<Communicator>& communicator) {
  Process& process = Process::get();
  const std::string ours = info_value(call.info, "larklane");
  if (ours == "off") return forward(call, communicator.get(), "info key larklane is off");
  if (!ours.empty() && ours != "on")
    log_warn_once("info key larklane",
                  "info key larklane is \"%s\": expected on or off; taken as on", ours.c_str());
  part::Engine* const engine = process.engine();
  if (engine == nullptr) return forward_or_refuse(call, communicator);
  const Communicator::Members& members = communicator->members();
  if (!members.known)
    return forward_unreachable(call, communicator.get(),
                               "the MPI does not tell who is in the communicator");

  Problem problem = check_scalars(call, members);
  FlatType type;
  if (problem.error_class == MPI_SUCCESS) {
    auto flat = flatten_once(call.datatype, &problem.sentence);
    if (flat) {
      type = std::move(flat).value();
      if (call.peer != MPI_PROC_NULL) problem = check_buffer(call, type);
    } else {
      problem.error_class = MPI_ERR_TYPE;
    }
  }
  if (problem.error_class != MPI_SUCCESS)
    return refuse(call, communicator.get(), problem.error_class, problem.sentence);

  if (call.peer == MPI_PROC_NULL) return make(call, communicator, {}, nullptr, *engine);
  const Member& member = members.peers[static_cast<std::size_t>(call.peer)];
  if (!member.is_known())
    return forward_unreachable(call, communicator.get(), "it is of another MPI_COMM_WORLD");
  std::string why_not;
  const control::Address* const address = communicator->address_of(
      call.peer, [&](const Member& found) { return process.reach(found); }, &why_not);
  if (address == nullptr) return forward_unreachable(call, communicator.get(), why_not);
  const control::Address& peer = *address;
  if (const Status status = engine->reachable(peer); !status.ok()) {
    return forward_unreachable(call, communicator.get(),
                               why_not_reached(status, process.reach(member).why_not));
  }
  return make(call, communicator, type, &peer, *engine);
}

int init(const InitCall& call) {
  try {
    if (!Process::get().is_open()) return forward(call, nullptr, "the MPI is not initialised");
    if (call.comm == handles().comm_null)
      return refuse(call, nullptr, MPI_ERR_COMM, "comm is MPI_COMM_NULL");
    const auto communicator = find_communicator(call.comm);
    if (call.request == nullptr)
      return refuse(call, communicator.get(), MPI_ERR_ARG, "request is a null pointer");
    if (!communicator)
      return forward_unreachable(
          call, nullptr, "Larklane did not see the communicator made, or not on both sides");
    return init_on(call, communicator);
  } catch (const std::bad_alloc&) {
    return MPI_ERR_NO_MEM;
  }
}

}  // namespace
}  // namespace larklane::mpi

namespace larklane::mpi::face {

int Psend_init(const Next& next, const void* buf, int partitions, MPI_Count count,
               MPI_Datatype datatype, int dest, int tag, MPI_Comm comm, MPI_Info info,
               MPI_Request* request) {
  return init({part::Kind::send, next, const_cast<void*>(buf), partitions, count, datatype, dest,
               tag, comm, info, request});
}

int Precv_init(const Next& next, void* buf, int partitions, MPI_Count count, MPI_Datatype datatype,
               int source, int tag, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  return init({part::Kind::receive, next, buf, partitions, count, datatype, source, tag, comm, info,
               request});
}

}  // namespace larklane::mpi::face
