#pragma once
// Ordinary messages of the world: the decision in MPI_Init whether Larklane carries them, and their
// end in MPI_Finalize. (docs/design/protocols/ordinary_messages.md)

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "control/plane/plane.hpp"
#include "mpi/p2p/ballot_lines.hpp"
#include "mpi/world/communicator.hpp"
#include "mpi/world/summary.hpp"
#include "msg/protocol/communicator.hpp"

namespace larklane::mpi::p2p {

namespace detail {
extern std::atomic<bool> is_owned;
}

/// Larklane carries the ordinary messages of the world. relaxed: the program orders MPI_Init and
/// its messages.
inline bool is_owned() noexcept { return detail::is_owned.load(std::memory_order_relaxed); }

/// Would this process let Larklane carry them? Before the MPI is open, too.
bool may_be_owned(const Config& config);

/// The engine of the world's messages. @pre is_owned()
msg::Engine& engine() noexcept;

/// Around the MPI's constructor of a communicator, and the open() of its result. The result's
/// messages are ours if the parent's are. Thread safety: single-owner.
class Creation {
 public:
  /// @param parent  null: not recorded
  explicit Creation(const Communicator* parent);
  /// @param like  has the same members, and `made` answers no call of the MPI yet; null: ask the
  ///   MPI
  /// @param info  of the call, or info_null: the hints that the program promises
  void open(Communicator& made, Communicator* like, MPI_Info info) const;
  /// The parent's messages are ours.
  bool is_owned() const noexcept { return creation_.has_value(); }

 private:
  std::optional<msg::Creation> creation_;
};

/// MPI_Comm_disconnect, before the MPI's: returns when all sends on the communicator are over, if
/// they are ours. No time limit while their peers live. Receives go on, as after MPI_Comm_free.
void finish_all(MPI_Comm comm);

/// After the MPI's own initialisation, on the calling thread: decides with the other ranks. Does
/// nothing without option `p2p`. Aborts the job if the decision can't be known.
void opened();
/// Before and after the MPI's own finalisation.
void closing();
void closed();

/// For people: the carrier of ordinary messages, and the reason; after closed() also their counts.
OrdinaryMessages ordinary_messages();

/// Gets the plane's records that are not the partitioned engine's. Never destroyed.
control::Handler& handler() noexcept;

}  // namespace larklane::mpi::p2p
