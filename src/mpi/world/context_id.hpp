#pragma once
// Context ids, computed and never negotiated: each process of a communicator derives the same 128
// bits from its origin. docs/design/protocols/communicators.md states each constructor's recipe.

#include <cstdint>
#include <span>
#include <string_view>

#include "base/context_id.hpp"

namespace larklane::mpi {

/// The origin of a communicator. The values are part of the hash: never renumber.
enum class Origin : std::uint64_t {
  world = 1,
  self = 2,
  parent = 3,  ///< MPI_Comm_get_parent
  dup = 4,
  create = 5,
  split = 6,
  split_type = 7,
  merge = 8,
  cart = 9,
  cart_sub = 10,
  graph = 11,
  dist_graph = 12,
  dist_graph_adjacent = 13,
  spawn = 14,
  meeting = 15,  ///< MPI_Comm_accept and MPI_Comm_connect
  create_group = 18,
  from_group = 19,
  intercomm = 20,
  intercomm_from_groups = 21,
  group = 22,
};

/// Hashes words and texts, in order, to 128 bits. The same input gives the same id on every
/// machine. Thread safety: single-owner.
class ContextHash {
 public:
  explicit ContextHash(Origin origin) noexcept { add(static_cast<std::uint64_t>(origin)); }
  ContextHash& add(std::uint64_t word) noexcept;
  ContextHash& add(const ContextId& id) noexcept { return add(id.high).add(id.low); }
  /// Adds length and bytes, so that adjacent texts stay distinct.
  ContextHash& add(std::string_view text) noexcept;
  /// Adds length and ranks, in order.
  ContextHash& add(std::span<const int> ranks) noexcept;
  ContextId id() const noexcept;

 private:
  std::uint64_t high_ = 0x6C61726B6C616E65u;  // "larklane"
  std::uint64_t low_ = 0x9E3779B97F4A7C15u;
};

/// The id of an ordered group, given as ranks in a communicator that all its users know.
ContextId group_id(std::span<const int> ranks) noexcept;
/// Adds both ids in ascending order, so that the two sides of an intercommunicator get one hash.
void add_unordered(ContextHash& hash, const ContextId& a, const ContextId& b) noexcept;

}  // namespace larklane::mpi
