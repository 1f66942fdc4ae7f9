#pragma once
// What we know of communicators: how each was made, and, from its first partitioned init on, who is
// in it.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/address.hpp"
#include "mpi/abi/handles.hpp"
#include "mpi/world/context_id.hpp"
#include "mpi/world/member.hpp"

namespace larklane::mpi {

/// The bits of any MPI handle.
template <class Handle>
std::uint64_t handle_bits(Handle handle) noexcept {
  static_assert(sizeof(Handle) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  __builtin_memcpy(&bits, &handle, sizeof handle);
  return bits;
}

/// Processes of other worlds that this one met when a communicator was made; whatever derives from
/// that communicator refers to them. Thread safety: immutable.
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

/// Thread safety: thread-safe. It outlives its handle as long as a request refers to it.
/// Invariants:
/// 1. No process has two communicators of one recipe, so the recipe is the context id.
/// 2. Each of its processes knows all the others.
class Communicator {
 public:
  Communicator(MPI_Comm handle, const part::ContextId& recipe, ForeignersPtr foreigners) noexcept
      : handle_(handle), recipe_(recipe), foreigners_(std::move(foreigners)) {}
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// What all members hash for the next communicator that they make together from this one:
  /// collective calls on a communicator come in the same order everywhere (MPI 4.0, 6.14), so the
  /// ordinal agrees.
  part::ContextId child(Origin origin) noexcept;
  /// The constructor has failed: its ordinal is the next one's. relaxed: as children_
  void forget_child() noexcept { children_.fetch_sub(1, std::memory_order_relaxed); }
  const part::ContextId& recipe() const noexcept { return recipe_; }
  const ForeignersPtr& foreigners() const noexcept { return foreigners_; }

  /// Who is in it. Local MPI calls, once.
  struct Members {
    bool known = false;  ///< false: the MPI did not tell
    bool inter = false;
    int rank = 0;               ///< own, in the own group
    std::vector<Member> peers;  ///< those whom a rank argument names
    int tag_max = -1;           ///< -1: not known
  };
  const Members& members();
  /// Where the peer of that rank is reached, found once by find(member); null, and the reason,
  /// while it is not. The pointer stays valid as long as the communicator.
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
  /// Ranks in this communicator of a group's members; empty if the MPI did not tell.
  std::vector<int> ranks_of(MPI_Group group) const;

  /// Where errors are raised: the handle, or after MPI_Comm_free a communicator of our own with the
  /// error handler that it had.
  MPI_Comm error_target() const noexcept;
  /// The user frees the handle, and requests of ours still refer to it.
  void detach();
  /// The MPI has not freed it.
  void reattach(MPI_Comm handle);
  std::atomic<std::uint32_t> request_count{0};

 private:
  void resolve_locked();

  // relaxed throughout: the program orders MPI_Comm_free and the calls on a communicator's requests
  std::atomic<MPI_Comm> handle_;
  const part::ContextId recipe_;
  const ForeignersPtr foreigners_;
  std::atomic<std::uint64_t> children_{
      0};  // relaxed: the program orders collective calls on one communicator
  std::mutex mutex_;
  bool resolved_ = false;
  Members members_;
  std::unordered_map<int, std::unique_ptr<const Address>> addresses_;  // by rank
  bool stand_in_ = false;
};

/// The ordinal of a constructor on its parent, given back unless it is kept: a call that the MPI
/// refused to this process alone, or whose error handler has thrown, is none that the others have
/// counted. Thread safety: single-owner.
class ChildOrdinal {
 public:
  /// @param parent  may be null: then there is no ordinal
  ChildOrdinal(std::shared_ptr<Communicator> parent, Origin origin)
      : parent_(std::move(parent)), recipe_(parent_ ? parent_->child(origin) : part::ContextId{}) {}
  ~ChildOrdinal() {
    if (parent_ && !is_kept_) parent_->forget_child();
  }
  ChildOrdinal(const ChildOrdinal&) = delete;
  ChildOrdinal& operator=(const ChildOrdinal&) = delete;

  void keep() noexcept { is_kept_ = true; }
  Communicator* parent() const noexcept { return parent_.get(); }
  const part::ContextId& recipe() const noexcept { return recipe_; }

 private:
  const std::shared_ptr<Communicator> parent_;
  const part::ContextId recipe_;
  bool is_kept_ = false;
};

/// Ranks in the own world of a group's members; empty if the MPI did not tell, or if one of them is
/// of another world.
std::vector<int> world_ranks(MPI_Group group);

/// The record of a communicator; null if we did not see it made.
std::shared_ptr<Communicator> find_communicator(MPI_Comm comm);
/// A count of how often this process has used the key, beginning with 0: the members use it equally
/// often.
std::uint64_t next_use(const part::ContextId& key);
/// The new handle gets a record; MPI_COMM_NULL gets none.
/// @param foreigners  null: all its processes are of the own world
void remember_communicator(MPI_Comm comm, const part::ContextId& recipe,
                           ForeignersPtr foreigners = nullptr);
/// An intercommunicator whose remote group are those who have been met. It gets no record if their
/// number is wrong: then they are not those whom we take them for.
/// @param others  whom the processes of the own side know already
void remember_meeting(MPI_Comm intercomm, const Meeting& meeting, ForeignersPtr others);
/// Before MPI_Comm_free: the handle may be another communicator's at once.
/// @return  its record; null if there is none
std::shared_ptr<Communicator> forget_communicator(MPI_Comm comm);
/// The MPI has not freed it: its ordinals go on.
void restore_communicator(MPI_Comm comm, std::shared_ptr<Communicator> forgotten);
void forget_all_communicators();

}  // namespace larklane::mpi
