#include "program.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "environment.hpp"
#include "measure/catalogue.hpp"
#include "measure/crew.hpp"
#include "native.hpp"
#include "phases.hpp"

namespace larklane::bench {
namespace {

constexpr int kUsage = 2, kFailed = 1;

/// For one rank.
std::string refusal_of_posts(const Options& o) {
  if (o.of_exchanges.empty()) return {};
  return o.of_exchanges.front() +
         ": of whole exchanges; one rank measures posts alone, sends that nobody hears of: "
         "larklane launch -n 2 larklane bench " +
         o.benchmark;
}

/// Requests as many lanes as threads, even with fewer cores, unless the user has set the number.
void ask_for_lanes(const Options& o, std::uint32_t lanes_max) {
  const std::string wanted = std::to_string(std::min(o.threads, lanes_max));
  ::setenv("LARKLANE_VCI_COUNT_MAX", wanted.c_str(), 0);
}

std::string refusal_of_lanes(const Options& o, NativeWorld& world, std::uint32_t lanes_max) {
  std::uint32_t needed = 0;
  for (const std::string& way : o.ways) needed = std::max(needed, lanes_of(way, o));
  std::set<const msg::MessageLane*> lanes;
  for (std::uint32_t lane = 0; lane < needed; ++lane) lanes.insert(&world.lane(lane).inside());
  if (lanes.size() == needed) return {};
  return "--threads " + std::to_string(o.threads) + ": " + std::to_string(needed) +
         " lanes are needed, here are " + std::to_string(lanes.size()) + "; remedy: " +
         (needed > lanes_max ? "fewer threads, " + std::to_string(lanes_max) + " at most"
                             : "LARKLANE_VCI_COUNT_MAX=" + std::to_string(needed) +
                                   ", and not LARKLANE_VCI_MAPPING=one");
}

std::string refusal(const Options& o, int ranks, const Program& program) {
  if (std::string problem = refusal_of_ways(o); !problem.empty()) return problem;
  if (std::string problem = refusal_without_mpi(o); !problem.empty()) return problem;
  if (ranks == 1 && program.measure_alone) return refusal_of_posts(o);
  return refusal_of_crew(o, ranks, "larklane launch -n");
}

/// @return exit status, -1 if there is no problem
int refused(const std::string& problem, bool tells) {
  if (problem.empty()) return -1;
  if (tells) std::fprintf(stderr, "larklane bench: %s\n", problem.c_str());
  return kUsage;
}

/// The launcher ends the other processes.
[[noreturn]] void end_launch() {
  std::fflush(nullptr);
  _exit(kFailed);
}

int measure(const Program& program, NativeWorld& world, Record& record, const SystemCalls* calls) {
  const Card mine = card_of_this(record.options);
  std::vector<Card> cards(static_cast<std::size_t>(world.size()));
  world.gather(&mine, sizeof mine, cards.data());
  Environment environment = environment_of(cards);
  environment.variables = std::move(record.environment.variables);  // as the user set them
  record.environment = std::move(environment);
  record.environment.mpi = "none";
  record.options.yields = record.environment.is_oversubscribed;
  if (world.size() == 1) {
    record.options.completion.clear();
    record.options.progress.clear();
  }
  const auto measure_size = [&](std::uint64_t size, double budget_ns, const Watcher& watcher) {
    if (find_benchmark(record.options.benchmark)->kind == Kind::application)
      return program.measure_application(record, size, budget_ns, watcher, world);
    if (world.size() == 1) return program.measure_alone(record, size, budget_ns, watcher, world);
    const Options options = record.options.of_process();
    if (options.benchmark == "message-turns")
      return Phases(options, size, world, record.environment.timer_ns, watcher).run(budget_ns);
    return Exchange(options, size, world, record.environment.timer_ns, watcher, calls)
        .run(budget_ns);
  };
  return measure_sizes({&record, world.rank() == 0, end_launch}, measure_size);
}

}  // namespace

int run_messages(int argc, char** argv, const Program& program) {
  Record record;
  if (std::any_of(argv + 1, argv + argc,
                  [](std::string_view word) { return word == "--help" || word == "-h"; }))
    return printed(parse_options(argc, argv, true, &record.options));
  // Rank 0 prints an error after the context exists.
  const bool is_parsed = parse_options(argc, argv, false, &record.options) < 0;
  if (is_parsed && program.lanes_max > 0) ask_for_lanes(record.options, program.lanes_max);
  std::string problem;
  std::string no_count;
  const auto calls = count_system_calls(record.options, &no_count);  // of the context, too
  auto context = Context::create(&problem);
  if (!context) {
    std::fprintf(stderr, "larklane bench: %s\n", problem.c_str());
    return kFailed;
  }
  const bool tells = (*context)->rank() == 0;
  int status = is_parsed ? -1 : parse_options(argc, argv, tells, &record.options);
  if (status < 0) {
    problem = refusal(record.options, (*context)->size(), program);
    if (problem.empty()) problem = no_count;
    status = refused(problem, tells);
  }
  if (status < 0) {
    NativeWorld world(**context, program.around);
    if (program.lanes_max > 0)
      status = refused(refusal_of_lanes(record.options, world, program.lanes_max), tells);
    if (status < 0) status = measure(program, world, record, calls ? &*calls : nullptr);
  }
  // Refused ranks also wait here: the launcher ends all processes when the first one ends, and rank
  // 0 must print the reason before.
  if (!(*context)->fence(&problem).ok())
    std::fprintf(stderr, "larklane bench: %s\n", problem.c_str());
  return tells ? printed(status) : status;
}

}  // namespace larklane::bench
