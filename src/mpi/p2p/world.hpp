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

namespace detail {
struct LastRecord {
  std::uint64_t epoch = 0;
  MPI_Comm comm{};
  msg::Communicator* found = nullptr;
};
/// Of a thread's last communicators, by their handles' bits.
inline constexpr std::size_t kLastRecords = 8;
inline thread_local constinit LastRecord last_records[kLastRecords];
inline LastRecord& last_record_of(MPI_Comm comm) noexcept {
  constexpr std::uint64_t kSpread = 0x9E3779B97F4A7C15u;
  return last_records[handle_bits(comm) * kSpread >> 61];  // 3 bits
}
msg::Communicator* record_slow(MPI_Comm comm) noexcept;
}  // namespace detail

/// The engine's communicator of a handle; null: its messages are the MPI's. @pre is_owned()
inline msg::Communicator* record(MPI_Comm comm) noexcept {
  const detail::LastRecord& last = detail::last_record_of(comm);
  // relaxed: see communicator_epoch
  if (last.comm == comm && last.epoch == communicator_epoch.load(std::memory_order_relaxed))
    return last.found;
  return detail::record_slow(comm);
}

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

/// For people: the carrier of ordinary messages, and the reason. Empty: option `p2p` is off.
std::string ownership_text();

/// Gets the plane's records that are not the partitioned engine's. Never destroyed.
control::Handler& handler() noexcept;

}  // namespace larklane::mpi::p2p
