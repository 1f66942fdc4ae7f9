#include "net/shm/network_endpoint.hpp"

#include <algorithm>
#include <cerrno>
#include <new>

#include "net/shm/network_link.hpp"

namespace larklane::shm {

NetworkEndpoint::NetworkEndpoint(NetworkDomain& domain, net::Receiver& receiver,
                                 Catalogue::Piece piece, std::uint64_t number)
    : domain_(domain),
      receiver_(receiver),
      piece_(piece),
      queue_(*new (piece.start) QueueArea, number) {
  NetworkOffer offer{};
  offer.identity = domain.peers.own();
  offer.nonce = domain.catalogue->nonce();
  offer.queue = piece.place.word();
  offer.endpoint = number;
  offer.catalogue_fd = domain.catalogue->fd();
  offer_ = write_network_offer(offer);
}

Result<std::unique_ptr<net::Endpoint>> NetworkEndpoint::open(NetworkDomain& domain,
                                                             net::Receiver& receiver) {
  auto piece = domain.catalogue->allocate(sizeof(QueueArea));
  if (!piece) return piece.error();
  return std::unique_ptr<net::Endpoint>(
      new NetworkEndpoint(domain, receiver, *piece, domain.catalogue->next_number()));
}

NetworkEndpoint::~NetworkEndpoint() {
  if (domain_.catalogue->is_owners()) queue_.close();
  domain_.catalogue->release(piece_);
}

Result<std::unique_ptr<net::Link>> NetworkEndpoint::open_link() {
  return std::unique_ptr<net::Link>(std::make_unique<NetworkLink>(*this));
}

Result<std::uint32_t> NetworkEndpoint::poll(std::uint32_t most) {
  const std::uint32_t served =
      queue_.poll(most, [this](std::uint32_t immediate) { receiver_.on_immediate(immediate); });
  if (served == 0) __builtin_prefetch(receiver_.expected_bytes);
  if (served == 0 && ++idle_polls_ % kIdlePollsPerLook == 0) [[unlikely]]
    look_at_a_peer_slow();
  if (served != 0 && served < std::min(kSlotsOfALine, most))
    receiver_.pause.store(net::Receiver::Pause::little_came, std::memory_order_relaxed);
  return served;
}

void NetworkEndpoint::look_at_a_peer_slow() {
  if (links_.empty()) return;
  next_look_ = (next_look_ + 1) % links_.size();
  links_[next_look_]->look_at_peer_slow();
}

Status NetworkEndpoint::reserve_immediates(std::uint32_t count) {
  if (count > kImmediatesMax - reserved_) return Status(Errc::kNoMemory, ENOSPC);
  reserved_ += count;
  return {};
}

}  // namespace larklane::shm
