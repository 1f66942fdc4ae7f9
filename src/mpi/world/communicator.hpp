#pragma once
// Records of communicators: the origin of each and, from its first partitioned init on, its
// members.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/address.hpp"
#include "mpi/abi/handles.hpp"
#include "mpi/requests/handle_table.hpp"
#include "mpi/world/context_id.hpp"
#include "mpi/world/member.hpp"

namespace larklane::msg {
class Communicator;
}

namespace larklane::mpi {

/// Processes of other worlds that this process met in the constructor of a communicator. All
/// communicators that derive from it refer to them. Thread safety: immutable.
struct Foreigners {
  MPI_Group group;
  std::vector<Member> members;  ///< in the group's order, all known
  std::shared_ptr<const Foreigners> others;

  Foreigners(MPI_Group its_group, std::vector<Member> its_members,
             std::shared_ptr<const Foreigners> its_others) noexcept
      : group(its_group), members(std::move(its_members)), others(std::move(its_others)) {}
  ~Foreigners();
  Foreigners(const Foreigners&) = delete;
  Foreigners& operator=(const Foreigners&) = delete;
};
using ForeignersPtr = std::shared_ptr<const Foreigners>;

/// The record of a communicator. It outlives its handle as long as a request refers to it.
/// Thread safety: thread-safe.
/// Invariants:
/// 1. No process has two communicators of one recipe, so the recipe is the context id.
/// 2. Each of its processes knows all the others.
class Communicator {
 public:
  Communicator(MPI_Comm handle, const ContextId& recipe, ForeignersPtr foreigners) noexcept
      : handle_(handle), recipe_(recipe), foreigners_(std::move(foreigners)) {}
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// The recipe of the next communicator that all members construct together from this one. They
  /// make collective calls on a communicator in the same order (MPI 4.0, 6.14), so their ordinals
  /// agree.
  ContextId child(Origin origin) noexcept;
  /// Gives the ordinal of a failed constructor to the next one. relaxed: as children_
  void forget_child() noexcept { children_.fetch_sub(1, std::memory_order_relaxed); }
  const ContextId& recipe() const noexcept { return recipe_; }
  const ForeignersPtr& foreigners() const noexcept { return foreigners_; }

  /// The members, found once by local MPI calls.
  struct Members {
    bool known = false;  ///< false: the MPI does not report them
    bool inter = false;
    int rank = 0;               ///< own, in the own group
    std::vector<Member> peers;  ///< by rank argument; of an intercommunicator, the remote group
    int tag_max = -1;           ///< -1: not known
  };
  const Members& members();
  /// The address of the peer of that rank, found once by find(member). Null, with the reason, while
  /// it is not reachable. The pointer stays valid as long as the communicator.
  template <class Find>
  const Address* address_of(int rank, Find&& find, std::string* why_not) {
    const std::scoped_lock lock(mutex_);
    std::unique_ptr<const Address>& known = addresses_[rank];
    if (!known) {
      auto reach = find(members_.peers[static_cast<std::size_t>(rank)]);
      if (!reach.address) {
        *why_not = std::move(reach.why_not);
        return nullptr;
      }
      known = std::make_unique<const Address>(std::move(*reach.address));
    }
    return known.get();
  }
  /// Ranks in this communicator of a group's members; empty if the MPI does not report them.
  std::vector<int> ranks_of(MPI_Group group) const;

  /// The communicator for errors: the handle. After MPI_Comm_free it is a communicator of our own,
  /// with the same error handler.
  MPI_Comm error_target() const noexcept;
  /// Call when the user frees the handle while requests of ours still refer to it.
  void detach();
  /// Undoes detach() if the MPI has not freed the handle.
  void reattach(MPI_Comm handle);
  std::atomic<std::uint32_t> request_count{0};
  /// Carries its ordinary messages; null: the MPI does. relaxed: it is written before the program
  /// gets the handle, and after its last use. See open_ordinary().
  std::atomic<msg::Communicator*> ordinary{nullptr};

 private:
  void resolve_locked();

  // relaxed throughout: the program orders MPI_Comm_free and the calls on a communicator's requests
  std::atomic<MPI_Comm> handle_;
  const ContextId recipe_;
  const ForeignersPtr foreigners_;
  std::atomic<std::uint64_t> children_{
      0};  // relaxed: the program orders collective calls on one communicator
  std::mutex mutex_;
  bool resolved_ = false;
  Members members_;
  std::unordered_map<int, std::unique_ptr<const Address>> addresses_;  // by rank
  bool stand_in_ = false;
};

/// The ordinal of a constructor on its parent. The destructor gives it back, unless keep() was
/// called: the other processes do not count a call that the MPI refused to this process alone. Nor
/// do they count one that ended in an exception of the error handler. Thread safety: single-owner.
class ChildOrdinal {
 public:
  /// @param parent  may be null: then there is no ordinal
  ChildOrdinal(std::shared_ptr<Communicator> parent, Origin origin)
      : parent_(std::move(parent)), recipe_(parent_ ? parent_->child(origin) : ContextId{}) {}
  ~ChildOrdinal() {
    if (parent_ && !is_kept_) parent_->forget_child();
  }
  ChildOrdinal(const ChildOrdinal&) = delete;
  ChildOrdinal& operator=(const ChildOrdinal&) = delete;

  void keep() noexcept { is_kept_ = true; }
  Communicator* parent() const noexcept { return parent_.get(); }
  const ContextId& recipe() const noexcept { return recipe_; }

 private:
  const std::shared_ptr<Communicator> parent_;
  const ContextId recipe_;
  bool is_kept_ = false;
};

/// Ranks in the own world of a group's members. Empty if the MPI does not report them, or if one of
/// them is of another world.
std::vector<int> world_ranks(MPI_Group group);

/// The record of a communicator; null if Larklane did not intercept its constructor.
std::shared_ptr<Communicator> find_communicator(MPI_Comm comm);
/// The number of earlier uses of the key by this process. All members use it equally often.
std::uint64_t next_use(const ContextId& key);
/// Records a new handle; ignores MPI_COMM_NULL.
/// @param foreigners  null: all its processes are of the own world
/// @return  its record; null for MPI_COMM_NULL
std::shared_ptr<Communicator> remember_communicator(MPI_Comm comm, const ContextId& recipe,
                                                    ForeignersPtr foreigners = nullptr);
/// Records an intercommunicator with the processes of `meeting` as its remote group. It gets no
/// record if their number differs from the group's size: then the meeting is of other processes.
/// @param others  processes that the own side already knows
void remember_meeting(MPI_Comm intercomm, const Meeting& meeting, ForeignersPtr others);
/// Call before MPI_Comm_free: another communicator may get the handle at once.
/// Ordinary messages still find it: delete callbacks may use them, until end_communicator().
/// @return  its record; null if there is none
std::shared_ptr<Communicator> forget_communicator(MPI_Comm comm);
/// The MPI has freed the communicator of the handle: closes its ordinary messages, if they are
/// ours. @param forgotten  of forget_communicator()
void end_communicator(MPI_Comm comm, const std::shared_ptr<Communicator>& forgotten);
/// From now on `carrier` carries the communicator's ordinary messages.
void open_ordinary(Communicator& made, msg::Communicator& carrier);
namespace detail {
extern constinit LastingHandleTable ordinary_carriers;  // by the communicator's handle
}
/// The carrier of a communicator's ordinary messages; null: the MPI carries them.
inline msg::Communicator* find_ordinary(MPI_Comm comm) noexcept {
  return static_cast<msg::Communicator*>(detail::ordinary_carriers.table.find(handle_bits(comm)));
}
/// Restores the record of a communicator that the MPI has not freed: its ordinals continue.
void restore_communicator(MPI_Comm comm, std::shared_ptr<Communicator> forgotten);
void forget_all_communicators();
/// Ends ordinary messages of all communicators.
void close_all_communicators();

}  // namespace larklane::mpi
