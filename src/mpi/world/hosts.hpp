#pragma once
// The hosts of this process's world: the host of each rank, and the network of each pair. All
// processes have the same cards, so both sides of a pair decide alike. On one host the local
// sockets decide, and a card only gives the reason for a missing socket. No MPI call.

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "bootstrap/host_card.hpp"
#include "bootstrap/launcher_board.hpp"
#include "control/plane/plane.hpp"
#include "net/provider.hpp"
#include "part/engine.hpp"

namespace larklane::mpi {

using boot::HostCard;

/// Lives as long as the process: the MPI exchanges cards once.
/// Thread safety: single-owner until learn() has returned; then way_to() and is_here() are
/// thread-safe.
class Hosts {
 public:
  /// Null: the launcher has no board, or a card would give peers no information.
  static std::unique_ptr<Hosts> open();

  bool spans_hosts() const noexcept { return spans_hosts_; }
  /// Empty: the launcher's own name for the world is the same on all hosts.
  std::string world() const { return board_->world(); }
  /// Call once, before the MPI's own initialisation: listens to other hosts, opens the networks to
  /// them, and puts the card on the board.
  /// @param name    of this process on its host
  /// @param folder  of providers; empty: our own
  void announce(const control::Address& name, const Config& config, const std::string& folder = {});
  /// Call it once instead, if this process leaves all pairs to the MPI.
  void decline();
  /// Replaces the MPI's exchange for a process without an MPI. false: this launcher serves MPI
  /// programs only.
  bool meet() { return board_->meet(); }
  /// The local name of a rank on this host.
  using LocalName = std::function<control::Address(int rank)>;
  /// Call once, after the exchange. On one host it gets cards only if a rank's socket is missing.
  /// @param rank  own
  void learn(int ranks, int rank, const Config& config, const LocalName& local_name);
  /// Call it once instead, on one host, if each rank's socket is known to be there.
  void skip_cards() noexcept { has_asked_ = true; }
  /// True if the cards decide the way to a rank; otherwise its local name does.
  bool has_learnt() const noexcept { return spans_hosts_ && !cards_.empty(); }
  /// The reason why no process listens at the rank's local name, and the remedy; empty: not known.
  std::string why_unseen(int rank) const;

  /// The way to a process of the own world.
  struct Way {
    bool is_here = false;      ///< on this host, by its local name
    control::Address address;  ///< otherwise; empty: unreachable
    std::string why_not;       ///< text for the user
    std::string network{};     ///< text for the user; empty: shared memory, or unreachable
  };
  /// By the cards alone: it sends nothing, and the peer may have ended.
  Way way_to(int rank) const;
  bool is_here(int rank) const;

  /// Call if this process will have no engine. Closes the listener, so peers on other hosts can't
  /// connect any more. From now on way_to() reports each peer on another host as unreachable, and
  /// names this process as the cause. Peers on this host stay as they are.
  void refuse() noexcept {
    listener_.reset();
    is_refused_.store(true, std::memory_order_release);  // release: pairs with way_to()'s acquire
  }
  /// The networks that could not be opened or are not used, with reasons; text for the user.
  const std::string& skipped() const noexcept { return skipped_; }
  /// The networks and peers for an engine. Empty if this process has no card, or if a network can't
  /// be opened again: the engine then decides by itself.
  std::optional<part::OtherHosts> for_engine(const Config& config, const LocalName& local_name);

 private:
  struct Network {
    std::string option;                   ///< as option `provider` names it
    std::unique_ptr<net::Fabric> fabric;  ///< null: an engine has it, or no pair needs it
    std::string name;                     ///< as on a card
    std::string title;                    ///< text for the user
  };
  struct Pair {
    control::Address peer;
    const Network* network;  ///< null: none, the peer is on this host
    bool is_here;
  };
  explicit Hosts(std::unique_ptr<boot::LauncherBoard> board) : board_(std::move(board)) {}
  void open_networks(const Config& config, const std::string& folder);
  void name_the_absent() const;
  void identify_own();
  std::vector<Pair> pairs_of(const HostCard& own, const LocalName& local_name) const;
  control::Remote remote(const Config& config) const;
  const HostCard* card_of(int rank) const;
  /// The network of the pair with a rank; null: none. @param card  the rank's
  const Network* network_to(int rank, const HostCard& card) const;

  const std::unique_ptr<boot::LauncherBoard> board_;
  const bool spans_hosts_ = boot::LauncherBoard::spans_hosts();
  std::optional<control::RemoteListener> listener_;
  std::vector<Network> networks_;
  HostCard own_;
  std::string skipped_;
  std::string problem_;  ///< why this process can't be reached; empty: it is reachable
  std::atomic<bool> is_refused_{false};
  bool is_announced_ = false;
  bool has_asked_ = false;  ///< has got the cards, or found that it needs none
  int rank_ = 0;
  std::vector<std::optional<HostCard>> cards_;  ///< by rank
};

}  // namespace larklane::mpi
