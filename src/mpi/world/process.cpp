#include "mpi/world/process.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/kernel_calls.hpp"
#include "base/log.hpp"
#include "base/status_text.hpp"
#include "control/local/socket.hpp"
#include "mpi/abi/exports.hpp"
#include "mpi/p2p/world.hpp"
#include "mpi/partitioned/carrier.hpp"
#include "mpi/types/type_cache.hpp"
#include "mpi/world/communicator.hpp"
#include "mpi/world/summary.hpp"
#include "msg/protocol/engine.hpp"
#include "shm/copy.hpp"

namespace larklane::mpi {
Process& Process::get() noexcept {
  static Process* const process = new Process;
  return *process;
}

void Process::identify_locked() {
  if (std::exchange(identified_, true)) return;
  // Remove it from the environment: a process that this one starts is no child of those parents.
  const std::string text = take_environment("LARKLANE_SPAWNED");
  if (!text.empty()) birth_ = Birth::of_text(text);
  identity_ = Identity::of_this_process(birth_ ? &*birth_ : nullptr);
}

/// Call before the address is made: on several hosts the world may need another name.
void Process::find_hosts_locked() {
  // A world that was spawned without Larklane has its parents' proxy, but its own ranks.
  const bool is_strange = identity_.job == nullptr && environment("PMI_SPAWNED") == "1";
  if (hosts_ || is_strange) return;
#ifdef LARKLANE_FAMILY_OMPI
  // Another MPI's launcher: it treats a process that used its protocol and then ends as failed.
  if (environment("PMIX_NAMESPACE").empty()) return;
#endif
  hosts_ = Hosts::open();
  const std::string world = hosts_ ? hosts_->world() : std::string();
  if (!world.empty() && !birth_) identity_.job = job_named(world);
}

/// Call after the MPI's exchange.
void Process::learn_hosts_locked() {
  if (!hosts_ || hosts_->has_learnt() || identity_.job == nullptr) return;
  // On one host, all processes have announced themselves only if the world model is in use.
  if (!hosts_->spans_hosts() && !has_world()) return;
  MPI_Group world = world_group_locked();
  int ranks = 0;
  if (world == handles().group_null || next_pmpi().Group_size(world, &ranks) != MPI_SUCCESS) return;
  next_pmpi().Group_free(&world);
  hosts_->learn(ranks, identity_.rank, config_, [this](int rank) {
    return address_of({identity_.job, rank});
  });
}

bool Process::is_own_world(const Member& member) const {
  return identity_.job != nullptr && *member.job == *identity_.job;
}

Process::Reach Process::reach(const Member& member) const {
  if (!hosts_ || !is_own_world(member)) return {address_of(member), {}};
  if (!hosts_->has_learnt()) return {address_of(member), hosts_->why_unseen(member.rank)};
  Hosts::Way way = hosts_->way_to(member.rank);
  if (way.is_here) return {address_of(member), hosts_->why_unseen(member.rank)};
  if (way.address.empty()) return {std::nullopt, std::move(way.why_not)};
  return {std::move(way.address), {}};
}

bool Process::are_here(const std::vector<Member>& members) const {
  return std::all_of(members.begin(), members.end(), [&](const Member& member) {
    if (!is_own_world(member)) return control::connect_to(address_of(member)).has_value();
    return !hosts_ || !hosts_->has_learnt() || hosts_->is_here(member.rank);
  });
}

bool Process::prepare() {
  const std::scoped_lock lock(mutex_);
  if (prepared_) return true;
  identify_locked();
  std::vector<Config::Problem> problems;
  auto config = Config::load(&problems);
  if (config) config_ = std::move(config).value();
  find_hosts_locked();
  set_log_rank(identity_.rank);
  set_log_level(log_level_named(config_.log_level));
  for (const Config::Problem& problem : problems) {
    if (problem.fatal) {
      log_error("%s", problem.text.c_str());
    } else if (identity_.rank == 0) {
      log_warn("%s", problem.text.c_str());
    }
  }
  if (!config) return false;
  // Before the MPI's exchange: a peer may attach as soon as that ends.
  if (config_.shm_attach != "off") shm::let_peers_attach();
  prepared_ = true;
  unusable_.clear();
  turned_away_.emplace();
  if (identity_.job == nullptr) {
    unusable_ = "the launcher sets a rank but nothing that identifies the job";
    return true;
  }
  // Before peers can connect, so that both sides of a pair leave it to the MPI.
  if (const auto refused = rehearse_kernel_calls(CallsFor::records_and_memory)) {
    unusable_ = refused->text();
    if (hosts_) hosts_->decline();
    return true;
  }
  const control::Address address = address_of(self());
  auto listener = control::Listener::bind(address);
  if (listener) {
    listener_ = std::move(*listener);
    if (hosts_) hosts_->announce(address, config_);
    listen_for_ballots_locked();
  } else {
    unusable_ =
        "socket " + address + " can't be bound: " + std::strerror(listener.error().detail());
    if (hosts_) hosts_->decline();
  }
  return true;
}

/// Ranks that find the name bound know that this process takes part. So it is bound before the
/// MPI's exchange, or never.
void Process::listen_for_ballots_locked() {
  wants_messages_ = false;
  if (!p2p::may_be_owned(config_)) return;
  if (!has_message_calls())
    return log_warn(
        "p2p is on, but liblarklane_preload.so leaves messages to the MPI; remedy: larklane run, "
        "or preload liblarklane_messages_preload.so");
  auto listener = control::Listener::bind(p2p::ballot_address_of(self()));
  if (!listener) return log_warn("p2p: %s", std::strerror(listener.error().detail()));
  ballot_listener_ = std::move(*listener);
  wants_messages_ = true;
}

// open_ and world_ are stored relaxed: see is_open().
void Process::world_opened() {
  const std::scoped_lock lock(mutex_);
  world_.store(true, std::memory_order_relaxed);
  open_.store(true, std::memory_order_relaxed);
  learn_hosts_locked();
}

void Process::world_closed() {
  const std::scoped_lock lock(mutex_);
  world_.store(false, std::memory_order_relaxed);
  // It was split from MPI_COMM_SELF, so it ended with the world model.
  if (!has_session_) private_comm_ = handles().comm_null;
  close_unless_used_locked();
}

void Process::session_opened(MPI_Session session) {
  const std::scoped_lock lock(mutex_);
  sessions_.push_back(session);
  open_.store(true, std::memory_order_relaxed);
}

void Process::session_closed(MPI_Session before) {
  const std::scoped_lock lock(mutex_);
  std::erase(sessions_, before);
  close_unless_used_locked();
}

void Process::close_unless_used_locked() {
  if (has_world() || !sessions_.empty()) return;
  open_.store(false, std::memory_order_relaxed);
  // relaxed: the mutex orders creation and closing
  part::Engine* const engine = engine_.exchange(nullptr, std::memory_order_relaxed);
  if (config_.summary)
    print_summary(engine != nullptr ? engine->summary() : part::Summary{}, forwarded_total(),
                  identity_, p2p::ordinary_messages());
  if (engine != nullptr) {
    if (const std::size_t active = release_partitioned(*engine); active > 0) {
      log_warn("%zu partitioned requests were active at finalisation", active);
      // Peers may still write to their buffers: the engine stays until the process ends.
      [[maybe_unused]] part::Engine* const kept = owned_engine_.release();
    }
    owned_engine_.reset();
  }
  forget_all_communicators();
  if (has_session_) {
    if (private_comm_ != handles().comm_null) next_pmpi().Comm_free(&private_comm_);
    next_pmpi().Session_finalize(&session_);
    has_session_ = false;
  }
  private_comm_ = handles().comm_null;
  forget_datatypes();
  listener_.reset();
  ballot_listener_.reset();
  prepared_ = false;
}

part::Engine* Process::engine() {
  // acquire: pairs with create_engine_slow() release
  part::Engine* const engine = engine_.load(std::memory_order_acquire);
  return engine != nullptr ? engine : create_engine_slow();
}

bool Process::create_private_comm_locked() {
  if (private_comm_ != MPI_Comm{} && private_comm_ != handles().comm_null) return true;
  const Next& real = next_pmpi();
  if (has_world()) {
    if (real.Comm_split(handles().comm_self, 0, 0, &private_comm_) != MPI_SUCCESS) return false;
  } else {
    if (real.Session_init(handles().info_null, handles().errors_return, &session_) != MPI_SUCCESS) {
      return false;
    }
    has_session_ = true;
    MPI_Group self;
    if (real.Group_from_session_pset(session_, "mpi://SELF", &self) != MPI_SUCCESS) return false;
    const int code = real.Comm_create_from_group(self, "larklane", handles().info_null,
                                                 handles().errors_return, &private_comm_);
    real.Group_free(&self);
    if (code != MPI_SUCCESS) return false;
  }
  probe_ = handles().request_null;
  return real.Comm_set_errhandler(private_comm_, handles().errors_return) == MPI_SUCCESS;
}

bool Process::rank_is_right_locked() {
  if (!has_world()) return true;
  int rank = -1;
  next_pmpi().Comm_rank(handles().comm_world, &rank);
  if (rank == identity_.rank) return true;
  int ranks = 0;
  next_pmpi().Comm_size(handles().comm_world, &ranks);
  unusable_ =
      "the launcher says rank " + std::to_string(identity_.rank) + ", the MPI says " +
      std::to_string(rank) + " of " + std::to_string(ranks) +
      (ranks == 1 ? ": this MPI does not know the launcher, so each process is a job of its "
                    "own; remedy: start the program by the mpiexec of the MPI that it is "
                    "linked with (larklane run --dry-run shows it)"
                  : "; remedy: start the program by the mpiexec of the MPI that it is linked "
                    "with, and leave the ranks' variables as it sets them");
  return false;
}

/// Null on failure, with the reason in unusable_.
part::Engine* Process::create_engine_locked() {
  if (!unusable_.empty() || !listener_ || !rank_is_right_locked()) return nullptr;
  // Repeat the check: the program may have installed a filter since.
  if (const auto refused = rehearse_kernel_calls(CallsFor::records_and_memory)) {
    unusable_ = refused->text();
    return nullptr;
  }
  if (!create_private_comm_locked()) {
    unusable_ = "the MPI made no private communicator";
    return nullptr;
  }
  // With sessions alone, the MPI may make its exchange only for a communicator.
  learn_hosts_locked();
  // A second descriptor: without an engine, this process must still turn away connected peers.
  UniqueFd served(::fcntl(listener_->fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!served) {
    unusable_ = RefusedCall{"fcntl(F_DUPFD_CLOEXEC)", errno, "the engine's socket"}.text();
    return nullptr;
  }
  std::vector<control::Listener> own;
  own.push_back({listener_->address, std::move(served)});
  if (auto ballots = std::exchange(ballot_listener_, std::nullopt))
    own.push_back(std::move(*ballots));
  auto engine =
      part::Engine::create(std::move(own), config_, regions_, nullptr,
                           hosts_ && hosts_->has_learnt()
                               ? hosts_->for_engine(config_,
                                                    [this](int rank) {
                                                      return address_of({identity_.job, rank});
                                                    })
                               : std::nullopt,
                           wants_messages_ ? &p2p::handler() : nullptr);
  if (!engine) {
    const int error = engine.error().detail();
    unusable_ = engine.error().code() == Errc::kNoThread
                    ? RefusedCall{"clone3, clone", error, "the helper thread"}.text()
                    : "the engine could not be created: " + status_text(engine.error()) +
                          "; remedy: " + remedy_of(error);
    return nullptr;
  }
  listener_.reset();
  owned_engine_ = std::move(engine).value();
  engine_.store(owned_engine_.get(),
                std::memory_order_release);  // release: pairs with engine() acquire
  return owned_engine_.get();
}

std::string Process::why_unusable() const {
  const std::scoped_lock lock(mutex_);
  return unusable_;
}

bool Process::has_turned_away(const Member& member) const {
  const std::scoped_lock lock(mutex_);
  if (!turned_away_) return true;
  return member.is_known() &&
         std::ranges::find(*turned_away_, address_of(member)) != turned_away_->end();
}

part::Engine* Process::create_engine_slow() {
  const std::scoped_lock lock(mutex_);
  // relaxed: the mutex orders creation and closing
  if (part::Engine* const engine = engine_.load(std::memory_order_relaxed)) return engine;
  if (part::Engine* const engine = create_engine_locked()) return engine;
  ballot_listener_.reset();
  if (auto listener = std::exchange(listener_, std::nullopt))
    turned_away_ = control::turn_away(std::move(*listener));
  if (hosts_ && !unusable_.empty()) hosts_->refuse();
  log_warn_once("unusable", "partitioned communication is left to the MPI: %s", unusable_.c_str());
  return nullptr;
}

MPI_Group Process::world_group() const {
  if (has_world()) return world_group_locked();  // the mutex may be held
  const std::scoped_lock lock(mutex_);
  return world_group_locked();
}

MPI_Group Process::world_group_locked() const {
  MPI_Group group = handles().group_null;
  if (has_world()) {
    next_pmpi().Comm_group(handles().comm_world, &group);
  } else if (!sessions_.empty()) {
    next_pmpi().Group_from_session_pset(sessions_.front(), "mpi://WORLD", &group);
  }
  return group;
}

void Process::look_at_descriptors() noexcept {
  // acquire: pairs with create_engine_slow()'s release
  if (part::Engine* const engine = engine_.load(std::memory_order_acquire)) {
    engine->look_at_descriptors();
  }
}

void Process::help() noexcept {
  // acquire: pairs with create_engine_slow()'s release
  if (part::Engine* const engine = engine_.load(std::memory_order_acquire)) engine->help();
}

void Process::poke_native() noexcept {
  help();
  // By time, since a wait that yields or sleeps makes few turns of a lane.
  if (p2p::is_owned()) p2p::engine().look_for_stalls();
  if (private_comm_ == handles().comm_null || private_comm_ == MPI_Comm{}) return;
  // acquire: pairs with the release below: the next poker sees this one's native state
  if (poking_.exchange(true, std::memory_order_acquire)) return;
  constexpr std::uint32_t kLookEvery =
      256;  // a waiting thread sleeps for a millisecond between two
  if (++pokes_ % kLookEvery == 0) look_at_descriptors();
  const Next& real = next_pmpi();
  if (probe_ == handles().request_null) {
    real.Recv_init(nullptr, 0, handles().byte, 0, 0, private_comm_, &probe_);
    real.Start(&probe_);
  }
  int done = 0;
  real.Test(&probe_, &done, MPI_STATUS_IGNORE);
  poking_.store(false, std::memory_order_release);  // release: pairs with the acquire above
}

void Process::end_probe() noexcept {
  if (poking_.exchange(true, std::memory_order_acquire)) return;  // acquire: as in poke_native()
  if (probe_ != handles().request_null && probe_ != MPI_Request{}) {
    const Next& real = next_pmpi();
    real.Cancel(&probe_);
    real.Wait(&probe_, MPI_STATUS_IGNORE);
    real.Request_free(&probe_);
  }
  poking_.store(false, std::memory_order_release);  // release: as in poke_native()
}

}  // namespace larklane::mpi

namespace larklane::mpi::face {
namespace {

/// Stops a program with wrong options, once the MPI can abort.
int stop_world(int code) {
  if (code != MPI_SUCCESS) return code;
  next_pmpi().Abort(handles().comm_world, 1);
  return MPI_ERR_OTHER;
}

}  // namespace

int Init(const Next& next, int* argc, char*** argv) {
  Process& process = Process::get();
  const bool options_are_right = process.prepare();
  const int code = next.Init(argc, argv);
  if (!options_are_right) return stop_world(code);
  if (code != MPI_SUCCESS) return code;
  process.world_opened();
  p2p::opened();
  return code;
}

int Init_thread(const Next& next, int* argc, char*** argv, int required, int* provided) {
  Process& process = Process::get();
  const bool options_are_right = process.prepare();
  const int code = next.Init_thread(argc, argv, required, provided);
  if (!options_are_right) return stop_world(code);
  if (code != MPI_SUCCESS) return code;
  process.world_opened();
  p2p::opened();
  return code;
}

int Finalize(const Next& next) {
  // The MPI first: it runs attribute callbacks on MPI_COMM_SELF, which may still use and free
  // partitioned requests.
  Process::get().end_probe();
  p2p::closing();
  const int code = next.Finalize();
  if (code != MPI_SUCCESS) return code;
  p2p::closed();
  Process::get().world_closed();
  return code;
}

int Session_init(const Next& next, MPI_Info info, MPI_Errhandler errhandler, MPI_Session* session) {
  Process& process = Process::get();
  const bool options_are_right = process.prepare();
  const int code = next.Session_init(info, errhandler, session);
  if (code != MPI_SUCCESS) return code;
  if (!options_are_right) {
    // Also if the handler throws: the program has no session to finalise.
    struct End {
      MPI_Session* session;
      ~End() { next_pmpi().Session_finalize(session); }
    } const end{session};
    next_pmpi().Session_call_errhandler(*session, MPI_ERR_OTHER);
    return MPI_ERR_OTHER;
  }
  process.session_opened(*session);
  return MPI_SUCCESS;
}

int Session_finalize(const Next& next, MPI_Session* session) {
  const MPI_Session before = *session;
  Process::get().end_probe();
  const int code = next.Session_finalize(session);
  if (code == MPI_SUCCESS) Process::get().session_closed(before);
  return code;
}

}  // namespace larklane::mpi::face
