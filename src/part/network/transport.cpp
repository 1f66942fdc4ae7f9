#include "part/network/transport.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "model/plan.hpp"
#include "net/immediate.hpp"
#include "part/network/cells.hpp"
#include "part/network/send_record.hpp"

namespace larklane::part {
namespace {

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
