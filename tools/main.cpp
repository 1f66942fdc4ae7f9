// The `larklane` command: what the user may type. CLI11 is slow to compile and lives here alone.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mpi_choices.h"
#include "bench.hpp"
#include "info.hpp"
#include "run.hpp"

namespace {

constexpr const char* kRunExamples = R"(
Examples:
  mpirun -n 4 larklane run ./app input.dat        put Larklane under a program: between launcher and program
  mpirun -n 4 larklane run --summary python3 x.py what it did, a few lines per rank
  larklane run --dry-run ./app                    what would be executed, and which MPI it is
  mpirun -n 4 larklane run --option policy=none --option wait_spins=1000 ./app
  mpirun -n 4 larklane run --mpi native ./app     the same command without Larklane's engine

Scripts and wrappers work: what they start inherits Larklane. Exit status: the program's; 2 if it was not started.)";

constexpr const char* kInfoExamples = R"(
Examples:
  larklane info              everything
  larklane info --options    the options: value, where it comes from, unit, range
  larklane info --json       for programs)";

/// CLI11 does not know that a program and its arguments follow the options.
class RunFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: larklane run [OPTIONS] PROGRAM [ARGUMENTS...]\n";
  }
};

/// Commands that read their words themselves, and words that are no command.
/// @return the exit status; nothing if it is for main()
std::optional<int> other_command(int argc, char** argv) {
  using namespace larklane::tools;
  const std::string_view word = argc > 1 ? argv[1] : "-";
  const std::vector<std::string> words(argv + std::min(argc, 2), argv + argc);
  if (word == "bench") return bench(words);
  if (word == "report") return run_python("larklane.report", words);
  if (word.starts_with('-') || word == "run" || word == "info") return std::nullopt;
  std::fprintf(stderr,
               "larklane: '%s' is no command of ours; there are run, info, bench and report. To "
               "start a program: larklane run PROGRAM\n",
               argv[1]);
  return kRefused;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace larklane::tools;
  CLI::App app{
      "Larklane: MPI partitioned communication that is early and aggregated, under the MPI you "
      "have."};
  app.name("larklane");
  app.set_version_flag("--version", "larklane " LARKLANE_VERSION);
  app.require_subcommand(1);

  RunRequest run_request;
  CLI::App* run_command = app.add_subcommand("run", "run a program with Larklane under it");
  run_command->formatter(std::make_shared<RunFormatter>());
  run_command->add_flag("--summary", run_request.summary,
                        "print what Larklane did at MPI_Finalize");
  run_command->add_flag("--dry-run", run_request.dry_run, "print what would be executed, and stop");
  run_command
      ->add_option("--mpi", run_request.mpi,
                   "whose ABI the program's MPI has: " LARKLANE_MPI_CHOICES_TEXT)
      ->type_name("FAMILY");
  run_command
      ->add_option("--option", run_request.options,
                   "set an option; `larklane info --options` lists them")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  run_command->add_option("--spawned", run_request.spawned)->group("");  // by MPI_Comm_spawn
  run_command->prefix_command();
  run_command->footer(kRunExamples);

  InfoRequest info_request;
  CLI::App* info_command =
      app.add_subcommand("info", "what this installation can do on this machine");
  info_command->add_flag("--options", info_request.options_only, "the options only");
  info_command->add_flag("--json", info_request.json, "as JSON");
  info_command->footer(kInfoExamples);

  // For --help; their words are not ours to read.
  app.add_subcommand("bench", "micro-benchmarks of partitioned communication and its alternatives");
  app.add_subcommand("report", "figures, comparison and advice from what was measured");

  if (const std::optional<int> status = other_command(argc, argv)) return *status;
  // What follows `--` is no option of ours.
  const int own = static_cast<int>(std::find(argv, argv + argc, std::string_view("--")) - argv);
  try {
    app.parse(own, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kRefused;
  }
  if (info_command->parsed()) return info(info_request);
  run_request.command = run_command->remaining();
  // The first `--` is the command's own only before the program.
  const int rest = own + (own < argc && run_request.command.empty() ? 1 : 0);
  run_request.command.insert(run_request.command.end(), argv + rest, argv + argc);
  if (run_request.command.empty()) {
    std::fprintf(stderr, "larklane run: no program given\nTry: larklane run --help\n");
    return kRefused;
  }
  if (run_request.command.front().starts_with("-")) {
    std::fprintf(stderr, "larklane run: %s is not an option\nTry: larklane run --help\n",
                 run_request.command.front().c_str());
    return kRefused;
  }
  return run(run_request);
}
