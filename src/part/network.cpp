#include "part/network.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/log.hpp"
#include "net/immediate.hpp"
#include "part/net_cells.hpp"

namespace larklane::part {
namespace {

/// What is under way when a process ends may take so long; then it is left alone.
constexpr std::chrono::seconds kDrainWait{2};

template <class T>
void send_record(PeerState& peer, record::NetType type, const T& record) {
  // A peer that can't be told is gone, and the engine hears of that by itself.
  (void)peer.peer->send(static_cast<std::uint16_t>(type), std::as_bytes(std::span(&record, 1)));
}

void send_fail(PeerState& peer, std::uint64_t channel, Status status, std::uint64_t bytes) {
  send_record(peer, record::NetType::fail,
              record::Fail{channel, 0, static_cast<std::int32_t>(status.code()), status.detail(), 0,
                           bytes});
}

bool plausible(const record::NetInit& init) {
  return init.partitions != 0 && init.partitions <= 0x7fffffffu &&
         init.partition_bytes <= (std::uint64_t{1} << 62) / init.partitions;
}

MatchKey key_of(const InitArgs& args) { return {args.context, args.source, args.tag}; }
MatchKey key_of(const record::NetInit& init) {
  return {{init.context_high, init.context_low}, init.source, init.tag};
}

}  // namespace

Result<std::unique_ptr<Network>> Network::create(std::unique_ptr<net::Fabric> fabric,
                                                 Counters& counters) {
  std::unique_ptr<Network> network(new Network(std::move(fabric), counters));
  auto vci = vci::Vci::create(*network->fabric_, *network);
  if (!vci) return vci.error();
  network->vci_ = std::move(vci).value();
  network->wait_fd_ = network->vci_->wait_fd();
  return network;
}

void Network::settle() {
  const auto deadline = std::chrono::steady_clock::now() + kDrainWait;
  const auto is_empty = [&] {
    const std::scoped_lock lock(mutex_);
    reap_locked();
    return leaving_sends_.empty() && leaving_receives_.empty();
  };
  while (!is_empty() && std::chrono::steady_clock::now() < deadline)
    if (vci_->progress() == 0) ::sched_yield();
}

Network::~Network() {
  for (auto& [peer, of_peer] : peers_)
    if (of_peer.link) vci_->close_link(std::move(of_peer.link));
}

std::shared_ptr<PeerState> Network::who_left(const control::Address& address) {
  const std::scoped_lock lock(mutex_);
  const Incoming* const left = matching_.find_incoming(
      [&](const Incoming& incoming) { return incoming.peer->peer->address() == address; });
  return left == nullptr ? nullptr : left->peer;
}

void Network::fail_posted(const MatchKey& key, const char* why) {
  const std::scoped_lock lock(mutex_);
  auto posted = matching_.take_posted(key);
  if (posted && *posted)
    (*posted)->fail_unmatched(0, Errc::kUnreachable,
                              "the " + describe((*posted)->args(), Kind::receive) + " from " +
                                  (*posted)->args().peer + why);
}

Result<Network::NetPeer*> Network::peer_locked(const std::shared_ptr<PeerState>& state) {
  // relaxed: under the mutex, as it is stored.
  if (state->link_lost.load(std::memory_order_relaxed)) return Errc::kUnreachable;
  NetPeer& peer = peers_[state->peer];
  if (peer.link) return &peer;
  peer.state = state;
  auto link = vci_->open_link();
  if (!link) return link.error();
  peer.link = std::move(link).value();
  const auto offer = peer.link->offer();
  const record::NetOffer head{static_cast<std::uint32_t>(offer.size()), 0};
  std::vector<std::byte> payload(sizeof(head) + offer.size());
  std::memcpy(payload.data(), &head, sizeof(head));
  std::memcpy(payload.data() + sizeof(head), offer.data(), offer.size());
  LARKLANE_TRY(state->peer->send(static_cast<std::uint16_t>(record::NetType::offer), payload));
  return &peer;
}

Result<NetPath> Network::path_locked(const std::shared_ptr<PeerState>& state) {
  auto peer = peer_locked(state);
  if (!peer) return peer.error();
  return NetPath{vci_.get(), (*peer)->link.get(), state, limits().is_progress_manual, this};
}

Result<SendRequest*> Network::send_init(const InitArgs& args,
                                        const std::shared_ptr<PeerState>& peer,
                                        const std::vector<std::uint32_t>& boundaries) {
  const auto partitions = static_cast<std::uint32_t>(args.partitions);
  const net::Cells cells(partitions);
  const auto groups = cell_boundaries(partitions, boundaries);
  auto layout = Layout::make(partitions, groups);
  if (!layout) return layout.error();
  const BlockShape shape{Mode::direct,
                         partitions,
                         static_cast<std::uint32_t>(groups.size()),
                         static_cast<std::uint32_t>(layout->words().size()),
                         static_cast<std::uint32_t>(layout->roots().size()),
                         0,
                         args.count * args.type->size_bytes()};
  auto buffer = NetBuffer::make(*fabric_, args);
  if (!buffer) return buffer.error();

  const std::scoped_lock lock(mutex_);
  reap_locked();
  auto path = path_locked(peer);
  if (!path) return path.error();
  auto words = controls_.take(kFinWords + cells.count());
  if (!words) return words.error();
  auto channel = std::make_shared<NetSend>(NetSend::Parts{++last_channel_, args, shape, groups,
                                                          std::move(buffer).value(), *words,
                                                          std::move(path).value(), &counters_});
  const record::NetInit init = channel->init_record();
  if (const Status sent = peer->peer->send(static_cast<std::uint16_t>(record::NetType::init),
                                           std::as_bytes(std::span(&init, 1)));
      !sent.ok()) {
    controls_.give_back(*words);  // the peer has never heard of it
    return sent;
  }
  sends_by_id_.emplace(channel->channel(), channel);
  sends_.emplace(channel.get(), channel);
  return static_cast<SendRequest*>(channel.get());
}

Result<RecvRequest*> Network::recv_init(const InitArgs& args,
                                        const std::shared_ptr<PeerState>& peer) {
  auto buffer = NetBuffer::make(*fabric_, args);
  if (!buffer) return buffer.error();
  const std::scoped_lock lock(mutex_);
  reap_locked();
  auto path = path_locked(peer);
  if (!path) return path.error();
  auto channel = std::make_shared<NetRecv>(args, std::move(buffer).value(), std::move(path).value(),
                                           &counters_);
  if (auto incoming = matching_.take_incoming(key_of(args)))
    match_locked(channel, *incoming);
  else if (peer->down.load(
               std::memory_order_acquire))  // acquire: pairs with on_peer_down's release
    return Errc::kPeerDown;
  else
    matching_.post(key_of(args), channel);
  receives_.emplace(channel.get(), channel);
  return static_cast<RecvRequest*>(channel.get());
}

Status Network::free(Request* request) {
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

/// What has been freed goes as soon as nothing of it is under way.
void Network::reap_locked() {
  std::erase_if(leaving_sends_, [&](const std::shared_ptr<NetSend>& channel) {
    channel->forget_buffer();
    if (!channel->is_idle()) return false;
    // Whoever had the last completion of one that has failed is telling the peer yet.
    if (channel->has_failed()) vci_->exclusively([] {});
    channel->end_watch();
    channel->is_closed = true;
    send_record(*channel->path().peer, record::NetType::close,
                record::NetClose{channel->channel(), 1, 0, channel->totals().rounds});
    if (!channel->peer_closed() && !channel->path().peer->peer->has_ended()) return true;
    if (!channel->has_failed()) controls_.give_back(channel->words());
    sends_by_id_.erase(channel->channel());
    return true;
  });
  std::erase_if(leaving_receives_, [&](const std::shared_ptr<NetRecv>& channel) {
    channel->forget_buffer();
    if (!channel->matched()) {
      matching_.bury(key_of(channel->args()), *channel);
      return true;
    }
    if (!channel->is_idle()) return false;
    channel->end_watch();
    channel->is_closed = true;
    send_record(*channel->path().peer, record::NetType::close,
                record::NetClose{channel->channel(), 0, 0, channel->totals().rounds});
    if (channel->peer_closed() || channel->path().peer->peer->has_ended()) release_locked(*channel);
    return true;
  });
}

/// Both sides have closed.
void Network::release_locked(NetRecv& channel) {
  if (channel.usable()) {
    const NetRecv::Match& match = channel.its_match();
    vci_->exclusively([&] {
      // relaxed: the lane's lock orders it.
      slots_[match.slot].store(nullptr, std::memory_order_relaxed);
    });
    vci_->release_immediates(2 * net::Cells(match.init.partitions).count());
    if (!channel.has_failed()) {
      notices_.give_back(match.notices);
      free_slots_.push_back(match.slot);
    }
  }
  matched_.erase({channel.path().peer->peer, channel.channel()});
}

void Network::on_record(const std::shared_ptr<PeerState>& peer, const control::Record& record) {
  const auto type = static_cast<record::NetType>(record.kind);
  if (type == record::NetType::accept) {
    record::NetAccept accept;
    if (record::read(record.payload, accept)) on_accept(*peer->peer, accept);
    return;
  }
  const std::scoped_lock lock(mutex_);
  if (record::NetReady ready; type == record::NetType::offer) {
    auto known = peer_locked(peer);
    if (!known) {
      if (!peer->peer->is_down()) lose_link_locked(*peer, known.error(), false);
      return;
    }
    on_offer_locked(**known, record.payload);
  } else if (type == record::NetType::ready && record::read(record.payload, ready)) {
    if (auto known = peers_.find(peer->peer); known != peers_.end())
      on_ready_locked(known->second, ready);
  } else if (record::NetInit init;
             type == record::NetType::init && record::read(record.payload, init)) {
    on_init_locked(peer, init);
  } else if (record::NetClose close;
             type == record::NetType::close && record::read(record.payload, close)) {
    on_close_locked(*peer->peer, close);
  } else if (record::Fail fail;
             type == record::NetType::fail && record::read(record.payload, fail)) {
    on_fail_locked(*peer->peer, fail);
  }
}

void Network::on_offer_locked(NetPeer& peer, std::span<const std::byte> payload) {
  record::NetOffer head;
  if (peer.is_connected || !record::read(payload, head) ||
      head.bytes > payload.size() - sizeof(head))
    return;
  const auto offer = payload.subspan(sizeof(head), head.bytes);
  if (const Status status = vci_->connect(*peer.link, offer); !status.ok())
    return lose_link_locked(*peer.state, status, false);
  peer.is_connected = true;
  send_record(*peer.state, record::NetType::ready, record::NetReady{0, 0});
}

/// All rounds with the peer fail, on both sides. @param is_told  it is the peer who says so
void Network::lose_link_locked(PeerState& peer, Status status, bool is_told) {
  // release: pairs with is_cut_off()'s acquire.
  if (peer.link_lost.exchange(true, std::memory_order_release)) return;
  log_warn("%s: no link %s %s: %s (%d)", limits().provider.c_str(), is_told ? "back from" : "to",
           peer.peer->address().c_str(), errc_name(status.code()), status.detail());
  if (!is_told)
    send_record(peer, record::NetType::ready,
                record::NetReady{static_cast<std::int32_t>(status.code()), status.detail()});
}

void Network::on_ready_locked(NetPeer& peer, const record::NetReady& ready) {
  if (ready.code != 0)
    return lose_link_locked(*peer.state, Status(Errc::kUnreachable, ready.detail), true);
  if (!peer.is_connected) return;
  peer.is_ready = true;
  for (auto& [channel, accept] : std::exchange(peer.accepts, {}))
    send_accept_locked(peer, channel, accept);
}

void Network::send_accept_locked(NetPeer& peer, const std::shared_ptr<NetRecv>& channel,
                                 const record::NetAccept& accept) {
  if (!peer.is_ready) return peer.accepts.emplace_back(channel, accept), void();
  send_record(*peer.state, record::NetType::accept, accept);
  channel->accept();
}

void Network::on_init_locked(const std::shared_ptr<PeerState>& peer, const record::NetInit& init) {
  if (!plausible(init)) return send_fail(*peer, init.channel, Errc::kProtocol, 0);
  auto posted = matching_.take_posted(key_of(init));
  if (!posted) return matching_.keep(key_of(init), {peer, init});
  if (*posted) return match_locked(*posted, {peer, init});
  send_record(*peer, record::NetType::close, record::NetClose{init.channel, 0, 0, 0});
}

void Network::match_locked(const std::shared_ptr<NetRecv>& channel, const Incoming& incoming) {
  const record::NetInit& init = incoming.init;
  const std::uint64_t send_bytes = init.partition_bytes * init.partitions;
  if (incoming.peer->peer != channel->path().peer->peer) {
    send_fail(*incoming.peer, init.channel, Errc::kProtocol, 0);
    return channel->fail_unmatched(0, Errc::kProtocol,
                                   "the " + describe(channel->args(), Kind::receive) + " from " +
                                       channel->args().peer + " was matched by a send of " +
                                       incoming.peer->peer->address());
  }
  matched_.emplace(ChannelKey{incoming.peer->peer, init.channel}, channel);
  if (incoming.sender_rounds) channel->on_peer_closed(*incoming.sender_rounds);
  const std::string who =
      "the " + describe(channel->args(), Kind::receive) + " from " + channel->args().peer;
  if (send_bytes != channel->total_bytes()) {
    send_fail(*incoming.peer, init.channel, Errc::kSizeMismatch, channel->total_bytes());
    return channel->fail_unmatched(
        init.channel, Errc::kSizeMismatch,
        who + " was matched by a send of " + std::to_string(send_bytes) + " bytes");
  }
  NetRecv::Match match;
  if (const Status status = take_match_locked(*channel, init, &match); !status.ok()) {
    send_fail(*incoming.peer, init.channel, status, 0);
    return channel->fail_unmatched(init.channel, status,
                                   who + " can't be taken up: " + errc_name(status.code()));
  }
  send_accept_locked(peers_[incoming.peer->peer], channel, channel->match(match));
}

/// What a matched receive needs of this process.
Status Network::take_match_locked(NetRecv& channel, const record::NetInit& init,
                                  NetRecv::Match* match) {
  const std::uint32_t cells = net::Cells(init.partitions).count();
  if (free_slots_.empty() && used_slots_ == kSlots) return Errc::kNoMemory;
  // A push or a notice a cell in one round, a notice a cell in the next one: no more can come
  // before some have been served.
  LARKLANE_TRY(vci_->reserve_immediates(2 * cells));
  auto notices = notices_.take(cells);
  if (!notices) {
    vci_->release_immediates(2 * cells);
    return notices.error();
  }
  match->init = init;
  match->notices = *notices;
  if (free_slots_.empty()) {
    match->slot = static_cast<std::uint16_t>(used_slots_++);
  } else {
    match->slot = free_slots_.back();
    free_slots_.pop_back();
  }
  vci_->exclusively([&] {
    // relaxed: the lane's lock orders it.
    slots_[match->slot].store(&channel, std::memory_order_relaxed);
  });
  return {};
}

void Network::on_immediate(std::uint32_t immediate) {
  // relaxed: the lane's lock orders it.
  NetRecv* const channel = slots_[net::channel_slot_of(immediate)].load(std::memory_order_relaxed);
  if (channel == nullptr) return;  // of a channel that has failed and is closed
  const auto token = net::decode_token(net::token_of(immediate));
  if (token && token->is_notice) return channel->on_notice(token->run.first);
  channel->on_push(token ? token->run : Run{0, 0});
}

void Network::on_accept(const control::Peer& from, const record::NetAccept& accept) {
  std::shared_ptr<NetSend> channel;
  {
    const std::scoped_lock lock(mutex_);
    auto found = sends_by_id_.find(accept.channel);
    if (found == sends_by_id_.end() || found->second->path().peer->peer != &from) return;
    channel = found->second;
  }
  channel->on_accept(accept);
}

void Network::on_close_locked(const control::Peer& from, const record::NetClose& close) {
  if (close.by_sender == 0) {
    auto found = sends_by_id_.find(close.channel);
    if (found == sends_by_id_.end() || found->second->path().peer->peer != &from) return;
    NetSend& channel = *found->second;
    channel.on_peer_closed(close.rounds);
    if (!channel.is_closed) return;
    if (!channel.has_failed()) controls_.give_back(channel.words());
    sends_by_id_.erase(found);
    return;
  }
  if (auto found = matched_.find({&from, close.channel}); found != matched_.end()) {
    const auto channel = found->second;
    channel->on_peer_closed(close.rounds);
    if (channel->is_closed) release_locked(*channel);
    return;
  }
  if (Incoming* const incoming = matching_.find_incoming([&](const Incoming& one) {
        return one.peer->peer == &from && one.init.channel == close.channel;
      }))
    incoming->sender_rounds = close.rounds;
}

void Network::on_fail_locked(const control::Peer& from, const record::Fail& fail) {
  const Status status = status_of(fail);
  if (fail.by_sender != 0) {
    if (auto found = matched_.find({&from, fail.channel}); found != matched_.end())
      found->second->on_peer_fail(status, reported(found->second->args(), Kind::receive, fail));
  } else if (auto found = sends_by_id_.find(fail.channel);
             found != sends_by_id_.end() && found->second->path().peer->peer == &from) {
    found->second->on_peer_fail(status, reported(found->second->args(), Kind::send, fail));
  }
}

void Network::on_peer_down(const control::Peer& peer) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(sends_by_id_, [&](const auto& entry) {
    return entry.second->is_closed && entry.second->path().peer->peer == &peer;
  });
  std::vector<std::shared_ptr<NetRecv>> closed;
  for (const auto& [key, channel] : matched_)
    if (key.first == &peer && channel->is_closed) closed.push_back(channel);
  for (const auto& channel : closed) release_locked(*channel);
}

void Network::end_links(const control::Peer& peer) {
  const std::scoped_lock lock(mutex_);
  const auto known = peers_.find(&peer);
  if (known != peers_.end() && known->second.link)
    vci_->end_link(*known->second.link, Errc::kPeerDown);
}

void Network::add_totals(RoundTotals* sent, RoundTotals* received) const {
  const std::scoped_lock lock(mutex_);
  sent->add(freed_sends_);
  received->add(freed_receives_);
  for (const auto& [request, channel] : sends_) sent->add(channel->totals());
  for (const auto& [request, channel] : receives_) received->add(channel->totals());
}

}  // namespace larklane::part
