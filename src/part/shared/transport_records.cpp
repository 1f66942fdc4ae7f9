// Control records on the helper: matching, hand-overs, closing, failing.

#include <fcntl.h>

#include <algorithm>
#include <cstring>

#include "part/shared/transport.hpp"

namespace larklane::part {
namespace {

/// Words of a typemap that fit after the head of one record.
constexpr std::size_t kTypeWordsPerRecord =
    (control::kRecordBytesMax - sizeof(record::Datatype)) / sizeof(std::uint64_t);

bool plausible(const record::Init& init) {
  const BlockShape& shape = init.shape;
  const bool known_mode = shape.mode == Mode::slots || shape.mode == Mode::direct;
  if (!known_mode || shape.partitions == 0 || shape.partitions > 0x7fffffffu ||
      shape.partition_bytes > (std::uint64_t{1} << 62) / shape.partitions ||
      shape.type_words > kTypeWordsMax)
    return false;
  const std::uint64_t end = BlockOffsets::of(shape).end;
  return init.block_offset % kLineBytes == 0 && init.block_offset <= init.segment_bytes &&
         end <= init.segment_bytes - init.block_offset;
}

MatchKey key_of(const record::Init& init, const PeerState& peer) {
  return {{init.context_high, init.context_low}, init.source, init.tag, peer.peer};
}

}  // namespace

void SharedTransport::on_record(const std::shared_ptr<PeerState>& peer,
                                const control::Record& record) {
  control::Peer& from = *peer->peer;
  switch (static_cast<record::Type>(record.kind)) {
    case record::Type::init:
      return on_init(peer, record);
    case record::Type::map:
      return on_map(from, record);
    case record::Type::staging:
      return on_staging(from, record);
    case record::Type::datatype:
      return on_datatype(from, record.payload);
    case record::Type::move: {
      record::Move move;
      if (record::read(record.payload, move)) on_move(from, move);
      return;
    }
    case record::Type::close: {
      record::Close close;
      if (record::read(record.payload, close)) on_close(from, close);
      return;
    }
    case record::Type::fail: {
      record::Fail fail;
      if (record::read(record.payload, fail)) on_fail(from, fail);
      return;
    }
  }
}

std::optional<MatchKey> SharedTransport::refuse(PeerState& peer, const control::Record& record) {
  record::Init init;
  if (static_cast<record::Type>(record.kind) != record::Type::init ||
      !record::read(record.payload, init))
    return std::nullopt;
  send_fail(peer, init.channel, false, Errc::kUnreachable);
  return key_of(init, peer);
}

void SharedTransport::fail_posted(const MatchKey& key, const char* why) {
  const std::scoped_lock lock(mutex_);
  auto posted = matching_.take_posted(key);
  if (posted && *posted) (*posted)->fail(Errc::kUnreachable, (*posted)->own_half() + why);
}

Result<std::shared_ptr<shm::Segment>> SharedTransport::segment_locked(
    PeerState& peer, const record::Init& init, const control::Record& record) {
  if (init.segment_shared != 0) {
    if (auto known = peer.segments.find(init.segment_id); known != peer.segments.end()) {
      if (known->second->bytes() != init.segment_bytes) return Errc::kProtocol;
      return known->second;
    }
  }
  UniqueFd fd;
  if (auto unmapped = peer.unmapped.find(init.segment_id);
      init.segment_shared != 0 && unmapped != peer.unmapped.end())
    fd = std::move(peer.unmapped.extract(unmapped).mapped());
  else if (record.fds.size() > (init.region_bytes != 0 ? 1u : 0u))
    fd = std::move(record.fds.front());
  else
    return Errc::kProtocol;
  UniqueFd kept(init.segment_shared != 0 ? ::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0) : -1);
  auto segment = shm::Segment::map(std::move(fd), init.segment_bytes);
  if (init.segment_shared == 0) return segment;
  if (segment)
    peer.segments.emplace(init.segment_id, *segment);
  else if (kept)  // the descriptor comes once; the next channel in it may find memory
    peer.unmapped.emplace(init.segment_id, std::move(kept));
  return segment;
}

Result<RecvChannel::Match> SharedTransport::read_init_locked(PeerState& peer,
                                                             const record::Init& init,
                                                             const control::Record& record) {
  if (!plausible(init)) return Errc::kProtocol;
  auto segment = segment_locked(peer, init, record);
  if (!segment) return segment.error();
  const BlockView<RealPlatform> view((*segment)->base() + init.block_offset, init.shape);
  if (view.header().generation != init.block_generation) return Errc::kProtocol;

  const BlockShape& shape = init.shape;
  static const auto contiguous = std::make_shared<const Typemap>(Typemap::contiguous(1));
  auto type = contiguous;
  if (shape.type_words != 0) {
    // A copy first: the sender's process can write there during the check.
    const std::vector<std::uint64_t> words(view.type_words(), view.type_words() + shape.type_words);
    auto decoded = Typemap::decode(words);
    if (!decoded) return decoded.error();
    if (!makes_up(*decoded, shape.partition_bytes)) return Errc::kProtocol;
    type = std::make_shared<const Typemap>(std::move(decoded).value());
  }
  std::shared_ptr<shm::Segment> region;
  if (init.region_bytes != 0) {
    if (record.fds.empty()) return Errc::kProtocol;
    auto mapped = shm::Segment::map(std::move(record.fds.back()), init.region_bytes);
    if (!mapped) return mapped.error();
    region = std::move(mapped).value();
    if (!lies_within(*region, init.region_offset, *type, shape.partition_bytes * shape.partitions))
      return Errc::kProtocol;
  }
  return RecvChannel::Match{init.channel,
                            shape,
                            *segment,
                            init.block_offset,
                            init.send_address,
                            std::move(type),
                            std::move(region),
                            init.region_offset,
                            false,
                            init.segment_shared == 0};
}

void SharedTransport::on_map(control::Peer& from, const control::Record& record) {
  record::Map map;
  if (!record::read(record.payload, map) || record.fds.empty()) return;
  auto region = shm::Segment::map(std::move(record.fds.front()), map.region_bytes);
  // Without the mapping the sender uses attach.
  if (auto channel = send_of(from, map.channel);
      channel && region && channel->fits(**region, map.region_offset))
    channel->on_map(std::move(region).value(), map.region_offset);
}

void SharedTransport::on_staging(control::Peer& from, const control::Record& record) {
  record::Staging staging;
  if (!record::read(record.payload, staging) || record.fds.empty()) return;
  const auto channel = receive_of(from, staging.channel);
  if (!channel || staging.bytes < channel->total_bytes()) return;
  channel->on_staging(shm::Segment::map(std::move(record.fds.front()), staging.bytes));
}

void SharedTransport::on_init(const std::shared_ptr<PeerState>& peer,
                              const control::Record& record) {
  record::Init init;
  if (!record::read(record.payload, init)) return;
  std::shared_ptr<RecvChannel> channel;
  bool open = false;
  {
    const std::scoped_lock lock(mutex_);
    auto match = read_init_locked(*peer, init, record);
    Incoming incoming{peer, {}};
    if (match) {
      incoming.match = std::move(match).value();
    } else {
      // The INIT keeps its place: the receive that it matches fails, too.
      incoming.match.channel = init.channel;
      incoming.match.error = match.error();
      send_fail(*peer, init.channel, false, match.error());
    }
    const MatchKey key = key_of(init, *peer);
    auto posted = matching_.take_posted(key);
    if (!posted) return matching_.keep(key, init.channel, std::move(incoming));
    channel = std::move(*posted);
    if (!channel) return answer_close(*peer, init.channel, init.segment_shared == 0);
    open = match_locked(channel, std::move(incoming));
  }
  if (open) channel->open_first_round();
}

bool SharedTransport::match_locked(const std::shared_ptr<RecvChannel>& channel, Incoming incoming) {
  PeerState& peer = *incoming.peer;
  const std::uint64_t id = incoming.match.channel;
  const BlockShape& shape = incoming.match.shape;
  const std::uint64_t send_bytes = shape.partition_bytes * shape.partitions;
  receives_.emplace(ChannelKey{peer.peer, id}, channel);
  if (const Status error = incoming.match.error; !error.ok()) {
    channel->fail(error, channel->own_half() +
                             ": its send could not be taken up here: " + errc_name(error.code()) +
                             " (errno " + std::to_string(error.detail()) + ")");
    return channel->match(std::move(incoming.match));
  }
  if (send_bytes != channel->total_bytes()) {
    channel->fail(Errc::kSizeMismatch,
                  "the " + describe(channel->args(), Kind::receive) + " was matched by a send of " +
                      std::to_string(send_bytes) + " bytes from " + channel->args().peer);
    send_fail(peer, id, false, Errc::kSizeMismatch, channel->total_bytes());
  } else if (shape.mode == Mode::direct) {
    if (!channel->args().type->is_contiguous()) send_datatype(peer, id, *channel->args().type);
    send_map(peer, id, channel->args());
  }
  note_locked(peer, shape.mode, channel->args(), Kind::receive);
  const bool failed = channel->error().code() == Errc::kSizeMismatch;
  return channel->match(std::move(incoming.match)) && !failed;
}

void SharedTransport::send_datatype(PeerState& peer, std::uint64_t channel, const Typemap& type) {
  std::vector<std::uint64_t> words(type.encoded_words());
  type.encode(words);
  std::vector<std::byte> payload;
  for (std::size_t first = 0; first < words.size(); first += kTypeWordsPerRecord) {
    const std::size_t count = std::min(kTypeWordsPerRecord, words.size() - first);
    const record::Datatype head{channel, static_cast<std::uint32_t>(words.size()),
                                static_cast<std::uint32_t>(first),
                                static_cast<std::uint32_t>(count), 0};
    payload.resize(sizeof(head) + count * sizeof(std::uint64_t));
    std::memcpy(payload.data(), &head, sizeof(head));
    std::memcpy(payload.data() + sizeof(head), words.data() + first, count * sizeof(std::uint64_t));
    // If send() fails the peer is gone, and the engine detects that by itself.
    (void)peer.peer->send(static_cast<std::uint16_t>(record::Type::datatype), payload);
  }
}

std::shared_ptr<SendChannel> SharedTransport::send_of(const control::Peer& from,
                                                      std::uint64_t channel) {
  const std::scoped_lock lock(mutex_);
  auto found = sends_.find(channel);
  if (found == sends_.end() || found->second->peer().peer != &from) return nullptr;
  return found->second;
}

std::shared_ptr<RecvChannel> SharedTransport::receive_of(control::Peer& from,
                                                         std::uint64_t channel) {
  const std::scoped_lock lock(mutex_);
  auto found = receives_.find({&from, channel});
  return found == receives_.end() ? nullptr : found->second;
}

void SharedTransport::on_datatype(control::Peer& from, std::span<const std::byte> payload) {
  record::Datatype head;
  if (!record::read(payload, head)) return;
  if (auto channel = send_of(from, head.channel))
    channel->on_datatype(head, payload.subspan(sizeof(head)));
}

void SharedTransport::on_move(control::Peer& from, const record::Move& move) {
  const auto fits = [&](std::uint32_t partitions) {
    return move.run.count != 0 && move.run.first < partitions &&
           move.run.count <= partitions - move.run.first && move.step <= record::Step::unpack;
  };
  if (move.to_receiver != 0) {
    if (auto channel = receive_of(from, move.channel); channel && fits(channel->send_partitions()))
      channel->on_move(move);
  } else if (auto channel = send_of(from, move.channel);
             channel && fits(static_cast<std::uint32_t>(channel->partitions()))) {
    channel->on_move(move);
  }
}

void SharedTransport::on_close(control::Peer& from, const record::Close& close) {
  const std::scoped_lock lock(mutex_);
  if (close.by_sender == 0) {
    if (auto found = closing_.find(close.channel);
        found != closing_.end() && found->second.peer == &from) {
      pool_.release(std::move(found->second.block));
      closing_.erase(found);
    } else if (auto send = sends_.find(close.channel);
               send != sends_.end() && send->second->peer().peer == &from) {
      send->second->on_peer_closed(0);
    }
    return;
  }
  if (auto found = receives_.find({&from, close.channel}); found != receives_.end())
    return found->second->on_peer_closed(0);
  Incoming* const incoming = matching_.incoming({&from, close.channel});
  if (incoming == nullptr) return;
  // The receive learns the reason of a refused send, which may be freed by then.
  if (close.has_rounds != 0 || !incoming->match.error.ok()) {
    incoming->match.sender_closed = true;
    return;
  }
  // The send had no round: the sender gets its block back before a receive exists.
  answer_close(*incoming->peer, close.channel, incoming->match.has_own_segment);
  matching_.bury_incoming({&from, close.channel});
}

void SharedTransport::on_fail(control::Peer& from, const record::Fail& fail) {
  const Status status = status_of(fail);
  if (fail.by_sender != 0) {
    if (auto channel = receive_of(from, fail.channel))
      channel->on_peer_fail(status, reported(channel->args(), Kind::receive, fail));
  } else if (auto channel = send_of(from, fail.channel)) {
    channel->on_peer_fail(status, reported(channel->args(), Kind::send, fail));
  }
}

}  // namespace larklane::part
