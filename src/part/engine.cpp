#include <limits>

#include "base/log.hpp"
#include "model/tuning_file.hpp"
#include "net/registry.hpp"
#include "part/engine_impl.hpp"
#include "part/network/transport.hpp"
#include "part/shared/transport.hpp"

namespace larklane::part {
namespace {

constexpr const char* kUnlike =
    ": one side uses a network provider, the other shared memory; set LARKLANE_PROVIDER alike, and "
    "look for a warning of a provider that can't be opened";

Transport::Report report_of(const Config& config, Counters& counters) {
  return {counters, config.policy, log_level_named(config.log_level) >= LogLevel::info};
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(std::vector<control::Listener> own, Config config,
                                               std::shared_ptr<const shm::Regions> regions,
                                               std::unique_ptr<net::Fabric> fabric,
                                               std::optional<OtherHosts> others,
                                               control::Handler* beside) {
  auto engine = std::make_unique<EngineImpl>(std::move(config), std::move(regions), beside);
  LARKLANE_TRY(engine->open(std::move(own), std::move(fabric), std::move(others)));
  return std::unique_ptr<Engine>(std::move(engine));
}

EngineImpl::EngineImpl(Config config, std::shared_ptr<const shm::Regions> regions,
                       control::Handler* beside)
    : config_(std::move(config)), beside_(beside) {
  transports_.push_back(std::make_unique<SharedTransport>(config_, std::move(regions),
                                                          report_of(config_, counters_), steps_));
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
  auto networks = open_networks(std::move(fabrics), config_, report_of(config_, counters_));
  if (!networks) return networks.error();
  for (auto& network : *networks) transports_.push_back(std::move(network));
  std::optional<control::Remote> remote;
  if (others) remote = std::move(others->remote);
  auto plane =
      control::Plane::create(std::move(own), *this, std::move(remote), config_.control_connect_ns);
  if (!plane) return plane.error();
  plane_ = std::move(plane).value();
  steps_.serve_by(*plane_);
  for (const auto& transport : transports_) transport->begin(*plane_);
  return {};
}

EngineImpl::~EngineImpl() {
  std::vector<Transport*> transports;
  for (const auto& transport : transports_) transports.push_back(transport.get());
  Transport::settle(transports);
  if (plane_)
    for (Transport* const transport : transports) transport->end(*plane_);
  plane_.reset();
}

Transport& EngineImpl::transport_for(const control::Peer& peer) const {
  Transport& shared = *transports_.front();
  if (transports_.size() == 1 || !(peer.is_remote() || is_all_network_) ||
      peer.address() == own_address_)
    return shared;
  const auto other = network_of_.find(peer.address());
  if (other == network_of_.end()) return *transports_[1];
  return other->second == OtherHosts::kSharedMemory ? shared : *transports_[1 + other->second];
}

std::shared_ptr<PeerState> EngineImpl::state_of_locked(control::Peer& peer) {
  auto& state = peers_[&peer];
  if (!state) {
    state = std::make_shared<PeerState>();
    peers_at_[peer.address()].push_back(state);
    state->peer = &peer;
    state->transport = &transport_for(peer);
    state->transport->on_new_peer(*state);
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
  if (peer) return connected_[address] = state_of_locked(**peer);
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

std::shared_ptr<PeerState> EngineImpl::sender_of(const InitArgs& args) {
  const std::scoped_lock lock(mutex_);
  const auto peers = peers_at_.find(args.peer);
  if (peers == peers_at_.end()) return nullptr;
  for (const auto& state : peers->second)
    if (state->transport->has_incoming(args, *state)) return state;
  return nullptr;
}

Result<PolicyPointer> EngineImpl::policy_of(const InitArgs& args, const Transport& transport) {
  const PolicyInputs inputs{config_.min_bytes, [&, this] { return tuning(transport); }};
  if (!args.policy.empty()) return make_policy(args.policy, inputs);
  const std::scoped_lock lock(policies_mutex_);
  const auto found = policies_.find(&transport);
  if (found != policies_.end()) return found->second;
  return policies_.emplace(&transport, make_policy(config_.policy, inputs)).first->second;
}

const model::Tuning* EngineImpl::tuning(const Transport& transport) {
  if (const auto* own = tuning_of(transport.fabric())) return own;
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

Result<SendRequest*> EngineImpl::send_init(const InitArgs& args) {
  LARKLANE_TRY(check(args));
  auto peer = connect(args.peer);
  auto policy = policy_of(args, peer ? *(*peer)->transport : *transports_.front());
  if (!policy) return policy.error();
  if (!peer) return peer.error();
  if (is_down(**peer)) return Errc::kPeerDown;
  return (*peer)->transport->make_send(args, *peer, {std::move(policy).value(), plane_.get()});
}

Result<RecvRequest*> EngineImpl::recv_init(const InitArgs& args) {
  LARKLANE_TRY(check(args));
  auto peer = connect(args.peer);
  if (!peer) return peer.error();
  // A process's records from before its end come first. While it ends, its socket still takes
  // connections. Null: a receive of another thread has taken that INIT.
  for (auto sender = sender_of(args); sender && sender != *peer; sender = sender_of(args)) {
    auto made = sender->transport->make_receive(args, sender, IfUnmatched::none);
    if (!made || *made != nullptr) return made;
  }
  return (*peer)->transport->make_receive(args, *peer, IfUnmatched::wait);
}

Status EngineImpl::free(Request* request) {
  Status freed = Errc::kInvalidArgument;  // each transport returns it for requests of the others
  for (auto transport = transports_.begin();
       transport != transports_.end() && freed.code() == Errc::kInvalidArgument; ++transport)
    freed = (*transport)->free(request);
  return freed;
}

void EngineImpl::on_record(control::Peer& from, const control::Record& record) {
  if (record.kind >= kKindsEnd) {
    if (beside_ != nullptr) beside_->on_record(from, record);
    return;
  }
  std::shared_ptr<PeerState> peer;
  {
    const std::scoped_lock lock(mutex_);
    peer = state_of_locked(from);
  }
  Transport& transport = *peer->transport;
  if (transport.takes(record.kind)) return transport.on_record(peer, record);
  auto key = SharedTransport::refuse(*peer, record);
  if (!key) key = NetworkTransport::refuse(*peer, record);
  if (key) transport.fail_posted(*key, kUnlike);
}

void EngineImpl::on_peer_down(control::Peer& peer) {
  std::shared_ptr<PeerState> state;
  {
    const std::scoped_lock lock(mutex_);
    state = state_of_locked(peer);
  }
  // release: pairs with is_down's acquire and the channels'.
  state->down.store(true, std::memory_order_release);
  state->transport->on_down(*state);
  if (beside_ != nullptr) beside_->on_peer_down(peer);
}

Summary EngineImpl::summary() const {
  const std::scoped_lock lock(mutex_);
  RoundTotals sent, received;
  for (const auto& transport : transports_) transport->add_totals(&sent, &received);
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
    if (PeerUse use = state->transport->use_of(*state); use.channels != 0)
      out.peers.push_back(
          {peer->address(), std::move(use.provider), std::move(use.policy), use.channels});
  return out;
}

}  // namespace larklane::part
