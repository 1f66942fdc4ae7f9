#include "part/network/links.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.hpp"
#include "net/immediate.hpp"
#include "part/network/channel.hpp"

namespace larklane::part {

Result<std::uint16_t> NetLane::take_slot(NetRecv& channel) {
  if (free_slots_.empty() && slots_.size() == kSlots) return Errc::kNoMemory;
  if (channel.unpacks()) want_all();  // to unpack while the program computes
  std::uint16_t slot = 0;
  if (!free_slots_.empty()) {
    slot = free_slots_.back();
    free_slots_.pop_back();
    vci_->exclusively([&] { slots_[slot] = &channel; });
    return slot;
  }
  slot = static_cast<std::uint16_t>(slots_.size());
  vci_->exclusively([&] {
    slots_.push_back(&channel);
    slot_table_ = slots_.data();
    slot_count_ = static_cast<std::uint32_t>(slots_.size());
  });
  return slot;
}

void NetLane::clear_slot(std::uint16_t slot) {
  NetRecv* channel = nullptr;
  vci_->exclusively([&] { channel = std::exchange(slots_[slot], nullptr); });
  if (channel != nullptr && channel->unpacks()) want_needed();
}

void NetLane::on_immediate(std::uint32_t immediate) {
  const std::uint32_t slot = net::channel_slot_of(immediate);
  NetRecv* const channel = slot < slot_count_ ? slot_table_[slot] : nullptr;
  const std::uint16_t token = net::token_of(immediate);
  if (channel == nullptr || !channel->on_push(token)) [[unlikely]]
    on_other(channel, immediate);
}

/// @param channel  null: it has failed and is closed
void NetLane::on_other(NetRecv* channel, std::uint32_t immediate) {
  const std::uint16_t token = net::token_of(immediate);
  if (token == net::kDemandToken) {
    if (NetSend* const send = demands_.find(net::channel_slot_of(immediate))) send->on_demand();
  } else if (channel != nullptr) {
    channel->on_other(token);
  }
}

Result<std::unique_ptr<NetLinks>> NetLinks::create(net::Fabric& fabric,
                                                   vci::VciPool::Options options,
                                                   LinkKeeper* keeper) {
  std::unique_ptr<NetLinks> links(new NetLinks(fabric, options, keeper));
  LARKLANE_TRY(links->make_lane(0));
  if (!fabric.limits().is_connected_by_use) return links;
  auto memory = fabric.register_memory(&links->greeting_, sizeof(links->greeting_));
  if (!memory) return memory.error();
  links->greeting_memory_ = std::move(memory).value();
  return links;
}

void LinkGreeting::post(net::RemoteMemory there) {
  link = of_.link.get();
  transfer.remote = there;
  // relaxed: the mutex orders posts; the completion comes after the post.
  is_under_way_.store(true, std::memory_order_relaxed);
  of_.vci.post(*this);
}

void LinkGreeting::ended(net::Operation& operation, Status status) {
  auto& greeting = static_cast<LinkGreeting&>(operation);
  // relaxed: see keep_silent().
  if (!greeting.is_silent_.load(std::memory_order_relaxed)) greeting.of_.greeted(status);
  // release: pairs with is_under_way()'s acquire; last, since the link may go now.
  greeting.is_under_way_.store(false, std::memory_order_release);
}

// --- a link's part of the wire-up ------------------------------------------------------------

Status NetLink::open() {
  auto opened = vci.open_link();
  if (!opened) return opened.error();
  link = std::move(opened).value();
  if (queues != 0) vci.exclusively([this] { link->use_queues(queues); });
  return {};
}

Status NetLink::send_offer() {
  const auto offer = link->offer();
  const auto& greeting_here = links.greeting_memory_;
  const record::NetOffer head{static_cast<std::uint32_t>(offer.size()), number_there(),
                              greeting_here ? greeting_here->remote() : net::RemoteMemory{}};
  std::vector<std::byte> payload(sizeof(head) + offer.size());
  std::memcpy(payload.data(), &head, sizeof(head));
  std::memcpy(payload.data() + sizeof(head), offer.data(), offer.size());
  return peer->peer->send(static_cast<std::uint16_t>(record::NetType::offer), payload);
}

Status NetLink::connect(std::span<const std::byte> offer) { return vci.connect(*link, offer); }

bool NetLink::is_connected_by_use() const { return links.greeting_memory_ != nullptr; }

void NetLink::send_ready(Status status) { NetLinks::send_ready(*peer, number_there(), status); }

void NetLink::on_served() {
  if (is_served())
    lane.turn_on();
  else
    lane.turn_off();
}

/// All rounds over it fail, on both sides. Rounds with a peer that is gone fail for that reason.
void NetLink::on_over(Status status, Cause cause) {
  if (cause != Cause::gone) {
    const bool is_told = cause == Cause::peer;
    why_lost = (is_told ? "the other side has lost it: " : "") + cause_of(links.fabric_, status);
    // release: of `why_lost`; pairs with is_cut_off()'s acquire.
    is_lost.store(true, std::memory_order_release);
    log_warn("%s: no link %s %s on lane %u: %s", links.fabric_.limits().provider.c_str(),
             is_told ? "back from" : "to", peer->peer->address().c_str(), lane_index,
             why_lost.c_str());
  }
  links.cut(*this, status);  // the peer does not use it either
}

// --- all links -------------------------------------------------------------------------------

std::string cause_of(const net::Fabric& fabric, Status status) {
  std::string why = fabric.explain(status);
  if (!why.empty()) return why;
  const std::string detail = std::to_string(status.detail());
  return errc_name(status.code()) + (status.detail() != 0 ? " (" + detail + ")" : std::string());
}

void NetLinks::close_all() {
  for (auto& [peer, of_peer] : peers_)
    for (auto& [number, link] : of_peer.links) {
      link->greeting.keep_silent();
      if (link->link) link->vci.close_link(std::move(link->link));
    }
}

Status NetLinks::make_lane(std::uint32_t index) {
  auto& lane = net_lanes_[index];
  if (lane) return {};
  lane = std::make_unique<NetLane>();
  auto vci = lanes_.at(index);
  if (!vci) {
    lane.reset();
    return vci.error();
  }
  lane->begin(**vci, keeper_);
  if (plane_ != nullptr) (void)plane_->watch(*lane);  // succeeds, as for the first lane
  return {};
}

bool NetLinks::watch_by(control::Plane& plane) {
  plane_ = &plane;
  return std::all_of(net_lanes_.begin(), net_lanes_.end(),
                     [&](auto& lane) { return !lane || plane.watch(*lane).ok(); });
}

std::vector<NetLane*> NetLinks::stop_watching() {
  plane_ = nullptr;
  std::vector<NetLane*> watched;
  for (auto& lane : net_lanes_)
    if (lane) watched.push_back(lane.get());
  return watched;
}

bool NetLinks::is_some_under_way() const {
  for (const auto& [peer, of_peer] : peers_)
    for (const auto& [number, link] : of_peer.links)
      if (link->is_some_under_way()) return true;
  return false;
}

void NetLinks::end(const control::Peer& peer) {
  const auto known = peers_.find(&peer);
  if (known == peers_.end()) return;
  for (const auto& [number, link] : known->second.links) {
    if (link->is_over())
      cut(*link, Errc::kPeerDown);  // again: the peer's operations have ended now
    else
      link->end(Errc::kPeerDown);
  }
}

NetLinks::NetPeer& NetLinks::peer_of(const control::Peer& peer) {
  const auto first = static_cast<std::uint32_t>(peers_.size()) % lanes_.count_max();
  return peers_.try_emplace(&peer, NetPeer{.first_lane = first, .links = {}}).first->second;
}

NetLink* NetLinks::find(const control::Peer& peer, std::uint32_t number) {
  const auto of_peer = peers_.find(&peer);
  if (of_peer == peers_.end()) return nullptr;
  const auto found = of_peer->second.links.find(number);
  return found == of_peer->second.links.end() ? nullptr : found->second.get();
}

Result<NetLink*> NetLinks::for_send(const std::shared_ptr<PeerState>& peer,
                                    std::uint64_t communicator, std::uint32_t queues) {
  const std::uint32_t count = lanes_.count_max(), first = peer_of(*peer->peer).first_lane;
  const std::uint32_t lane = (lanes_.choose(first, communicator) + count - first) % count;
  return has_channel_links() ? for_channel(peer, lane, queues) : usable(peer, lane);
}

/// Where channels have links of their own, this one carries no channel.
Result<NetLink*> NetLinks::first_of(const std::shared_ptr<PeerState>& peer) {
  if (!has_channel_links()) return usable(peer, 0);
  NetLink& first = entry(peer, 0);
  // relaxed: under the mutex, as it is stored.
  if (first.is_lost.load(std::memory_order_relaxed)) return Errc::kUnreachable;
  return &first;
}

NetLink* NetLinks::for_receive(const control::Peer& peer, std::uint32_t number) {
  NetLink* const link = find(peer, number);
  if (link == nullptr || !has_channel_links()) return link;
  if ((number & NetLink::kOfPeer) == 0 || std::exchange(link->is_taken, true)) return nullptr;
  return link;
}

Result<NetLink*> NetLinks::for_channel(const std::shared_ptr<PeerState>& peer, std::uint32_t lane,
                                       std::uint32_t queues) {
  constexpr std::uint32_t kChannelsMax = NetLink::kOfPeer / NetLink::kCountMax - 1;
  if (auto first = first_of(peer); !first) return first.error();
  std::uint32_t& channels = peer_of(*peer->peer).channels_made;
  if (channels == kChannelsMax) return Errc::kNoMemory;
  const std::uint32_t number = ++channels * NetLink::kCountMax + lane;
  entry(peer, number).queues = queues;
  auto made = link(peer, number);
  // relaxed: under the mutex, as it is stored.
  const bool is_lost = made && (*made)->is_lost.load(std::memory_order_relaxed);
  if (made && !is_lost) return made;
  close(*find(*peer->peer, number));
  return made ? Status(Errc::kUnreachable) : made.error();
}

void NetLinks::close(NetLink& link) {
  if (!NetLink::is_of_channel(link.number)) return;
  closed_.push_back(&link);
  end_closed();
}

void NetLinks::give_up(NetLink& link, Status why) {
  if (!NetLink::is_of_channel(link.number)) return;
  send_ready(*link.peer, link.number_there(), why);
  close(link);
}

void NetLinks::close_untaken(const control::Peer& peer) {
  const auto known = peers_.find(&peer);
  if (known == peers_.end()) return;
  for (const auto& [number, link] : known->second.links)
    if ((number & NetLink::kOfPeer) != 0 && !std::exchange(link->is_taken, true))
      closed_.push_back(link.get());
  end_closed();
}

void NetLinks::end_closed() {
  std::erase_if(closed_, [&](NetLink* link) {
    if (link->is_some_under_way()) return false;
    if (link->link) {
      link->vci.drain();  // an immediate without a channel has used a receive, too
      link->vci.close_link(std::move(link->link));
    }
    if (link->is_served()) link->lane.turn_off();
    peer_of(*link->peer->peer).links.erase(link->number);
    return true;
  });
}

Result<NetLink*> NetLinks::usable(const std::shared_ptr<PeerState>& peer, std::uint32_t number) {
  auto made = link(peer, number);
  if (made) look_for_failure(**made);
  // relaxed: under the mutex, as it is stored.
  if (made && !(*made)->is_lost.load(std::memory_order_relaxed)) return made;
  if (number != 0) return usable(peer, 0);
  return made ? Status(Errc::kUnreachable) : made.error();
}

void NetLinks::look_for_failure(NetLink& link) {
  if (!link.is_connected()) return;
  Status failure;
  link.vci.exclusively([&] { failure = link.link->failure(); });
  if (!failure.ok()) lose(link, failure);
}

NetLink& NetLinks::entry(const std::shared_ptr<PeerState>& peer, std::uint32_t number) {
  NetPeer& of_peer = peer_of(*peer->peer);
  auto& known = of_peer.links[number];
  if (known) return *known;
  std::uint32_t index = (number % NetLink::kCountMax + of_peer.first_lane) % lanes_.count_max();
  if (const Status made = make_lane(index); !made.ok()) {
    log_warn_once("lanes", "%s: no more than some lanes can be had: %s (%d)",
                  fabric_.limits().provider.c_str(), errc_name(made.code()), made.detail());
    index = 0;
  }
  known = std::make_unique<NetLink>(*this, number, index, peer, *net_lanes_[index]);
  return *known;
}

Result<NetLink*> NetLinks::link(const std::shared_ptr<PeerState>& peer, std::uint32_t number) {
  NetLink& link = entry(peer, number);
  const Status wanted = link.want();
  // relaxed: under the mutex, as it is stored.
  const bool is_there = link.link != nullptr || link.is_lost.load(std::memory_order_relaxed);
  if (!wanted.ok() && (!link.is_over() || !is_there)) return wanted;  // the peer is gone
  return &link;
}

bool NetLinks::on_offer(const std::shared_ptr<PeerState>& peer,
                        std::span<const std::byte> payload) {
  record::NetOffer head;
  if (!record::read(payload, head) || head.bytes > payload.size() - sizeof(head)) return false;
  if (!is_possible(head.link)) {
    send_ready(*peer, head.link ^ NetLink::kOfPeer, net::kUnlikeLinks);
    (void)lose_all(peer, net::kUnlikeLinks);
    return true;
  }
  if (NetLink::is_of_channel(head.link)) {
    NetPeer& of_peer = peer_of(*peer->peer);
    const bool is_answer = (head.link & NetLink::kOfPeer) == 0;
    if (is_answer && find(*peer->peer, head.link) == nullptr) return true;  // closed already
    if (!is_answer && head.link <= std::exchange(of_peer.last_offered, head.link)) return false;
  }
  NetLink& link = entry(peer, head.link);
  if (!link.is_connected()) link.greeting_there = head.greeting;
  (void)link.hear_offer(payload.subspan(sizeof(head), head.bytes));  // a second offer changes
                                                                     // nothing
  return true;
}

void NetLinks::send_ready(const PeerState& peer, std::uint32_t number_there, Status status) {
  const record::NetReady ready{static_cast<std::int32_t>(status.code()), status.detail(),
                               number_there, 0};
  (void)peer.peer->send(static_cast<std::uint16_t>(record::NetType::ready),
                        std::as_bytes(std::span(&ready, 1)));
}

NetLink* NetLinks::on_ready(const std::shared_ptr<PeerState>& peer, const record::NetReady& ready) {
  NetLink* link = find(*peer->peer, ready.link);
  const Status status(static_cast<Errc>(ready.code), ready.detail);
  if (!status.ok()) {
    if (link == nullptr && !NetLink::is_of_channel(ready.link)) link = &entry(peer, ready.link);
    const bool is_untaken = (ready.link & NetLink::kOfPeer) != 0;
    if (link != nullptr && is_untaken && !std::exchange(link->is_taken, true)) {
      close(*link);  // no channel will come
      return nullptr;
    }
  }
  if (link == nullptr) return nullptr;
  const bool was_ready = link->has_been_ready();
  (void)link->hear_ready(status);  // a ready too many changes nothing
  return !was_ready && link->is_ready() ? link : nullptr;
}

bool NetLinks::lose_all(const std::shared_ptr<PeerState>& peer, Status status) {
  // relaxed: under the mutex, as it is stored.
  if (entry(peer, 0).is_lost.load(std::memory_order_relaxed)) return false;
  for (const auto& [number, link] : peer_of(*peer->peer).links) link->lose(status);
  return true;
}

/// Channels have received everything that arrived before.
void NetLinks::cut(NetLink& link, Status status) {
  has_loss_ = true;
  bool is_cut = true;
  if (link.link) {
    link.vci.end_link(*link.link, status);
    link.vci.exclusively([&] { is_cut = link.link->is_cut(); });
  }
  // release: pairs with NetHalf::is_out_of_reach()'s acquire.
  link.is_cut.store(is_cut, std::memory_order_release);
}

}  // namespace larklane::part
