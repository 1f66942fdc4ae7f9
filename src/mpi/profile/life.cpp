// Begin and end of a process's profile file, which lives as long as MPI_COMM_WORLD. At both ends
// the processes compare their clocks.

#include <dirent.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/log.hpp"
#include "mpi/p2p/world.hpp"
#include "mpi/profile/threads.hpp"
#include "mpi/profile/tracer.hpp"
#include "mpi/profile/writes.hpp"
#include "mpi/requests/waiting.hpp"
#include "mpi/world/process.hpp"

namespace larklane::mpi {
namespace {

using profile::ClockSample;
using profile::Recorder;

constexpr std::string_view kSuffix = ".larkprof";
constexpr int kTag = 0;
constexpr int kRoundTrips = 32;

/// Each process sends this to all others when a profile begins.
struct Hello {
  std::uint64_t clock_id;
  std::uint64_t is_refused;
};

/// State from open_profile() for close_profile(). The thread that initialises the MPI writes it.
struct Opened {
  std::vector<int> others;  ///< one rank on each other clock, ascending, unless it is rank 0's own
  MPI_Comm comm{};          ///< for `others`, unless empty: no receive of the program matches on it
  int rank = 0;
  ClockSample at_begin;
};
Opened& opened() noexcept {
  static Opened* const instance = new Opened;
  return *instance;
}

/// Finds the files of an earlier profile, and removes them if `overwrite`.
/// @return  the name of a file that remains; empty if none does
std::string clear_folder(const std::string& folder, bool overwrite) {
  std::string in_the_way;
  DIR* const list = ::opendir(folder.c_str());
  while (const dirent* const entry = list != nullptr ? ::readdir(list) : nullptr) {
    const std::string name = entry->d_name;
    if (!name.ends_with(kSuffix)) continue;
    if (!overwrite || ::unlink((folder + "/" + name).c_str()) != 0) in_the_way = name;
  }
  if (list != nullptr) ::closedir(list);
  return in_the_way;
}

/// @return  false after a message
bool is_folder_free(const Config& config) {
  const std::string old = clear_folder(config.profile, config.profile_overwrite);
  if (old.empty()) return true;
  log_error(
      "profile: %s holds an earlier profile (%s); --overwrite replaces it, --out names "
      "another folder",
      config.profile.c_str(), old.c_str());
  return false;
}

/// @return  false after a message
bool begin_writes(const Config& config) {
  return !config.profile_writes || traces_writes() || begin_tracing_writes();
}

std::string file_name(const Process& process, int rank) {
  char number[32];
  std::snprintf(number, sizeof number, "rank-%05d", rank);
  // Worlds that a profiled program spawns have ranks of their own.
  const std::string world = process.birth() && process.identity().job != nullptr
                                ? *process.identity().job + "-"
                                : std::string();
  return world + number + std::string(kSuffix);
}

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  if (next_pmpi().Get_library_version(text, &length) != MPI_SUCCESS) return {};
  const std::string_view first = text;
  return std::string(first.substr(0, first.find_first_of("\t\r\n")));
}

std::string path_of(int rank) {
  const Process& process = Process::get();
  return process.config().profile + "/" + file_name(process, rank);
}

/// The remedy for a profile that is missing or incomplete.
const char* remedy(int error) {
  if (error == 0) return "a larger --limit (profile_bytes_max)";
  return error == ENOSPC || error == EDQUOT ? "free space there, or name another folder with --out"
                                            : "name another folder with --out";
}

/// @return  null after a message: the program runs, but has no profile of this process
Recorder* create_recorder(int rank, int size) {
  const Process& process = Process::get();
  const Config& config = process.config();
  const std::string path = path_of(rank);
  ::mkdir(config.profile.c_str(), 0777);
  auto made = Recorder::create(path,
                               {.rank = rank,
                                .size = size,
                                .is_native = is_native(),
                                .has_writes = traces_writes(),
                                .job = process.identity().job ? *process.identity().job : "",
                                .mpi = mpi_version(),
                                .program = program_invocation_name,
                                .larklane = LARKLANE_VERSION,
                                .ordinary = p2p::ordinary_messages().text},
                               config.profile_bytes_max);
  if (!made) {
    const int error = made.error().detail();
    log_warn("profile: %s: %s; this process is not recorded; remedy: %s", path.c_str(),
             std::strerror(error), remedy(error));
    return nullptr;
  }
  return made->release();  // never destroyed: threads may record until the process ends
}

void begin_recording(Recorder* recorder) {
  // release: pairs with Observed's acquire
  detail::recorder.store(recorder, std::memory_order_release);
  if (recorder == nullptr) return;
  record_threads();
  // relaxed: a function's address, valid from the start
  detail::idle_observer.store(look_while_waiting, std::memory_order_relaxed);
  // A forked child maps the same file, so it must not write.
  ::pthread_atfork(nullptr, nullptr, [] {
    detail::recorder.store(nullptr, std::memory_order_relaxed);  // relaxed: one thread
    profile::Recorder::forget_thread();
  });
}

/// Asks rank 0 for its time. The sample with the shortest round trip counts.
ClockSample ask_for_time() {
  ClockSample best;
  for (int i = 0; i < kRoundTrips; ++i) {
    std::uint64_t theirs = 0;
    const std::uint64_t asked = now_ns();
    next_pmpi().Send(&theirs, sizeof theirs, handles().byte, 0, kTag, opened().comm);
    next_pmpi().Recv(&theirs, sizeof theirs, handles().byte, 0, kTag, opened().comm,
                     MPI_STATUS_IGNORE);
    const std::uint64_t told = now_ns();
    const std::uint64_t middle = asked + (told - asked) / 2, error = (told - asked + 1) / 2;
    if (best.local_ns == 0 || error < best.error_ns)
      best = {middle, static_cast<std::int64_t>(theirs - middle), error};
  }
  return best;
}

void tell_time_to(int rank) {
  for (int i = 0; i < kRoundTrips; ++i) {
    std::uint64_t mine = 0;
    next_pmpi().Recv(&mine, sizeof mine, handles().byte, rank, kTag, opened().comm,
                     MPI_STATUS_IGNORE);
    mine = now_ns();
    next_pmpi().Send(&mine, sizeof mine, handles().byte, rank, kTag, opened().comm);
  }
}

/// One rank on each other clock asks rank 0, one rank after the other.
ClockSample compare_clocks() {
  ClockSample sample;
  for (const int other : opened().others) {
    if (opened().rank == 0) tell_time_to(other);
    if (opened().rank == other) sample = ask_for_time();
  }
  return sample;
}

/// The first rank on each clock but rank 0's.
std::vector<int> first_on_other_clocks(const std::vector<Hello>& all) {
  std::vector<int> first;
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    bool is_known = false;
    for (std::size_t before = 0; before < rank && !is_known; ++before)
      is_known = all[before].clock_id == all[rank].clock_id;
    if (!is_known) first.push_back(static_cast<int>(rank));
  }
  return first;
}

}  // namespace

bool open_profile() {
  const Process& process = Process::get();
  const Config& config = process.config();
  if (config.profile.empty()) return true;
  const Next& real = next_pmpi();
  int size = 1;
  real.Comm_rank(handles().comm_world, &opened().rank);
  real.Comm_size(handles().comm_world, &size);
  const bool is_free = opened().rank != 0 || process.birth() || is_folder_free(config);
  const Hello mine{profile::clock_identity(), is_free && begin_writes(config) ? 0u : 1u};
  std::vector<Hello> all(static_cast<std::size_t>(size));
  real.Allgather(&mine, sizeof mine, handles().byte, all.data(), sizeof mine, handles().byte,
                 handles().comm_world);
  if (std::ranges::any_of(all, [](const Hello& each) { return each.is_refused != 0; }))
    return false;
  opened().others = first_on_other_clocks(all);
  if (!opened().others.empty()) real.Comm_dup(handles().comm_world, &opened().comm);
  opened().at_begin = compare_clocks();
  // acquire: as in Observed; a session may have begun to record before
  if (detail::recorder.load(std::memory_order_acquire) == nullptr)
    begin_recording(create_recorder(opened().rank, size));
  if (Recorder* const recorder = detail::recorder.load(std::memory_order_acquire))
    recorder->set_clock(opened().at_begin, {});
  return true;
}

void open_profile_alone() {
  const Process& process = Process::get();
  if (process.config().profile.empty()) return;
  if (detail::recorder.load(std::memory_order_acquire) != nullptr) return;  // acquire: as above
  static_cast<void>(begin_writes(process.config()));
  begin_recording(create_recorder(process.identity().rank, 0));
}

void compare_clocks_again() {
  if (Process::get().config().profile.empty()) return;
  const ClockSample at_end = compare_clocks();
  if (!opened().others.empty()) next_pmpi().Comm_free(&opened().comm);
  if (Recorder* const recorder = detail::recorder.load(std::memory_order_acquire))
    recorder->set_clock(opened().at_begin, at_end);  // acquire: as above
}

void close_profile() {
  // Never destroyed: a thread may be about to write.
  Recorder* const recorder = detail::recorder.exchange(nullptr, std::memory_order_acq_rel);
  end_tracing_writes(recorder);
  if (recorder == nullptr) return;
  recorder->finish();
  const std::string& folder = Process::get().config().profile;
  if (recorder->dropped_count() != 0) {
    const int error = recorder->dropped_errno();
    log_warn("profile: %s: %llu records are missing at the end: %s; remedy: %s",
             path_of(opened().rank).c_str(),
             static_cast<unsigned long long>(recorder->dropped_count()),
             error != 0 ? std::strerror(error) : "the file is as large as profile_bytes_max",
             remedy(error));
  }
  if (opened().rank != 0) return;
  const std::string text = "larklane: profile in " + folder + "\n";
  // A closed standard error leaves no place to report it.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace larklane::mpi

namespace larklane::mpi::profiled {
namespace {

int begin_world(int code) {
  if (code != MPI_SUCCESS || open_profile()) return code;
  next_pmpi().Abort(handles().comm_world, 2);
  return MPI_ERR_OTHER;
}

}  // namespace

int Init(const Next& next, int* argc, char*** argv) {
  return begin_world(face::Init(next, argc, argv));
}

int Init_thread(const Next& next, int* argc, char*** argv, int required, int* provided) {
  return begin_world(face::Init_thread(next, argc, argv, required, provided));
}

int Finalize(const Next& next) {
  compare_clocks_again();
  const int code = face::Finalize(next);
  close_profile();
  return code;
}

int Session_init(const Next& next, MPI_Info info, MPI_Errhandler errhandler, MPI_Session* session) {
  const int code = face::Session_init(next, info, errhandler, session);
  if (code == MPI_SUCCESS && !Process::get().has_world()) open_profile_alone();
  return code;
}

int Session_finalize(const Next& next, MPI_Session* session) {
  const int code = face::Session_finalize(next, session);
  if (code == MPI_SUCCESS && !Process::get().is_open()) close_profile();
  return code;
}

int Comm_free(const Next& next, MPI_Comm* comm) {
  forget_routes();
  return face::Comm_free(next, comm);
}

int Comm_disconnect(const Next& next, MPI_Comm* comm) {
  forget_routes();
  return face::Comm_disconnect(next, comm);
}

}  // namespace larklane::mpi::profiled
