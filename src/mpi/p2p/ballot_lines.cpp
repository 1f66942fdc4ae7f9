#include "mpi/p2p/ballot_lines.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "control/local/socket.hpp"
#include "mpi/world/identity.hpp"
#include "shm/copy.hpp"

namespace larklane::mpi::p2p {
namespace {

constexpr std::uint16_t kKinds = 4;

/// By connections: the kernel's list is of all sockets of a host, so it grows with the ranks.
bool is_bound(const control::Address& address, pid_t* listener = nullptr) {
  auto connection = control::connect_to(address);
  if (!connection)
    return connection.error() == Status(Errc::kSystem, EAGAIN);  // its backlog is full
  if (listener != nullptr) *listener = control::peer_credentials(connection->get()).pid;
  return true;
}

}  // namespace

control::Address ballot_address_of(const Member& member) { return address_of(member) + ".p2p"; }

BallotLines::BallotLines(control::Plane& plane, const Job& job, int rank, int size,
                         std::uint16_t first_kind)
    : plane_(plane), job_(job), rank_(rank), size_(size), first_kind_(first_kind) {
  const auto need = [&](int one) { needed_.push_back({one, address_of(member(one)), {}, 0}); };
  if (rank != 0) need(0);
  if (rank > Agreement::kChildren) need(Agreement::parent_of(rank));
  for (Needed& above : needed_) look_for(above);
  for (int nth = 1; nth <= Agreement::kChildren; ++nth)
    if (const int child = Agreement::kChildren * rank + nth; child < size) need(child);
  // Now: after a no, lower ranks may end before this one looks for them.
  speaks_ = rank == 0 || (absence(0) != Objection::none && is_lowest());
}

BallotLines::Needed* BallotLines::find(int rank) {
  const auto found = std::ranges::find(needed_, rank, &Needed::rank);
  return found == needed_.end() ? nullptr : &*found;
}

void BallotLines::look_for(Needed& needed) const {
  needed.absence = is_bound(ballot_address_of(member(needed.rank)), &needed.process)
                       ? Objection::none
                   : is_bound(needed.address) ? Objection::without_p2p
                                              : Objection::without_larklane;
}

Objection BallotLines::absence(int rank) {
  const std::scoped_lock lock(mutex_);
  Needed* const needed = find(rank);
  if (needed == nullptr) return Objection::without_larklane;
  if (!needed->absence) look_for(*needed);
  return *needed->absence;
}

bool BallotLines::connect(int rank) {
  const std::scoped_lock lock(mutex_);
  control::Peer*& known = peers_[rank];
  if (known != nullptr && !known->is_down()) return true;
  Needed* const needed = find(rank);
  if (needed == nullptr) return false;
  if (!needed->absence) look_for(*needed);
  if (needed->absence != Objection::none) return false;
  auto peer = plane_.connect(needed->address);
  if (!peer) return false;
  known = *peer;
  return true;
}

Objection BallotLines::obstacle(int rank) {
  const std::scoped_lock lock(mutex_);
  const auto known = peers_.find(rank);
  const Needed* const needed = find(rank);
  const pid_t process = known != peers_.end() && known->second != nullptr ? known->second->pid()
                        : needed != nullptr                               ? needed->process
                                                                          : 0;
  if (process == 0) return Objection::none;
  const pid_t thread = shm::attach_thread(process);
  for (const shm::Direction direction : {shm::Direction::read, shm::Direction::write})
    if (const Status status = shm::probe_attach(direction, thread);
        !status.ok() && status.detail() != ESRCH)
      return Objection::unreadable;
  return Objection::none;
}

void BallotLines::send(int to, BallotKind kind, const Ballot& ballot) {
  const std::scoped_lock lock(mutex_);
  const auto known = peers_.find(to);
  if (known == peers_.end() || known->second == nullptr) return;
  // on_ended() reports a connection that has ended.
  (void)known->second->send(
      static_cast<std::uint16_t>(first_kind_ + static_cast<std::uint16_t>(kind)),
      std::as_bytes(std::span(&ballot, 1)));
}

std::optional<std::pair<BallotKind, Ballot>> BallotLines::read(control::Peer& from,
                                                               const control::Record& record) {
  Ballot ballot;
  if (record.kind < first_kind_ || record.kind >= first_kind_ + kKinds ||
      record.payload.size() != sizeof ballot)
    return std::nullopt;
  std::memcpy(&ballot, record.payload.data(), sizeof ballot);
  if (ballot.from < 0 || ballot.from >= size_ || address_of(member(ballot.from)) != from.address())
    return std::nullopt;
  const std::scoped_lock lock(mutex_);
  peers_[ballot.from] = &from;
  return std::pair{static_cast<BallotKind>(record.kind - first_kind_), ballot};
}

std::optional<int> BallotLines::rank_at(const control::Address& address) const {
  const auto found = std::ranges::find(needed_, address, &Needed::address);
  return found == needed_.end() ? std::nullopt : std::optional(found->rank);
}

bool BallotLines::speaks(const Reason& reason) const {
  const bool has_root_ended = reason.objection == Objection::ended && reason.rank == 0;
  return speaks_ || (has_root_ended && is_lowest());
}

/// No lower rank takes part, by the kernel's list.
bool BallotLines::is_lowest() const {
  std::vector<control::Address> below;
  below.reserve(static_cast<std::size_t>(rank_));
  for (int other = 0; other < rank_; ++other) below.push_back(ballot_address_of(member(other)));
  if (const auto bound = control::are_bound(below)) return !std::ranges::count(*bound, true);
  return std::ranges::none_of(below, [](const auto& address) { return is_bound(address); });
}

}  // namespace larklane::mpi::p2p
