#pragma once
// The peers of a native process: their cards, links to them when the first post wants one,
// goodbyes. No call is collective. (docs/design/protocols/messages.md)

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
#include "wireup/link.hpp"

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
// 1. Link `number` lies on lane_of(number) on either side. wireup::Link connects it.
// 2. Only the fetcher waits for cards: a thread that runs from the first want to close().
// 3. A rank that has said goodbye, or has ended, stays gone: later wants of it are refused.
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
  class Link;
  /// Both ends of a link to this process itself, on one lane.
  struct OwnLink {
    std::unique_ptr<PacketLink> end, other_end;
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

  Mesh(boot::Board& board, MeshUser& user) noexcept;

  void on_record(control::Peer& from, const control::Record& record) override;
  void on_peer_down(control::Peer& peer) override;

  // The fetcher's.
  void fetch_wanted();
  void connect(int rank, std::uint32_t number);
  control::Peer* known_peer(int rank);
  Result<control::Peer*> peer_of(int rank, std::string* problem);

  Result<std::unique_ptr<PacketLink>> open_end_locked(int rank, std::uint32_t number);
  Status connect_to_self_locked(std::uint32_t number);
  Link& link_locked(const Key& key);
  Status on_offer_locked(control::Peer& from, std::span<const std::byte> payload);
  Status on_ready_locked(control::Peer& from, std::span<const std::byte> payload);
  Status on_goodbye_locked(control::Peer& from);
  /// Whom a record says that it comes from. @errors kProtocol
  Status meet_locked(control::Peer& from, std::int32_t rank);
  void serve_greeted_locked();
  /// Those links whose greeting needs turns of their lanes. None: the greeter is off.
  std::vector<PacketLink*> greeted_locked();
  void end_all_locked(int rank, Status status);
  /// @param why  for people
  void refuse_locked(int rank, std::uint32_t number, Status status, const std::string& why);
  bool is_over_locked() const;
  /// visit(rank, std::unique_ptr<PacketLink>&), for each end that is open.
  template <class Visit>
  void for_each_end(Visit&& visit);

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
  std::map<Key, std::unique_ptr<Link>> links_;  // to others
  std::map<std::uint32_t, OwnLink> own_links_;
  std::set<int> gone_;
  std::thread fetcher_;
};

}  // namespace larklane::msg
