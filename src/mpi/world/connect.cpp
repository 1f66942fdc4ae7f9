// MPI_Comm_accept and MPI_Comm_connect. The two roots exchange the members of their sides outside
// MPI, and then each root informs its own side (mpi/world/meeting.hpp). A process that receives
// nothing leaves the pairs to the MPI. MPI_Comm_join makes no record: the MPI serves its result.

#include <map>

#include "mpi/abi/next.hpp"
#include "mpi/p2p/left.hpp"
#include "mpi/world/communicator.hpp"
#include "mpi/world/meeting.hpp"
#include "mpi/world/process.hpp"

namespace larklane::mpi {
namespace {

/// The ports that this process has open. Thread safety: thread-safe through its mutex.
struct Ports {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Port>> by_name;

  static Ports& get() noexcept {
    static Ports* const ports = new Ports;
    return *ports;
  }
};

std::shared_ptr<Port> find_port(const std::string& name) {
  Ports& ports = Ports::get();
  const std::scoped_lock lock(ports.mutex);
  const auto found = ports.by_name.find(name);
  return found != ports.by_name.end() ? found->second : nullptr;
}

/// The own side of an accept or connect. Thread safety: single-owner.
class Side {
 public:
  /// Takes the ordinal even if this side is not known: the other processes count it, too.
  Side(MPI_Comm comm, int root) : ordinal_(find_communicator(comm), Origin::meeting), root_(root) {
    int rank = -1;
    is_root_ = next_pmpi().Comm_rank(comm, &rank) == MPI_SUCCESS && rank == root;
    if (ordinal_.parent() == nullptr) return;
    const Communicator::Members& members = ordinal_.parent()->members();
    // The rest of the exchange uses local sockets.
    if (!members.known || !all_known(members.peers) || !Process::get().are_here(members.peers))
      return;
    const std::string text = text_of(std::span(members.peers));
    if (text.size() > kSideBytesMax) return;
    own_ = {ContextHash(Origin::meeting).add(ordinal_.recipe()).add(text).id(), members.peers};
    if (members.peers.size() > 1) mailbox_.emplace(own_.recipe, rank);
  }

  bool is_known() const noexcept { return !own_.others.empty(); }
  bool is_root() const noexcept { return is_root_; }
  /// This side, as the other side must know it.
  const Meeting& own() const noexcept { return own_; }

  /// Call after the MPI's call has succeeded. @param news  at the root: the other side
  void conclude(MPI_Comm intercomm, std::optional<Meeting> news) {
    ordinal_.keep();
    if (!is_known()) return;
    if (mailbox_ && is_root_) {
      mailbox_->send(static_cast<int>(own_.others.size()), news);
    } else if (mailbox_) {
      news = mailbox_->receive(root_);
    }
    if (news) remember_meeting(intercomm, *news, ordinal_.parent()->foreigners());
  }

 private:
  ChildOrdinal ordinal_;
  const int root_;
  bool is_root_ = false;
  Meeting own_;
  std::optional<Mailbox> mailbox_;
};

/// The accepted side. Call at the root, with the port's mutex held. @return empty if that side does
/// not run under Larklane
std::optional<Meeting> who_was_accepted(Port& port, MPI_Comm intercomm, const Side& side) {
  int size = 0;
  if (next_pmpi().Comm_remote_size(intercomm, &size) != MPI_SUCCESS) return std::nullopt;
  auto others =
      port.accepted(side.is_known() ? &side.own() : nullptr, static_cast<std::size_t>(size));
  if (!others) return std::nullopt;
  return Meeting{side.own().recipe, std::move(*others)};
}

}  // namespace
}  // namespace larklane::mpi

namespace larklane::mpi::face {

int Open_port(const Next& next, MPI_Info info, char* port_name) {
  const int code = next.Open_port(info, port_name);
  if (code != MPI_SUCCESS) return code;
  // Open it now: a client may connect before the first accept.
  if (std::shared_ptr<Port> port = Port::open(port_name)) {
    Ports& ports = Ports::get();
    const std::scoped_lock lock(ports.mutex);
    ports.by_name[port_name] = std::move(port);
  }
  return code;
}

int Close_port(const Next& next, const char* port_name) {
  if (port_name != nullptr) {
    Ports& ports = Ports::get();
    const std::scoped_lock lock(ports.mutex);
    ports.by_name.erase(port_name);
  }
  return next.Close_port(port_name);
}

int Comm_accept(const Next& next, const char* port_name, MPI_Info info, int root, MPI_Comm comm,
                MPI_Comm* newcomm) {
  Side side(comm, root);
  const auto port = side.is_root() && port_name != nullptr ? find_port(port_name) : nullptr;
  const auto lock =
      port ? std::unique_lock(port->mutex()) : std::unique_lock<std::recursive_mutex>();
  const int code = next.Comm_accept(port_name, info, root, comm, newcomm);
  if (code != MPI_SUCCESS) return code;
  p2p::note_left(*newcomm);
  side.conclude(*newcomm, port ? who_was_accepted(*port, *newcomm, side) : std::nullopt);
  return code;
}

int Comm_connect(const Next& next, const char* port_name, MPI_Info info, int root, MPI_Comm comm,
                 MPI_Comm* newcomm) {
  Side side(comm, root);
  std::optional<Caller> caller;
  if (side.is_root() && side.is_known() && port_name != nullptr) {
    caller.emplace(port_name, side.own().others);
  }
  const int code = next.Comm_connect(port_name, info, root, comm, newcomm);
  if (code != MPI_SUCCESS) return code;
  p2p::note_left(*newcomm);
  side.conclude(*newcomm, caller ? caller->connected() : std::nullopt);
  return code;
}

}  // namespace larklane::mpi::face
