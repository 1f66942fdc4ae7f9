#include "msg/mesh.hpp"

#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/clock.hpp"
#include "base/hex.hpp"
#include "base/kernel_calls.hpp"
#include "base/log.hpp"
#include "base/random.hpp"
#include "base/status_text.hpp"
#include "msg/protocol/wire.hpp"

namespace larklane::msg {
namespace {

constexpr std::uint64_t kGoodbyeNs = 2'000'000'000;
/// Between turns of the helper, which matter only where the program makes none.
constexpr std::uint64_t kGreeterTurnNs = 1'000'000;

std::string name_of(const Secret& random) {
  return "larklane-native-" + std::to_string(::getuid()) + "-" + hex_text(random);
}

/// Nothing: of another version.
std::optional<boot::HostCard> parse_card(const boot::Card& bytes) {
  return boot::HostCard::of_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

template <class T>
void send(control::Peer& peer, MeshRecord kind, const T& record,
          std::span<const std::byte> rest = {}) {
  std::vector<std::byte> payload(sizeof record + rest.size());
  std::memcpy(payload.data(), &record, sizeof record);
  std::copy(rest.begin(), rest.end(), payload.begin() + sizeof record);
  // A peer that is down is reported by on_peer_down().
  (void)peer.send(static_cast<std::uint16_t>(kind), payload);
}

}  // namespace

Result<std::unique_ptr<Mesh>> Mesh::create(const Config& config, boot::Board& board, MeshUser& user,
                                           std::string* problem) {
  std::unique_ptr<Mesh> mesh(new (std::nothrow) Mesh(board, user));
  if (mesh == nullptr) return Errc::kNoMemory;
  Secret for_name;
  Status random = fill_random(for_name);
  if (random.ok()) random = fill_random(mesh->card_.secret);
  if (!random.ok()) {
    *problem = RefusedCall{"getrandom", random.detail(), "the job's secret"}.text();
    return random;
  }
  const std::string name = name_of(for_name);
  auto local = control::Listener::bind(name);
  if (!local) {
    *problem =
        "a socket for this host's processes: " + std::string(std::strerror(local.error().detail()));
    return local.error();
  }
  auto remote = control::RemoteListener::bind(name, config.control_interface, problem);
  if (!remote) return remote.error();
  mesh->card_.host = boot::this_host();
  mesh->card_.user = ::getuid();
  mesh->card_.local = name;
  mesh->card_.address = remote->address;
  const std::string text = mesh->card_.text();
  LARKLANE_TRY(board.publish(std::as_bytes(std::span(text)), problem));
  auto first = board.card_of(0, problem);
  if (!first) return first.error();
  const auto card = parse_card(*first);
  if (!card) {
    *problem = "rank 0 runs another version of Larklane";
    return Errc::kVersion;
  }
  std::vector<control::Listener> own;
  own.push_back(std::move(local).value());
  auto plane =
      control::Plane::create(std::move(own), *mesh,
                             control::Remote{std::move(remote).value(), card->secret,
                                             config.control_connect_ns, config.control_silence_ns},
                             config.control_connect_ns);
  if (!plane) {
    *problem = "the helper thread: " + status_text(plane.error());
    return plane.error();
  }
  const std::scoped_lock lock(mesh->mutex_);  // records wait for the plane
  mesh->plane_ = std::move(plane).value();
  Status watched = mesh->greeter_.open();
  if (watched.ok()) watched = mesh->plane_->watch(mesh->greeter_);
  if (watched.ok()) return mesh;
  *problem = std::string("what the helper watches: ") + std::strerror(watched.detail());
  return watched;
}

Mesh::~Mesh() { plane_.reset(); }

// --- wants --------------------------------------------------------------------------------------

void Mesh::want(int rank, std::uint32_t number) {
  const std::scoped_lock lock(mutex_);
  if (is_closing_) return user_.on_unreachable(rank, number, Errc::kPeerDown);
  wanted_.emplace_back(rank, number);
  if (!fetcher_.joinable())
    fetcher_ = std::thread([this] { fetch_wanted(); });
  else
    wanted_changed_.notify_one();
}

void Mesh::fetch_wanted() {
  std::unique_lock lock(mutex_);
  while (true) {
    wanted_changed_.wait(lock, [this] { return is_closing_ || !wanted_.empty(); });
    if (is_closing_) return;
    const auto [rank, number] = wanted_.front();
    wanted_.erase(wanted_.begin());
    lock.unlock();
    connect(rank, number);
    lock.lock();
  }
}

void Mesh::connect(int rank, std::uint32_t number) {
  std::string problem;
  if (rank == board_.rank()) {
    const std::scoped_lock lock(mutex_);
    const Status status = connect_to_self_locked(number);
    if (!status.ok()) give_up_locked(rank, number, status, user_.explain(status));
    return;
  }
  auto peer = peer_of(rank, &problem);
  const std::scoped_lock lock(mutex_);
  if (is_closing_) return user_.on_unreachable(rank, number, Errc::kPeerDown);
  if (!peer) return give_up_locked(rank, number, peer.error(), problem);
  ranks_.emplace(*peer, rank);
  peers_.emplace(rank, *peer);
  // It may have gone before we knew whose end that was.
  if ((*peer)->is_down()) gone_.insert(rank);
  if (gone_.contains(rank)) return user_.on_unreachable(rank, number, Errc::kPeerDown);
  if (auto link = open_locked(rank, number, **peer); !link)
    give_up_locked(rank, number, link.error(), user_.explain(link.error()));
}

control::Peer* Mesh::known_peer(int rank) {
  const std::scoped_lock lock(mutex_);
  const auto known = peers_.find(rank);
  return known == peers_.end() ? nullptr : known->second;
}

Result<control::Peer*> Mesh::peer_of(int rank, std::string* problem) {
  if (control::Peer* const known = known_peer(rank)) return known;
  auto bytes = board_.card_of(rank, problem);
  if (!bytes) return bytes.error();
  const auto card = parse_card(*bytes);
  if (!card) {
    *problem = "it runs another version of Larklane";
    return Errc::kVersion;
  }
  auto peer = plane_->connect(card->host == card_.host ? card->local : card->address);
  if (peer) return peer;
  // A process that made the link from its side and has ended since takes no connection any more.
  plane_->catch_up();
  if (control::Peer* const known = known_peer(rank)) return known;
  *problem = peer.error().code() == Errc::kForeignUser
                 ? "it runs as another user; remedy: start all ranks as one user"
                 : status_text(peer.error());
  return peer;
}

Result<std::unique_ptr<PacketLink>> Mesh::open_end_locked(int rank, std::uint32_t number) {
  auto lane = user_.lane_of(number);
  if (!lane) return lane.error();
  PacketListener* const listener = user_.listener_of(rank, number);
  if (listener == nullptr) return Errc::kNoMemory;
  return PacketLink::open(**lane, *listener);
}

Status Mesh::connect_to_self_locked(std::uint32_t number) {
  const int rank = board_.rank();
  auto end = open_end_locked(rank, number);
  if (!end) return end.error();
  auto other = open_end_locked(rank, number);
  if (!other) return other.error();
  LARKLANE_TRY((*end)->connect((*other)->offer()));
  LARKLANE_TRY((*other)->connect((*end)->offer()));
  Link& link = links_[{rank, number}];
  link.end = std::move(end).value();
  link.other_end = std::move(other).value();
  link.is_connected = link.is_ready = true;
  user_.on_ready(rank, number, *link.end);
  return {};
}

Result<Mesh::Link*> Mesh::open_locked(int rank, std::uint32_t number, control::Peer& peer) {
  Link& link = links_[{rank, number}];
  if (link.end != nullptr) return &link;
  auto end = open_end_locked(rank, number);
  if (!end) return end.error();
  link.end = std::move(end).value();
  send(peer, MeshRecord::offer, MeshOffer{board_.rank(), number}, link.end->offer());
  return &link;
}

void Mesh::give_up_locked(int rank, std::uint32_t number, Status status, const std::string& why) {
  // Of one that has gone the user hears as if it had gone later: by the status.
  if (status.code() != Errc::kPeerDown)
    log_warn("rank %d can't be reached over lane %u: %s", rank, number, why.c_str());
  Link& link = links_[{rank, number}];
  link.is_over = true;
  link.failure = status.code();
  user_.on_unreachable(rank, number, status);
}

// --- what peers say -----------------------------------------------------------------------------

void Mesh::on_record(control::Peer& from, const control::Record& record) {
  const std::scoped_lock lock(mutex_);
  const auto is_gone = [&] {
    const auto known = ranks_.find(&from);
    return known != ranks_.end() && gone_.contains(known->second);
  };
  Status status = Errc::kProtocol;
  switch (static_cast<MeshRecord>(record.kind)) {
    case MeshRecord::offer:
      if (is_gone()) return;
      status = on_offer_locked(from, record.payload);
      break;
    case MeshRecord::ready:
      if (is_gone()) return;
      status = on_ready_locked(from, record.payload);
      break;
    case MeshRecord::goodbye:
      status = on_goodbye_locked(from);
      if (status.ok()) send(from, MeshRecord::farewell, MeshGoodbye{board_.rank()});
      break;
    case MeshRecord::farewell:
      status = on_goodbye_locked(from);
      break;
  }
  if (status.ok()) return;
  log_warn_once("mesh record", "%s sends records that make no sense", from.address().c_str());
  if (const auto known = ranks_.find(&from); known != ranks_.end())
    end_all_locked(known->second, status);
}

Status Mesh::meet_locked(control::Peer& from, std::int32_t rank) {
  if (rank < 0 || rank >= board_.size() || rank == board_.rank()) return Errc::kProtocol;
  const auto known = ranks_.find(&from);
  const auto peer = peers_.find(rank);
  if (known == ranks_.end() && peer == peers_.end()) {
    ranks_.emplace(&from, rank);
    peers_.emplace(rank, &from);
    return {};
  }
  const bool is_known = known != ranks_.end() && known->second == rank;
  return is_known && peer != peers_.end() && peer->second == &from ? Errc::kOk : Errc::kProtocol;
}

Status Mesh::on_offer_locked(control::Peer& from, std::span<const std::byte> payload) {
  const auto offer = front_of<MeshOffer>(payload);
  if (!offer || offer->number >= kLinksMax) return Errc::kProtocol;
  LARKLANE_TRY(meet_locked(from, offer->rank));
  const auto known = links_.find({offer->rank, offer->number});
  if (known == links_.end() ? is_closing_ : known->second.is_over) {
    say_ready(from, offer->number, known == links_.end() ? Errc::kPeerDown : known->second.failure);
    return {};
  }
  auto opened = open_locked(offer->rank, offer->number, from);
  Status status = opened.error();
  if (opened) {
    Link& link = **opened;
    if (link.is_connected) return Errc::kProtocol;
    const auto theirs = payload.subspan(sizeof *offer);
    status = link.end->connect(theirs);
    link.is_connected = status.ok();
    if (link.end->is_connected_by_use()) {
      const auto ours = link.end->offer();
      if (std::ranges::lexicographical_compare(ours, theirs)) link.first = Link::First::theirs;
      if (std::ranges::lexicographical_compare(theirs, ours)) link.first = Link::First::ours;
      if (link.is_connected) serve_greeted_locked();
    }
  }
  if (!status.ok()) {
    say_ready(from, offer->number, status);
    give_up_locked(offer->rank, offer->number, status, user_.explain(status));
    return {};
  }
  Link& link = **opened;
  if (link.first != Link::First::ours) say_ready(from, offer->number, {});
  if (!link.is_peer_ready) return {};
  return hear_ready_locked(from, {offer->rank, offer->number}, link);
}

void Mesh::say_ready(control::Peer& to, std::uint32_t number, Status status) const {
  send(to, MeshRecord::ready,
       MeshReady{board_.rank(), number, static_cast<std::uint32_t>(status.code())});
}

Status Mesh::on_ready_locked(control::Peer& from, std::span<const std::byte> payload) {
  const auto ready = front_of<MeshReady>(payload);
  if (!ready) return Errc::kProtocol;
  LARKLANE_TRY(meet_locked(from, ready->rank));
  const auto known = links_.find({ready->rank, ready->number});
  if (known == links_.end()) return Errc::kProtocol;
  Link& link = known->second;
  if (link.is_ready) return Errc::kProtocol;
  if (link.is_over) return {};  // as the peer has been told, or has told us
  if (const Status status = status_of(ready->error); !status.ok()) {
    // Whose greeting has failed hears it from the other side.
    if (link.first == Link::First::theirs) say_ready(from, ready->number, status);
    give_up_locked(ready->rank, ready->number, status, user_.explain(status));
    return {};
  }
  if (link.is_connected) return hear_ready_locked(from, known->first, link);
  return std::exchange(link.is_peer_ready, true) ? Errc::kProtocol : Errc::kOk;
}

/// Who goes first greets, and is ready when the peer has heard that the answer is there.
Status Mesh::hear_ready_locked(control::Peer& from, const Key& key, Link& link) {
  if (is_closing_) return {};  // nothing is posted after our goodbye
  if (link.first == Link::First::ours && !std::exchange(link.is_greeted, true)) {
    // In the answer's callback the mesh's lock can't be had.
    link.end->greet(
        [this, &from, number = key.second](Status status) { say_ready(from, number, status); });
    return {};
  }
  if (link.first == Link::First::ours && !link.end->is_greeting_over()) return Errc::kProtocol;
  link.is_ready = true;
  if (link.first == Link::First::theirs) say_ready(from, key.second, {});
  user_.on_ready(key.first, key.second, *link.end);
  return {};
}

// --- greetings ----------------------------------------------------------------------------------

Status Mesh::Greeter::open() {
  never_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  return never_ ? Status() : Status(Errc::kSystem, errno);
}

void Mesh::Greeter::on_time(std::uint64_t now_ns) {
  next_turn_ns_ = now_ns + kGreeterTurnNs;
  std::vector<PacketLink*> links;
  {
    const std::scoped_lock lock(mesh_.mutex_);
    links = mesh_.greeted_locked();
  }
  // Without the mesh's lock: what comes in may want links. None goes while the helper is there.
  for (PacketLink* const link : links) link->make_progress();
}

void Mesh::serve_greeted_locked() {
  if (!is_closing_ && !std::exchange(is_greeter_on_, true)) greeter_.turn_on();
}

std::vector<PacketLink*> Mesh::greeted_locked() {
  std::vector<PacketLink*> links;
  for (const auto& [key, link] : links_)
    if (link.first != Link::First::anybody && !link.is_ready && !link.is_over)
      links.push_back(link.end.get());
  if (links.empty() && std::exchange(is_greeter_on_, false)) greeter_.turn_off();
  return links;
}

Status Mesh::on_goodbye_locked(control::Peer& from) {
  const auto known = ranks_.find(&from);
  if (known == ranks_.end()) return Errc::kProtocol;
  end_all_locked(known->second, Errc::kPeerDown);
  return {};
}

void Mesh::on_peer_down(control::Peer& peer) {
  const std::scoped_lock lock(mutex_);
  log_info("%s is down: %s", peer.address().c_str(), peer.down_reason().c_str());
  if (const auto known = ranks_.find(&peer); known != ranks_.end())
    end_all_locked(known->second, Errc::kPeerDown);
}

/// What has come is served first.
void Mesh::end_all_locked(int rank, Status status) {
  if (!gone_.insert(rank).second) return;
  for (auto& [key, link] : links_) {
    if (key.first != rank || link.is_over) continue;
    link.is_over = true;
    if (link.end != nullptr) link.end->end(status);
    if (!link.is_ready) user_.on_unreachable(rank, key.second, status);
  }
  user_.on_peer_down(rank, status);
}

// --- the end ------------------------------------------------------------------------------------

bool Mesh::is_over_locked() const {
  return std::ranges::all_of(links_, [this](const auto& one) {
    return one.first.first == board_.rank() || one.second.end == nullptr || one.second.is_over;
  });
}

void Mesh::close(const std::function<void()>& progress) {
  {
    const std::scoped_lock lock(mutex_);
    is_closing_ = true;
    wanted_changed_.notify_one();
    for (const auto& [rank, peer] : peers_)
      send(*peer, MeshRecord::goodbye, MeshGoodbye{board_.rank()});
  }
  if (fetcher_.joinable()) fetcher_.join();
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& [rank, number] : std::exchange(wanted_, {}))
      user_.on_unreachable(rank, number, Errc::kPeerDown);
  }
  const auto wait_for = [&](auto&& is_so) {
    const std::uint64_t deadline_ns = now_ns() + kGoodbyeNs;
    while (now_ns() < deadline_ns) {
      {
        const std::scoped_lock lock(mutex_);
        if (is_so()) return;
      }
      progress();
      ::sched_yield();
    }
  };
  wait_for([this] { return is_over_locked(); });
  {
    const std::scoped_lock lock(mutex_);
    for (auto& [key, link] : links_)
      for (PacketLink* const end : {link.end.get(), link.other_end.get()})
        if (end != nullptr) end->end(Errc::kPeerDown);
  }
  const auto is_quiet = [](const std::unique_ptr<PacketLink>& end) {
    return end == nullptr || end->is_quiet();
  };
  wait_for([&] {
    return std::ranges::all_of(links_, [&](const auto& one) {
      return is_quiet(one.second.end) && is_quiet(one.second.other_end);
    });
  });
  {
    const std::scoped_lock lock(mutex_);
    for (auto& [key, link] : links_)
      if (!is_quiet(link.end)) link.end->keep_silent();
  }
  progress();  // what waited for links that never were ends
  plane_->unwatch(greeter_);
  plane_.reset();  // no record comes any more
  for (auto& [key, link] : links_)
    for (auto* const end : {&link.end, &link.other_end})
      if (!is_quiet(*end)) {
        log_warn("a link to rank %d does not end: its memory is kept", key.first);
        (void)end->release();
      }
  links_.clear();
}

}  // namespace larklane::msg
