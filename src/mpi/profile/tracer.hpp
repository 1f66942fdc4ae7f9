#pragma once
// Recording for `larklane profile`: what the wrappers of the intercepted calls share. They lie
// between the profiling stub and the face; without that stub none of this runs.

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

/// The calls of traffic.def in the loaded MPI.
struct Traffic {
#define LARKLANE_CALL(ret, Name, params, args) ret(*Name) params;
#include "mpi/abi/traffic.def"
#undef LARKLANE_CALL
};

namespace detail {
extern Traffic traffic_mpi;
extern Traffic traffic_pmpi;
extern constinit bool profiled_is_native;
extern constinit std::atomic<profile::Recorder*> recorder;
extern thread_local constinit int profiled_depth;
}  // namespace detail

/// Partitioned communication is left to the MPI (LARKLANE_MPI=native).
inline bool is_native() noexcept { return detail::profiled_is_native; }

/// One intercepted call. False: not to be recorded, because nothing is, or because the call is part
/// of another one (a tool behind us calls PMPI_X, which is ours, too). Thread safety: single-owner.
class Observed {
 public:
  Observed() noexcept
      : recorder_(detail::profiled_depth++ == 0
                      // acquire: pairs with open_profile() release
                      ? detail::recorder.load(std::memory_order_acquire)
                      : nullptr),
        begin_ns_(recorder_ != nullptr ? now_ns() : 0) {}
  ~Observed() { --detail::profiled_depth; }
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;

  explicit operator bool() const noexcept { return recorder_ != nullptr; }
  std::uint64_t begin_ns() const noexcept { return begin_ns_; }
  profile::Recorder& recorder() const noexcept { return *recorder_; }
  /// Of this call, which ends now.
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
/// T1, T2): start and complete by one thread at a time, looked() by any.
class Traced {
 public:
  Traced(std::uint32_t number, std::uint8_t flags, int partitions, const SendBuffer& sent)
      : number_(number), flags_(flags), partitions_(partitions), sent_(sent) {
    if (is_receive()) looks_ = std::make_unique<Look[]>(static_cast<std::size_t>(partitions));
  }

  std::uint32_t number() const noexcept { return number_; }
  /// A partitioned receive: its partitions arrive one by one.
  bool is_receive() const noexcept {
    return (flags_ & profile::kIsPartitioned) != 0 && (flags_ & profile::kIsSend) == 0;
  }
  /// Persistent, not partitioned: all is sent by Start.
  bool sends_at_start() const noexcept {
    return (flags_ & (profile::kIsPartitioned | profile::kIsSend)) == profile::kIsSend;
  }
  bool is_native() const noexcept { return (flags_ & profile::kIsNative) != 0; }
  int partitions() const noexcept { return partitions_; }
  /// What a run of partitions sends; nothing if there are no such partitions.
  SendBuffer sent(int first, int count) const noexcept;
  // relaxed throughout: the program orders Start, completion and the calls between
  bool is_active() const noexcept { return started_ns() != 0; }
  std::uint64_t started_ns() const noexcept { return started_ns_.load(std::memory_order_relaxed); }
  void start(std::uint64_t now) noexcept { started_ns_.store(now, std::memory_order_relaxed); }

  /// The program has asked whether a partition is there.
  /// @param asked_ns  before the question
  void looked(profile::Recorder& recorder, int partition, bool arrived,
              std::uint64_t asked_ns) noexcept;
  /// Larklane looks at what has not been seen yet. @param arrived  (partition) -> bool
  /// @return  how many are still missing
  template <class Arrived>
  int look_at_missing(profile::Recorder& recorder, profile::SeenBy by, Arrived arrived);
  /// The round is over: what was not seen has come by now.
  /// @param by  waiting: Larklane has looked for it; entry: it has not
  void complete(profile::Recorder& recorder, std::uint64_t now, profile::SeenBy by) noexcept;

 private:
  /// Partitions that were seen together.
  struct Run {
    std::uint64_t begin_ns = 0;
    std::int32_t first = 0;
    std::int32_t count = 0;
  };
  struct Look {
    std::atomic<std::uint64_t> missed_ns{0};  ///< last time when it was not there
    std::atomic<std::uint64_t> seen_in{0};  ///< started_ns() of the last round in which it was seen
  };
  bool is_seen(int partition) const noexcept {
    return looks_[static_cast<std::size_t>(partition)].seen_in.load(std::memory_order_relaxed) ==
           started_ns();
  }
  /// Not there yet at that time, in this round.
  std::uint64_t not_before_ns(int partition) const noexcept;
  /// One more partition for a run, or the run is written and another begins.
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
  // relaxed: looks at one partition by several threads at once are told apart by nobody
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
/// A request has been made; it is traced until it is freed.
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
/// Before it is freed: after that the handle may be another thread's. @return  null: it is not
/// traced
std::unique_ptr<Traced> untrace_request(MPI_Request handle) noexcept;
/// It has not been freed.
void retrace_request(MPI_Request handle, std::unique_ptr<Traced> request);

/// What a message or a request sends, before its own record. @param request  0: a message
void record_sent(const Observed& call, const SendBuffer& sent, std::uint32_t request);

/// Where a message goes or comes from, as the file says it.
struct Route {
  std::uint64_t context = 0;  ///< of the communicator; 0: not known
  std::int32_t peer = -1;     ///< rank in MPI_COMM_WORLD; -1: not known, -2: nobody, -3: anybody
};
Route route_of(MPI_Comm comm, int peer);
/// A communicator's handle may be another one's from now on.
void forget_routes() noexcept;

std::uint64_t bytes_of(std::int64_t count, MPI_Datatype datatype) noexcept;

/// While a thread waits, Larklane looks for arrivals in its place (mpi/partitioned/waiting.hpp
/// calls it).
void look_while_waiting() noexcept;

/// MPI_COMM_WORLD exists: the file is made, clocks are compared. Collective. @return false: the
/// program must not run, and it has been said
bool open_profile();
/// Only a session exists: without the others.
void open_profile_alone();
/// Before MPI_Finalize, collective; and after it.
void compare_clocks_again();
void close_profile();

/// At attach, for the profiling stub.
struct TrafficTables {
  Traffic mpi, pmpi;
};
/// Those with MPI_Count that the MPI lacks.
void fill_large_counts(Traffic& calls) noexcept;
TrafficTables find_traffic(void* (*find_next)(const char*)) noexcept;
void set_traffic(const TrafficTables& tables, bool native) noexcept;
/// For the profiling stub's slots: calls.def, then traffic.def, MPI_X before PMPI_X.
void* const* functions_of_profile() noexcept;

}  // namespace larklane::mpi

/// The calls as they are without a profile: the face's, or with LARKLANE_MPI=native the MPI's.
#define LARKLANE_BELOW(Name, ...) \
  (is_native() && next.Name != nullptr ? next.Name(__VA_ARGS__) : face::Name(next, __VA_ARGS__))

/// What a profile makes of each intercepted call.
namespace larklane::mpi::profiled {
#define LARKLANE_PARAMS(...) (const Next& next __VA_OPT__(, ) __VA_ARGS__)
#define LARKLANE_CALL(ret, Name, params, args) ret Name LARKLANE_PARAMS params;
#include "mpi/abi/calls.def"
#undef LARKLANE_CALL
#undef LARKLANE_PARAMS
#define LARKLANE_PARAMS(...) (const Traffic& next, __VA_ARGS__)
#define LARKLANE_CALL(ret, Name, params, args) ret Name LARKLANE_PARAMS params;
#include "mpi/abi/traffic.def"
#undef LARKLANE_CALL
#undef LARKLANE_PARAMS
}  // namespace larklane::mpi::profiled
