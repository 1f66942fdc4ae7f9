#pragma once
// The message engine of an MPI program's world, on the process's control plane and helper. No MPI
// call.

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "base/config.hpp"
#include "base/unique_fd.hpp"
#include "control/helper/watched.hpp"
#include "control/plane/plane.hpp"
#include "mpi/world/member.hpp"
#include "msg/completion/completion_domain.hpp"
#include "msg/mesh.hpp"
#include "msg/protocol/engine.hpp"
#include "net/provider.hpp"

namespace larklane::mpi::p2p {

/// Combines plane (peers), shared memory (network), mesh (links) and engine (operations).
/// Thread safety: thread-safe, but close() is the last call.
class Messages final : private msg::MeshUser, private msg::Connector, private msg::SharedPlane {
 public:
  /// @param plane  outlives it @param first_kind  of the mesh's records
  /// @param[out] problem  for people
  static Result<std::unique_ptr<Messages>> create(const Config& config, control::Plane& plane,
                                                  const Job& job, int rank, int size,
                                                  std::uint16_t first_kind, std::string* problem);

  msg::Engine& engine() noexcept { return *engine_; }
  control::Handler& handler() noexcept { return mesh_->handler(); }
  /// Makes progress until all posts are out, or their peers are lost.
  /// @param poke  called when nothing moves
  void drain(const std::function<void()>& poke);
  /// From now until close() the helper makes progress, each millisecond: in the MPI's finalisation
  /// delete callbacks may send, and peers may drain.
  void serve_by_helper() noexcept { turns_.poll(); }
  /// Drains, says goodbye, and ends the links. The last call before the destructor; the caller
  /// holds no lock that the helper may wait for. @pre no thread posts
  void close();

 private:
  /// The helper's turns: after a peer's bell, and in the MPI's finalisation. Thread safety: as
  /// Watched; ask() and poll() are thread-safe.
  class Turns final : public control::Watched {
   public:
    explicit Turns(Messages& messages) noexcept : messages_(messages) {}
    /// @errors kSystem
    Status open();
    int fd() const noexcept override { return never_.get(); }
    /// Wants turns until nothing more arrives.
    void ask() noexcept;
    /// Wants a turn each millisecond, for good.
    void poll() noexcept;
    // acquire: pairs with ask(): the asker's stores are visible
    bool before_sleep() override { return !is_asked_.load(std::memory_order_acquire); }
    void serve() override;
    std::uint64_t next_time_ns() const noexcept override {
      // relaxed: a ring of the helper's bell follows the store
      return does_poll_.load(std::memory_order_relaxed) ? next_turn_ns_ : kNever;
    }
    void on_time(std::uint64_t now_ns) override;

   private:
    Messages& messages_;
    UniqueFd never_;  // never readable
    std::atomic<bool> is_asked_{false}, does_poll_{false};
    std::uint64_t next_turn_ns_ = 0;  // the helper's
  };

  Messages(control::Plane& plane, const Job& job, int rank, int size, std::uint16_t first_kind)
      : plane_(plane), job_(job), rank_(rank), size_(size), first_kind_(first_kind) {}

  // msg::SharedPlane
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Result<control::Address> address_of(int rank, std::string* problem) override;
  control::Plane& plane() override { return plane_; }
  std::uint16_t first_kind() const override { return first_kind_; }
  // msg::Connector
  void want(int rank, std::uint32_t number) override { mesh_->want(rank, number); }
  void look_at_descriptors() override { plane_.look_at_descriptors(); }
  void ring(int rank) override { mesh_->ring(rank); }
  // msg::MeshUser
  Result<msg::PacketLane*> lane_of(std::uint32_t number) override;
  msg::PacketListener* listener_of(int rank, std::uint32_t number) override;
  std::string explain(Status status) override;
  void on_ready(int rank, std::uint32_t number, msg::PacketLink& link) override;
  void on_unreachable(int rank, std::uint32_t number, Status status) override;
  void on_peer_down(int rank, Status status) override;
  void on_bell() override { turns_.ask(); }

  control::Plane& plane_;
  const Job job_;
  const int rank_, size_;
  const std::uint16_t first_kind_;
  std::unique_ptr<net::Fabric> fabric_;
  CompletionDomain domain_;
  std::unique_ptr<msg::Engine> engine_;
  std::unique_ptr<msg::Mesh> mesh_;
  Turns turns_{*this};
  bool is_watched_ = false;
};

}  // namespace larklane::mpi::p2p
