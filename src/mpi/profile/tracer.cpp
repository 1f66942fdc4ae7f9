#include "mpi/profile/tracer.hpp"

#include <algorithm>
#include <array>

#include "mpi/requests/handle_table.hpp"
#include "mpi/types/types.hpp"
#include "mpi/world/communicator.hpp"
#include "mpi/world/process.hpp"

namespace larklane::mpi {

namespace detail {
constinit bool profiled_is_native = false;
constinit std::atomic<profile::Recorder*> recorder{nullptr};
thread_local constinit int profiled_depth = 0;
}  // namespace detail

namespace {

using profile::Kind;
using profile::Record;
using profile::SeenBy;

constexpr std::int32_t kUnknown = -1, kNobody = -2, kAnybody = -3;

/// Never destroyed, like the carriers' (mpi/partitioned/carrier.hpp).
HandleTable& traced() noexcept {
  static HandleTable* const table = new HandleTable;
  return *table;
}

/// The communicator of a thread's last message, and the ranks of its last peers. A full lookup
/// would touch memory that the program's own data has evicted from the caches. Thread safety:
/// single-owner.
struct LastRoute {
  struct Known {
    int peer = MPI_PROC_NULL;
    std::int32_t rank = kNobody;
  };
  MPI_Comm comm{};
  std::uint64_t generation = 0;
  std::uint64_t context = 0;
  std::array<Known, 4> known{};  ///< by peer
  std::shared_ptr<Communicator> communicator;
};
/// relaxed: the program orders the end of a communicator and the next use of its handle
std::atomic<std::uint64_t> route_generation{1};

std::int32_t world_rank_of(Communicator* communicator, int peer) {
  if (peer == MPI_PROC_NULL) return kNobody;
  if (peer == MPI_ANY_SOURCE) return kAnybody;
  if (communicator == nullptr) return kUnknown;
  const Communicator::Members& members = communicator->members();
  const auto index = static_cast<std::size_t>(peer);
  if (!members.known || index >= members.peers.size()) return kUnknown;
  const Member& member = members.peers[index];
  const Job& own = Process::get().identity().job;
  const bool is_own = own == member.job || (own && member.job && *own == *member.job);
  return is_own ? member.rank : kUnknown;
}

/// The datatype of a thread's last message. Thread safety: single-owner.
struct LastType {
  MPI_Datatype type{};
  bool is_named = false;  ///< never freed, so no other type gets its handle
  MPI_Count size = 0;     ///< negative: not known
};

MPI_Count size_of(MPI_Datatype datatype) noexcept {
  MPI_Count size = 0;
  return next_pmpi().Type_size_x(datatype, &size) == MPI_SUCCESS ? size : -1;
}

}  // namespace

void set_profiled_native(bool native) noexcept { detail::profiled_is_native = native; }

Traced* find_traced(MPI_Request handle) noexcept {
  return static_cast<Traced*>(traced().find(handle_bits(handle)));
}

void trace_request(const Observed& call, const NewRequest& made) {
  auto request = std::make_unique<Traced>(call.recorder().number_request(), made.flags,
                                          made.partitions, made.sent);
  const Route route = route_of(made.comm, made.peer);
  const std::uint64_t handle = handle_bits(made.handle);
  call.write({.value = made.partition_bytes,
              .handle = handle,
              .a = route.peer,
              .b = made.tag,
              .request = request->number(),
              .kind = Kind::request,
              .flags = made.flags});
  call.write({.value = route.context,
              .handle = handle,
              .a = made.partitions,
              .request = request->number(),
              .kind = Kind::pair,
              .flags = made.flags});
  record_sent(call, made.sent, request->number());
  traced().insert(handle, request.release());
}

void record_sent(const Observed& call, const SendBuffer& sent, std::uint32_t request) {
  if (sent.bytes == 0) return;
  call.write(
      {.value = sent.bytes, .handle = sent.address, .request = request, .kind = Kind::buffer});
  watch_writes(call.recorder(), sent);
}

std::unique_ptr<Traced> untrace_request(MPI_Request handle) noexcept {
  std::unique_ptr<Traced> request(find_traced(handle));
  if (request) traced().remove(handle_bits(handle));
  return request;
}

void retrace_request(MPI_Request handle, std::unique_ptr<Traced> request) {
  traced().insert(handle_bits(handle), request.release());
}

Route route_of(MPI_Comm comm, int peer) {
  thread_local LastRoute last;
  // relaxed: see route_generation
  const std::uint64_t generation = route_generation.load(std::memory_order_relaxed);
  if (last.comm != comm || last.generation != generation) {
    last = {comm, generation, 0, {}, find_communicator(comm)};
    if (last.communicator) {
      const ContextId& id = last.communicator->recipe();
      last.context = id.high ^ id.low;
    }
  }
  LastRoute::Known& known = last.known[static_cast<unsigned>(peer) % last.known.size()];
  if (known.peer == peer) return {last.context, known.rank};
  const std::int32_t rank = world_rank_of(last.communicator.get(), peer);
  if (rank != kUnknown) known = {peer, rank};
  return {last.context, rank};
}

void forget_routes() noexcept { route_generation.fetch_add(1, std::memory_order_relaxed); }

std::uint64_t bytes_of(std::int64_t count, MPI_Datatype datatype) noexcept {
  thread_local LastType last;
  if (last.type != datatype)
    last = {datatype, combiner_of(datatype) == MPI_COMBINER_NAMED, size_of(datatype)};
  else if (!last.is_named)
    last.size = size_of(datatype);
  if (last.size < 0 || count < 0) return 0;
  return static_cast<std::uint64_t>(count) * static_cast<std::uint64_t>(last.size);
}

// relaxed throughout: as in the header, the program orders Start, completion and the calls between

SendBuffer Traced::sent(int first, int count) const noexcept {
  if (first < 0 || count < 0 || first > partitions_ - count) return {};
  const std::uint64_t partition = sent_.bytes / static_cast<std::uint64_t>(partitions_);
  return {sent_.address + static_cast<std::uint64_t>(first) * partition,
          static_cast<std::uint64_t>(count) * partition};
}

std::uint64_t Traced::not_before_ns(int partition) const noexcept {
  const std::uint64_t missed =
      looks_[static_cast<std::size_t>(partition)].missed_ns.load(std::memory_order_relaxed);
  return std::max(missed, started_ns());
}

void Traced::looked(profile::Recorder& recorder, int partition, bool arrived,
                    std::uint64_t asked_ns) noexcept {
  if (!is_active() || partition < 0 || partition >= partitions_ || is_seen(partition)) return;
  Look& look = looks_[static_cast<std::size_t>(partition)];
  asked_in_.store(started_ns(), std::memory_order_relaxed);
  if (!arrived) return look.missed_ns.store(asked_ns, std::memory_order_relaxed);
  write(recorder, {not_before_ns(partition), partition, 1}, 0, SeenBy::parrived);
  look.seen_in.store(started_ns(), std::memory_order_relaxed);
}

void Traced::extend(profile::Recorder& recorder, Run& run, int partition, std::uint64_t end_ns,
                    SeenBy by) const noexcept {
  const std::uint64_t begin = not_before_ns(partition);
  if (run.count > 0 && run.first + run.count == partition && run.begin_ns == begin) {
    ++run.count;
    return;
  }
  if (run.count > 0) write(recorder, run, end_ns, by);
  run = {begin, partition, 1};
}

void Traced::write(profile::Recorder& recorder, const Run& run, std::uint64_t end_ns,
                   SeenBy by) const noexcept {
  recorder.write({.begin_ns = run.begin_ns,
                  .end_ns = end_ns != 0 ? end_ns : now_ns(),
                  .a = run.first,
                  .b = run.count,
                  .request = number_,
                  .kind = Kind::arrived,
                  .flags = static_cast<std::uint8_t>(by)});
}

void Traced::complete(profile::Recorder& recorder, std::uint64_t now, SeenBy by) noexcept {
  if (is_receive()) {
    Run run;
    if (asked_in_.load(std::memory_order_relaxed) != started_ns()) {
      run = {started_ns(), 0, partitions_};  // no thread has asked
    } else {
      for (int i = 0; i < partitions_; ++i) {
        if (!is_seen(i)) extend(recorder, run, i, now, by);
      }
    }
    if (run.count > 0) write(recorder, run, now, by);
  }
  started_ns_.store(0, std::memory_order_relaxed);
}

}  // namespace larklane::mpi
