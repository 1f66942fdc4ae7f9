#include "part/shared/transport.hpp"

#include <algorithm>

#include "base/log.hpp"

namespace larklane::part {
namespace {

/// Messages this long are handed over rather than copied twice: waking a helper costs 15-40 us, and
/// the second copy costs more.
constexpr std::uint64_t kHandOverBytesMin = std::uint64_t{1} << 20;
/// Datatypes with smaller blocks on average use slots, up to this size of a message: with blocks of
/// 4 bytes attach takes 20 times as long.
constexpr std::uint64_t kAttachBlockBytesMin = 256;
constexpr std::uint64_t kScatteredSlotsBytesMax = std::uint64_t{256} << 20;

MatchKey key_of(const InitArgs& args, const PeerState& peer) {
  return {args.context, args.source, args.tag, peer.peer};
}

}  // namespace

void SharedTransport::on_new_peer(PeerState& peer) {
  control::Peer& process = *peer.peer;
  peer.steps = &steps_;
  const bool attach = config_.shm_attach != "off" && !process.is_remote();
  // relaxed: published by the engine's mutex.
  peer.thread.store(shm::attach_thread(process.pid()), std::memory_order_relaxed);
  peer.push_allowed = attach && shm::attach_allowed_to(shm::Direction::write, process.pid());
  peer.pull_allowed = attach && shm::attach_allowed_to(shm::Direction::read, process.pid());
}

Result<SharedTransport::Plan> SharedTransport::plan_of(const InitArgs& args, const Policy& policy,
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
Result<shm::Block> SharedTransport::block_of(const BlockShape& shape) {
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

Result<SendRequest*> SharedTransport::make_send(const InitArgs& args,
                                                const std::shared_ptr<PeerState>& peer,
                                                const PlanSource& plans) {
  const Policy& policy = *plans.policy;
  const PolicyNeeds needs = policy.needs();
  const Mode mode = mode_for(*peer, args);
  auto plan = plan_of(args, policy, mode);
  if (!plan) return plan.error();
  auto block = block_of(plan->shape);
  if (!block && mode == Mode::slots && can_attach(*peer) && plan->shape.partition_bytes != 0) {
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
  auto channel = std::make_shared<SendChannel>(
      SendChannel::Parts{++last_channel_, args, *block, shape, std::move(plan->boundaries), peer,
                         &counters_, config_.shm_piece_bytes, is_planned ? plans : PlanSource{}});
  if (const Status sent = send_init_record_locked(*channel, shape); !sent.ok()) {
    pool_.release(std::move(*block));  // the peer has no INIT of it
    return sent;
  }
  note_locked(*peer, shape.mode, args, Kind::send);
  sends_.emplace(channel->channel(), channel);
  requests_.emplace(channel.get(), channel);
  Counters::add(counters_.sends);
  return static_cast<SendRequest*>(channel.get());
}

Status SharedTransport::send_init_record_locked(const SendChannel& channel,
                                                const BlockShape& shape) {
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

std::optional<shm::Mapped> SharedTransport::mapped(const InitArgs& args) const {
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

void SharedTransport::send_map(PeerState& peer, std::uint64_t channel, const InitArgs& args) {
  const auto region = mapped(args);
  if (!region || peer.peer->same_process()) return;
  const record::Map record{channel, region->segment->bytes(), region->offset};
  const int fd = region->segment->fd();
  // If send() fails the sender uses attach.
  (void)peer.peer->send(static_cast<std::uint16_t>(record::Type::map),
                        std::as_bytes(std::span(&record, 1)), std::span(&fd, 1));
}

Mode SharedTransport::mode_for(const PeerState& peer, const InitArgs& args) const {
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

void SharedTransport::note_locked(PeerState& peer, Mode mode, const InitArgs& args, Kind kind) {
  const char* how = "shm attach";
  if (mode == Mode::slots)
    how = config_.shm_attach == "off" ? "shm slots (attach off)"
          : peer.push_allowed         ? "shm slots"
                                      : "shm slots (attach refused)";
  if (peer.peer->same_process()) how = "self";
  if (mode == Mode::direct) peer.use.policy = policy_of(args);
  if (mode == Mode::direct || peer.use.provider.empty()) peer.use.provider = how;
  Transport::note_locked(peer, args, kind, how);
}

Result<RecvRequest*> SharedTransport::make_receive(const InitArgs& args,
                                                   const std::shared_ptr<PeerState>& peer,
                                                   IfUnmatched if_unmatched) {
  auto channel = std::make_shared<RecvChannel>(args, peer, &counters_, config_.shm_piece_bytes);
  const MatchKey key = key_of(args, *peer);
  const std::scoped_lock lock(mutex_);
  if (auto incoming = matching_.take_incoming(key)) {
    // It is not started yet: there is nothing to open.
    if (*incoming)
      (void)match_locked(channel, std::move(**incoming));
    else
      channel->match_freed();
  } else {
    if (if_unmatched == IfUnmatched::none) return nullptr;
    if (channel->peer_is_down()) return Errc::kPeerDown;
    channel->place = matching_.post(key, channel);
  }
  requests_.emplace(channel.get(), channel);
  Counters::add(counters_.receives);
  return static_cast<RecvRequest*>(channel.get());
}

bool SharedTransport::has_incoming(const InitArgs& args, const PeerState& peer) {
  const std::scoped_lock lock(mutex_);
  return matching_.has_incoming(key_of(args, peer));
}

Status SharedTransport::free(Request* request) {
  const std::scoped_lock lock(mutex_);
  auto found = requests_.find(request);
  if (found == requests_.end()) return Errc::kInvalidArgument;
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

void SharedTransport::send_close(PeerState& peer, const record::Close& close, Urgency urgency) {
  const auto type = static_cast<std::uint16_t>(record::Type::close);
  const auto bytes = std::as_bytes(std::span(&close, 1));
  // If it fails the peer is gone: on_peer_down releases its blocks.
  (void)(urgency == Urgency::now ? peer.peer->send(type, bytes)
                                 : peer.peer->send_later(type, bytes));
}

void SharedTransport::answer_close(PeerState& peer, std::uint64_t channel, bool has_own_segment) {
  send_close(peer, {channel, 0, 0}, has_own_segment ? Urgency::now : Urgency::later);
}

void SharedTransport::free_send_locked(SendChannel& channel) {
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

void SharedTransport::release_ended_locked() {
  std::erase_if(closing_, [&](auto& entry) {
    if (!entry.second.peer->has_ended()) return false;
    pool_.release(std::move(entry.second.block));
    return true;
  });
}

void SharedTransport::free_recv_locked(RecvChannel& channel) {
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

RoundTotals SharedTransport::totals_of(const Request& request) {
  return request.kind() == Kind::send ? static_cast<const SendChannel&>(request).totals()
                                      : static_cast<const RecvChannel&>(request).totals();
}

void SharedTransport::add_totals(RoundTotals* sent, RoundTotals* received) const {
  const std::scoped_lock lock(mutex_);
  sent->add(freed_sends_);
  received->add(freed_receives_);
  for (const auto& [key, request] : requests_)
    (request->kind() == Kind::send ? sent : received)->add(totals_of(*request));
}

}  // namespace larklane::part
