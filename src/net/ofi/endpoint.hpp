#pragma once
// A libfabric endpoint with a completion queue and a table of addresses of its own.

#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "net/ofi/addresses.hpp"
#include "net/ofi/connections.hpp"
#include "net/ofi/domain.hpp"
#include "net/ofi/offer.hpp"
#include "net/ofi/slots.hpp"
#include "net/provider.hpp"

namespace larklane::ofi {

/// An errno of libfabric as a status of ours. @param code  of those that don't speak of the peer
Status status_of(int error, Errc code) noexcept;

/// Thread safety: vci-serial.
class Endpoint final : public net::Endpoint {
 public:
  /// @param domain, receiver  outlive it
  /// @errors kNoMemory, kSystem
  static Result<std::unique_ptr<net::Endpoint>> open(const Domain& domain, net::Receiver& receiver);

  Result<std::unique_ptr<net::Link>> open_link() override;
  Result<std::uint32_t> poll(std::uint32_t most) override;
  // The queue does not overrun: FI_RM_ENABLED.
  Status reserve_immediates(std::uint32_t) override { return Status(); }
  void release_immediates(std::uint32_t) override {}
  int wait_fd() const noexcept override { return wait_fd_; }
  bool arm(net::Wake wake) override;

  // For its links.
  const Domain& domain() const noexcept { return domain_; }
  /// Null: each link has its own.
  fid_ep* raw() const noexcept { return sender_.get(); }
  /// Null: no link has one.
  Connections* connections() noexcept { return connections_.get(); }
  /// A connection is awaited.
  void look_at_connections() noexcept { is_any_awaited_ = true; }
  Addresses& addresses() noexcept { return addresses_; }
  std::span<const std::byte> offer() const noexcept { return offer_; }
  Slots& slots() noexcept { return slots_; }
  Status failure() const noexcept { return failure_; }
  void add(Link& link) { links_.push_back(&link); }
  void remove(Link& link) { std::erase(links_, &link); }

 private:
  Endpoint(const Domain& domain, net::Receiver& receiver);
  Status open_queue();
  Status open_connections();
  Status open_sender();
  Status make_offer();
  void look_at_connections_slow();
  void serve(const fi_cq_data_entry& entry);
  bool serve_error_slow();
  Status die_slow(int error);

  const Domain& domain_;
  net::Receiver& receiver_;
  Slots slots_{kQueueDepth};
  Fid<fid_cq> queue_;
  std::unique_ptr<Connections> connections_;
  Addresses addresses_;
  Fid<fid_ep> sender_;  // goes before the addresses
  int wait_fd_ = -1;
  std::vector<std::byte> offer_;
  std::vector<Link*> links_;
  std::uint32_t polls_ = 0;
  bool is_any_awaited_ = false;
  Status failure_;
};

}  // namespace larklane::ofi
