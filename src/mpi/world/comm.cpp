// Communicator constructors and destructors: each goes to the MPI unchanged, and records the origin
// of the new communicator.

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "mpi/abi/next.hpp"
#include "mpi/p2p/left.hpp"
#include "mpi/p2p/world.hpp"
#include "mpi/world/communicator.hpp"
#include "mpi/world/process.hpp"

namespace larklane::mpi {
namespace {

/// Calls and records a constructor that is collective on its parent. It takes the ordinal before
/// the call, even if the caller gets MPI_COMM_NULL: the other members count it, too.
/// @param likeness  `group`: a nonblocking constructor. Its result has the parent's group, but
///   answers no call yet
/// @param info  the call's; info_null: it has none
enum class Likeness : std::uint8_t { none, group };
template <class Call>
int collective(MPI_Comm parent, Origin origin, MPI_Comm* made, Call call,
               Likeness likeness = Likeness::none, MPI_Info info = handles().info_null) {
  ChildOrdinal ordinal(find_communicator(parent), origin);
  const p2p::Creation creation(ordinal.parent());
  const int code = call();
  if (code == MPI_SUCCESS && !creation.is_owned()) p2p::note_left(*made);
  if (Communicator* const communicator = ordinal.parent(); communicator && code == MPI_SUCCESS) {
    const auto record = remember_communicator(*made, ordinal.recipe(), communicator->foreigners());
    if (record) creation.open(*record, likeness == Likeness::group ? communicator : nullptr, info);
    ordinal.keep();
  }
  return code;
}

/// Records the result of a constructor that is not collective on a parent. All callers know the key
/// and count its uses. The groups in the key distinguish it from other keys.
std::shared_ptr<Communicator> remember_by_use(MPI_Comm made, const ContextHash& key,
                                              ForeignersPtr foreigners = nullptr) {
  const std::uint64_t use = next_use(key.id());
  return remember_communicator(made, ContextHash(key).add(use).id(), std::move(foreigners));
}

/// The two groups of an intercommunicator. Nothing if the MPI does not report them, or if they
/// contain processes of another world.
struct BothGroups {
  ContextId local, remote;
  std::size_t remote_size;
};
std::optional<BothGroups> both_groups(MPI_Comm intercomm) {
  const Next& real = next_pmpi();
  MPI_Group local, remote;
  if (real.Comm_group(intercomm, &local) != MPI_SUCCESS) return std::nullopt;
  const auto local_ranks = world_ranks(local);
  real.Group_free(&local);
  if (real.Comm_remote_group(intercomm, &remote) != MPI_SUCCESS) return std::nullopt;
  const auto remote_ranks = world_ranks(remote);
  real.Group_free(&remote);
  if (local_ranks.empty() || remote_ranks.empty()) return std::nullopt;
  return BothGroups{group_id(local_ranks), group_id(remote_ranks), remote_ranks.size()};
}

/// One side of an intercommunicator, for the other side: the ordinal of the call on its local
/// communicator.
struct Side {
  ContextId recipe;
  std::uint64_t is_recorded;  ///< the local communicator has a record, and so `recipe` a meaning
  std::uint64_t is_owned;     ///< its ordinary messages are Larklane's
};

/// The other side, by one collective call of the MPI on the new intercommunicator. Each process of
/// a side passes the same. Nothing if the MPI refuses it.
std::optional<Side> exchange(MPI_Comm intercomm, const Side& own, std::size_t remote_size) {
  std::vector<Side> others(remote_size);
  const int code = next_pmpi().Allgather(&own, sizeof own, handles().byte, others.data(),
                                         sizeof own, handles().byte, intercomm);
  return code == MPI_SUCCESS ? std::optional(others.front()) : std::nullopt;
}

/// Of one side, with its group: sides that were split from one communicator have equal recipes.
ContextId id_of(const ContextId& group, const Side& side) {
  return ContextHash(Origin::group).add(group).add(side.recipe).id();
}

/// MPI_Comm_free or MPI_Comm_disconnect.
int release(int (*call)(MPI_Comm*), MPI_Comm* comm) {
  if (comm == nullptr) return call(comm);
  // In a destructor: the MPI's error handler may throw.
  struct Forgotten {
    const MPI_Comm& comm;
    const MPI_Comm released;
    std::shared_ptr<Communicator> record;
    // By the handle, not by the code: Open MPI's MPI_Comm_disconnect does not report that a delete
    // callback has refused.
    ~Forgotten() {
      if (comm == released)
        restore_communicator(released, std::move(record));
      else
        end_communicator(released, record);
    }
  };
  const Forgotten forgotten{*comm, *comm, forget_communicator(*comm)};
  return call(comm);
}

}  // namespace
}  // namespace larklane::mpi

namespace larklane::mpi::face {

int Comm_dup(const Next& next, MPI_Comm comm, MPI_Comm* newcomm) {
  return collective(comm, Origin::dup, newcomm, [&] { return next.Comm_dup(comm, newcomm); });
}

int Comm_dup_with_info(const Next& next, MPI_Comm comm, MPI_Info info, MPI_Comm* newcomm) {
  return collective(
      comm, Origin::dup, newcomm, [&] { return next.Comm_dup_with_info(comm, info, newcomm); },
      Likeness::none, info);
}

int Comm_idup(const Next& next, MPI_Comm comm, MPI_Comm* newcomm, MPI_Request* request) {
  return collective(
      comm, Origin::dup, newcomm, [&] { return next.Comm_idup(comm, newcomm, request); },
      Likeness::group);
}

int Comm_idup_with_info(const Next& next, MPI_Comm comm, MPI_Info info, MPI_Comm* newcomm,
                        MPI_Request* request) {
  return collective(
      comm, Origin::dup, newcomm,
      [&] { return next.Comm_idup_with_info(comm, info, newcomm, request); }, Likeness::group,
      info);
}

int Comm_create(const Next& next, MPI_Comm comm, MPI_Group group, MPI_Comm* newcomm) {
  return collective(comm, Origin::create, newcomm,
                    [&] { return next.Comm_create(comm, group, newcomm); });
}

int Comm_split(const Next& next, MPI_Comm comm, int color, int key, MPI_Comm* newcomm) {
  return collective(comm, Origin::split, newcomm,
                    [&] { return next.Comm_split(comm, color, key, newcomm); });
}

int Comm_split_type(const Next& next, MPI_Comm comm, int split_type, int key, MPI_Info info,
                    MPI_Comm* newcomm) {
  return collective(
      comm, Origin::split_type, newcomm,
      [&] { return next.Comm_split_type(comm, split_type, key, info, newcomm); }, Likeness::none,
      info);
}

int Intercomm_merge(const Next& next, MPI_Comm intercomm, int high, MPI_Comm* newintracomm) {
  return collective(intercomm, Origin::merge, newintracomm,
                    [&] { return next.Intercomm_merge(intercomm, high, newintracomm); });
}

int Cart_create(const Next& next, MPI_Comm comm_old, int ndims, const int dims[],
                const int periods[], int reorder, MPI_Comm* comm_cart) {
  return collective(comm_old, Origin::cart, comm_cart, [&] {
    return next.Cart_create(comm_old, ndims, dims, periods, reorder, comm_cart);
  });
}

int Cart_sub(const Next& next, MPI_Comm comm, const int remain_dims[], MPI_Comm* newcomm) {
  return collective(comm, Origin::cart_sub, newcomm,
                    [&] { return next.Cart_sub(comm, remain_dims, newcomm); });
}

int Graph_create(const Next& next, MPI_Comm comm_old, int nnodes, const int index[],
                 const int edges[], int reorder, MPI_Comm* comm_graph) {
  return collective(comm_old, Origin::graph, comm_graph, [&] {
    return next.Graph_create(comm_old, nnodes, index, edges, reorder, comm_graph);
  });
}

int Dist_graph_create(const Next& next, MPI_Comm comm_old, int n, const int sources[],
                      const int degrees[], const int destinations[], const int weights[],
                      MPI_Info info, int reorder, MPI_Comm* comm_dist_graph) {
  return collective(comm_old, Origin::dist_graph, comm_dist_graph, [&] {
    return next.Dist_graph_create(comm_old, n, sources, degrees, destinations, weights, info,
                                  reorder, comm_dist_graph);
  });
}

int Dist_graph_create_adjacent(const Next& next, MPI_Comm comm_old, int indegree,
                               const int sources[], const int sourceweights[], int outdegree,
                               const int destinations[], const int destweights[], MPI_Info info,
                               int reorder, MPI_Comm* comm_dist_graph) {
  return collective(comm_old, Origin::dist_graph_adjacent, comm_dist_graph, [&] {
    return next.Dist_graph_create_adjacent(comm_old, indegree, sources, sourceweights, outdegree,
                                           destinations, destweights, info, reorder,
                                           comm_dist_graph);
  });
}

int Comm_create_group(const Next& next, MPI_Comm comm, MPI_Group group, int tag,
                      MPI_Comm* newcomm) {
  const auto parent = find_communicator(comm);
  const p2p::Creation creation(parent.get());
  const int code = next.Comm_create_group(comm, group, tag, newcomm);
  if (code != MPI_SUCCESS || *newcomm == handles().comm_null) return code;
  if (!creation.is_owned()) p2p::note_left(*newcomm);
  // Only the group's members call this, so the parent's ordinals would differ.
  const auto ranks = parent ? parent->ranks_of(group) : std::vector<int>();
  if (!ranks.empty()) {
    const auto record = remember_by_use(*newcomm,
                                        ContextHash(Origin::create_group)
                                            .add(parent->recipe())
                                            .add(static_cast<std::uint64_t>(tag))
                                            .add(group_id(ranks)),
                                        parent->foreigners());
    creation.open(*record, nullptr, handles().info_null);
  }
  return code;
}

int Comm_create_from_group(const Next& next, MPI_Group group, const char* string_tag, MPI_Info info,
                           MPI_Errhandler errhandler, MPI_Comm* newcomm) {
  const int code = next.Comm_create_from_group(group, string_tag, info, errhandler, newcomm);
  if (code != MPI_SUCCESS || *newcomm == handles().comm_null) return code;
  p2p::note_left(*newcomm);
  if (const auto ranks = world_ranks(group); !ranks.empty()) {
    remember_by_use(
        *newcomm,
        ContextHash(Origin::from_group).add(std::string_view(string_tag)).add(group_id(ranks)));
  }
  return code;
}

int Intercomm_create(const Next& next, MPI_Comm local_comm, int local_leader, MPI_Comm peer_comm,
                     int remote_leader, int tag, MPI_Comm* newintercomm) {
  // Only in an owned world, in which all processes run Larklane: the others may not answer.
  const bool can_exchange = p2p::is_owned();
  ChildOrdinal ordinal(can_exchange ? find_communicator(local_comm) : nullptr, Origin::intercomm);
  const p2p::Creation creation(ordinal.parent());
  const int code =
      next.Intercomm_create(local_comm, local_leader, peer_comm, remote_leader, tag, newintercomm);
  if (code != MPI_SUCCESS) return code;
  ordinal.keep();
  if (*newintercomm == handles().comm_null) return code;
  // Some members may not know processes of another world: such an intercommunicator gets no record
  // on any process.
  const auto groups = both_groups(*newintercomm);
  if (!groups) {
    p2p::note_left(*newintercomm);
    return code;
  }
  ContextHash key(Origin::intercomm);
  key.add(static_cast<std::uint64_t>(tag));
  Side own{ordinal.recipe(), ordinal.parent() != nullptr, creation.is_owned()};
  std::optional<Side> other;
  if (can_exchange && !(other = exchange(*newintercomm, own, groups->remote_size))) return code;
  if (other && own.is_recorded != 0 && other->is_recorded != 0) {
    add_unordered(key, id_of(groups->local, own), id_of(groups->remote, *other));
    const auto record = remember_communicator(*newintercomm, key.id());
    if (own.is_owned != 0 && other->is_owned != 0)
      creation.open(*record, nullptr, handles().info_null);
    else
      p2p::note_left(*newintercomm);
  } else {
    p2p::note_left(*newintercomm);
    // Neither side knows the other's ordinals; both know both groups and the tag.
    add_unordered(key, groups->local, groups->remote);
    remember_by_use(*newintercomm, key);
  }
  return code;
}

int Intercomm_create_from_groups(const Next& next, MPI_Group local_group, int local_leader,
                                 MPI_Group remote_group, int remote_leader, const char* string_tag,
                                 MPI_Info info, MPI_Errhandler errhandler, MPI_Comm* newintercomm) {
  const int code =
      next.Intercomm_create_from_groups(local_group, local_leader, remote_group, remote_leader,
                                        string_tag, info, errhandler, newintercomm);
  if (code != MPI_SUCCESS || *newintercomm == handles().comm_null) return code;
  p2p::note_left(*newintercomm);
  ContextHash key(Origin::intercomm_from_groups);
  key.add(std::string_view(string_tag));
  if (const auto groups = both_groups(*newintercomm)) {
    add_unordered(key, groups->local, groups->remote);
    remember_by_use(*newintercomm, key);
  }
  return code;
}

int Comm_free(const Next& next, MPI_Comm* comm) { return release(next.Comm_free, comm); }

int Comm_disconnect(const Next& next, MPI_Comm* comm) {
  if (comm != nullptr) p2p::finish_all(*comm);
  return release(next.Comm_disconnect, comm);
}

}  // namespace larklane::mpi::face
