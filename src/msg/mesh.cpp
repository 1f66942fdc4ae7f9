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
/// Interval between the helper's turns. They matter only if the program makes none.
constexpr std::uint64_t kGreeterTurnNs = 1'000'000;

std::string name_of(const Secret& random) {
  return "larklane-native-" + std::to_string(::getuid()) + "-" + hex_text(random);
}

/// Nothing: of another version.
std::optional<boot::HostCard> parse_card(const boot::Card& bytes) {
  return boot::HostCard::of_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace

template <class T>
void Mesh::send(control::Peer& peer, MeshRecord kind, const T& record,
                std::span<const std::byte> rest) {
  std::vector<std::byte> payload(sizeof record + rest.size());
  std::memcpy(payload.data(), &record, sizeof record);
  std::copy(rest.begin(), rest.end(), payload.begin() + sizeof record);
  // on_peer_down() reports a peer that is down.
  (void)peer.send(
      static_cast<std::uint16_t>(shared_.first_kind() + static_cast<std::uint16_t>(kind)), payload);
}

void Mesh::say_ready(control::Peer& to, std::uint32_t number, Status status) {
  send(to, MeshRecord::ready, MeshReady{rank_, number, static_cast<std::uint32_t>(status.code())});
}

/// A plane of the mesh's own, for native processes: peers are found by their cards.
class Mesh::CardPlane final : public SharedPlane {
 public:
  explicit CardPlane(boot::Board& board) noexcept : board_(board) {}
  Status open(const Config& config, control::Handler& handler, std::string* problem);

  int rank() const override { return board_.rank(); }
  int size() const override { return board_.size(); }
  Result<control::Address> address_of(int rank, std::string* problem) override;
  control::Plane& plane() override { return *plane_; }
  std::uint16_t first_kind() const override { return 0; }
  void close() { plane_.reset(); }

 private:
  boot::Board& board_;
  boot::HostCard card_;
  std::unique_ptr<control::Plane> plane_;
};

/// A link to another rank.
class Mesh::Link final : public wireup::Link {
 public:
  Link(Mesh& mesh, const Key& key) noexcept : mesh_(mesh), rank_(key.first), number_(key.second) {}

  /// Sends nothing: the peer may be unknown. @param why  for people
  void refuse(Status status, const std::string& why) {
    why_ = why;
    give_up(status);
  }

  /// Sets the peer, before the first record to it. Later calls pass the same peer.
  void meet(control::Peer& peer) {
    if (peer_ == nullptr) peer_ = &peer;
  }

  std::unique_ptr<PacketLink> packets;

 private:
  Status open() override {
    auto opened = mesh_.open_end_locked(rank_, number_);
    if (!opened) return opened.error();
    packets = std::move(opened).value();
    return {};
  }
  std::vector<std::byte> offer() const override { return packets->offer(); }
  Status send_offer() override {
    mesh_.send(*peer_, MeshRecord::offer, MeshOffer{mesh_.rank_, number_}, packets->offer());
    return {};
  }
  Status connect(std::span<const std::byte> offer) override { return packets->connect(offer); }
  bool is_connected_by_use() const override { return packets->is_connected_by_use(); }
  void send_ready(Status status) override { mesh_.say_ready(*peer_, number_, status); }
  void greet() override {
    packets->greet([this](Status status) { answered(status); });
  }
  void on_served() override {
    if (is_served()) mesh_.serve_greeted_locked();
  }
  void on_ready() override { mesh_.user_.on_ready(rank_, number_, *packets); }
  void on_over(Status status, Cause cause) override {
    if (cause != Cause::gone)
      return mesh_.refuse_locked(rank_, number_, status,
                                 why_.empty() ? mesh_.user_.explain(status) : why_);
    if (packets != nullptr) packets->end(status);
    if (!has_been_ready()) mesh_.user_.on_unreachable(rank_, number_, status);
  }

  Mesh& mesh_;
  const int rank_;
  const std::uint32_t number_;
  control::Peer* peer_ = nullptr;
  std::string why_;
};

Status Mesh::CardPlane::open(const Config& config, control::Handler& handler,
                             std::string* problem) {
  Secret for_name;
  Status random = fill_random(for_name);
  if (random.ok()) random = fill_random(card_.secret);
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
  card_.host = boot::this_host();
  card_.user = ::getuid();
  card_.local = name;
  card_.address = remote->address;
  const std::string text = card_.text();
  LARKLANE_TRY(board_.publish(std::as_bytes(std::span(text)), problem));
  auto first = board_.card_of(0, problem);
  if (!first) return first.error();
  const auto card = parse_card(*first);
  if (!card) {
    *problem = "rank 0 runs another version of Larklane";
    return Errc::kVersion;
  }
  std::vector<control::Listener> own;
  own.push_back(std::move(local).value());
  auto plane =
      control::Plane::create(std::move(own), handler,
                             control::Remote{std::move(remote).value(), card->secret,
                                             config.control_connect_ns, config.control_silence_ns},
                             config.control_connect_ns);
  if (!plane) {
    *problem = "the helper thread: " + status_text(plane.error());
    return plane.error();
  }
  plane_ = std::move(plane).value();
  return {};
}

Result<control::Address> Mesh::CardPlane::address_of(int rank, std::string* problem) {
  auto bytes = board_.card_of(rank, problem);
  if (!bytes) return bytes.error();
  auto card = parse_card(*bytes);
  if (!card) {
    *problem = "it runs another version of Larklane";
    return Errc::kVersion;
  }
  return std::move(card->host == card_.host ? card->local : card->address);
}

Result<std::unique_ptr<Mesh>> Mesh::create(const Config& config, boot::Board& board, MeshUser& user,
                                           std::string* problem) {
  auto own = std::make_unique<CardPlane>(board);
  std::unique_ptr<Mesh> mesh(new (std::nothrow) Mesh(*own, user));
  if (mesh == nullptr) return Errc::kNoMemory;
  mesh->own_ = std::move(own);
  const std::scoped_lock lock(mesh->mutex_);  // records wait for the plane
  LARKLANE_TRY(mesh->own_->open(config, *mesh, problem));
  LARKLANE_TRY(mesh->watch_greetings(problem));
  return mesh;
}

Result<std::unique_ptr<Mesh>> Mesh::create(SharedPlane& shared, MeshUser& user,
                                           std::string* problem) {
  std::unique_ptr<Mesh> mesh(new (std::nothrow) Mesh(shared, user));
  if (mesh == nullptr) return Errc::kNoMemory;
  LARKLANE_TRY(mesh->watch_greetings(problem));
  return mesh;
}

Status Mesh::watch_greetings(std::string* problem) {
  Status watched = greeter_.open();
  if (watched.ok()) watched = shared_.plane().watch(greeter_);
  if (!watched.ok())
    *problem = std::string("what the helper watches: ") + std::strerror(watched.detail());
  return watched;
}

Mesh::Mesh(SharedPlane& shared, MeshUser& user) noexcept
    : user_(user), shared_(shared), rank_(shared.rank()) {}
Mesh::~Mesh() {
  if (own_ != nullptr) own_->close();
}

// --- wants --------------------------------------------------------------------------------------

void Mesh::want(int rank, std::uint32_t number) {
  const std::scoped_lock lock(mutex_);
  if (is_closing_) return leave_locked({rank, number});
  if (is_shared()) return shared_.plane().post([this, rank, number] { connect(rank, number); });
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
  if (rank == rank_) {
    const std::scoped_lock lock(mutex_);
    const Status status = connect_to_self_locked(number);
    if (!status.ok()) refuse_locked(rank, number, status, user_.explain(status));
    return;
  }
  auto peer = peer_of(rank, &problem);
  const std::scoped_lock lock(mutex_);
  if (is_closing_) return leave_locked({rank, number});
  Link& link = link_locked({rank, number});
  if (!peer) return link.refuse(peer.error(), problem);
  ranks_.emplace(*peer, rank);
  peers_.emplace(rank, *peer);
  // The peer may have gone down before its rank was known.
  if ((*peer)->is_down()) gone_.insert(rank);
  if (gone_.contains(rank)) return link.end(Errc::kPeerDown);
  link.meet(**peer);
  (void)link.want();  // on_over() reports an error
}

control::Peer* Mesh::known_peer(int rank) {
  const std::scoped_lock lock(mutex_);
  const auto known = peers_.find(rank);
  return known == peers_.end() ? nullptr : known->second;
}

Result<control::Peer*> Mesh::peer_of(int rank, std::string* problem) {
  if (control::Peer* const known = known_peer(rank)) return known;
  auto address = shared_.address_of(rank, problem);
  if (!address) return address.error();
  auto peer = shared_.plane().connect(*address);
  if (peer) return peer;
  // The peer may have opened this link itself and ended since: then it accepts no connection any
  // more. catch_up() processes its records first.
  shared_.plane().catch_up();
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
  auto end = open_end_locked(rank_, number);
  if (!end) return end.error();
  auto other = open_end_locked(rank_, number);
  if (!other) return other.error();
  LARKLANE_TRY((*end)->connect((*other)->offer()));
  LARKLANE_TRY((*other)->connect((*end)->offer()));
  OwnLink& link = own_links_[number];
  link = {std::move(end).value(), std::move(other).value()};
  user_.on_ready(rank_, number, *link.end);
  return {};
}

Mesh::Link& Mesh::link_locked(const Key& key) {
  auto& link = links_[key];
  if (link == nullptr) link = std::make_unique<Link>(*this, key);
  return *link;
}

/// A link that the peer has opened reports its own end, once. A ready one serves until the peer's
/// goodbye.
void Mesh::leave_locked(const Key& key) {
  const auto known = links_.find(key);
  if (known == links_.end()) return user_.on_unreachable(key.first, key.second, Errc::kPeerDown);
  if (!known->second->is_ready()) known->second->end(Errc::kPeerDown);
}

void Mesh::refuse_locked(int rank, std::uint32_t number, Status status, const std::string& why) {
  // For a peer that has left, the status alone informs the user, as it would later.
  if (status.code() != Errc::kPeerDown)
    log_warn("rank %d can't be reached over lane %u: %s", rank, number, why.c_str());
  user_.on_unreachable(rank, number, status);
}

void Mesh::ring(int rank) {
  // No record of the mesh follows: the lock is not needed for its order.
  if (control::Peer* const peer = known_peer(rank)) send(*peer, MeshRecord::bell, MeshBell{rank_});
}

// --- records of peers ---------------------------------------------------------------------------

void Mesh::on_record(control::Peer& from, const control::Record& record) {
  const std::scoped_lock lock(mutex_);
  const auto is_gone = [&] {
    const auto known = ranks_.find(&from);
    return known != ranks_.end() && gone_.contains(known->second);
  };
  Status status = Errc::kProtocol;
  switch (static_cast<MeshRecord>(record.kind - shared_.first_kind())) {
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
      if (status.ok()) send(from, MeshRecord::farewell, MeshGoodbye{rank_});
      break;
    case MeshRecord::farewell:
      status = on_goodbye_locked(from);
      break;
    case MeshRecord::bell:
      user_.on_bell();
      return;
  }
  if (status.ok()) return;
  log_warn_once("mesh record", "%s sends records that make no sense", from.address().c_str());
  if (const auto known = ranks_.find(&from); known != ranks_.end())
    end_all_locked(known->second, status);
}

Status Mesh::meet_locked(control::Peer& from, std::int32_t rank) {
  if (rank < 0 || rank >= shared_.size() || rank == rank_) return Errc::kProtocol;
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
  const Key key{offer->rank, offer->number};
  if (is_closing_ && !links_.contains(key)) {
    say_ready(from, offer->number, Errc::kPeerDown);
    return {};
  }
  Link& link = link_locked(key);
  link.meet(from);
  return link.hear_offer(payload.subspan(sizeof *offer));
}

Status Mesh::on_ready_locked(control::Peer& from, std::span<const std::byte> payload) {
  const auto ready = front_of<MeshReady>(payload);
  if (!ready) return Errc::kProtocol;
  LARKLANE_TRY(meet_locked(from, ready->rank));
  const auto known = links_.find({ready->rank, ready->number});
  if (known == links_.end()) return Errc::kProtocol;
  Link& link = *known->second;
  if (link.is_ready()) return Errc::kProtocol;
  const Status status = status_of(ready->error);
  if (is_closing_ && status.ok()) return {};  // nothing is posted after this side's goodbye
  return link.hear_ready(status);
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
  // Without the mesh's lock: arriving records may want links. No link is destroyed while the helper
  // runs here.
  for (PacketLink* const link : links) link->make_progress();
}

void Mesh::serve_greeted_locked() {
  if (!is_closing_ && !std::exchange(is_greeter_on_, true)) greeter_.turn_on();
}

std::vector<PacketLink*> Mesh::greeted_locked() {
  std::vector<PacketLink*> links;
  for (const auto& [key, link] : links_)
    if (link->is_served()) links.push_back(link->packets.get());
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

/// The links first process the records that have arrived.
void Mesh::end_all_locked(int rank, Status status) {
  if (!gone_.insert(rank).second) return;
  for (auto& [key, link] : links_)
    if (key.first == rank) link->end(status);
  user_.on_peer_down(rank, status);
}

// --- the end ------------------------------------------------------------------------------------

bool Mesh::is_over_locked() const {
  return std::ranges::all_of(links_, [](const auto& one) {
    return one.second->packets == nullptr || one.second->is_over();
  });
}

template <class Visit>
void Mesh::for_each_end(Visit&& visit) {
  for (auto& [key, link] : links_)
    if (link->packets != nullptr) visit(key.first, link->packets);
  for (auto& [number, link] : own_links_)
    for (auto* const end : {&link.end, &link.other_end})
      if (*end != nullptr) visit(rank_, *end);
}

void Mesh::close(const std::function<void()>& progress) {
  {
    const std::scoped_lock lock(mutex_);
    is_closing_ = true;
    wanted_changed_.notify_one();
    for (const auto& [rank, peer] : peers_) send(*peer, MeshRecord::goodbye, MeshGoodbye{rank_});
  }
  if (fetcher_.joinable()) fetcher_.join();
  if (is_shared()) shared_.plane().catch_up();  // after the wants that were posted
  {
    const std::scoped_lock lock(mutex_);
    for (const Key& key : std::exchange(wanted_, {})) leave_locked(key);
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
    for_each_end([](int, auto& end) { end->end(Errc::kPeerDown); });
  }
  wait_for([this] {
    bool are_quiet = true;
    for_each_end([&](int, auto& end) { are_quiet &= end->is_quiet(); });
    return are_quiet;
  });
  {
    const std::scoped_lock lock(mutex_);
    for_each_end([](int, auto& end) {
      if (!end->is_quiet()) end->keep_silent();
    });
  }
  progress();  // ends works that waited for links never made
  shared_.plane().unwatch(greeter_);
  if (own_ != nullptr) own_->close();  // no record arrives from here on
  for_each_end([](int rank, auto& end) {
    if (end->is_quiet()) return;
    log_warn("a link to rank %d does not end: its memory is kept", rank);
    (void)end.release();
  });
  const std::scoped_lock lock(mutex_);  // on a shared plane records may still arrive
  links_.clear();
  own_links_.clear();
}

}  // namespace larklane::msg
