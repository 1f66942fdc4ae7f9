#pragma once
// One peer's endpoint, as ours sees it. Into library memory of the peer, which is mapped, bytes are
// stored; into and out of all other memory they go by attach. Either way a post is complete when it
// returns.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.hpp"
#include "net/link_posts.hpp"
#include "net/provider.hpp"
#include "net/shm/network_endpoint.hpp"
#include "net/shm/network_peer.hpp"
#include "net/shm/network_queue.hpp"
#include "shm/copy.hpp"

namespace larklane::shm {

/// Thread safety: vci-serial.
class NetworkLink final : public net::Link {
 public:
  explicit NetworkLink(NetworkEndpoint& endpoint);
  ~NetworkLink() override;
  NetworkLink(const NetworkLink&) = delete;
  NetworkLink& operator=(const NetworkLink&) = delete;

  std::span<const std::byte> offer() const noexcept override { return endpoint_.offer(); }
  /// @errors also kForeignUser, kPeerDown
  Status connect(std::span<const std::byte> peer_offer) override;

  LARKLANE_NET_LINK_POSTS;
  Result<net::Post> probe(net::Operation& operation) override;
  Result<net::Mapping> map(std::uint64_t key) override;

  Status failure() const noexcept override { return failure_; }
  void end(Status status) override { fail(status); }

  // For its endpoint.
  void look_at_peer_slow();

 private:
  void fail(Status status) noexcept {
    if (failure_.ok()) failure_ = status;
  }
  /// An operation that names memory which the peer does not have fails alone.
  void fail_if_gone(Status status) noexcept {
    if (status.code() != Errc::kTransfer) fail(status);
  }
  Status connect_to(const NetworkOffer& offer);
  Status ready_to_post() noexcept;
  Status move(Direction direction, std::byte* local, net::RemoteMemory remote, std::uint64_t bytes);
  Status move_slow(Direction direction, std::byte* local, net::RemoteMemory remote,
                   std::uint64_t bytes);
  Status find_slow(RemoteRegion& region, net::RemoteMemory remote, std::uint64_t bytes);
  Result<net::Post> with_immediate(std::byte* local, net::RemoteMemory to, std::uint64_t bytes,
                                   std::uint32_t immediate);
  Result<net::Post> refused_slow();

  NetworkEndpoint& endpoint_;
  std::shared_ptr<Peer> peer_;
  QueueSender sender_;
  // Those that were read and written last: of messages these take turns.
  RemoteRegion read_region_, written_region_;
  Status failure_{Errc::kUnreachable, 0};
  std::uint32_t posts_ = 0;
};

}  // namespace larklane::shm
