#pragma once
// How lanes of native processes get connected: when the first post wants it, and without any
// collective call. (docs/design/protocols/messages.md)

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/config.hpp"
#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "bootstrap/board.hpp"
#include "bootstrap/host_card.hpp"
#include "control/helper/watched.hpp"
#include "control/plane/plane.hpp"
#include "msg/mesh_records.hpp"
#include "msg/packet/packet_lane.hpp"
#include "msg/packet/packet_link.hpp"

namespace larklane::msg {

/// Whose lanes they are. Called by the mesh's threads, with its lock held: may not call it back.
class MeshUser {
 public:
  virtual ~MeshUser() = default;
  /// Of link `number`, made if it is not there.
  virtual Result<PacketLane*> lane_of(std::uint32_t number) = 0;
  /// Of a link that is about to be opened. Null: no memory. Both ends of one to ourselves have the
  /// same.
  virtual PacketListener* listener_of(int rank, std::uint32_t number) = 0;
  /// The link may be posted on.
  virtual void on_ready(int rank, std::uint32_t number, PacketLink& link) = 0;
  /// Why a link can't be opened, for people.
  virtual std::string explain(Status status) { return errc_name(status.code()); }
  /// It never will be.
  virtual void on_unreachable(int rank, std::uint32_t number, Status status) = 0;
  /// Nothing more comes from `rank`; its links have been ended.
  virtual void on_peer_down(int rank, Status status) = 0;
};

// Thread safety: thread-safe; create and close belong to one owner.
// Invariants:
// 1. Link `number` lies on lane_of(number) on either side. Each side opens its end when it wants
// the
//    link or when the peer's offer comes, sends that end's offer once, and connects when it has the
//    peer's. It is ready when the peer has said that it has connected, too; where links are
//    connected by use, when one of the two has greeted the other, and both know it.
// 2. Nobody waits for a card but the fetcher, a thread that is there from the first want to
//    close().
// 3. Who is gone, by its goodbye or its end, stays gone: what is wanted of it later is refused.
// 4. An end is destroyed when the peer has said that it posts nothing more, or is gone.
class Mesh final : private control::Handler {
 public:
  static constexpr std::uint32_t kLinksMax = 64;  ///< to one rank

  /// Publishes this process's card. @param board, user  outlive it
  /// @param[out] problem  for people
  static Result<std::unique_ptr<Mesh>> create(const Config& config, boot::Board& board,
                                              MeshUser& user, std::string* problem);
  ~Mesh() override;  ///< close() has returned

  /// Never blocks. Once for each. @param number  below kLinksMax
  void want(int rank, std::uint32_t number);
  /// control::Plane's.
  void look_at_descriptors() { plane_->look_at_descriptors(); }
  /// Says goodbye to all, and waits until they have answered, for some seconds at most.
  /// @param progress  is called meanwhile. @pre nobody posts, and what was posted is out
  void close(const std::function<void()>& progress);

 private:
  using Key = std::pair<int, std::uint32_t>;  // rank, number
  struct Link {
    std::unique_ptr<PacketLink> end;
    std::unique_ptr<PacketLink> other_end;  // of one to ourselves
    bool is_connected = false;
    bool is_peer_ready = false;
    /// Who uses it before the other one may.
    enum class First : std::uint8_t { anybody, ours, theirs } first = First::anybody;
    bool is_greeted = false;         // by us, if we go first: the answer may be out
    bool is_ready = false;           // we may use it
    bool is_over = false;            // the peer posts nothing more on it, or is gone
    Errc failure = Errc::kPeerDown;  // why, as the peer is told
  };

  /// Has the helper make turns of the lanes whose links are being greeted: a program that computes,
  /// or that only receives, may make none.
  class Greeter final : public control::Watched {
   public:
    explicit Greeter(Mesh& mesh) noexcept : mesh_(mesh) {}
    /// @errors kSystem
    Status open();
    int fd() const noexcept override { return never_.get(); }
    bool before_sleep() override { return true; }
    void serve() override {}
    std::uint64_t next_time_ns() const noexcept override { return next_turn_ns_; }
    void on_time(std::uint64_t now_ns) override;

   private:
    Mesh& mesh_;
    UniqueFd never_;  // that is ever readable
    std::uint64_t next_turn_ns_ = 0;
  };

  Mesh(boot::Board& board, MeshUser& user) noexcept : board_(board), user_(user) {}

  void on_record(control::Peer& from, const control::Record& record) override;
  void on_peer_down(control::Peer& peer) override;

  // The fetcher's.
  void fetch_wanted();
  void connect(int rank, std::uint32_t number);
  control::Peer* known_peer(int rank);
  Result<control::Peer*> peer_of(int rank, std::string* problem);

  Result<std::unique_ptr<PacketLink>> open_end_locked(int rank, std::uint32_t number);
  Status connect_to_self_locked(std::uint32_t number);
  /// Opened, and offered, if it is not.
  Result<Link*> open_locked(int rank, std::uint32_t number, control::Peer& peer);
  Status on_offer_locked(control::Peer& from, std::span<const std::byte> payload);
  Status on_ready_locked(control::Peer& from, std::span<const std::byte> payload);
  Status on_goodbye_locked(control::Peer& from);
  /// Whom a record says that it comes from. @errors kProtocol
  Status meet_locked(control::Peer& from, std::int32_t rank);
  /// The peer has said so, of a link that is connected. @errors kProtocol: once too often
  Status hear_ready_locked(control::Peer& from, const Key& key, Link& link);
  void say_ready(control::Peer& to, std::uint32_t number, Status status) const;
  void serve_greeted_locked();
  /// Those links that are not ready yet, nor over. None: the greeter is off.
  std::vector<PacketLink*> greeted_locked();
  void end_all_locked(int rank, Status status);
  void give_up_locked(int rank, std::uint32_t number, Status status, const std::string& why);
  bool is_over_locked() const;

  boot::Board& board_;
  MeshUser& user_;
  boot::HostCard card_;
  Greeter greeter_{*this};  // outlives the plane
  std::unique_ptr<control::Plane> plane_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable wanted_changed_;
  std::vector<Key> wanted_;
  bool is_closing_ = false;
  bool is_greeter_on_ = false;
  std::map<control::Peer*, int> ranks_;
  std::map<int, control::Peer*> peers_;
  std::map<Key, Link> links_;
  std::set<int> gone_;
  std::thread fetcher_;
};

}  // namespace larklane::msg
