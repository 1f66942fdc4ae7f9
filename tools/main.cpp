// The `larklane` command: words that the user may type. CLI11 is slow to compile and lives here
// alone.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/mpi_choices.h"
#include "bench.hpp"
#include "console.hpp"
#include "info.hpp"
#include "launch.hpp"
#include "model.hpp"
#include "noise.hpp"
#include "profile.hpp"
#include "run.hpp"
#include "sim/regime.hpp"
#include "simulate.hpp"
#include "tune.hpp"

namespace {

constexpr const char* kRunExamples = R"(
Examples:
  mpirun -n 4 larklane run ./app input.dat        put Larklane under a program: between launcher and program
  mpirun -n 4 larklane run --summary python3 x.py what it did, a few lines per rank
  larklane run --dry-run ./app                    what would be executed, and which MPI it is
  mpirun -n 4 larklane run --option policy=none --option wait_spins=1000 ./app
  mpirun -n 4 larklane run --mpi native ./app     the same command without Larklane's engine
  larklane run --sanitized ./app ./start.sh       a script that starts ./app, which has AddressSanitizer

Scripts and wrappers work: what they start inherits Larklane. Exit status: the program's; 2 if it was not started.)";

constexpr const char* kLaunchExamples = R"(
For native programs, which use Larklane without an MPI. MPI programs have a launcher: mpirun -n 4 larklane run ./app

Examples:
  larklane launch -n 4 ./app input.dat            four processes on this host that know each other
  larklane launch -n 2 --tag-output ./app         [0] and [1] before each line of output
  larklane launch -n 8 --timeout 60 ./test

Standard input is rank 0's. Lines of output stay whole. When a process fails, the others get SIGTERM, and SIGKILL after 2 s; so it is
after --timeout. SIGINT, SIGTERM and SIGHUP are passed on; a second one kills. What the processes have started ends with them.
Exit status: 0 if all had it; that of the first one that failed (128 + its signal); 124 after --timeout; 126 or 127 if the program
can't be started; 2 for wrong options.)";

constexpr const char* kProfileExamples = R"(
Examples:
  mpirun -n 4 larklane profile ./app input.dat    one file per rank in ./larklane-profile
  mpirun -n 4 larklane profile --out p1 ./app     in ./p1
  mpirun -n 4 larklane profile --mpi native ./app the MPI's own partitioned communication
  larklane report larklane-profile                what is in it, and what early sending would save
  python3 -m larklane.profile larklane-profile    traces: --perfetto FILE, --delays FILE

Recorded: when each partition of each round became ready and arrived, Start and Wait, messages that are not
partitioned, and when OpenMP's and pthreads' threads finish. What a program that is killed had recorded is kept.
Exit status: the program's; 2 if it was not started.)";

constexpr const char* kInfoExamples = R"(
Examples:
  larklane info              everything
  larklane info --options    the options: value, where it comes from, unit, range
  larklane info --json       for programs
  larklane info --peer node7              by what pairs with a process of that host would go, and why
  mpirun -n 2 larklane info --peer 1      the same of a rank: one process of the launcher tells)";

constexpr const char* kNoiseExamples = R"(
A thread on each core that this process may use reads the clock over and over; where the clock jumps, the core did something else.

Examples:
  larklane noise --out node.json
  larklane bench overhead --noise trace:node.json)";

constexpr const char* kModelExamples = R"(
Time is counted from when the last partition is ready: what a receiver that waits is left to wait for. docs/design/model.md says what the
model is, what is published of it, and what is derived.

Examples:
  larklane model                                       a thread that is 4 ms late
  larklane model --per-part-ns 15000                   with what makes the paper's table I of it
  larklane model --pattern exponential --spread-us 50 --partitions 64
  larklane model --from 256K --to 64M --json           for programs
  larklane bench prtt --out prtt && larklane model --fit prtt/bench.json
                                                       the parameters of this machine
  larklane model --tuned --from 64K                    what the policies make of what larklane tune has measured)";

constexpr const char* kSimulateExamples = R"(
Runs Larklane's code for groups of partitions (marks, group boundaries, arrival) in virtual threads on a
simulated network: every step costs what a table says, in whole picoseconds of virtual time, and what travels is checked. The baseline is
what partitioned communication is elsewhere: a two-sided send for each partition, eager or by rendezvous, under one lock.
docs/design/simulation.md says what is measured, cited, assumed and extrapolated. The figures are of no machine.

Examples:
  larklane simulate                                    a thread that is 4 ms late, on EDR InfiniBand
  larklane simulate --pattern simultaneous --show speedup
  larklane simulate --show bandwidth --partitions 16   the message over what a receiver waits for
  larklane simulate --pattern exponential --spread-us 50 --rounds 200 --seed 7
  larklane simulate --learned --spread-us 400          what the policy that learns its groups makes of it
  larklane simulate --sweep 8x8 --partitions 16 --spread-us 40 --show speedup
  larklane simulate --costs FILE --pattern late-thread --partitions 16 --spread-us 1000
                                       over shared memory: scripts/measure/simulated.py --costs FILE measures a host
  larklane simulate --free-processor                   marks, lines and polls cost nothing: what `larklane model` computes
  larklane simulate --from 256K --to 64M --json        for programs: everything that can be shown)";

/// CLI11 does not know that a program and its arguments follow the options.
class RunFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string) const override {
    return "Usage: larklane " + app->get_name() + " [OPTIONS] PROGRAM [ARGUMENTS...]\n";
  }
};

/// The options of every command that starts a program.
void add_run_options(CLI::App* command, larklane::tools::RunRequest* request) {
  command->formatter(std::make_shared<RunFormatter>());
  command->add_flag("--summary", request->summary, "print what Larklane did at MPI_Finalize");
  command->add_flag("--dry-run", request->dry_run, "print what would be executed, and stop");
  command
      ->add_option("--mpi", request->mpi,
                   "whose ABI the program's MPI has: " LARKLANE_MPI_CHOICES_TEXT)
      ->type_name("FAMILY");
  command
      ->add_option("--option", request->options,
                   "set an option; `larklane info --options` lists them")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  command
      ->add_option("--sanitized", request->sanitized,
                   "a program or library with a sanitizer that PROGRAM, a script or an "
                   "interpreter, will load: its runtime is preloaded first")
      ->type_name("FILE");
  command->prefix_command();
}

void add_options_of_run(CLI::App* command, larklane::tools::RunRequest* request) {
  add_run_options(command, request);
  command->add_option("--spawned", request->spawned)->group("");  // by MPI_Comm_spawn
  command->footer(kRunExamples);
}

void add_profile_options(CLI::App* command, larklane::tools::ProfileRequest* request) {
  add_run_options(command, &request->run);
  command->add_option("--out", request->folder, "folder for the files, one for each rank")
      ->type_name("DIR")
      ->capture_default_str();
  command->add_flag("--overwrite", request->overwrite, "replace an earlier profile in the folder");
  command->add_flag("--trace-writes", request->trace_writes,
                    "record who writes what is sent; slow, for a run of its own");
  command
      ->add_option("--limit", request->bytes_max,
                   "largest file; later records are counted only [profile_bytes_max]")
      ->type_name("BYTES");
  command->footer(kProfileExamples);
}

/// CLI::Range takes "nan" for a number within it.
CLI::Validator number_from(double low, double high) {
  const auto refuse_nan = [](const std::string& text) {
    return CLI::detail::to_lower(text).find("nan") == std::string::npos ? ""
                                                                        : text + " is no number";
  };
  return CLI::Range(low, high) & CLI::Validator(refuse_nan, "");
}

void add_launch_options(CLI::App* command, larklane::tools::LaunchRequest* request) {
  command->formatter(std::make_shared<RunFormatter>());
  command->add_option("-n", request->count, "processes")
      ->check(CLI::Range(1, larklane::tools::LaunchRequest::kCountMax))
      ->capture_default_str();
  command->add_option("--timeout", request->timeout_s, "seconds after which all are ended")
      ->check(number_from(0.001, 1e6));
  command->add_flag("--tag-output", request->tags_output, "the rank before each line of output");
  command->prefix_command();
  command->footer(kLaunchExamples);
}

void add_noise_options(CLI::App* command, larklane::tools::NoiseRequest* request) {
  command->add_option("--seconds", request->seconds, "how long, up to 3600")
      ->check(number_from(0.001, 3600))
      ->capture_default_str();
  command->add_option("--threshold-us", request->threshold_us, "shorter detours are left out")
      ->check(number_from(0.001, 1e6))
      ->capture_default_str();
  command->add_option("--out", request->path, "where to")
      ->type_name("FILE")
      ->check(CLI::Validator(
          [](std::string& path) { return path.empty() ? "a file, not \"\"" : ""; }, ""))
      ->capture_default_str();
  command->add_flag("--overwrite", request->overwrite, "replace an earlier file");
  command->footer(kNoiseExamples);
}

/// Upper ends of ranges, further patterns, and the help that differs.
struct GridLimits {
  std::uint32_t partitions_max, rounds_max;
  double spread_us_max;
  std::uint64_t bytes_max;
  std::vector<std::string> further_patterns;
  const char *rounds_help, *seed_help;
};

/// @return the option --json
CLI::Option* add_grid_options(CLI::App* command, const GridLimits& limits,
                              larklane::tools::Grid* grid) {
  std::vector<std::string> patterns{"simultaneous", "laggard",     "uniform", "gaussian",
                                    "exponential",  "alternating", "bursts"};
  patterns.insert(patterns.end(), limits.further_patterns.begin(), limits.further_patterns.end());
  command->add_option("--partitions", grid->partitions, "user partitions")
      ->check(CLI::Range(1u, limits.partitions_max))
      ->capture_default_str();
  command->add_option("--pattern", grid->pattern, "when partitions become ready")
      ->check(CLI::IsMember(patterns))
      ->capture_default_str();
  command
      ->add_option("--spread-us", grid->spread_us,
                   "of the pattern: delay, width, deviation or mean")
      ->check(number_from(0, limits.spread_us_max))
      ->capture_default_str();
  command->add_option("--rounds", grid->rounds, limits.rounds_help)
      ->check(CLI::Range(1u, limits.rounds_max))
      ->capture_default_str();
  command->add_option("--seed", grid->seed, limits.seed_help)
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  const auto size = [&](const char* name, std::uint64_t* bytes, const char* what) {
    command->add_option(name, *bytes, what)
        ->transform(CLI::AsSizeValue(false))
        ->check(CLI::Range(std::uint64_t{1}, limits.bytes_max))
        ->type_name("BYTES")
        ->capture_default_str();
  };
  size("--from", &grid->from_bytes, "smallest message");
  size("--to", &grid->to_bytes, "largest message, in powers of two of the smallest");
  return command->add_flag("--json", grid->json, "as JSON");
}

void add_model_options(CLI::App* command, larklane::tools::ModelRequest* request) {
  const auto time = [command](const char* name, double* value, const char* what) {
    command->add_option(name, *value, what)->check(number_from(0, 1e12))->capture_default_str();
  };
  time("--latency-ns", &request->latency_ns, "L, without overheads");
  time("--send-overhead-ns", &request->send_overhead_ns, "o_s");
  time("--recv-overhead-ns", &request->recv_overhead_ns, "o_r");
  time("--gap-ns", &request->gap_ns, "g, between two messages");
  time("--per-part-ns", &request->per_part_ns, "c, of each transport partition, hidden by nothing");
  command->add_option("--bandwidth", request->gigabytes_per_second, "1 / G, in GB/s")
      ->check(number_from(1e-6, 1e6))
      ->capture_default_str();
  command->add_flag("--serial-receiver", request->is_receiver_serial,
                    "o_r for each part, after all have come");
  const GridLimits limits{.partitions_max = 1u << 16,
                          .rounds_max = 1u << 20,
                          .spread_us_max = 1e12,
                          .bytes_max = std::uint64_t{1} << 40,
                          .further_patterns = {},
                          .rounds_help = "of patterns with chance",
                          .seed_help = "of patterns with chance"};
  CLI::Option* json = add_grid_options(command, limits, request);
  CLI::Option* tuned =
      command
          ->add_flag("--tuned", request->tuned,
                     "instead: the groups of policies ploggp and table on this host, for up to "
                     "--partitions; docs/user/tuning.md")
          ->excludes(json);
  command
      ->add_option("--fit", request->fit, "instead: LogGP of what `larklane bench prtt` measured")
      ->type_name("FILE")
      ->excludes(json)
      ->excludes(tuned);
  command->footer(kModelExamples);
}

/// Options that replace a parameter of the network.
void add_network_options(CLI::App* command, larklane::tools::SimulateRequest* request) {
  const auto time = [command](const char* name, std::optional<double>* value, const char* what) {
    command->add_option(name, *value, what)->check(number_from(0, 1e9))->type_name("NS");
  };
  time("--latency-ns", &request->latency_ns, "L, instead of the regime's; so are the following");
  time("--send-overhead-ns", &request->send_overhead_ns, "o_s");
  time("--recv-overhead-ns", &request->recv_overhead_ns, "o_r");
  time("--gap-ns", &request->gap_ns, "g, between two work requests of a queue");
  command
      ->add_option("--bandwidth", request->gigabytes_per_second,
                   "1 / G, in GB/s; G becomes a whole number of picoseconds")
      ->check(number_from(0.1, 1000))
      ->type_name("GB/S");
  command->add_option("--queues", request->queues, "of the groups; the baseline has one")
      ->check(CLI::Range(1u, 1024u));
  command->add_flag("--search", request->searches,
                    "policy table, too: the best of all numbers of groups and of 1, 2, ... 16 "
                    "queues (groups x queues)");
  time("--request-ns", &request->request_ns,
       "of a message of the baseline under its lock, besides o_s");
}

void add_simulate_options(CLI::App* command, larklane::tools::SimulateRequest* request) {
  std::vector<std::string> regimes;
  for (const auto& regime : larklane::sim::regimes()) regimes.emplace_back(regime.name);
  command->add_option("--regime", request->regime, "network and processor, each with sources")
      ->check(CLI::IsMember(regimes))
      ->capture_default_str();
  command
      ->add_option("--costs", request->costs_file,
                   "no network: threads copy over the memory of a host whose measured costs these "
                   "are")
      ->type_name("FILE");
  add_network_options(command, request);
  command->add_flag("--free-processor", request->is_processor_free,
                    "of a processor, overheads alone cost time");
  command->add_flag("--late-receiver", request->is_receiver_late,
                    "it looks at completions when all is there, not as they come");
  command->add_option("--threads", request->threads, "which share them; 0: one for each")
      ->check(CLI::Range(0u, 1024u))
      ->capture_default_str();
  command->add_flag("--learned", request->learns,
                    "policy learned, too; all figures are of the second half of --rounds");
  command
      ->add_option("--deadline-us", request->deadlines_us,
                   "policy timer, too, with each of these: how long a group waits; figures as of "
                   "--learned")
      ->delimiter(',')
      ->check(number_from(0.001, 1e8));
  command
      ->add_option("--sweep", request->sweep,
                   "over a plane of ranks, from its corners; --rounds: sweeps")
      ->type_name("XxY");
  command
      ->add_option("--compute-us", request->compute_us,
                   "of each partition of a rank of a sweep, each time")
      ->check(number_from(0, 1e7))
      ->capture_default_str();
  command
      ->add_option("--blocks", request->blocks,
                   "of a sweep, from each corner: each has messages of its own")
      ->check(CLI::Range(1u, 256u))
      ->capture_default_str();
  command->add_option("--show", request->show, "what the table shows")
      ->check(CLI::IsMember({"exposed", "total", "bandwidth", "speedup", "transfers"}))
      ->capture_default_str();
  add_grid_options(command,
                   {.partitions_max = 1024,
                    .rounds_max = 4096,
                    .spread_us_max = 1e8,
                    .bytes_max = std::uint64_t{1} << 36,
                    .further_patterns = {"late-thread"},
                    .rounds_help = "of patterns with chance, --learned, --deadline-us",
                    .seed_help = "of chance"},
                   request);
  command->footer(kSimulateExamples);
}

void add_info_options(CLI::App* command, larklane::tools::InfoRequest* request) {
  command->add_flag("--options", request->options_only, "the options only");
  command->add_flag("--json", request->json, "as JSON");
  command
      ->add_option(
          "--peer", request->peer,
          "by what pairs with this rank of the launcher, or a process of this host, go, and "
          "why")
      ->type_name("RANK|HOST")
      ->excludes("--options");
  command->footer(kInfoExamples);
}

/// @param rest  the words behind the command's own and behind the first `--`, which is part of them
/// only before the program
/// @param program  null: the command starts none
/// @return false after a message
bool take_program(const CLI::App& command, char** rest, char** end,
                  std::vector<std::string>* program) {
  if (program == nullptr) {
    if (rest != end) std::fprintf(stderr, "larklane: nothing can follow %s\n", *rest);
    return rest == end;
  }
  *program = command.remaining();
  if (rest != end && program->empty()) ++rest;
  program->insert(program->end(), rest, end);
  const std::string& name = command.get_name();
  if (program->empty()) {
    std::fprintf(stderr, "larklane %s: no program given\nTry: larklane %s --help\n", name.c_str(),
                 name.c_str());
    return false;
  }
  if (program->front().starts_with("-")) {
    std::fprintf(stderr, "larklane %s: %s is not an option\nTry: larklane %s --help\n",
                 name.c_str(), program->front().c_str(), name.c_str());
    return false;
  }
  return true;
}

/// Commands that read their words themselves, and words that are no command.
/// @return the exit status; nothing if it is for main()
std::optional<int> other_command(int argc, char** argv) {
  using namespace larklane::tools;
  const std::string_view word = argc > 1 ? argv[1] : "-";
  const std::vector<std::string> words(argv + std::min(argc, 2), argv + argc);
  if (word == "bench") return bench(words);
  if (word == "tune") return tune(words);
  if (word == "report") return run_python("larklane.report", words);
  if (word.starts_with('-') || word == "run" || word == "profile" || word == "noise" ||
      word == "model" || word == "simulate" || word == "info" || word == "launch")
    return std::nullopt;
  std::fprintf(
      stderr,
      "larklane: '%s' is no command of ours; there are run, launch, profile, bench, noise, "
      "model, simulate, tune, report and info. To start a program: larklane run PROGRAM\n",
      argv[1]);
  return kRefused;
}

/// Help, the version or a refusal. @return the exit status
int end_of(const CLI::App& app, const CLI::ParseError& error) {
  std::ostringstream out, errors;
  const int status = app.exit(error, out, errors) == 0 ? 0 : larklane::tools::kRefused;
  std::fputs(out.str().c_str(), stdout);
  std::fputs(errors.str().c_str(), stderr);
  return status;
}

int command(int argc, char** argv) {
  using namespace larklane::tools;
  if (const std::optional<int> status = other_command(argc, argv)) return *status;
  CLI::App app{
      "Larklane: MPI partitioned communication that is early and aggregated, under the MPI you "
      "have."};
  app.name("larklane");
  app.set_version_flag("--version", "larklane " LARKLANE_VERSION);
  app.require_subcommand(1);

  // `larklane run` stands before each process of a job: options of other commands would take half
  // of its time.
  const std::string_view word = argc > 1 ? argv[1] : "";
  const auto add = [&](const char* name, const char* what, auto* add_options, auto* request) {
    CLI::App* made = app.add_subcommand(name, what);
    if (word == name || word.starts_with('-')) add_options(made, request);
    return made;
  };
  RunRequest run_request;
  CLI::App* run_command =
      add("run", "run a program with Larklane under it", add_options_of_run, &run_request);
  LaunchRequest launch_request;
  CLI::App* launch_command = add("launch", "start processes of a native program on this host",
                                 add_launch_options, &launch_request);
  ProfileRequest profile_request;
  CLI::App* profile_command =
      add("profile", "run a program and record when its partitions are ready and arrive",
          add_profile_options, &profile_request);
  InfoRequest info_request;
  CLI::App* info_command =
      add("info", "what this installation can do on this machine", add_info_options, &info_request);
  NoiseRequest noise_request;
  CLI::App* noise_command =
      add("noise", "record when this machine's cores are taken from a program", add_noise_options,
          &noise_request);
  ModelRequest model_request;
  CLI::App* model_command = add("model", "how many transport partitions are best, says PLogGP",
                                add_model_options, &model_request);
  SimulateRequest simulate_request;
  CLI::App* simulate_command =
      add("simulate", "groups on a simulated network", add_simulate_options, &simulate_request);

  // For --help; their words are not ours to read.
  app.add_subcommand("bench", "micro-benchmarks of partitioned communication and its alternatives");
  app.add_subcommand("tune", "measure this host for the policies ploggp and table");
  app.add_subcommand("report", "figures, comparison and advice from what was measured");

  // Words behind `--` are no options of ours.
  const int own = static_cast<int>(std::find(argv, argv + argc, std::string_view("--")) - argv);
  try {
    app.parse(own, argv);
  } catch (const CLI::ParseError& error) {
    return end_of(app, error);
  }
  std::vector<std::string>* program = nullptr;
  if (run_command->parsed()) program = &run_request.command;
  if (profile_command->parsed()) program = &profile_request.run.command;
  if (launch_command->parsed()) program = &launch_request.command;
  if (!take_program(*app.get_subcommands().front(), argv + own, argv + argc, program))
    return kRefused;
  if (info_command->parsed()) return info(info_request);
  if (noise_command->parsed()) return noise(noise_request);
  if (model_command->parsed()) return model(model_request);
  if (simulate_command->parsed()) return simulate(simulate_request);
  if (launch_command->parsed()) return launch(launch_request);
  return profile_command->parsed() ? profile(profile_request) : run(run_request);
}

}  // namespace

int main(int argc, char** argv) {
  larklane::tools::Console console;
  return console.end(command(argc, argv));
}
