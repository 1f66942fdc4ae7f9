#pragma once
// Recording for `larklane profile`: the state that the wrappers of the intercepted calls share. The
// wrappers lie between the profiling stub and the face. Without that stub none of this runs.

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.hpp"
#include "mpi/abi/handles.hpp"
#include "mpi/abi/next.hpp"
#include "mpi/profile/writes.hpp"
#include "profile/recorder.hpp"

namespace larklane::mpi {

namespace detail {
extern constinit bool profiled_is_native;
extern constinit std::atomic<profile::Recorder*> recorder;
extern thread_local constinit int profiled_depth;
}  // namespace detail

/// True if the MPI serves partitioned communication (LARKLANE_MPI=native).
inline bool is_native() noexcept { return detail::profiled_is_native; }

/// One intercepted call. False: it is not recorded. Either nothing is recorded, or the call is part
/// of another one: a tool behind us calls PMPI_X, which is ours, too. Thread safety: single-owner.
class Observed {
 public:
  Observed() noexcept
      : recorder_(detail::profiled_depth++ == 0
                      // acquire: pairs with begin_recording() release
                      ? detail::recorder.load(std::memory_order_acquire)
                      : nullptr),
        begin_ns_(recorder_ != nullptr ? now_ns() : 0) {}
  ~Observed() { --detail::profiled_depth; }
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;

  explicit operator bool() const noexcept { return recorder_ != nullptr; }
  std::uint64_t begin_ns() const noexcept { return begin_ns_; }
  profile::Recorder& recorder() const noexcept { return *recorder_; }
  /// Writes a record of this call, which ends now.
  void write(profile::Record record) const noexcept {
    record.begin_ns = begin_ns_;
    record.end_ns = now_ns();
    recorder_->write(record);
  }

 private:
  profile::Recorder* const recorder_;
  const std::uint64_t begin_ns_;
};

/// A persistent request, partitioned or not. Thread safety: as the calls on an MPI request (rules
/// T1, T2). One thread at a time calls start() and complete(); any thread may call looked().
class Traced {
 public:
  Traced(std::uint32_t number, std::uint8_t flags, int partitions, const SendBuffer& sent)
      : number_(number), flags_(flags), partitions_(partitions), sent_(sent) {
    if (is_receive()) looks_ = std::make_unique<Look[]>(static_cast<std::size_t>(partitions));
  }

  std::uint32_t number() const noexcept { return number_; }
  /// True for a partitioned receive: its partitions arrive one by one.
  bool is_receive() const noexcept {
    return (flags_ & profile::kIsPartitioned) != 0 && (flags_ & profile::kIsSend) == 0;
  }
  /// True for a persistent send that is not partitioned: Start sends all bytes.
  bool sends_at_start() const noexcept {
    return (flags_ & (profile::kIsPartitioned | profile::kIsSend)) == profile::kIsSend;
  }
  bool is_native() const noexcept { return (flags_ & profile::kIsNative) != 0; }
  int partitions() const noexcept { return partitions_; }
  /// The bytes that a run of partitions sends; empty if the run is out of range.
  SendBuffer sent(int first, int count) const noexcept;
  // relaxed throughout: the program orders Start, completion and the calls between
  bool is_active() const noexcept { return started_ns() != 0; }
  std::uint64_t started_ns() const noexcept { return started_ns_.load(std::memory_order_relaxed); }
  void start(std::uint64_t now) noexcept { started_ns_.store(now, std::memory_order_relaxed); }

  /// Records a Parrived of the program.
  /// @param asked_ns  time before the call
  void looked(profile::Recorder& recorder, int partition, bool arrived,
              std::uint64_t asked_ns) noexcept;
  /// Polls each partition not yet seen in this round. @param arrived  (partition) -> bool
  /// @return  the number of missing partitions
  template <class Arrived>
  int look_at_missing(profile::Recorder& recorder, profile::SeenBy by, Arrived arrived);
  /// Ends the round: partitions that no poll has seen have arrived by now.
  /// @param by  waiting: Larklane has polled for them; entry: it has not
  void complete(profile::Recorder& recorder, std::uint64_t now, profile::SeenBy by) noexcept;

 private:
  /// A run of partitions that one poll has seen.
  struct Run {
    std::uint64_t begin_ns = 0;
    std::int32_t first = 0;
    std::int32_t count = 0;
  };
  struct Look {
    std::atomic<std::uint64_t> missed_ns{0};  ///< last time when the partition was missing
    std::atomic<std::uint64_t> seen_in{0};  ///< started_ns() of the last round in which it was seen
  };
  bool is_seen(int partition) const noexcept {
    return looks_[static_cast<std::size_t>(partition)].seen_in.load(std::memory_order_relaxed) ==
           started_ns();
  }
  /// Last time in this round at which the partition had not arrived.
  std::uint64_t not_before_ns(int partition) const noexcept;
  /// Adds a partition to a run, or writes the run and begins another.
  /// @param end_ns  0: now
  void extend(profile::Recorder& recorder, Run& run, int partition, std::uint64_t end_ns,
              profile::SeenBy by) const noexcept;
  void write(profile::Recorder& recorder, const Run& run, std::uint64_t end_ns,
             profile::SeenBy by) const noexcept;

  const std::uint32_t number_;
  const std::uint8_t flags_;
  const int partitions_;
  const SendBuffer sent_;
  std::atomic<std::uint64_t> started_ns_{0};  ///< 0: inactive
  std::atomic<std::uint64_t> asked_in_{0};    ///< started_ns() of the last round with a question
  std::unique_ptr<Look[]> looks_;
};

template <class Arrived>
int Traced::look_at_missing(profile::Recorder& recorder, profile::SeenBy by, Arrived arrived) {
  const std::uint64_t now = now_ns(), round = started_ns();
  // relaxed: concurrent polls of one partition need no order
  asked_in_.store(round, std::memory_order_relaxed);
  int missing = 0;
  Run run;
  for (int i = 0; i < partitions_; ++i) {
    if (is_seen(i)) continue;
    Look& look = looks_[static_cast<std::size_t>(i)];
    if (arrived(i)) {
      extend(recorder, run, i, 0, by);
      look.seen_in.store(round, std::memory_order_relaxed);
    } else {
      look.missed_ns.store(now, std::memory_order_relaxed);
      ++missing;
    }
  }
  if (run.count > 0) write(recorder, run, 0, by);
  return missing;
}

/// The traced request behind a handle; null if there is none.
Traced* find_traced(MPI_Request handle) noexcept;
/// A new request, which is traced until it is freed.
struct NewRequest {
  std::uint8_t flags;
  int partitions;
  std::uint64_t partition_bytes;
  int peer, tag;
  MPI_Comm comm;
  MPI_Request handle;
  SendBuffer sent;  ///< by all partitions
};
void trace_request(const Observed& call, const NewRequest& made);
/// Call before the request is freed: afterwards another thread may get the handle.
/// @return  null: it is not traced
std::unique_ptr<Traced> untrace_request(MPI_Request handle) noexcept;
/// Undoes untrace_request() after MPI_Request_free has failed.
void retrace_request(MPI_Request handle, std::unique_ptr<Traced> request);

/// Writes the bytes that a message or a request sends; its own record follows.
/// @param request  0: a message
void record_sent(const Observed& call, const SendBuffer& sent, std::uint32_t request);

/// The destination or source of a message, as in the file.
struct Route {
  std::uint64_t context = 0;  ///< of the communicator; 0: not known
  std::int32_t peer = -1;     ///< rank in MPI_COMM_WORLD; -1: not known, -2: none, -3: any
};
Route route_of(MPI_Comm comm, int peer);
/// Call before a communicator is freed: another one may get its handle.
void forget_routes() noexcept;

std::uint64_t bytes_of(std::int64_t count, MPI_Datatype datatype) noexcept;

/// Polls for arrivals while the calling thread waits (mpi/requests/waiting.hpp calls it).
void look_while_waiting() noexcept;

/// Creates the file and compares clocks, once MPI_COMM_WORLD exists. Collective.
/// @return  false after a message: the program must not run
bool open_profile();
/// Creates the file without the other processes, where only a session exists.
void open_profile_alone();
/// The first is collective and precedes MPI_Finalize; the second follows it.
void compare_clocks_again();
void close_profile();

/// @param native  the MPI serves partitioned communication
void set_profiled_native(bool native) noexcept;
/// The functions for the profiling stub's slots: calls.def, extensions.def, p2p.def, MPI_X before
/// PMPI_X.
void* const* functions_of_profile() noexcept;

}  // namespace larklane::mpi

/// The call as without a profile: the face's, or with LARKLANE_MPI=native the MPI's.
#define LARKLANE_BELOW(Name, ...) \
  (is_native() && next.Name != nullptr ? next.Name(__VA_ARGS__) : face::Name(next, __VA_ARGS__))

/// The recording wrapper of each intercepted call.
namespace larklane::mpi::profiled {
#define LARKLANE_PARAMS(...) (const Next& next __VA_OPT__(, ) __VA_ARGS__)
#define LARKLANE_CALL(ret, Name, params, args) ret Name LARKLANE_PARAMS params;
#define LARKLANE_EXTENSION LARKLANE_CALL
#include "mpi/abi/calls.def"
#include "mpi/abi/extensions.def"
#include "mpi/p2p/p2p.def"
#undef LARKLANE_CALL
#undef LARKLANE_EXTENSION
#undef LARKLANE_PARAMS
}  // namespace larklane::mpi::profiled
