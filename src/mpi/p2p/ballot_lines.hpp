#pragma once
// The agreement's connections: ballots as records of the control plane, between processes of one
// host. No MPI call.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "control/plane/plane.hpp"
#include "mpi/p2p/agreement.hpp"
#include "mpi/world/member.hpp"

namespace larklane::mpi::p2p {

/// A rank that takes part listens there, beside its own address.
control::Address ballot_address_of(const Member& member);

/// Thread safety: thread-safe.
class BallotLines final : public Lines {
 public:
  /// Looks for root and parent; for a child, when absence() asks. All ranks that take part have
  /// bound their names by now. @param first_kind  of the four kinds of ballots, as records @param
  /// plane  outlives it
  BallotLines(control::Plane& plane, const Job& job, int rank, int size, std::uint16_t first_kind);

  Objection absence(int rank) override;
  bool connect(int rank) override;
  Objection obstacle(int rank) override;
  void send(int to, BallotKind kind, const Ballot& ballot) override;

  /// The ballot of a record, from the rank that it names; nothing: of another form. Later ballots
  /// to that rank go to `from`.
  std::optional<std::pair<BallotKind, Ballot>> read(control::Peer& from,
                                                    const control::Record& record);
  /// The rank at this address, of those that this one needs; nothing: another process.
  std::optional<int> rank_at(const control::Address& address) const;
  /// This rank reports a no to the user: the root, or the lowest rank that takes part where the
  /// root does not, or has ended.
  bool speaks(const Reason& reason) const;

 private:
  struct Needed {
    int rank;
    control::Address address;
    std::optional<Objection> absence;  // guarded by mutex_; nothing: not looked for yet
    pid_t process;                     // that listens for ballots there; 0: not known
  };
  Member member(int rank) const { return {job_, rank}; }
  Needed* find(int rank);
  void look_for(Needed& needed) const;

  control::Plane& plane_;
  bool is_lowest() const;

  const Job job_;
  const int rank_, size_;
  const std::uint16_t first_kind_;
  std::vector<Needed> needed_;  // root, parent, children
  bool speaks_ = false;
  std::mutex mutex_;
  std::map<int, control::Peer*> peers_;  // guarded by mutex_
};

}  // namespace larklane::mpi::p2p
