#include "mpi/world/hosts.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/fork_guard.hpp"
#include "base/kernel_calls.hpp"
#include "base/log.hpp"
#include "base/random.hpp"
#include "base/ranks_text.hpp"
#include "control/local/socket.hpp"
#include "net/registry.hpp"

namespace larklane::mpi {

std::unique_ptr<Hosts> Hosts::open() {
  auto board = boot::LauncherBoard::open();
  return board ? std::unique_ptr<Hosts>(new Hosts(std::move(board))) : nullptr;
}

void Hosts::open_networks(const Config& config, const std::string& folder) {
  own_.uses_them_here = config.provider != "auto";
  const auto skip = [&](const std::string& reason) {
    if (skipped_.find(reason) != std::string::npos) return;
    skipped_ += (skipped_.empty() ? "" : "; ") + reason;
  };
  for (const std::string& option : net::wanted_providers(config.provider)) {
    std::string reason;
    auto fabric = net::open_fabric_named(config, option, &reason, folder);
    if (!fabric) {
      skip(reason);
      continue;
    }
    const std::string name = (*fabric)->limits().network;
    if (own_.has(name)) {
      if (own_.uses_them_here) skip("provider " + option + " is another way into network " + name);
    } else if (networks_.size() == HostCard::kNetworksMax) {
      skip("provider " + option + " is one more than a process tells others of");
    } else {
      std::string title = net::provider_title(option, **fabric);
      networks_.push_back({option, std::move(fabric).value(), name, std::move(title)});
      own_.networks.push_back(name);
    }
  }
  if (own_.networks.empty())
    problem_ = skipped_;
  else if (own_.uses_them_here && !skipped_.empty())
    log_warn("going on without what option provider names: %s", skipped_.c_str());
  else if (!skipped_.empty())
    log_info("between hosts: %s", skipped_.c_str());
}

/// Fills in the own card. Without a secret, other hosts can't reach this process: sets problem_.
void Hosts::identify_own() {
  own_.host = boot::this_host();
  own_.user = ::getuid();
  if (const Status random = fill_random(own_.secret); !random.ok())
    problem_ = RefusedCall{"getrandom", random.detail(), "the job's secret"}.text();
}

void Hosts::decline() {
  if (std::exchange(is_announced_, true)) return;
  identify_own();
  own_.declines = true;
  problem_ = "it leaves all pairs to the MPI";
  (void)board_->put(own_.text());
}

void Hosts::announce(const control::Address& name, const Config& config,
                     const std::string& folder) {
  if (std::exchange(is_announced_, true)) return;
  identify_own();
  if (!spans_hosts_) {
    (void)board_->put(own_.text());  // gives peers the reason for a missing socket
    return;
  }
  if (problem_.empty()) open_networks(config, folder);
  if (problem_.empty()) {
    auto listener = control::RemoteListener::bind(name, config.control_interface, &problem_);
    if (listener) {
      listener_ = std::move(listener).value();
      own_.address = listener_->address;
    }
  }
  if (!problem_.empty()) log_warn("not reached from other hosts: %s", problem_.c_str());
  if (!board_->put(own_.text()))
    problem_ = "the launcher does not take what other hosts would have to know";
}

void Hosts::learn(int ranks, int rank, const Config& config, const LocalName& local_name) {
  if (ranks < 1 || !is_announced_ || std::exchange(has_asked_, true)) return;
  rank_ = rank;
  if (!spans_hosts_) {
    std::vector<control::Address> names;
    for (int other = 0; other < ranks; ++other) names.push_back(local_name(other));
    const auto bound = control::are_bound(names);
    if (bound && std::ranges::find(*bound, false) == bound->end()) return;
  }
  const auto texts = board_->get_all(ranks, config.control_connect_ns);
  for (const std::string& text : texts) cards_.push_back(HostCard::of_text(text));
  if (spans_hosts_) name_the_absent();
}

void Hosts::name_the_absent() const {
  const auto first =
      std::find_if(cards_.begin(), cards_.end(), [](const auto& card) { return card.has_value(); });
  if (first == cards_.end()) {
    log_warn_once("no cards",
                  "pairs of processes on different hosts are left to the MPI: it has not told the "
                  "launcher where they are reached");
    return;
  }
  if (first - cards_.begin() != rank_) return;  // only one rank warns
  std::vector<int> absent;
  for (std::size_t rank = 0; rank < cards_.size(); ++rank)
    if (!cards_[rank]) absent.push_back(static_cast<int>(rank));
  if (absent.empty()) return;
  log_warn(
      "%s %s without this Larklane: their pairs are left to the MPI",
      (absent.size() == 1 ? "rank " + ranks_text(absent) : "ranks " + ranks_text(absent)).c_str(),
      absent.size() == 1 ? "runs" : "run");
}

const HostCard* Hosts::card_of(int rank) const {
  const auto index = static_cast<std::size_t>(rank);
  return index < cards_.size() && cards_[index] ? &*cards_[index] : nullptr;
}

std::string Hosts::why_unseen(int rank) const {
  const HostCard* const own = card_of(rank_);
  if (own == nullptr) return {};
  const std::string name = "rank " + std::to_string(rank);
  const HostCard* const card = card_of(rank);
  if (card == nullptr)
    return name +
           " runs without this Larklane; remedy: start all ranks by larklane run of one version";
  if (card->declines) return name + " leaves all pairs to the MPI, and has warned why";
  if (card->host != own->host)
    return name +
           " runs under Larklane in another network namespace, where its local sockets are not "
           "seen; "
           "remedy: start the ranks of a host in one network namespace (containers: that of the "
           "host, --network=host)";
  if (card->user != own->user)
    return name + " runs under Larklane as user " + std::to_string(card->user) +
           ", this process as user " + std::to_string(own->user) +
           "; remedy: start all ranks as one user, in one user namespace";
  return name + " runs under Larklane as this user, but its socket is not there: it has ended";
}

bool Hosts::is_here(int rank) const {
  const HostCard* const card = card_of(rank);
  return card != nullptr && card->host == own_.host;
}

const Hosts::Network* Hosts::network_to(int rank, const HostCard& card) const {
  const HostCard& own = *card_of(rank_);
  const std::string name = rank_ < rank ? network_between(own, card) : network_between(card, own);
  const auto found = std::find_if(networks_.begin(), networks_.end(),
                                  [&](const Network& one) { return one.name == name; });
  return found == networks_.end() ? nullptr : &*found;
}

Hosts::Way Hosts::way_to(int rank) const {
  const HostCard* const card = card_of(rank);
  const HostCard* const own = card_of(rank_);
  if (card == nullptr) return {false, {}, "it does not run under this Larklane"};
  if (card->declines) return {false, {}, "it leaves all pairs to the MPI, and has warned why"};
  if (own == nullptr) return {false, {}, problem_.empty() ? "no board" : problem_};
  if (card->host == own_.host) {
    const Network* const network = network_to(rank, *card);
    return {true, {}, {}, network != nullptr ? network->title : ""};
  }
  const auto join = [](const std::vector<std::string>& names) {
    std::string all;
    for (const std::string& name : names) all += (all.empty() ? "" : " and ") + name;
    return all.empty() ? std::string("nothing") : all;
  };
  // acquire: pairs with refuse()'s release.
  if (is_refused_.load(std::memory_order_acquire))
    return {false, {}, "this process is not reached any more, which has been said"};
  if (own->address.empty())
    return {false, {}, "this process is not reached from there: " + problem_};
  if (card->address.empty()) return {false, {}, "it is on another host, and has warned why not"};
  const Network* const network = network_to(rank, *card);
  if (network == nullptr)
    return {false,
            {},
            "no network is on both sides: this one has opened " + join(own->networks) +
                ", that one " + join(card->networks) + " (LARKLANE_PROVIDER)"};
  return {false, card->address, {}, network->title};
}

std::optional<part::OtherHosts> Hosts::for_engine(const Config& config,
                                                  const LocalName& local_name) {
  const HostCard* const own = card_of(rank_);
  if (own == nullptr) return std::nullopt;
  const auto pairs = pairs_of(*own, local_name);
  const bool has_remote =
      std::any_of(pairs.begin(), pairs.end(), [](const Pair& pair) { return !pair.is_here; });
  part::OtherHosts others{std::nullopt, {}, {}, own_.uses_them_here};
  std::vector<const Network*> used;
  for (Network& network : networks_) {
    // Processes of other worlds on this host know only our first network.
    const bool is_used = (own_.uses_them_here && used.empty()) ||
                         std::any_of(pairs.begin(), pairs.end(),
                                     [&](const Pair& pair) { return pair.network == &network; });
    auto fabric = std::exchange(network.fabric, nullptr);
    if (!is_used) continue;
    if (!fabric) {  // a second engine
      std::string reason;
      auto again = net::open_fabric_named(config, network.option, &reason);
      if (!again) {
        log_error("between hosts: %s", reason.c_str());
        refuse();
        return std::nullopt;
      }
      fabric = std::move(again).value();
    }
    used.push_back(&network);
    others.fabrics.push_back(std::move(fabric));
  }
  for (const Pair& pair : pairs) {
    const auto found = std::find(used.begin(), used.end(), pair.network);
    if (found == used.begin()) continue;
    others.fabric_of.emplace(pair.peer, pair.network == nullptr
                                            ? part::OtherHosts::kSharedMemory
                                            : static_cast<std::size_t>(found - used.begin()));
  }
  if (has_remote) others.remote = remote(config);
  return others;
}

/// The pairs with reachable peers on other hosts and, if networks serve this host, with local
/// peers.
std::vector<Hosts::Pair> Hosts::pairs_of(const HostCard& own, const LocalName& local_name) const {
  std::vector<Pair> pairs;
  for (int rank = 0; rank < static_cast<int>(cards_.size()); ++rank) {
    const HostCard* const card = card_of(rank);
    if (card == nullptr || rank == rank_) continue;
    const Network* const network = network_to(rank, *card);
    if (card->host == own.host) {
      if (own.uses_them_here) pairs.push_back({local_name(rank), network, true});
    } else if (listener_ && network != nullptr && !own.address.empty() && !card->address.empty()) {
      pairs.push_back({card->address, network, false});
    }
  }
  return pairs;
}

control::Remote Hosts::remote(const Config& config) const {
  // A duplicate: the address remains this process's, independently of the engine.
  UniqueFd listening =
      keep_from_children([&] { return ::fcntl(listener_->fd.get(), F_DUPFD_CLOEXEC, 0); });
  const auto first =
      std::find_if(cards_.begin(), cards_.end(), [](const auto& card) { return card.has_value(); });
  return {{listener_->address, listener_->hosts, std::move(listening)},
          (*first)->secret,
          config.control_connect_ns,
          config.control_silence_ns};
}

}  // namespace larklane::mpi
