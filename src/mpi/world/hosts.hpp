#pragma once
// The hosts of this process's world: who is where, and by what network each pair goes. Everybody
// has the same cards, so both sides of a pair decide alike. On one host the local sockets decide,
// and the cards only tell why one is missing. No MPI call.

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
  /// Null: the launcher has no board, or nothing would be told there.
  static std::unique_ptr<Hosts> open();

  bool spans_hosts() const noexcept { return spans_hosts_; }
  /// Empty: the launcher's own name for the world is the same on all hosts.
  std::string world() const { return board_->world(); }
  /// Before the MPI's own initialisation: listen to other hosts, open what may join them, and say
  /// so. Once. @param name  of this process on its host @param folder  of providers; empty: our own
  void announce(const control::Address& name, const Config& config, const std::string& folder = {});
  /// Instead: this process leaves all pairs to the MPI. Once.
  void decline();
  /// Instead of the MPI's exchange, for a process without an MPI. false: this launcher tells MPI
  /// programs only.
  bool meet() { return board_->meet(); }
  /// Of a rank on this host.
  using LocalName = std::function<control::Address(int rank)>;
  /// After it, once. On one host cards are asked for only if a rank does not listen at its name.
  /// @param rank  own
  void learn(int ranks, int rank, const Config& config, const LocalName& local_name);
  /// The cards say how a rank is reached; else it is reached by its local name, or not at all.
  bool has_learnt() const noexcept { return spans_hosts_ && !cards_.empty(); }
  /// Why nobody listens at the rank's local name, and the remedy; empty: not known.
  std::string why_unseen(int rank) const;

  /// How a process of the own world is reached.
  struct Way {
    bool is_here = false;      ///< on this host, by its local name
    control::Address address;  ///< else; empty: not at all
    std::string why_not;       ///< for people
    std::string network{};     ///< for people; empty: shared memory, or not at all
  };
  Way way_to(int rank) const;
  bool is_here(int rank) const;

  /// There will be no engine: whoever wants to reach it is refused.
  void refuse() noexcept {
    listener_.reset();
    is_refused_.store(true, std::memory_order_release);  // release: pairs with way_to()'s acquire
  }
  /// What could not be opened, or is not used, and why; for people.
  const std::string& skipped() const noexcept { return skipped_; }
  /// For an engine. Nothing if this process has no card, or what was open once can't be opened
  /// again: then it decides by itself.
  std::optional<part::OtherHosts> for_engine(const Config& config, const LocalName& local_name);

 private:
  struct Network {
    std::string option;                   ///< as option `provider` names it
    std::unique_ptr<net::Fabric> fabric;  ///< null: an engine has it, or nobody needs it
    std::string name;                     ///< as on a card
    std::string title;                    ///< for people
  };
  struct Pair {
    control::Address peer;
    const Network* network;  ///< null: none; it is on this host
    bool is_here;
  };
  explicit Hosts(std::unique_ptr<boot::LauncherBoard> board) : board_(std::move(board)) {}
  void open_networks(const Config& config, const std::string& folder);
  void name_the_absent() const;
  void identify_own();
  std::vector<Pair> pairs_of(const HostCard& own, const LocalName& local_name) const;
  control::Remote remote(const Config& config) const;
  const HostCard* card_of(int rank) const;
  /// Null: pairs with it go by none. @param card  the rank's
  const Network* network_to(int rank, const HostCard& card) const;

  const std::unique_ptr<boot::LauncherBoard> board_;
  const bool spans_hosts_ = boot::LauncherBoard::spans_hosts();
  std::optional<control::RemoteListener> listener_;
  std::vector<Network> networks_;
  HostCard own_;
  std::string skipped_;
  std::string problem_;  ///< why this process can't be reached; empty: it can
  std::atomic<bool> is_refused_{false};
  bool is_announced_ = false;
  bool has_asked_ = false;  ///< for cards, or found that none is needed
  int rank_ = 0;
  std::vector<std::optional<HostCard>> cards_;  ///< by rank
};

}  // namespace larklane::mpi
