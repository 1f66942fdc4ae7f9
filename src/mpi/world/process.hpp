#pragma once
// The face's state of a process, from the first initialisation to the last finalisation.

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "mpi/abi/handles.hpp"
#include "mpi/abi/next.hpp"
#include "mpi/world/hosts.hpp"
#include "mpi/world/identity.hpp"
#include "part/engine.hpp"

namespace larklane::mpi {

/// One per process, never destroyed: MPI calls may come from anywhere until the process ends.
/// Thread safety: thread-safe.
/// Invariants:
/// 1. The listener is bound before the MPI's own initialisation. The exchange there guarantees to
///    each process that all processes have bound.
/// 2. Engine, helper thread and private communicator exist from the first partitioned init on,
///    never earlier.
class Process {
 public:
  static Process& get() noexcept;

  /// Call before the MPI initialises: reads the options, binds the listener. @return false after a
  /// message: the options are wrong
  bool prepare();
  /// Begin and end of the world model. The end releases everything, unless a session is open.
  void world_opened();
  void world_closed();
  /// Begin and end of a session; `before` is the handle that the MPI has just finalised.
  void session_opened(MPI_Session session);
  void session_closed(MPI_Session before);
  /// True while a world or a session is in use. relaxed: the program orders initialisation and use.
  bool is_open() const noexcept { return open_.load(std::memory_order_relaxed); }
  bool has_world() const noexcept { return world_.load(std::memory_order_relaxed); }

  /// The engine, made by the first call. Null, after one warning, if this process can't run
  /// partitioned requests of ours.
  part::Engine* engine();
  /// The reason why engine() is null.
  std::string why_unusable() const;
  /// True if the member connected, or may have, before this process knew that it can't have an
  /// engine.
  bool has_turned_away(const Member& member) const;
  /// As part::Engine's, if there is one.
  void look_at_descriptors() noexcept;
  void help() noexcept;
  const Config& config() const noexcept { return config_; }
  const Identity& identity() const noexcept { return identity_; }
  /// The launcher has placed processes of this world on other hosts, too.
  bool spans_hosts() const noexcept { return hosts_ && hosts_->spans_hosts(); }
  /// The ranks of the world have decided on ordinary messages. @param are_all_here  each has
  /// answered, on this host
  void ballots_counted(bool are_all_here);
  /// This process listens for ballots on ordinary messages (p2p/world.hpp).
  bool wants_messages() const noexcept { return wants_messages_; }
  /// The address of a process of any world.
  struct Reach {
    std::optional<control::Address> address;
    std::string why_not;  ///< with an address: why no process may listen there; empty: not known
  };
  Reach reach(const Member& member) const;
  /// True if all members are on this host, as far as this process knows.
  bool are_here(const std::vector<Member>& members) const;
  /// This process as a member; unknown if its job is.
  Member self() const { return {identity_.job, identity_.rank}; }
  /// The parents' message, if processes under Larklane spawned this one.
  const std::optional<Birth>& birth() const noexcept { return birth_; }
  /// The program's mapped memory: exists before the engine and outlives it.
  const std::shared_ptr<shm::Regions>& regions() const noexcept { return regions_; }
  /// A communicator of our own, of this process alone; comm_null before the first partitioned init.
  MPI_Comm private_comm() const noexcept { return private_comm_; }
  /// The group of MPI_COMM_WORLD, or of mpi://WORLD if only sessions are in use; the caller frees
  /// it. group_null if there is none yet.
  MPI_Group world_group() const;

  /// Calls help(), and makes progress in the MPI by a test of a receive that no message matches:
  /// each MPI then runs its progress engine once. A probe of a communicator with one process is not
  /// enough: MPICH then polls nothing else. One thread at a time; the others return at once.
  void poke_native() noexcept;
  /// Call before the MPI's own finalisation: ends that receive. The next poke would begin another.
  void end_probe() noexcept;

 private:
  Process() = default;
  void identify_locked();
  void listen_for_ballots_locked();
  MPI_Group world_group_locked() const;
  void find_hosts_locked();
  void learn_hosts_locked();
  bool is_own_world(const Member& member) const;
  part::Engine* create_engine_slow();
  part::Engine* create_engine_locked();
  bool create_private_comm_locked();
  bool rank_is_right_locked();
  void close_unless_used_locked();

  mutable std::mutex mutex_;
  std::atomic<bool> open_{false};
  std::atomic<bool> world_{false};
  std::atomic<bool> poking_{false};
  std::uint32_t pokes_ = 0;  ///< guarded by poking_
  std::atomic<part::Engine*> engine_{nullptr};
  std::unique_ptr<part::Engine> owned_engine_;
  std::optional<control::Listener> listener_;
  std::optional<control::Listener> ballot_listener_;  ///< an alias, served by the same helper
  bool wants_messages_ = false;
  bool awaits_ballots_ = false;  ///< which say that all ranks are here, as learn_hosts_locked()
  std::string unusable_;         ///< why every pair is left to the MPI; empty: Larklane is usable
  /// Addresses of peers that connected before this process became unusable; empty: unknown.
  std::optional<std::vector<control::Address>> turned_away_ = std::vector<control::Address>();
  bool prepared_ = false;
  bool identified_ = false;  ///< once: it removes the parents' message from the environment
  Config config_;
  Identity identity_;
  std::optional<Birth> birth_;
  std::unique_ptr<Hosts> hosts_;  ///< null: the launcher offers no exchange
  const std::shared_ptr<shm::Regions> regions_ = std::make_shared<shm::Regions>();
  MPI_Comm private_comm_{};
  MPI_Request probe_{};                ///< see poke_native(); guarded by poking_
  std::vector<MPI_Session> sessions_;  ///< the program's
  MPI_Session session_{};              ///< of our own, if only sessions are in use
  bool has_session_ = false;
};

}  // namespace larklane::mpi
