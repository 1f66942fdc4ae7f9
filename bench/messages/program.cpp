#include "program.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <string_view>

#include "measure/crew.hpp"
#include "measure/machine.hpp"
#include "native.hpp"

namespace larklane::bench {
namespace {

constexpr int kUsage = 2, kFailed = 1;

/// What a process says of itself: plain bytes.
struct Card {
  std::size_t host;  ///< a hash of the kernel's start
  int threads;
  cpu_set_t cores;
  char binding[256];
};

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

Environment environment_of_all(const Options& o, NativeWorld& world) {
  Environment e;
  e.mpi = "none";
  e.ranks = world.size();
  const Card mine = card_of_this(o);
  std::vector<Card> cards(static_cast<std::size_t>(e.ranks));
  world.gather(&mine, sizeof mine, cards.data());
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

std::string refusal(const Options& o, int ranks, const Program& program) {
  const std::vector<std::string>& names = program.ways;
  for (const std::string& way : o.ways)
    if (std::ranges::find(names, way) == names.end())
      return std::accumulate(
          names.begin(), names.end(), "--ways " + way + ": expected some of",
          [](const std::string& text, const std::string& name) { return text + " " + name; });
  if (ranks == 1 && program.measure_alone) return {};
  return refusal_of_crew(o, ranks, "larklane launch -n");
}

/// The others are ended by whoever has started them.
[[noreturn]] void end_launch() {
  std::fflush(nullptr);
  _exit(kFailed);
}

int measure(const Program& program, NativeWorld& world, Record& record) {
  record.environment = environment_of_all(record.options, world);
  record.options.yields = record.environment.is_oversubscribed;
  const auto measure_size = [&](std::uint64_t size, double budget_ns, const Watcher& watcher) {
    if (is_application(record.options.benchmark))
      return program.measure_application(record, size, budget_ns, watcher, world);
    if (world.size() == 1) return program.measure_alone(record, size, budget_ns, watcher, world);
    return Exchange(record.options, size, world, record.environment.timer_ns, watcher)
        .run(budget_ns);
  };
  return measure_sizes({&record, world.rank() == 0, end_launch}, measure_size);
}

}  // namespace

int run_messages(int argc, char** argv, const Program& program) {
  Record record;
  if (std::any_of(argv + 1, argv + argc,
                  [](std::string_view word) { return word == "--help" || word == "-h"; }))
    return parse_options(argc, argv, true, &record.options);
  std::string problem;
  auto context = Context::create(&problem);
  if (!context) {
    std::fprintf(stderr, "larklane bench: %s\n", problem.c_str());
    return kFailed;
  }
  const bool tells = (*context)->rank() == 0;
  int status = parse_options(argc, argv, tells, &record.options);
  if (status < 0) {
    problem = refusal(record.options, (*context)->size(), program);
    if (!problem.empty() && tells) std::fprintf(stderr, "larklane bench: %s\n", problem.c_str());
    if (!problem.empty()) status = kUsage;
  }
  if (status < 0) {
    NativeWorld world(**context, program.around);
    status = measure(program, world, record);
  }
  // Also of who has been refused: the launcher ends all others when the first has ended, and rank 0
  // has to have said why.
  if (!(*context)->fence(&problem).ok())
    std::fprintf(stderr, "larklane bench: %s\n", problem.c_str());
  return status;
}

}  // namespace larklane::bench
