#include "part/network/transport.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "model/plan.hpp"
#include "net/immediate.hpp"
#include "part/network/cells.hpp"

namespace larklane::part {
namespace {

template <class T>
void send_record(PeerState& peer, record::NetType type, const T& record) {
  // If send() fails the peer is gone, and the engine detects that by itself.
  (void)peer.peer->send(static_cast<std::uint16_t>(type), std::as_bytes(std::span(&record, 1)));
}

/// For records that can wait for the next Start: making and freeing requests makes no system call.
template <class T>
Status send_record_later(PeerState& peer, record::NetType type, const T& record) {
  return peer.peer->send_later(static_cast<std::uint16_t>(type),
                               std::as_bytes(std::span(&record, 1)));
}

/// If it fails the peer is gone: on_peer_down() ends the channel.
void send_close(PeerState& peer, const record::NetClose& close) {
  (void)send_record_later(peer, record::NetType::close, close);
}

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

/// Partitions of one cell always travel together, and each word has one deadline.
bool can_break_up(std::uint32_t partitions, const GroupRules& rules) {
  return partitions > 1 && (rules.deadline_ns == 0 || partitions <= net::kCellsMax * kUnitsPerWord);
}

/// Shape of the sender's words. If groups may change, it has room for any groups.
Result<BlockShape> shape_of(const InitArgs& args, const std::vector<std::uint32_t>& groups,
                            const GroupRules& rules) {
  const auto partitions = static_cast<std::uint32_t>(args.partitions);
  auto layout = Layout::make(partitions, groups);
  if (!layout) return layout.error();
  const auto count = static_cast<std::uint32_t>(groups.size());
  const auto words = static_cast<std::uint32_t>(layout->words().size());
  const auto roots = static_cast<std::uint32_t>(layout->roots().size());
  BlockShape shape{
      Mode::direct, partitions, count, words, roots, 0, args.count * args.type->size_bytes()};
  if (!rules.has_planner) return shape;
  // If there are more cells than PlanCells::kMax, a too large group may be cut at any cell.
  const std::uint32_t planned =
      partitions > net::kCellsMax ? net::Cells(partitions).count() : PlanCells(partitions).count();
  const LayoutSize most = LayoutSize::most(partitions, planned);
  shape.groups_max = std::max(planned, count);
  shape.words_max = std::max(most.words, words);
  shape.roots_max = std::max(most.roots, roots);
  return shape;
}

MatchKey key_of(const InitArgs& args, const PeerState& peer) {
  return {args.context, args.source, args.tag, peer.peer};
}
MatchKey key_of(const record::NetInit& init, const PeerState& peer) {
  return {{init.context_high, init.context_low}, init.source, init.tag, peer.peer};
}

}  // namespace

Result<std::unique_ptr<NetworkTransport>> NetworkTransport::create(
    std::unique_ptr<net::Fabric> fabric, vci::VciPool::Options lanes, Report report,
    std::uint64_t silence_ns, std::uint64_t demand_after_ns) {
  std::unique_ptr<NetworkTransport> network(
      new NetworkTransport(std::move(fabric), std::move(report), silence_ns, demand_after_ns));
  const bool is_kept = silence_ns != 0 && network->limits().unanswered_ns != 0;
  auto links = NetLinks::create(*network->fabric_, lanes, is_kept ? network.get() : nullptr);
  if (!links) return links.error();
  network->links_ = std::move(links).value();
  return network;
}

Result<std::vector<std::unique_ptr<Transport>>> open_networks(
    std::vector<std::unique_ptr<net::Fabric>> fabrics, const Config& config,
    const Transport::Report& report) {
  std::vector<std::unique_ptr<Transport>> opened;
  vci::VciPool* first = nullptr;
  for (auto& fabric : fabrics) {
    auto lanes = vci::VciPool::Options::of(config);
    if (!lanes) return lanes.error();
    auto network = NetworkTransport::create(std::move(fabric), *lanes, report,
                                            config.link_silence_ns, config.demand_after_ns);
    if (!network) return network.error();
    if (first == nullptr)
      first = &(*network)->lanes();
    else
      first->wait_together((*network)->lanes());
    opened.push_back(std::move(network).value());
  }
  return opened;
}

void NetworkTransport::begin(control::Plane& plane) {
  if (!watch_by(plane))
    log_warn("%s has no wait object: bytes move only while both sides are in calls of the MPI",
             limits().provider.c_str());
}

void NetworkTransport::end(control::Plane& plane) {
  std::vector<NetLane*> watched;
  {
    const std::scoped_lock lock(mutex_);
    watched = links_->stop_watching();
  }
  for (NetLane* const lane : watched) plane.unwatch(*lane);  // waits for the helper
}

std::optional<MatchKey> NetworkTransport::refuse(PeerState& peer, const control::Record& record) {
  record::NetInit init;
  if (static_cast<record::NetType>(record.kind) != record::NetType::init ||
      !record::read(record.payload, init))
    return std::nullopt;
  send_fail(peer, init.channel, Errc::kUnreachable, 0);
  send_record(peer, record::NetType::close, record::NetClose{init.channel, 0, 0, 0});
  return key_of(init, peer);
}

Result<SendRequest*> NetworkTransport::make_send(const InitArgs& args,
                                                 const std::shared_ptr<PeerState>& peer,
                                                 const PlanSource& plans) {
  const Policy& policy = *plans.policy;
  const auto partitions = static_cast<std::uint32_t>(args.partitions);
  const std::uint64_t bytes = args.count * args.type->size_bytes();
  return send_init(args, peer, policy.groups(partitions, bytes),
                   GroupRules::of(policy.needs(), demand_after_ns_), plans,
                   policy.queues(partitions, bytes));
}

void NetworkTransport::note_locked(PeerState& peer, const InitArgs& args, Kind kind) {
  Counters::add(kind == Kind::send ? counters_.sends : counters_.receives);
  peer.use.provider = limits().provider;
  peer.use.policy = policy_of(args);
  Transport::note_locked(peer, args, kind, limits().provider);
}

/// Sends CLOSE for each freed request with nothing in flight.
bool NetworkTransport::is_settled() {
  const std::scoped_lock lock(mutex_);
  reap_locked();
  return leaving_sends_.empty() && leaving_receives_.empty() && !links_->is_some_under_way();
}

bool NetworkTransport::has_incoming(const InitArgs& args, const PeerState& peer) {
  const std::scoped_lock lock(mutex_);
  return matching_.has_incoming(key_of(args, peer));
}

void NetworkTransport::fail_posted(const MatchKey& key, const char* why) {
  const std::scoped_lock lock(mutex_);
  auto posted = matching_.take_posted(key);
  if (posted && *posted)
    (*posted)->fail_unmatched(0, Errc::kUnreachable, (*posted)->own_half() + why);
}

Result<SendRequest*> NetworkTransport::send_init(const InitArgs& args,
                                                 const std::shared_ptr<PeerState>& peer,
                                                 const std::vector<std::uint32_t>& boundaries,
                                                 GroupRules rules, const PlanSource& plans,
                                                 std::uint32_t queues) {
  const auto partitions = static_cast<std::uint32_t>(args.partitions);
  if (are_too_many_empty(partitions, args.count * args.type->size_bytes())) return Errc::kNoMemory;
  if (!peer->peer->has_room()) return Errc::kNoMemory;
  if (const std::uint32_t most = limits().channel_partitions_max; most != 0 && partitions > most) {
    log_warn("%s: %u partitions are too many, where channels have queue pairs of their own: %u",
             limits().provider.c_str(), partitions, most);
    return Errc::kNoMemory;
  }
  if (!can_break_up(partitions, rules)) rules = {};
  auto place = take_place(args, peer, rules.take_demands(), queues);
  if (!place) return place.error();
  std::vector<std::uint32_t> groups = cell_boundaries(
      partitions, boundaries, rules.deadline_ns != 0 ? kUnitsPerWord : kGroupPartitionsMax);
  if (rules.take_demands() && !place->demand_slot) {
    // No demand could release partitions that wait for their group, so each travels alone.
    rules = {};
    groups = cell_boundaries(partitions, model::equal_groups(partitions, partitions));
  }
  auto made =
      make_at(args, *place, std::move(groups), rules, rules.has_planner ? plans : PlanSource{});
  if (!made) {
    const std::scoped_lock lock(mutex_);
    release_demands_locked(*place, true);  // the peer has no INIT of it
    links_->give_up(*place->link, made.error());
  }
  return made;
}

Result<NetworkTransport::SendPlace> NetworkTransport::take_place(
    const InitArgs& args, const std::shared_ptr<PeerState>& peer, bool takes_demands,
    std::uint32_t queues) {
  const std::scoped_lock lock(mutex_);
  reap_locked();
  auto link = links_->for_send(peer, args.context.low, queues);
  cut_off_lost_locked();
  if (!link) return link.error();
  SendPlace place{*link};
  if (!takes_demands || !(*link)->vci.reserve_immediates(1).ok()) return place;
  if (auto slot = (*link)->lane.demands().take())
    place.demand_slot = *slot;
  else
    (*link)->vci.release_immediates(1);
  return place;
}

Result<SendRequest*> NetworkTransport::make_at(const InitArgs& args, const SendPlace& place,
                                               std::vector<std::uint32_t> groups, GroupRules rules,
                                               const PlanSource& plans) {
  auto shape = shape_of(args, groups, rules);
  if (!shape) return shape.error();
  auto block = PrivateBlock::make(*shape);
  if (!block) return block.error();
  auto buffer = NetBuffer::make(*fabric_, args);
  if (!buffer) return buffer.error();

  const std::scoped_lock lock(mutex_);
  auto words = controls_.take(kFinWords + net::Cells(shape->partitions).count());
  if (!words) return words.error();
  auto channel = std::make_shared<NetSend>(
      NetSend::Parts{++last_channel_, args, *shape, std::move(block).value(), std::move(groups),
                     std::move(buffer).value(), *words, path_locked(*place.link), &counters_, rules,
                     place.demand_slot, plans});
  if (place.demand_slot) place.link->lane.set_demands(*place.demand_slot, channel.get());
  place.link->carry(net::ChannelHalf::send, place.demand_slot, shape->partitions);
  const record::NetInit init = channel->init_record();
  if (const Status sent = send_record_later(*place.link->peer, record::NetType::init, init);
      !sent.ok()) {
    controls_.give_back(*words);  // the peer has no INIT of it
    if (place.demand_slot) place.link->lane.set_demands(*place.demand_slot, nullptr);
    return sent;
  }
  sends_by_id_.emplace(channel->channel(), channel);
  sends_.emplace(channel.get(), channel);
  note_locked(*place.link->peer, args, Kind::send);
  return static_cast<SendRequest*>(channel.get());
}

Result<RecvRequest*> NetworkTransport::recv_init(const InitArgs& args,
                                                 const std::shared_ptr<PeerState>& peer,
                                                 IfUnmatched if_unmatched) {
  if (are_too_many_empty(static_cast<std::uint64_t>(args.partitions),
                         args.count * args.type->size_bytes()))
    return Errc::kNoMemory;
  auto buffer = NetBuffer::make(*fabric_, args);
  if (!buffer) return buffer.error();
  const std::scoped_lock lock(mutex_);
  reap_locked();
  auto link = links_->first_of(peer);
  cut_off_lost_locked();
  if (!link) return link.error();
  auto channel =
      std::make_shared<NetRecv>(args, std::move(buffer).value(), path_locked(**link), &counters_);
  if (auto incoming = matching_.take_incoming(key_of(args, *peer)))
    *incoming ? match_locked(channel, **incoming) : match_freed(*channel);
  else if (if_unmatched == IfUnmatched::none)
    return nullptr;
  else if (peer->down.load(
               std::memory_order_acquire))  // acquire: pairs with on_peer_down's release
    return Errc::kPeerDown;
  else
    channel->place = matching_.post(key_of(args, *peer), channel);
  receives_.emplace(channel.get(), channel);
  note_locked(*peer, args, Kind::receive);
  return static_cast<RecvRequest*>(channel.get());
}

Status NetworkTransport::free(Request* request) {
  const std::scoped_lock lock(mutex_);
  const auto let_go = [&](auto& requests, auto& leaving, RoundTotals& totals) -> Status {
    auto found = requests.find(request);
    if (found == requests.end()) return Errc::kInvalidArgument;
    auto channel = std::move(found->second);
    if (channel->active()) {
      found->second = std::move(channel);
      return Errc::kAlreadyActive;
    }
    requests.erase(found);
    totals.add(channel->totals());
    leaving.push_back(std::move(channel));
    return {};
  };
  Status status = let_go(sends_, leaving_sends_, freed_sends_);
  if (status.code() == Errc::kInvalidArgument)
    status = let_go(receives_, leaving_receives_, freed_receives_);
  reap_locked();
  return status;
}

/// Releases freed channels as soon as nothing of them is in flight.
void NetworkTransport::reap_locked() {
  links_->end_closed();
  std::erase_if(leaving_sends_, [&](const std::shared_ptr<NetSend>& channel) {
    channel->forget_buffer();
    if (!channel->settle()) return false;
    // A late demand would be answered.
    if (!channel->has_failed() && !channel->end_posts()) return false;
    // The thread of the last completion may still be sending FAIL, or giving the buffer's key back.
    if (channel->has_failed() || channel->is_cut_off()) channel->link().vci.exclusively([] {});
    channel->end_watch();
    channel->is_closed = true;
    send_close(channel->peer(), {channel->channel(), 1, 0, channel->totals().rounds});
    if (channel->is_over()) {
      release_locked(*channel);
      sends_by_id_.erase(channel->channel());
    } else if (channel->peer_is_down()) {  // but its process has not ended
      links_->close(channel->link());
    }
    return true;
  });
  std::erase_if(leaving_receives_, [&](const std::shared_ptr<NetRecv>& channel) {
    channel->forget_buffer();
    if (!channel->matched()) {
      matching_.bury(key_of(channel->args(), channel->peer()), channel->place);
      return true;
    }
    if (!channel->settle()) return false;
    channel->end_watch();
    channel->is_closed = true;
    send_close(channel->peer(),
               {channel->channel(), 0, channel->demand_count(), channel->totals().rounds});
    if (channel->is_over())
      release_locked(*channel);
    else if (channel->peer_is_down())
      links_->close(channel->link());
    return true;
  });
}

/// Both sides have closed.
void NetworkTransport::release_locked(NetSend& channel) {
  NetLink& link = channel.link();
  if (!channel.has_failed()) controls_.give_back(channel.words());
  const bool has_ended = channel.peer().peer->has_ended();
  if (channel.demand_slot() && !has_ended && !channel.has_heard_all()) link.vci.drain();
  // A later demand finds no channel, but uses a receive: that receive is lost.
  release_demands_locked({&link, channel.demand_slot()}, has_ended || channel.has_heard_all());
  links_->close(link);
}

void NetworkTransport::release_demands_locked(const SendPlace& place, bool are_over) {
  if (!place.demand_slot) return;
  place.link->lane.set_demands(*place.demand_slot, nullptr);
  if (!are_over) return;
  place.link->vci.release_immediates(1);
  place.link->lane.demands().give_back(*place.demand_slot);
}

/// Both sides have closed.
void NetworkTransport::release_locked(NetRecv& channel) {
  NetLink& link = channel.link();
  if (channel.usable()) {
    const NetRecv::Match& match = channel.its_match();
    link.lane.clear_slot(match.slot);
    link.vci.drain();  // an immediate without a channel has used a receive
    link.vci.release_immediates(2 * net::Cells(match.init.partitions).count());
    if (!channel.has_failed()) {
      notices_.give_back(match.notices);
      link.lane.give_back(match.slot);
    }
  }
  links_->close(link);
  matched_.erase({channel.peer().peer, channel.channel()});
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

void NetworkTransport::on_peer_down(const control::Peer& peer) {
  const std::scoped_lock lock(mutex_);
  links_->close_untaken(peer);
  std::erase_if(sends_by_id_, [&](const auto& entry) {
    NetSend& channel = *entry.second;
    if (!channel.is_closed || channel.peer().peer != &peer) return false;
    release_demands_locked({&channel.link(), channel.demand_slot()}, false);
    links_->close(channel.link());
    return true;
  });
  std::vector<std::shared_ptr<NetRecv>> closed;
  for (const auto& [key, channel] : matched_)
    if (key.sender == &peer && channel->is_closed) closed.push_back(channel);
  for (const auto& channel : closed) release_locked(*channel);
}

void NetworkTransport::end_links(const control::Peer& peer) {
  const std::scoped_lock lock(mutex_);
  links_->end(peer);
  cut_off_lost_locked();
}

void NetworkTransport::cut_off_lost_locked() {
  if (!links_->take_loss()) return;
  for (const auto& [request, channel] : sends_)
    if (channel->is_cut_off()) channel->cut_off();
  // The peer has no key of a receive that is not usable yet, and another link may carry it.
  for (const auto& [request, channel] : receives_)
    if (channel->usable() && channel->is_cut_off()) channel->cut_off();
}

void NetworkTransport::add_totals(RoundTotals* sent, RoundTotals* received) const {
  const std::scoped_lock lock(mutex_);
  sent->add(freed_sends_);
  received->add(freed_receives_);
  for (const auto& [request, channel] : sends_) sent->add(channel->totals());
  for (const auto& [request, channel] : receives_) received->add(channel->totals());
}

}  // namespace larklane::part
