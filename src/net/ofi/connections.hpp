#pragma once
// The connections of an endpoint with a provider that connects endpoints one to one (FI_EP_MSG).
// Each link has one of its own, and no process without the link's ticket gets one.
//
// Of two links the one with the greater offer requests, and the other one accepts. A request
// carries the first half of the accepting link's ticket, its answer the second half; the control
// plane has carried both. Nothing is posted before. The listener is there while a link waits for
// its peer.

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/unique_fd.hpp"
#include "net/ofi/domain.hpp"
#include "net/ofi/handles.hpp"
#include "net/ofi/offer.hpp"

namespace larklane::ofi {

class Link;

/// One link's, from its offer on. Thread safety: vci-serial.
struct Connection {
  enum class Stage : std::uint8_t {
    offered,     ///< neither side has requested, or the last request has failed
    requesting,  ///< ours is on its way
    accepting,   ///< the peer's is here, and its answer on its way
    open,
    over,
  };
  explicit Connection(Link& of) noexcept : link(of) {}

  Link& link;
  Ticket ticket{};
  Ticket peer_ticket{};
  std::vector<std::byte> peer_address{};
  bool is_ours_to_request = false;
  Stage stage = Stage::offered;
  sockaddr_storage accepted_from{};
  std::uint64_t next_request_ns = 0;
  int last_error = 0;      ///< of libfabric, of the last request that has failed
  Fid<fid_ep> endpoint{};  // goes first

  bool is_awaited() const noexcept { return stage < Stage::open; }
};

/// Thread safety: vci-serial.
/// Invariants:
/// 1. A link is told of an open connection once, and of its end once.
/// 2. The listener is there if a connection is awaited.
class Connections {
 public:
  /// @param domain, queue  outlive it
  Connections(const Domain& domain, fid_cq& queue) noexcept : domain_(domain), queue_(queue) {}
  ~Connections();
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  /// @param does_sleep  wait_fd() is wanted @return errno of libfabric, positive
  int open(bool does_sleep);
  /// A request with its ticket is accepted from now on. @return as open()
  int await(Connection& connection);
  /// The listener's name, while a connection is awaited.
  std::span<const std::byte> address() const noexcept { return address_; }
  void request(Connection& connection);
  /// libfabric has released its pending operations; the link is not told.
  void close(Connection& connection);
  void remove(Connection& connection);
  /// Serves new events. @return a connection is awaited: to be called again soon
  bool look_slow();

  /// Readable when look_slow() or a read of the queue may find something; -1: none.
  int wait_fd() const noexcept { return waiter_.get(); }
  bool can_sleep();

 private:
  struct Event {
    std::uint32_t kind;
    int error;  ///< 0: none
    fid_t of;
    fi_info* info;
    std::span<const std::byte> words;
  };
  int make_endpoint(fi_info& info, Fid<fid_ep>* made);
  int listen();
  void stop_listening();
  void end_strangers_slow();
  std::vector<sockaddr_storage> known_names() const;
  int watch(fid_eq& queue, bool is_watched);
  Fid<fid_eq> make_queue(int* error);
  void serve(fid_eq& queue);
  void serve(const Event& event);
  void on_request(const Event& event);
  bool accept(Connection& connection, fi_info& info);
  void on_connected(Connection& connection, std::span<const std::byte> words);
  void on_end(Connection& connection, int error);
  Connection* find(fid_t of) const noexcept;

  const Domain& domain_;
  fid_cq& queue_;
  UniqueFd waiter_;
  Fid<fid_eq> events_;
  Fid<fid_eq> requests_;   ///< none: see listen()
  Fid<fid_pep> listener_;  // goes first
  std::vector<std::byte> address_;
  std::uint64_t next_sweep_ns_ = 0;
  std::vector<Connection*> all_;
};

}  // namespace larklane::ofi
