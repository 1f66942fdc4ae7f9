#include "mpi/hosts.hpp"

#include <fcntl.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.hpp"
#include "base/ranks_text.hpp"
#include "control/fork_guard.hpp"
#include "net/registry.hpp"

namespace larklane::mpi {

std::unique_ptr<Hosts> Hosts::open() {
  auto board = LauncherBoard::open();
  return board ? std::unique_ptr<Hosts>(new Hosts(std::move(board))) : nullptr;
}

void Hosts::open_networks(const Config& config, const std::string& folder) {
  const bool is_free = config.provider == "auto";
  for (const std::string& option :
       is_free ? net::providers_between_hosts() : std::vector{config.provider}) {
    std::string reason;
    auto fabric = net::open_fabric_named(config, option, &reason, folder);
    if (!fabric) {
      log_info("between hosts: %s", reason.c_str());
      problem_ += (problem_.empty() ? "" : "; ") + reason;
      continue;
    }
    const std::string name = (*fabric)->limits().network;
    if (name.empty()) {
      problem_ += (problem_.empty() ? "" : "; ") + (*fabric)->limits().provider +
                  " does not leave the host";
      continue;
    }
    networks_.push_back({option, std::move(fabric).value(), name});
    own_.networks.push_back(name);
  }
  if (!networks_.empty()) problem_.clear();
}

void Hosts::announce(const control::Address& name, const Config& config,
                     const std::string& folder) {
  if (std::exchange(is_announced_, true)) return;
  own_.host = this_host();
  ::getrandom(own_.secret.data(), own_.secret.size(), 0);
  open_networks(config, folder);
  if (problem_.empty()) {
    auto listener = control::RemoteListener::bind(name, config.control_interface, &problem_);
    if (listener) {
      listener_ = std::move(listener).value();
      own_.address = listener_->address;
    }
  }
  if (own_.text().size() > LauncherBoard::kTextBytesMax) {
    problem_ = "its address is too long; set LARKLANE_CONTROL_INTERFACE to one interface";
    own_.address.clear();
  }
  if (!problem_.empty()) log_warn("not reached from other hosts: %s", problem_.c_str());
  if (!board_->put(own_.text()))
    problem_ = "the launcher does not take what other hosts would have to know";
}

void Hosts::learn(int ranks, int rank, const Config& config) {
  if (has_learnt() || ranks < 1 || !is_announced_) return;
  rank_ = rank;
  const auto texts = board_->get_all(ranks, config.control_connect_ns);
  for (const std::string& text : texts) cards_.push_back(HostCard::of_text(text));
  network_ = common_network(cards_);
  name_the_absent();
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
  if (first - cards_.begin() != rank_) return;  // one of all says it
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

bool Hosts::is_here(int rank) const {
  const HostCard* const card = card_of(rank);
  return card != nullptr && card->host == own_.host;
}

Hosts::Way Hosts::way_to(int rank) const {
  const HostCard* const card = card_of(rank);
  const HostCard* const own = card_of(rank_);
  if (card == nullptr) return {false, {}, "it does not run under this Larklane"};
  if (own == nullptr) return {false, {}, problem_.empty() ? "no board" : problem_};
  if (card->host == own_.host) return {true, {}, {}};
  const auto join = [](const std::vector<std::string>& names) {
    std::string all;
    for (const std::string& name : names) all += (all.empty() ? "" : " and ") + name;
    return all.empty() ? std::string("nothing") : all;
  };
  if (own->address.empty())
    return {false, {}, "this process is not reached from there: " + problem_};
  if (card->address.empty()) return {false, {}, "it is on another host, and has warned why not"};
  if (!own->has(network_) || !card->has(network_)) {
    return {false,
            {},
            "most processes go by " + network_ + "; this host has opened " + join(own->networks) +
                ", that one " + join(card->networks) + " (LARKLANE_PROVIDER)"};
  }
  return {false, card->address, {}};
}

std::optional<part::OtherHosts> Hosts::for_engine(const Config& config) {
  const HostCard* const own = card_of(rank_);
  if (own == nullptr || !listener_ || !own->has(network_)) return std::nullopt;
  const auto used = std::find_if(networks_.begin(), networks_.end(),
                                 [&](const Network& one) { return one.name == network_; });
  std::erase_if(networks_, [&](const Network& one) { return &one != &*used; });
  Network& network = networks_.front();
  if (!network.fabric) {  // a second engine
    std::string reason;
    auto again = net::open_fabric_named(config, network.option, &reason);
    if (!again) {
      log_error("between hosts: %s", reason.c_str());
      return std::nullopt;
    }
    network.fabric = std::move(again).value();
  }
  // The address stays this process's, whatever becomes of the engine.
  UniqueFd listening =
      control::keep_from_children([&] { return ::fcntl(listener_->fd.get(), F_DUPFD_CLOEXEC, 0); });
  const auto first =
      std::find_if(cards_.begin(), cards_.end(), [](const auto& card) { return card.has_value(); });
  return part::OtherHosts{{{listener_->address, listener_->hosts, std::move(listening)},
                           (*first)->secret,
                           config.control_connect_ns,
                           config.control_silence_ns},
                          std::move(network.fabric)};
}

}  // namespace larklane::mpi
