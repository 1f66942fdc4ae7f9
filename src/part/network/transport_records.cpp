// Control records of a network's channels: matching, closing, failing.

#include <utility>

#include "base/log.hpp"
#include "net/immediate.hpp"
#include "part/network/cells.hpp"
#include "part/network/send_record.hpp"
#include "part/network/transport.hpp"

namespace larklane::part {
namespace {

void send_fail(PeerState& peer, std::uint64_t channel, Status status, std::uint64_t bytes) {
  send_record(peer, record::NetType::fail,
              record::Fail{channel, 0, static_cast<std::int32_t>(status.code()), status.detail(), 0,
                           bytes});
}

bool plausible(const record::NetInit& init) {
  return init.partitions != 0 && init.partitions <= 0x7fffffffu &&
         init.partition_bytes <= (std::uint64_t{1} << 62) / init.partitions &&
         !are_too_many_empty(init.partitions, init.partition_bytes) &&
         init.generation < net_word::kGenerations && init.demand_slot <= NetLane::kSlots;
}
bool plausible(const record::NetAccept& accept) {
  return accept.slot <= 0xffff && accept.generation < net_word::kGenerations;
}

MatchKey key_of(const record::NetInit& init, const PeerState& peer) {
  return {{init.context_high, init.context_low}, init.source, init.tag, peer.peer};
}

}  // namespace

std::optional<MatchKey> NetworkTransport::refuse(PeerState& peer, const control::Record& record) {
  record::NetInit init;
  if (static_cast<record::NetType>(record.kind) != record::NetType::init ||
      !record::read(record.payload, init))
    return std::nullopt;
  send_fail(peer, init.channel, Errc::kUnreachable, 0);
  send_record(peer, record::NetType::close, record::NetClose{init.channel, 0, 0, 0});
  return key_of(init, peer);
}

void NetworkTransport::on_record(const std::shared_ptr<PeerState>& peer,
                                 const control::Record& record) {
  const auto type = static_cast<record::NetType>(record.kind);
  if (record::NetAccept accept;
      type == record::NetType::accept && record::read(record.payload, accept) && plausible(accept))
    return on_accept(*peer->peer, accept);
  const std::scoped_lock lock(mutex_);
  on_record_locked(peer, record);
  cut_off_lost_locked();
}

void NetworkTransport::on_record_locked(const std::shared_ptr<PeerState>& peer,
                                        const control::Record& record) {
  const auto type = static_cast<record::NetType>(record.kind);
  if (type == record::NetType::offer && links_->on_offer(peer, record.payload)) return;
  if (record::NetReady ready; type == record::NetType::ready &&
                              record::read(record.payload, ready) &&
                              links_->is_possible(ready.link)) {
    on_ready_locked(peer, ready);
  } else if (record::NetInit init;
             type == record::NetType::init && record::read(record.payload, init)) {
    on_init_locked(peer, init);
  } else if (record::NetClose close;
             type == record::NetType::close && record::read(record.payload, close)) {
    on_close_locked(*peer->peer, close);
  } else if (record::Fail fail;
             type == record::NetType::fail && record::read(record.payload, fail)) {
    on_fail_locked(*peer->peer, fail);
  } else {
    refuse_locked(peer, record.kind, record.payload.size());
  }
}

void NetworkTransport::on_ready_locked(const std::shared_ptr<PeerState>& peer,
                                       const record::NetReady& ready) {
  if (NetLink* const link = links_->on_ready(peer, ready))
    for (auto& [channel, accept] : std::exchange(link->accepts, {}))
      send_accept_locked(*link, channel, accept);
}

/// The record is unreadable or invalid. Rounds that wait for its contents fail.
void NetworkTransport::refuse_locked(const std::shared_ptr<PeerState>& peer, std::uint16_t kind,
                                     std::size_t bytes) {
  if (!links_->lose_all(peer, Errc::kProtocol)) return;
  log_warn(
      "%s: a control record of %s makes no sense (kind %u, %zu bytes): its process runs another "
      "version of larklane, or its memory is damaged; run the same version on all hosts",
      limits().provider.c_str(), peer->peer->address().c_str(), unsigned{kind}, bytes);
}

void NetworkTransport::send_accept_locked(NetLink& link, const std::shared_ptr<NetRecv>& channel,
                                          const record::NetAccept& accept) {
  if (!link.has_been_ready()) return link.accepts.emplace_back(channel, accept), void();
  send_record(*link.peer, record::NetType::accept, accept);
  channel->accept();
}

void NetworkTransport::on_init_locked(const std::shared_ptr<PeerState>& peer,
                                      const record::NetInit& init) {
  std::uint64_t& last = last_inits_[peer->peer];
  if (init.channel <= last)  // numbers ascend and never repeat
    return refuse_locked(peer, static_cast<std::uint16_t>(record::NetType::init), sizeof(init));
  last = init.channel;
  auto posted = matching_.take_posted(key_of(init, *peer));
  if (!posted) return matching_.keep(key_of(init, *peer), init.channel, {peer, init});
  if (*posted) return match_locked(*posted, {peer, init});
  close_unmatched_locked(*peer, init);  // its receive has been freed
}

void NetworkTransport::close_unmatched_locked(PeerState& peer, const record::NetInit& init) {
  send_close(peer, {init.channel, 0, 0, 0});
  if (NetLink* const link = links_->for_receive(*peer.peer, init.link)) links_->close(*link);
}

void NetworkTransport::match_freed(NetRecv& channel) {
  channel.fail_unmatched(0, Errc::kPeerFreed, channel.other_half() + " has been freed");
}

void NetworkTransport::match_locked(const std::shared_ptr<NetRecv>& channel,
                                    const Incoming& incoming) {
  const record::NetInit& init = incoming.init;
  const std::uint64_t send_bytes = init.partition_bytes * init.partitions;
  if (incoming.peer->peer != channel->peer().peer) {
    send_fail(*incoming.peer, init.channel, Errc::kProtocol, 0);
    close_unmatched_locked(*incoming.peer, init);
    return channel->fail_unmatched(
        0, Errc::kProtocol,
        channel->own_half() + " was matched by a send of " + incoming.peer->peer->address());
  }
  matched_.emplace(ChannelKey{incoming.peer->peer, init.channel}, channel);
  // The offer of the link precedes INIT. A lost link fails the round that uses it.
  NetLink* const link = links_->for_receive(*incoming.peer->peer, init.link);
  if (link != nullptr) channel->take_link(*link);
  if (incoming.sender_rounds) channel->on_peer_closed(*incoming.sender_rounds);
  const std::string who = channel->own_half();
  if (!plausible(init)) {
    send_fail(*incoming.peer, init.channel, Errc::kProtocol, 0);
    return channel->fail_unmatched(init.channel, Errc::kProtocol,
                                   who + " was matched by a send whose counts are impossible");
  }
  if (send_bytes != channel->total_bytes()) {
    send_fail(*incoming.peer, init.channel, Errc::kSizeMismatch, channel->total_bytes());
    return channel->fail_unmatched(
        init.channel, Errc::kSizeMismatch,
        who + " was matched by a send of " + std::to_string(send_bytes) + " bytes");
  }
  NetRecv::Match match;
  const bool is_down = channel->peer_is_down();
  const Status status = link == nullptr || !link->link
                            ? Status(is_down ? Errc::kPeerDown : Errc::kUnreachable)
                            : take_match_locked(*channel, init, *link, &match);
  if (!status.ok()) {
    send_fail(*incoming.peer, init.channel, status, 0);
    return channel->fail_unmatched(init.channel, status,
                                   who + " can't be taken up: " + errc_name(status.code()));
  }
  auto accept = channel->match(match);
  if (!accept) {
    give_back_locked(match, *link);
    send_fail(*incoming.peer, init.channel, accept.error(), 0);
    return channel->fail_unmatched(init.channel, accept.error(), who + " finds no memory");
  }
  send_accept_locked(*link, channel, *accept);
  if (channel->is_cut_off()) channel->cut_off();  // the link was lost before it was taken
}

void NetworkTransport::give_back_locked(const NetRecv::Match& match, NetLink& link) {
  link.lane.clear_slot(match.slot);
  link.vci.release_immediates(2 * net::Cells(match.init.partitions).count());
  notices_.give_back(match.notices);
  link.lane.give_back(match.slot);
}

/// Reserves the resources of this process that a matched receive needs.
Status NetworkTransport::take_match_locked(NetRecv& channel, const record::NetInit& init,
                                           NetLink& link, NetRecv::Match* match) {
  const std::uint32_t cells = net::Cells(init.partitions).count();
  // One push or notice a cell in one round, and one notice a cell in the next one. Before more can
  // arrive, some have been served.
  LARKLANE_TRY(link.vci.reserve_immediates(2 * cells));
  auto notices = notices_.take(cells + (init.demand_slot != 0 ? 1 : 0));
  auto slot = notices ? link.lane.take_slot(channel) : Result<std::uint16_t>(notices.error());
  if (!slot) {
    if (notices) notices_.give_back(*notices);
    link.vci.release_immediates(2 * cells);
    return slot.error();
  }
  link.carry(net::ChannelHalf::receive, *slot, init.partitions);
  *match = {init, *notices, *slot};
  return {};
}

void NetworkTransport::on_accept(const control::Peer& from, const record::NetAccept& accept) {
  std::shared_ptr<NetSend> channel;
  {
    const std::scoped_lock lock(mutex_);
    auto found = sends_by_id_.find(accept.channel);
    if (found == sends_by_id_.end() || found->second->peer().peer != &from) return;
    channel = found->second;
  }
  channel->on_accept(accept);
}

void NetworkTransport::on_close_locked(const control::Peer& from, const record::NetClose& close) {
  if (close.by_sender == 0) {
    auto found = sends_by_id_.find(close.channel);
    if (found == sends_by_id_.end() || found->second->peer().peer != &from) return;
    NetSend& channel = *found->second;
    channel.await_demands(close.demands);
    channel.on_peer_closed(close.rounds);
    if (!channel.is_closed) return;
    release_locked(channel);
    sends_by_id_.erase(found);
    return;
  }
  if (auto found = matched_.find({&from, close.channel}); found != matched_.end()) {
    const auto channel = found->second;
    channel->on_peer_closed(close.rounds);
    if (channel->is_closed) release_locked(*channel);
    return;
  }
  Incoming* const incoming = matching_.incoming({&from, close.channel});
  if (incoming == nullptr) return;
  if (close.rounds != 0) {
    incoming->sender_rounds = close.rounds;
    return;
  }
  // The send had no round: the sender gets its memory back before a receive exists.
  close_unmatched_locked(*incoming->peer, incoming->init);
  matching_.bury_incoming({&from, close.channel});
}

void NetworkTransport::on_fail_locked(const control::Peer& from, const record::Fail& fail) {
  const Status status = status_of(fail);
  const auto text = [&](const auto& channel, Kind kind) {
    std::string cause = cause_of(*fabric_, status);
    const NetLink& link = channel.link();
    // relaxed: under the mutex, as it is stored.
    if (status.code() == Errc::kUnreachable && link.is_lost.load(std::memory_order_relaxed))
      cause += ": " + link.why_lost;
    return reported(channel.args(), kind, fail, cause);
  };
  if (fail.by_sender != 0) {
    if (auto found = matched_.find({&from, fail.channel}); found != matched_.end()) {
      links_->look_for_failure(found->second->link());
      found->second->on_peer_fail(status, text(*found->second, Kind::receive));
    }
  } else if (auto found = sends_by_id_.find(fail.channel);
             found != sends_by_id_.end() && found->second->peer().peer == &from) {
    links_->look_for_failure(found->second->link());
    found->second->on_peer_fail(status, text(*found->second, Kind::send));
  }
}

}  // namespace larklane::part
