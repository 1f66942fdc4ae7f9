#pragma once
// An endpoint of provider `shm`: its queue of immediates, which peers map.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.hpp"
#include "net/provider.hpp"
#include "net/shm/network_catalogue.hpp"
#include "net/shm/network_offer.hpp"
#include "net/shm/network_peer.hpp"
#include "net/shm/network_queue.hpp"

namespace larklane::shm {

class NetworkLink;

/// State that endpoints share. Thread safety: thread-safe.
struct NetworkDomain {
  std::unique_ptr<Catalogue> catalogue;
  Peers peers;
  bool is_attach_allowed;  ///< by option
};

/// A sleeping thread can't be woken, so there is nothing to sleep on: waiting threads poll.
/// Thread safety: vci-serial.
class NetworkEndpoint final : public net::Endpoint {
 public:
  /// A queue has room for more than can be reserved, for immediates that are served while their
  /// place is not yet given back.
  static constexpr std::uint32_t kImmediatesMax = QueueArea::kSlots - 1024;

  /// @errors kNoMemory
  static Result<std::unique_ptr<net::Endpoint>> open(NetworkDomain& domain,
                                                     net::Receiver& receiver);
  ~NetworkEndpoint() override;
  NetworkEndpoint(const NetworkEndpoint&) = delete;
  NetworkEndpoint& operator=(const NetworkEndpoint&) = delete;

  Result<std::unique_ptr<net::Link>> open_link() override;
  Result<std::uint32_t> poll(std::uint32_t most) override;
  bool looks_empty() const noexcept override { return queue_.looks_empty(); }
  Status reserve_immediates(std::uint32_t count) override;
  void release_immediates(std::uint32_t count) override { reserved_ -= count; }
  int wait_fd() const noexcept override { return -1; }
  bool arm(net::Wake) override { return false; }

  // For its links.
  NetworkDomain& domain() const noexcept { return domain_; }
  const NetworkOfferBytes& offer() const noexcept { return offer_; }
  void add(NetworkLink& link) { links_.push_back(&link); }
  void remove(NetworkLink& link) noexcept { std::erase(links_, &link); }

 private:
  /// A look at one peer's process costs a system call.
  static constexpr std::uint32_t kIdlePollsPerLook = 4096;
  static constexpr std::uint32_t kSlotsOfALine = 8;

  NetworkEndpoint(NetworkDomain& domain, net::Receiver& receiver, Catalogue::Piece piece,
                  std::uint64_t number);
  void look_at_a_peer_slow();

  NetworkDomain& domain_;
  net::Receiver& receiver_;
  const Catalogue::Piece piece_;
  QueueReceiver queue_;
  NetworkOfferBytes offer_;
  std::uint32_t reserved_ = 0;
  std::uint32_t idle_polls_ = 0;
  std::size_t next_look_ = 0;
  std::vector<NetworkLink*> links_;
};

}  // namespace larklane::shm
