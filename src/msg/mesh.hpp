#pragma once
// The mesh: the peers of a process, links on first use, and goodbyes. Of a native process it has
// the control plane, and finds peers by cards. No call is collective.
// (docs/design/protocols/messages.md)

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

/// The owner of the lanes. The mesh's threads call it with the mesh's lock held, so it does not
/// call back.
class MeshUser {
 public:
  virtual ~MeshUser() = default;
  /// The lane of link `number`, created on first use.
  virtual Result<PacketLane*> lane_of(std::uint32_t number) = 0;
  /// The listener of a link that is about to open. Null: memory ran out. The two ends of a link to
  /// this process itself share one.
  virtual PacketListener* listener_of(int rank, std::uint32_t number) = 0;
  /// The link accepts posts.
  virtual void on_ready(int rank, std::uint32_t number, PacketLink& link) = 0;
  /// The reason that a link can't open, for people.
  virtual std::string explain(Status status) { return errc_name(status.code()); }
  /// The link will never accept posts.
  virtual void on_unreachable(int rank, std::uint32_t number, Status status) = 0;
  /// Nothing more arrives from `rank`; the mesh has ended its links.
  virtual void on_peer_down(int rank, Status status) = 0;
  /// A peer has rung: Mesh::ring(). On the helper.
  virtual void on_bell() {}
};

/// A control plane of another owner, and the peers' addresses there. Thread safety: thread-safe.
class SharedPlane {
 public:
  virtual ~SharedPlane() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// @errors kUnreachable, and others; then `problem` says why
  virtual Result<control::Address> address_of(int rank, std::string* problem) = 0;
  virtual control::Plane& plane() = 0;
  /// The first of the kinds of records that the mesh sends; its owner passes those that arrive.
  virtual std::uint16_t first_kind() const = 0;
};

// Thread safety: thread-safe; one owner calls create and close.
// Invariants:
// 1. Link `number` lies on lane_of(number) on both sides. wireup::Link connects it.
// 2. Only the fetcher waits for cards. This thread runs from the first want() to close(). On a
//    shared plane nothing waits, and the helper connects.
// 3. A rank that has said goodbye, or has ended, stays gone: the mesh refuses later wants of it.
// 4. An end is destroyed once the peer has said goodbye, or is gone.
class Mesh final : private control::Handler {
 public:
  static constexpr std::uint32_t kLinksMax = 64;  ///< to one rank

  /// Publishes this process's card. @param board, user  outlive it
  /// @param[out] problem  for people
  static Result<std::unique_ptr<Mesh>> create(const Config& config, boot::Board& board,
                                              MeshUser& user, std::string* problem);
  /// On another owner's plane. The owner passes records and ends of peers to handler().
  /// @param shared, user  outlive it
  static Result<std::unique_ptr<Mesh>> create(SharedPlane& shared, MeshUser& user,
                                              std::string* problem);
  control::Handler& handler() noexcept { return *this; }
  ~Mesh() override;  ///< @pre close() has returned

  /// Never blocks. Call it once for each pair. @param number  below kLinksMax
  void want(int rank, std::uint32_t number);
  /// Wakes the helper of a peer: MeshUser::on_bell() there. A system call. Nothing happens without
  /// a connection to the rank.
  void ring(int rank);
  /// Forwards to control::Plane.
  void look_at_descriptors() { shared_.plane().look_at_descriptors(); }
  /// Says goodbye to all peers and waits for their answers, for some seconds at most.
  /// @param progress  called during the wait. @pre no thread posts, and all posted works are out
  void close(const std::function<void()>& progress);

 private:
  using Key = std::pair<int, std::uint32_t>;  // rank, number
  class Link;
  /// Both ends of a link to this process itself, on one lane.
  struct OwnLink {
    std::unique_ptr<PacketLink> end, other_end;
  };

  /// Makes the helper poll lanes with links in greeting. The program may make no progress
  /// meanwhile: it may compute, or only receive.
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
    UniqueFd never_;  // never readable
    std::uint64_t next_turn_ns_ = 0;
  };

  class CardPlane;
  Mesh(SharedPlane& shared, MeshUser& user) noexcept;
  Status watch_greetings(std::string* problem);
  bool is_shared() const noexcept { return own_ == nullptr; }
  template <class T>
  void send(control::Peer& peer, MeshRecord kind, const T& record,
            std::span<const std::byte> rest = {});
  void say_ready(control::Peer& to, std::uint32_t number, Status status);

  void on_record(control::Peer& from, const control::Record& record) override;
  void on_peer_down(control::Peer& peer) override;

  // For the fetcher.
  void fetch_wanted();
  void connect(int rank, std::uint32_t number);
  control::Peer* known_peer(int rank);
  Result<control::Peer*> peer_of(int rank, std::string* problem);

  Result<std::unique_ptr<PacketLink>> open_end_locked(int rank, std::uint32_t number);
  Status connect_to_self_locked(std::uint32_t number);
  Link& link_locked(const Key& key);
  /// Answers a want while this process closes.
  void leave_locked(const Key& key);
  Status on_offer_locked(control::Peer& from, std::span<const std::byte> payload);
  Status on_ready_locked(control::Peer& from, std::span<const std::byte> payload);
  Status on_goodbye_locked(control::Peer& from);
  /// Checks the rank that a record claims to come from. @errors kProtocol
  Status meet_locked(control::Peer& from, std::int32_t rank);
  void serve_greeted_locked();
  /// The links with a greeting that needs turns of their lanes. If there are none, turns the
  /// greeter off.
  std::vector<PacketLink*> greeted_locked();
  void end_all_locked(int rank, Status status);
  /// @param why  for people
  void refuse_locked(int rank, std::uint32_t number, Status status, const std::string& why);
  bool is_over_locked() const;
  /// Calls visit(rank, std::unique_ptr<PacketLink>&) for each open end.
  template <class Visit>
  void for_each_end(Visit&& visit);

  MeshUser& user_;
  Greeter greeter_{*this};          // outlives the plane
  std::unique_ptr<CardPlane> own_;  // null: the plane is another owner's
  SharedPlane& shared_;
  const int rank_;  // this process's

  std::mutex mutex_;  // guards the members below
  std::condition_variable wanted_changed_;
  std::vector<Key> wanted_;
  bool is_closing_ = false;
  bool is_greeter_on_ = false;
  std::map<control::Peer*, int> ranks_;
  std::map<int, control::Peer*> peers_;
  std::map<Key, std::unique_ptr<Link>> links_;  // to other processes
  std::map<std::uint32_t, OwnLink> own_links_;
  std::set<int> gone_;
  std::thread fetcher_;
};

}  // namespace larklane::msg
