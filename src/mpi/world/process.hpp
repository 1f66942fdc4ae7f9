#pragma once
// What the face keeps per process, from the first initialisation to the last finalisation.

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
/// 1. The listener is bound before the MPI's own initialisation, whose exchange tells everybody
/// that everybody has bound.
/// 2. Engine, helper thread and private communicator exist from the first partitioned init on,
/// never earlier.
class Process {
 public:
  static Process& get() noexcept;

  /// Before the MPI initialises: read the options, bind the listener. @return false: the options
  /// are wrong, and it has been said
  bool prepare();
  /// The world model is in use; after its end everything is given back unless a session is open.
  void world_opened();
  void world_closed();
  /// One more session is in use; `before` is the handle that the MPI has just ended.
  void session_opened(MPI_Session session);
  void session_closed(MPI_Session before);
  /// In use at all. relaxed: initialisation and use are ordered by the program.
  bool is_open() const noexcept { return open_.load(std::memory_order_relaxed); }
  bool has_world() const noexcept { return world_.load(std::memory_order_relaxed); }

  /// The engine, made by the first call; null if this process can't run partitioned requests of
  /// ours, which has been said once.
  part::Engine* engine();
  /// Why engine() is null.
  std::string why_unusable() const;
  /// It connected before this process knew that it can't have an engine, or may have.
  bool has_turned_away(const Member& member) const;
  /// As part::Engine's, if there is one.
  void look_at_descriptors() noexcept;
  void help() noexcept;
  const Config& config() const noexcept { return config_; }
  const Identity& identity() const noexcept { return identity_; }
  /// Where a process of any world is reached.
  struct Reach {
    std::optional<control::Address> address;
    std::string why_not;  ///< with an address: why nobody may listen there; empty: not known
  };
  Reach reach(const Member& member) const;
  /// All of them are on this host, as far as it can be known.
  bool are_here(const std::vector<Member>& members) const;
  /// This process in other worlds' eyes; unknown if its job is.
  Member self() const { return {identity_.job, identity_.rank}; }
  /// What the parents said, if processes under Larklane spawned this one.
  const std::optional<Birth>& birth() const noexcept { return birth_; }
  /// The program's mapped memory: exists before the engine and outlives it.
  const std::shared_ptr<shm::Regions>& regions() const noexcept { return regions_; }
  /// A communicator of our own, of this process alone; comm_null before the first partitioned init.
  MPI_Comm private_comm() const noexcept { return private_comm_; }
  /// Group of MPI_COMM_WORLD, or of mpi://WORLD if only sessions are in use; to be freed.
  /// group_null if there is none yet.
  MPI_Group world_group() const;

  /// help(), and let the MPI make progress: a test of a receive that nothing ever matches, which
  /// every MPI answers with one turn of its progress engine (a probe of a communicator with one
  /// process is not enough: MPICH then looks at nothing else). One thread at a time; the others
  /// return at once.
  void poke_native() noexcept;
  /// Before the MPI's own finalisation: that receive ends. The next poke would begin another.
  void end_probe() noexcept;

 private:
  Process() = default;
  void identify_locked();
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
  std::string unusable_;  ///< why every pair is left to the MPI; empty: it is not
  /// Addresses of those that connected before this process became unusable; nothing: unknown.
  std::optional<std::vector<control::Address>> turned_away_ = std::vector<control::Address>();
  bool prepared_ = false;
  bool identified_ = false;  ///< once: what a parent said is taken out of the environment
  Config config_;
  Identity identity_;
  std::optional<Birth> birth_;
  std::unique_ptr<Hosts> hosts_;  ///< null: its launcher tells nothing
  const std::shared_ptr<shm::Regions> regions_ = std::make_shared<shm::Regions>();
  MPI_Comm private_comm_{};
  MPI_Request probe_{};                ///< see poke_native(); guarded by poking_
  std::vector<MPI_Session> sessions_;  ///< the program's
  MPI_Session session_{};              ///< of our own, if only sessions are in use
  bool has_session_ = false;
};

}  // namespace larklane::mpi
