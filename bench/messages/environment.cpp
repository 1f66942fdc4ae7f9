#include "environment.hpp"

#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <string>

#include "measure/clock.hpp"
#include "measure/machine.hpp"

namespace larklane::bench {

Card card_of_this(const Options& o) {
  Card card{};
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  card.host = std::hash<std::string>()(id);
  card.threads = static_cast<int>(o.threads_of_process()) + (o.progress == "dedicated" ? 1 : 0);
  if (sched_getaffinity(0, sizeof card.cores, &card.cores) != 0) CPU_ZERO(&card.cores);
  std::snprintf(card.binding, sizeof card.binding, "%s", binding().c_str());
  return card;
}

Environment environment_of(std::span<const Card> cards) {
  Environment e;
  e.ranks = static_cast<int>(cards.size());
  std::map<std::size_t, Card> hosts;
  for (const Card& card : cards) {
    e.bindings.emplace_back(card.binding);
    Card& host = hosts.try_emplace(card.host, Card{}).first->second;
    host.threads += card.threads;
    CPU_OR(&host.cores, &host.cores, &card.cores);
  }
  e.hosts = static_cast<int>(hosts.size());
  for (const auto& [id, host] : hosts) {
    const int cores = CPU_COUNT(&host.cores);
    e.is_oversubscribed = e.is_oversubscribed || (cores > 0 && host.threads > cores);
  }
  e.timer_ns = timer_cost_ns();
  return e;
}

}  // namespace larklane::bench
