#include <algorithm>
#include <limits>

#include "base/log.hpp"
#include "model/tuning_file.hpp"
#include "net/registry.hpp"
#include "part/engine_impl.hpp"

namespace larklane::part {

Result<std::unique_ptr<Engine>> Engine::create(std::vector<control::Listener> own, Config config,
                                               std::shared_ptr<const shm::Regions> regions,
                                               std::unique_ptr<net::Fabric> fabric,
                                               std::optional<OtherHosts> others) {
  auto engine = std::make_unique<EngineImpl>(std::move(config), std::move(regions));
  LARKLANE_TRY(engine->open(std::move(own), std::move(fabric), std::move(others)));
  return std::unique_ptr<Engine>(std::move(engine));
}

/// The first provider of option `provider` that opens. Null: the option names none, or none opens,
/// which has been logged.
/// @errors kUnreachable: none opens, and the option allows no other way
static Result<std::unique_ptr<net::Fabric>> open_provider(const Config& config) {
  const std::string& option = config.provider;
  if (option == "auto") return std::unique_ptr<net::Fabric>();
  std::string reason;
  for (const std::string& wanted : net::wanted_providers(option)) {
    std::string why;
    auto fabric = net::open_fabric_named(config, wanted, &why);
    if (fabric && !reason.empty())
      log_warn("%s; going on with %s, which fails with peers that have opened another one",
               reason.c_str(), wanted.c_str());
    if (fabric) return std::move(fabric).value();
    reason += (reason.empty() ? "" : "; ") + why;
  }
  if (config.unreachable == "refuse") {
    log_error("provider %s can't be opened: %s", option.c_str(), reason.c_str());
    return Errc::kUnreachable;
  }
  log_warn(
      "provider %s can't be opened: %s; going on through shared memory, which fails with peers "
      "that have opened it",
      option.c_str(), reason.c_str());
  return std::unique_ptr<net::Fabric>();
}

Status EngineImpl::open(std::vector<control::Listener> own, std::unique_ptr<net::Fabric> fabric,
                        std::optional<OtherHosts> others) {
  own_address_ = own.front().address;
  is_all_network_ =
      others ? others->is_for_this_host : fabric != nullptr || config_.provider != "auto";
  std::vector<std::unique_ptr<net::Fabric>> fabrics;
  if (others) {
    fabrics = std::move(others->fabrics);
    network_of_ = std::move(others->fabric_of);
  } else if (fabric) {
    fabrics.push_back(std::move(fabric));
  } else {
    auto opened = open_provider(config_);
    if (!opened) return opened.error();
    if (*opened) fabrics.push_back(std::move(opened).value());
  }
  for (auto& one : fabrics) {
    auto lanes = vci::VciPool::Options::of(config_);
    if (!lanes) return lanes.error();
    auto network = Network::create(std::move(one), *lanes, counters_, config_.link_silence_ns);
    if (!network) return network.error();
    networks_.push_back(std::move(network).value());
    if (networks_.size() > 1) networks_.front()->lanes().wait_together(networks_.back()->lanes());
  }
  std::optional<control::Remote> remote;
  if (others) remote = std::move(others->remote);
  auto plane =
      control::Plane::create(std::move(own), *this, std::move(remote), config_.control_connect_ns);
  if (!plane) return plane.error();
  plane_ = std::move(plane).value();
  steps_.serve_by(*plane_);
  for (const auto& network : networks_)
    if (!network->watch_by(*plane_))
      log_warn("%s has no wait object: bytes move only while both sides are in calls of the MPI",
               network->limits().provider.c_str());
  return {};
}

EngineImpl::~EngineImpl() {
  std::vector<Network*> networks;
  for (const auto& network : networks_) networks.push_back(network.get());
  Network::settle(networks);
  if (plane_)
    for (const auto& network : networks_) network->unwatch(*plane_);
  plane_.reset();
}

Network* EngineImpl::network_of(const control::Peer& peer) const {
  if (networks_.empty() || !(peer.is_remote() || is_all_network_) || peer.address() == own_address_)
    return nullptr;
  const auto other = network_of_.find(peer.address());
  if (other == network_of_.end()) return networks_.front().get();
  return other->second == OtherHosts::kSharedMemory ? nullptr : networks_[other->second].get();
}

std::shared_ptr<PeerState> EngineImpl::shared_state_locked(control::Peer& peer) {
  auto& state = peers_[&peer];
  if (!state) {
    state = std::make_shared<PeerState>();
    peers_at_[peer.address()].push_back(state);
    state->peer = &peer;
    state->steps = &steps_;
    const bool attach = config_.shm_attach != "off" && !peer.is_remote();
    // relaxed: published by the engine's mutex.
    state->thread.store(shm::attach_thread(peer.pid()), std::memory_order_relaxed);
    state->push_allowed = attach && shm::attach_allowed_to(shm::Direction::write, peer.pid());
    state->pull_allowed = attach && shm::attach_allowed_to(shm::Direction::read, peer.pid());
    // relaxed: published by the engine's mutex.
    if (peer.is_down()) state->down.store(true, std::memory_order_relaxed);
  }
  return state;
}

Result<std::shared_ptr<PeerState>> EngineImpl::connect(const control::Address& address) {
  {
    const std::scoped_lock lock(mutex_);
    const auto known = connected_.find(address);
    if (known != connected_.end() && !is_down(*known->second)) return known->second;
  }
  auto peer = plane_->connect(address);
  if (!peer) plane_->catch_up();  // with the hello and the INITs of a process that has ended
  const std::scoped_lock lock(mutex_);
  if (peer) return connected_[address] = shared_state_locked(**peer);
  // It has run under Larklane: its pairs with this process fail here, and do not fall back to the
  // MPI.
  const auto earlier = peers_at_.find(address);
  if (earlier == peers_at_.end()) return peer.error();
  return earlier->second.back();
}

Status EngineImpl::reachable(const control::Address& peer) {
  auto state = connect(peer);
  return state ? Status{} : state.error();
}

std::shared_ptr<PeerState> EngineImpl::sender_locked(const InitArgs& args) {
  const auto peers = peers_at_.find(args.peer);
  if (peers == peers_at_.end()) return nullptr;
  for (const auto& state : peers->second) {
    Network* const network = network_of(*state->peer);
    if (network != nullptr
            ? network->has_incoming(args, *state)
            : matching_.has_incoming({args.context, args.source, args.tag, state->peer}))
      return state;
  }
  return nullptr;
}

Result<PolicyPointer> EngineImpl::policy_of(const InitArgs& args, const Network* network) {
  const PolicyInputs inputs{config_.min_bytes, [=, this] { return tuning(network); }};
  if (!args.policy.empty()) return make_policy(args.policy, inputs);
  const std::scoped_lock lock(policies_mutex_);
  const auto found = policies_.find(network);
  if (found != policies_.end()) return found->second;
  return policies_.emplace(network, make_policy(config_.policy, inputs)).first->second;
}

const model::Tuning* EngineImpl::tuning(const Network* network) {
  if (network != nullptr) {
    const std::string& name = network->limits().network;  // "verbs/roce"
    if (const auto* own = tuning_of(std::string_view(name).substr(0, name.find('/')))) return own;
  }
  return tuning_of(model::kShmFabric);
}

/// A named file is of one fabric: pairs over another one do without it.
const model::Tuning* EngineImpl::tuning_of(std::string_view fabric) {
  const std::scoped_lock lock(tunings_mutex_);
  auto found = tunings_.find(fabric);
  if (found == tunings_.end()) {
    auto file = model::find_tuning(config_.tuning, fabric, model::this_host());
    const bool is_reported = fabric == model::kShmFabric || !file.is_of_another_fabric;
    if (!file.problem.empty() && is_reported) log_warn_once("tuning", "%s", file.problem.c_str());
    if (file.tuning) log_info("tuning file: %s", file.path.c_str());
    found = tunings_.emplace(std::string(fabric), std::move(file.tuning)).first;
  }
  return found->second ? &*found->second : nullptr;
}

Status EngineImpl::check(const InitArgs& args) {
  if (args.partitions < 1 || !args.type) return Errc::kInvalidArgument;
  std::uint64_t partition = 0;
  std::uint64_t total = 0;
  if (__builtin_mul_overflow(args.count, args.type->size_bytes(), &partition) ||
      __builtin_mul_overflow(partition, static_cast<std::uint64_t>(args.partitions), &total) ||
      total > (std::uint64_t{1} << 62))
    return Errc::kInvalidArgument;
  // Records hold the length of a typemap in 32 bits: 32 GiB.
  if (args.type->encoded_words() > std::numeric_limits<std::uint32_t>::max())
    return Errc::kNoMemory;
  return {};
}

Result<EngineImpl::Plan> EngineImpl::plan_of(const InitArgs& args, const Policy& policy,
                                             Mode mode) {
  Plan plan{};
  BlockShape& shape = plan.shape;
  shape.mode = mode;
  shape.partitions = static_cast<std::uint32_t>(args.partitions);
  shape.partition_bytes = args.count * args.type->size_bytes();
  if (mode == Mode::slots) return plan;  // the receiver gets packed bytes
  if (!args.type->is_contiguous()) {
    const std::uint64_t words = args.type->encoded_words();
    if (words > kTypeWordsMax) {
      log_error("%s with %s: its datatype needs %llu words, and the limit without slots is %llu",
                describe(args, Kind::send).c_str(), args.peer.c_str(),
                static_cast<unsigned long long>(words),
                static_cast<unsigned long long>(kTypeWordsMax));
      return Errc::kNoMemory;
    }
    shape.type_words = static_cast<std::uint32_t>(words);
  }
  plan.boundaries = policy.groups(shape.partitions, shape.partition_bytes);
  auto layout = Layout::make(shape.partitions, plan.boundaries);
  if (!layout) return layout.error();
  if (policy.needs().has_planner) {
    const std::uint32_t planned = PlanCells(shape.partitions).count();
    shape.groups_max = std::max(planned, static_cast<std::uint32_t>(plan.boundaries.size()));
    const LayoutSize most = LayoutSize::most(shape.partitions, planned);
    shape.words_max = std::max(most.words, static_cast<std::uint32_t>(layout->words().size()));
    shape.roots_max = std::max(most.roots, static_cast<std::uint32_t>(layout->roots().size()));
    return plan;
  }
  shape.groups_max = static_cast<std::uint32_t>(plan.boundaries.size());
  shape.words_max = static_cast<std::uint32_t>(layout->words().size());
  shape.roots_max = static_cast<std::uint32_t>(layout->roots().size());
  return plan;
}

/// Large slots get memory in the first Start that uses them. So a request that only waits for its
/// turn costs little, and a first Start reserves the slots of one parity.
Result<shm::Block> EngineImpl::block_of(const BlockShape& shape) {
  const BlockOffsets at = BlockOffsets::of(shape);
  if (shape.mode != Mode::slots) return pool_.allocate(at.end);
  auto block = pool_.allocate(at.end, shm::Allocate::on_reserve);
  if (!block) return block;
  Status status = block->reserve(0, at.slots[0]);
  if (status.ok()) status = block->reserve(at.marks[1], at.slots[1] - at.marks[1]);
  if (status.ok()) return block;
  pool_.release(std::move(block).value());
  return status;
}

Result<SendRequest*> EngineImpl::send_init(const InitArgs& args) {
  LARKLANE_TRY(check(args));
  auto peer = connect(args.peer);
  Network* const network = peer ? network_of(*(*peer)->peer) : nullptr;
  auto made = policy_of(args, network);
  if (!made) return made.error();
  const Policy& policy = **made;
  const PolicyNeeds needs = policy.needs();
  if (!peer) return peer.error();
  if (is_down(**peer)) return Errc::kPeerDown;

  if (network != nullptr) {
    const auto partitions = static_cast<std::uint32_t>(args.partitions);
    const std::uint64_t bytes = args.count * args.type->size_bytes();
    auto channel = network->send_init(args, *peer, policy.groups(partitions, bytes),
                                      GroupRules::of(needs, config_.demand_after_ns),
                                      {*made, plane_.get()}, policy.queues(partitions, bytes));
    if (channel) note_network_peer(*network, **peer, args, Kind::send);
    return channel;
  }
  const Mode mode = mode_for(**peer, args);
  auto plan = plan_of(args, policy, mode);
  if (!plan) return plan.error();
  auto block = block_of(plan->shape);
  if (!block && mode == Mode::slots && can_attach(**peer) && plan->shape.partition_bytes != 0) {
    // No room for slots: attach needs little memory.
    plan = plan_of(args, policy, Mode::direct);
    if (!plan) return plan.error();
    block = block_of(plan->shape);
  }
  if (!block) return block.error();
  const BlockShape& shape = plan->shape;
  const BlockView<RealPlatform> view(block->base(), shape);
  view.construct(shape, block->generation);
  if (shape.mode == Mode::direct && shape.partitions > 1) {
    view.header().deadline_ns = needs.deadline_ns;
    view.header().on_demand = needs.is_on_demand ? 1 : 0;
  }
  if (shape.type_words != 0) args.type->encode({view.type_words(), shape.type_words});

  const bool is_planned = needs.has_planner && shape.mode == Mode::direct && shape.partitions > 1;
  const std::scoped_lock lock(mutex_);
  auto channel = std::make_shared<SendChannel>(SendChannel::Parts{
      ++last_channel_, args, *block, shape, std::move(plan->boundaries), *peer, &counters_,
      config_.shm_piece_bytes, is_planned ? PlanSource{*made, plane_.get()} : PlanSource{}});
  if (const Status sent = send_init_record_locked(*channel, shape); !sent.ok()) {
    pool_.release(std::move(*block));  // the peer has no INIT of it
    return sent;
  }
  note_peer_locked(**peer, shape.mode, args, Kind::send);
  sends_.emplace(channel->channel(), channel);
  requests_.emplace(channel.get(), channel);
  Counters::add(counters_.sends);
  return static_cast<SendRequest*>(channel.get());
}

Status EngineImpl::send_init_record_locked(const SendChannel& channel, const BlockShape& shape) {
  const InitArgs& args = channel.args();
  const shm::Block& block = channel.block();
  const bool shared = block.segment->bytes() != block.bytes;
  const auto region = shape.mode == Mode::direct ? mapped(args) : std::nullopt;
  const record::Init record{channel.channel(),
                            args.context.high,
                            args.context.low,
                            args.source,
                            args.tag,
                            shape,
                            block.segment->bytes(),
                            block.offset,
                            block.generation,
                            reinterpret_cast<std::uint64_t>(args.buffer),
                            block.segment_id,
                            shared ? 1u : 0u,
                            region ? region->segment->bytes() : 0,
                            region ? region->offset : 0};
  auto& sent = channel.peer().segments_sent;
  int fds[2];
  std::size_t fd_count = 0;
  if (!shared || !sent.contains(block.segment_id)) fds[fd_count++] = block.segment->fd();
  if (region) fds[fd_count++] = region->segment->fd();
  control::Peer& to = *channel.peer().peer;
  const auto type = static_cast<std::uint16_t>(record::Type::init);
  const auto bytes = std::as_bytes(std::span(&record, 1));
  // No peer waits for the channel before its first Start, which flushes.
  if (!to.has_room()) return Errc::kNoMemory;
  LARKLANE_TRY(fd_count == 0 ? to.send_later(type, bytes)
                             : to.send(type, bytes, std::span(fds, fd_count)));
  if (shared)
    sent.insert(block.segment_id);
  else
    block.segment->close_fd();
  return {};
}

std::optional<shm::Mapped> EngineImpl::mapped(const InitArgs& args) const {
  const Typemap& type = *args.type;
  if (!regions_ || type.size_bytes() == 0 || args.count == 0) return std::nullopt;
  const auto to_a_byte = static_cast<std::uint64_t>(type.offset_bytes());
  auto found = regions_->find(reinterpret_cast<std::uintptr_t>(args.buffer) + to_a_byte, 1);
  if (!found) return std::nullopt;
  found->offset -= to_a_byte;
  const std::uint64_t bytes =
      static_cast<std::uint64_t>(args.partitions) * args.count * type.size_bytes();
  return lies_within(*found->segment, found->offset, type, bytes) ? found : std::nullopt;
}

void EngineImpl::send_map(PeerState& peer, std::uint64_t channel, const InitArgs& args) {
  const auto region = mapped(args);
  if (!region || peer.peer->same_process()) return;
  const record::Map record{channel, region->segment->bytes(), region->offset};
  const int fd = region->segment->fd();
  // If send() fails the sender uses attach.
  (void)peer.peer->send(static_cast<std::uint16_t>(record::Type::map),
                        std::as_bytes(std::span(&record, 1)), std::span(&fd, 1));
}

Mode EngineImpl::mode_for(const PeerState& peer, const InitArgs& args) const {
  const std::uint64_t partition_bytes = args.count * args.type->size_bytes();
  const std::uint64_t bytes = partition_bytes * static_cast<std::uint64_t>(args.partitions);
  // A mapped send buffer can always be pulled, if only by the receiver's helper. That pays off
  // where a second copy costs more.
  const bool is_mapped = mapped(args).has_value();
  if (!can_attach(peer) && (!is_mapped || bytes < kHandOverBytesMin)) return Mode::slots;
  // The kernel walks a list of blocks more slowly than this library does.
  const bool scattered =
      !args.type->is_contiguous() &&
      args.type->size_bytes() / kAttachBlockBytesMin < args.type->block_count() &&
      bytes <= kScatteredSlotsBytesMax;
  // A copy in cache costs less than attach does, but not less than no copy.
  const bool prefers_slots =
      bytes <= config_.shm_slot_cached_max && !is_mapped && !peer.peer->same_process();
  const std::uint64_t slot_bytes_max = config_.shm_slot_bytes_max / (prefers_slots ? 1 : 8);
  const bool small = partition_bytes <= slot_bytes_max && bytes <= config_.shm_slot_message_max;
  const bool is_type_too_long =
      !args.type->is_contiguous() && args.type->encoded_words() > kTypeWordsMax;
  return partition_bytes == 0 || small || (scattered && !is_mapped) || is_type_too_long
             ? Mode::slots
             : Mode::direct;
}

void EngineImpl::note_peer_locked(PeerState& peer, Mode mode, const InitArgs& args, Kind kind) {
  ++peer.channels;
  const char* how = "shm attach";
  if (mode == Mode::slots)
    how = config_.shm_attach == "off" ? "shm slots (attach off)"
          : peer.push_allowed         ? "shm slots"
                                      : "shm slots (attach refused)";
  if (peer.peer->same_process()) how = "self";
  if (mode == Mode::direct) peer.policy = args.policy.empty() ? config_.policy : args.policy;
  if (mode == Mode::direct || peer.provider.empty()) peer.provider = how;
  if (logs_info_) log_info("%s with %s: %s", describe(args, kind).c_str(), args.peer.c_str(), how);
}

void EngineImpl::note_network_peer(const Network& network, PeerState& peer, const InitArgs& args,
                                   Kind kind) {
  const std::scoped_lock lock(mutex_);
  Counters::add(kind == Kind::send ? counters_.sends : counters_.receives);
  ++peer.channels;
  peer.provider = network.limits().provider;
  peer.policy = args.policy.empty() ? config_.policy : args.policy;
  if (!logs_info_) return;
  log_info("%s with %s: %s", describe(args, kind).c_str(), args.peer.c_str(),
           peer.provider.c_str());
}

Result<RecvRequest*> EngineImpl::recv_init(const InitArgs& args) {
  LARKLANE_TRY(check(args));
  auto peer = connect(args.peer);
  if (!peer) return peer.error();
  std::unique_lock lock(mutex_);
  // A process's records from before its end come first. While it ends, its socket still takes
  // connections.
  if (auto sender = sender_locked(args)) peer = std::move(sender);
  if (Network* const network = network_of(*(*peer)->peer)) {
    lock.unlock();
    auto channel = network->recv_init(args, *peer);
    if (channel) note_network_peer(*network, **peer, args, Kind::receive);
    return channel;
  }
  auto channel = std::make_shared<RecvChannel>(args, *peer, &counters_, config_.shm_piece_bytes);
  const MatchKey key{args.context, args.source, args.tag, (*peer)->peer};
  if (auto incoming = matching_.take_incoming(key)) {
    // It is not started yet: there is nothing to open.
    if (*incoming)
      (void)match_locked(channel, std::move(**incoming));
    else
      channel->match_freed();
  } else {
    if (is_down(**peer)) return Errc::kPeerDown;
    channel->place = matching_.post(key, channel);
  }
  requests_.emplace(channel.get(), channel);
  Counters::add(counters_.receives);
  return static_cast<RecvRequest*>(channel.get());
}

Status EngineImpl::free(Request* request) {
  const std::scoped_lock lock(mutex_);
  auto found = requests_.find(request);
  if (found == requests_.end()) {
    Status freed = Errc::kInvalidArgument;  // a network returns it for other networks' requests
    for (auto network = networks_.begin();
         network != networks_.end() && freed.code() == Errc::kInvalidArgument; ++network)
      freed = (*network)->free(request);  // NOLINT(clang-analyzer-unix.Malloc): a method
    return freed;
  }
  if (request->active()) return Errc::kAlreadyActive;
  auto owned = std::move(found->second);
  requests_.erase(found);
  (request->kind() == Kind::send ? freed_sends_ : freed_receives_).add(totals_of(*request));
  if (request->kind() == Kind::send)
    free_send_locked(static_cast<SendChannel&>(*request));
  else
    free_recv_locked(static_cast<RecvChannel&>(*request));
  return {};
}

void EngineImpl::send_close(PeerState& peer, const record::Close& close, Urgency urgency) {
  const auto type = static_cast<std::uint16_t>(record::Type::close);
  const auto bytes = std::as_bytes(std::span(&close, 1));
  // If it fails the peer is gone: on_peer_down releases its blocks.
  (void)(urgency == Urgency::now ? peer.peer->send(type, bytes)
                                 : peer.peer->send_later(type, bytes));
}

void EngineImpl::answer_close(PeerState& peer, std::uint64_t channel, bool has_own_segment) {
  send_close(peer, {channel, 0, 0}, has_own_segment ? Urgency::now : Urgency::later);
}

void EngineImpl::free_send_locked(SendChannel& channel) {
  channel.wait_until_idle();
  send_close(channel.peer(), {channel.channel(), 1, channel.totals().rounds != 0 ? 1u : 0u},
             Urgency::later);
  if (channel.peer_closed())
    pool_.release(channel.block());
  else
    closing_.emplace(channel.channel(), Closing{channel.block(), channel.peer().peer});
  sends_.erase(channel.channel());
  if (channel.peer_is_down()) release_ended_locked();
}

void EngineImpl::release_ended_locked() {
  std::erase_if(closing_, [&](auto& entry) {
    if (!entry.second.peer->has_ended()) return false;
    pool_.release(std::move(entry.second.block));
    return true;
  });
}

void EngineImpl::free_recv_locked(RecvChannel& channel) {
  if (channel.matched()) {
    channel.wait_until_idle();
    if (channel.channel() == 0) return;  // its send was freed before
    answer_close(channel.peer(), channel.channel(), channel.has_own_segment());
    receives_.erase({channel.peer().peer, channel.channel()});
    return;
  }
  matching_.bury(
      {channel.args().context, channel.args().source, channel.args().tag, channel.peer().peer},
      channel.place);
}

RoundTotals EngineImpl::totals_of(const Request& request) {
  return request.kind() == Kind::send ? static_cast<const SendChannel&>(request).totals()
                                      : static_cast<const RecvChannel&>(request).totals();
}

Summary EngineImpl::summary() const {
  const std::scoped_lock lock(mutex_);
  RoundTotals sent = freed_sends_, received = freed_receives_;
  for (const auto& [key, request] : requests_)
    (request->kind() == Kind::send ? sent : received).add(totals_of(*request));
  for (const auto& network : networks_) network->add_totals(&sent, &received);
  // relaxed throughout: statistics.
  constexpr auto relaxed = std::memory_order_relaxed;
  const auto moved = [&](MovedBy by) {
    return counters_.moved[static_cast<int>(by)].load(relaxed);
  };
  Summary out;
  out.sends = counters_.sends.load(relaxed);
  out.receives = counters_.receives.load(relaxed);
  out.send_rounds = sent.rounds;
  out.receive_rounds = received.rounds;
  out.bytes_sent = sent.bytes;
  out.bytes_received = received.bytes;
  out.bytes_moved = counters_.bytes_moved.load(relaxed) + received.slot_bytes;
  out.early_bytes = counters_.early_bytes.load(relaxed);
  out.moved_by_sender = moved(MovedBy::sender);
  out.moved_by_receiver = moved(MovedBy::receiver) + received.slots_emptied;
  out.moved_by_helper = moved(MovedBy::helper);
  out.control = plane_->counters();
  for (const auto& [peer, state] : peers_)
    if (state->channels != 0)
      out.peers.push_back({peer->address(), state->provider, state->policy, state->channels});
  return out;
}

}  // namespace larklane::part
