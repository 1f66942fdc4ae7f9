#include "bench.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include "base/config.hpp"
#include "measure/catalogue.hpp"
#include "place.hpp"
#include "program.hpp"
#include "run.hpp"

namespace larklane::tools {
namespace {

namespace fs = std::filesystem;

int refuse(const std::string& why) {
  std::fprintf(stderr, "larklane bench: %s\n", why.c_str());
  return kRefused;
}

int execute(const std::vector<std::string>& command, char** variables = environ) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execvpe(words[0], words.data(), variables);
  return refuse(command.front() + ": " + std::strerror(errno));
}

/// A measuring program, and the MPI that it would load now.
struct Built {
  fs::path program;
  std::string family;
  fs::path mpi;
};

std::vector<Built> built_programs() {
  std::vector<Built> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(Place::find_beside("libexec/larklane"), error)) {
    const fs::path path = entry.path() / "larklane-bench";
    const Program program = Program::inspect(path.string(), false);
    if (!program.family.empty())
      found.push_back({path, program.family, fs::canonical(program.mpi, error)});
  }
  std::ranges::sort(found, {}, [](const Built& b) {  // the standard ABI's after those of its own
    return std::pair(b.family == "abi", b.program);
  });
  return found;
}

bool is_launcher(const fs::path& executable) {
  const std::string name = executable.filename().string();
  return std::ranges::any_of(
      std::array{"hydra", "mpiexec", "mpirun", "prte", "orte"},
      [&](const char* part) { return name.find(part) != std::string::npos; });
}

/// Folders of the launcher's programs that this process descends from.
std::vector<fs::path> folders_of_launcher() {
  std::vector<fs::path> folders;
  for (pid_t pid = ::getppid(); pid > 1;) {
    const std::string process = "/proc/" + std::to_string(pid);
    std::error_code error;
    const fs::path executable = fs::read_symlink(process + "/exe", error);
    if (!error && is_launcher(executable)) folders.push_back(executable.parent_path());
    std::ifstream status(process + "/status");
    pid = 0;
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("PPid:")) pid = std::atoi(line.c_str() + 5);
  }
  return folders;
}

/// Was `mpi` installed together with the launcher: prefix/bin/launcher, prefix/lib/...?
bool belongs_to(const fs::path& mpi, const std::vector<fs::path>& launcher) {
  return std::ranges::any_of(launcher, [&](const fs::path& folder) {
    const std::string prefix = folder.parent_path().string() + "/lib";
    return mpi.string().starts_with(prefix);
  });
}

bool is_set(const char* name) { return std::getenv(name) != nullptr; }

/// The family of the launcher that has started this process; empty: none has, or it is unknown.
std::string family_of_launcher() {
  if (is_set("OMPI_COMM_WORLD_SIZE") || is_set("PRTE_LAUNCHED")) return "ompi";
  if (is_set("PMI_RANK") || is_set("PMI_FD")) return "mpich";
  return {};
}

bool is_launched() { return !family_of_launcher().empty() || is_set("SLURM_PROCID"); }

bool mentions(const std::vector<std::string>& words, std::string_view option) {
  return std::ranges::any_of(words, [&](const std::string& word) {
    return word == option || word.starts_with(std::string(option) + "=");
  });
}

/// @return nothing after a message
const Built* choose(const std::vector<Built>& built, const std::string& wanted) {
  const std::vector<fs::path> launcher = folders_of_launcher();
  const std::string family = family_of_launcher();
  const auto names = [&] {
    std::string text;
    for (const Built& b : built) text += " " + b.program.parent_path().filename().string();
    return text.empty() ? " none" : text;
  };
  for (const bool close : {true, false}) {
    for (const Built& b : built) {
      const bool named = b.program.parent_path().filename() == wanted;
      // The standard ABI's library is of the launcher's family if it was installed with it.
      const bool fits = family.empty() || b.family == family || (close && b.family == "abi");
      if (wanted.empty() ? fits && (!close || belongs_to(b.mpi, launcher)) : named) return &b;
    }
  }
  refuse(wanted.empty()
             ? "no measuring program was built for this launcher's MPI (" +
                   (family.empty() ? "unknown" : family) + " family); there are:" + names()
             : "--mpi " + wanted + ": expected one of:" + names());
  return nullptr;
}

/// A program of its own: where things lie in memory is the compiler's.
bool is_packed(std::vector<std::string> words) { return take(words, "--layout") == "packed"; }

/// Without an MPI: messages of the library's own.
int bench_messages(const std::vector<std::string>& words, bool asks) {
  std::string name = "larklane-messages";
  if (words.front() == "lanes")
    name = is_packed(words) ? "larklane-lanes-packed" : "larklane-lanes";
  const fs::path program = Place::find_beside("libexec/larklane") / name;
  std::vector<std::string> command{program.string()};
  command.insert(command.end(), words.begin(), words.end());
  if (!asks) command.insert(command.end(), {"--variant", "larklane"});
  return execute(command);
}

/// By LCI v2, if Larklane was built beside one.
int bench_lci(const std::vector<std::string>& words, bool asks) {
  if (words.front() == "lanes") return refuse("--with lci: LCI has no lanes to take apart");
  if (is_set("LARKLANE_RANK"))
    return refuse("--with lci: LCI does not know `larklane launch`; remedy: an MPI's launcher");
  const fs::path program = Place::find_beside("libexec/larklane") / "larklane-lci";
  std::error_code error;
  if (!fs::exists(program, error))
    return refuse("--with lci: there is no " + program.string() +
                  ": Larklane was built without LCI v2; remedy: build it with LCI_DIR set to the "
                  "folder of LCIConfig.cmake");
  // Where LCI would look for a job of its own launcher's first.
  if (is_set("PMI_RANK") || is_set("PMI_FD")) ::setenv("LCT_PMI_BACKEND", "pmi1", 0);
  std::vector<std::string> command{program.string()};
  command.insert(command.end(), words.begin(), words.end());
  if (!asks) command.insert(command.end(), {"--variant", "lci"});
  return execute(command);
}

}  // namespace

std::string take(std::vector<std::string>& words, const std::string& name) {
  for (auto word = words.begin(); word != words.end(); ++word) {
    std::string value;
    if (word->starts_with(name + "=")) {
      value = word->substr(name.size() + 1);
      words.erase(word);
    } else if (*word == name && std::next(word) != words.end()) {
      value = *std::next(word);
      words.erase(word, std::next(word, 2));
    } else {
      continue;
    }
    return value;
  }
  return {};
}

int run_python(const std::string& module, const std::vector<std::string>& words) {
  const fs::path package = Place::find_beside("share/larklane/python");
  if (package.empty()) return refuse("the Python package is not there; install Larklane again");
  const char* const before = std::getenv("PYTHONPATH");
  ::setenv("PYTHONPATH",
           (package.string() + (before != nullptr ? ":" + std::string(before) : "")).c_str(), 1);
  std::error_code error;
  ::setenv("LARKLANE_COMMAND", fs::read_symlink("/proc/self/exe", error).c_str(), 1);
  std::string python = environment("LARKLANE_PYTHON");
  if (python.empty()) {
    // In a checkout: the interpreter that `make setup` has installed.
    const fs::path own = fs::canonical(package, error).parent_path() / ".deps/python/bin/python";
    python = fs::exists(own, error) ? own.string() : "python3";
  }
  // Until the module handles ^C itself, which console.run() does, it ends the process without a
  // traceback. SIGINT stays blocked until the interpreter's own handler is gone. A process that was
  // started without SIGINT stays so.
  sigset_t interrupt{}, signals{};
  ::sigemptyset(&interrupt);
  ::sigaddset(&interrupt, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &interrupt, &signals);
  const bool was_blocked = ::sigismember(&signals, SIGINT) == 1;
  std::vector<std::string> command{
      python, "-c",
      std::string("import _signal\n"  // built in: `signal` reads files
                  "if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:\n"
                  "    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)\n") +
          (was_blocked ? "" : "_signal.pthread_sigmask(_signal.SIG_UNBLOCK, [_signal.SIGINT])\n") +
          "import runpy\n"
          "runpy.run_module('" +
          module + "', run_name='__main__', alter_sys=True)"};
  command.insert(command.end(), words.begin(), words.end());
  // Its launches are jobs of their own.
  return execute(command, environment_without_secrets().data());
}

int bench(const std::vector<std::string>& given) {
  std::vector<std::string> words = given;
  if (words.empty()) words.emplace_back("--help");
  const bool turns =
      words.front() == "all" || words.front().starts_with("-") || mentions(words, "--launcher");
  const bool asks = mentions(words, "--help") || mentions(words, "-h");
  const auto* const benchmark = larklane::bench::find_benchmark(words.front());
  // In a launch the program says so, once.
  if (benchmark == nullptr && words.front() != "all" && !words.front().starts_with("-") &&
      !is_launched())
    return refuse(larklane::bench::unknown_benchmark(words.front()));
  const bool of_messages = benchmark != nullptr && benchmark->is_of_lanes();
  const bool by_larklane = of_messages && !environment("LARKLANE_RANK").empty();
  if (turns || (!is_launched() && !by_larklane && !asks))
    return run_python("larklane.bench", words);
  const std::string mpi = take(words, "--mpi");
  std::string variant = take(words, "--with");
  if (variant.empty()) variant = "larklane";
  if (of_messages && variant == "lci") return bench_lci(words, asks);
  const bool is_ordinary = of_messages && variant == "ordinary";
  if (variant != "larklane" && variant != "native" && !is_ordinary)
    return refuse("--with " + variant +
                  ": expected larklane or native (of messages and their applications also ordinary "
                  "or lci); "
                  "for both in turns give --launcher \"mpirun -n 2\" "
                  "instead of starting it under mpirun");
  if (of_messages && variant == "larklane") return bench_messages(words, asks);
  const std::vector<Built> built = built_programs();
  const Built* const chosen = choose(built, mpi);
  if (chosen == nullptr) return kRefused;
  std::vector<std::string> command{chosen->program.string()};
  command.insert(command.end(), words.begin(), words.end());
  if (!asks) command.insert(command.end(), {"--variant", variant});
  if (variant == "native" || asks) return execute(command);
  if (is_ordinary) ::setenv("LARKLANE_P2P", "on", 0);
  RunRequest request;
  request.command = command;
  return run(request);
}

}  // namespace larklane::tools
