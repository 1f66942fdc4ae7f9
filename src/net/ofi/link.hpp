#pragma once
// One peer's endpoint, as ours sees it: a row in its table of addresses.

#include <rdma/fabric.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "net/link_posts.hpp"
#include "net/ofi/connections.hpp"
#include "net/ofi/endpoint.hpp"
#include "net/provider.hpp"

namespace larklane::ofi {

/// How long posts may be refused while no operation is pending, before the peer counts as
/// unreachable. libfabric connects, and connects again, without an error of its own.
inline constexpr std::uint64_t kUnreachableNs = 20'000'000'000;

/// Thread safety: vci-serial.
class Link final : public net::Link {
 public:
  explicit Link(Endpoint& endpoint);
  ~Link() override;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  std::span<const std::byte> offer() const noexcept override {
    return connection_ ? offer_ : endpoint_.offer();
  }
  Status connect(std::span<const std::byte> peer_offer) override;

  LARKLANE_NET_LINK_POSTS;
  Result<net::Post> write_small_wide(std::span<const std::byte> bytes, net::RemoteMemory to,
                                     std::uint64_t immediate, net::Operation& operation) override;
  Result<net::Post> settle(net::RemoteMemory there, net::Operation& operation) override;

  Status failure() const noexcept override { return failure_; }
  void end(Status status) override;
  bool is_cut() const noexcept override {
    return connection_ && connection_->stage == Connection::Stage::over;
  }

  // For its endpoint, if links have connections of their own.
  /// Before anything else.
  Status await_connection();
  void on_connected(fid_ep& endpoint) noexcept { from_ = &endpoint; }
  void on_disconnected(int error);

  // For its endpoint.
  /// Every later post returns `status`.
  void fail(Status status) noexcept {
    if (failure_.ok()) failure_ = status;
  }

 private:
  struct Out {
    const void* bytes;
    std::uint64_t length;
    void* descriptor;
    net::RemoteMemory to;
    std::uint64_t flags;
    std::uint64_t immediate;
  };
  Result<net::Post> write_out(const Out& out, net::Operation& operation);
  Result<net::Post> read_out(const net::Transfer& transfer, void* descriptor,
                             net::Operation& operation);
  Result<net::Post> posted(Slot& slot, ssize_t result);
  Result<net::Post> refused_slow(ssize_t result);
  Result<net::Post> not_now_slow();
  Status connect(const Offer& offer, std::span<const std::byte> bytes);
  void close_connection();

  Endpoint& endpoint_;
  const std::uint64_t finish_flag_;
  const bool is_over_tcp_;
  fid_ep* from_ = nullptr;  ///< null: there is no connection yet, or none any more
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  Status failure_{Errc::kUnreachable, 0};
  std::uint64_t settled_ = 0;  ///< the target of settle()'s read
  std::uint32_t refused_ = 0;  ///< posts in a row
  std::uint64_t refused_since_ns_ = 0;
  std::vector<std::byte> offer_;            ///< with the connection's ticket
  std::unique_ptr<Connection> connection_;  ///< null: links have none of their own
};

}  // namespace larklane::ofi
