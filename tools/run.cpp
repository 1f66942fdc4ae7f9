#include "run.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>

#include "base/config.hpp"
#include "base/mpi_choices.h"
#include "place.hpp"
#include "program.hpp"

namespace larklane::tools {
namespace {

constexpr std::string_view kNative = "native";

using Variables = std::vector<std::pair<std::string, std::string>>;

int refuse(const RunRequest& request, const std::string& what, const std::string& why) {
  std::fprintf(stderr, "larklane %s: %s: %s\n", request.name, what.c_str(), why.c_str());
  return kRefused;
}

std::string variable_of(std::string_view option) {
  std::string name = "LARKLANE_";
  for (const char letter : option) {
    name += static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  }
  return name;
}

/// Runtimes of sanitizers, ours, then the earlier list; a preload of ours from an outer `larklane
/// run` is replaced.
/// @param sanitizers  of the program: they check that no library comes before them
std::string preload_list(const std::vector<std::filesystem::path>& sanitizers,
                         const std::filesystem::path& own) {
  std::vector<std::string> first, others;
  const auto add = [](std::vector<std::string>* list, const std::string& word) {
    if (std::ranges::find(*list, word) == list->end()) list->push_back(word);
  };
  for (const auto& path : sanitizers) add(&first, path.string());
  const char* const present = std::getenv("LD_PRELOAD");
  std::string there = present != nullptr ? present : "";
  std::replace(there.begin(), there.end(), ' ', ':');
  std::istringstream words(there);
  for (std::string word; std::getline(words, word, ':');) {
    if (word.empty() || word.ends_with("/liblarklane_preload.so") ||
        word.ends_with("/liblarklane_messages_preload.so") ||
        word.ends_with("/liblarklane_profile_preload.so"))
      continue;
    add(is_sanitizer(word) ? &first : &others, word);
  }
  first.push_back(own.string());
  std::string list;
  for (const auto* part : {&first, &others})
    for (const std::string& word : *part) list += (list.empty() ? "" : ":") + word;
  return list;
}

/// @return nothing after a message
std::optional<std::vector<std::filesystem::path>> sanitizers_for(const RunRequest& request,
                                                                 const Program& program) {
  if (request.sanitized.empty()) return program.sanitizers;
  std::error_code error;
  if (!std::filesystem::is_regular_file(request.sanitized, error)) {
    refuse(request, "--sanitized " + request.sanitized,
           error ? error.message() : "it is no regular file");
    return std::nullopt;
  }
  auto found = sanitizers_of(std::filesystem::absolute(request.sanitized), program.linker);
  if (!found.empty()) return found;
  refuse(request, "--sanitized " + request.sanitized,
         "it is not linked with the shared runtime of a sanitizer; leave --sanitized out");
  return std::nullopt;
}

/// Checks --option, the environment and the file as the program would. @return false after a
/// message
bool check_options(const RunRequest& request, Variables* variables) {
  Config config;
  for (const std::string& option : request.options) {
    const std::size_t equals = option.find('=');
    std::string problem = "accepted: name=value; `larklane info --options` lists the names";
    const std::string name = option.substr(0, equals);
    if (is_secret_option(name)) {
      refuse(request, "--option " + name,
             "it is a secret, and every user sees command lines; accepted: the variable " +
                 variable_of(name));
      return false;
    }
    if (equals == std::string::npos ||
        !config.set(name, option.substr(equals + 1), &problem).ok()) {
      refuse(request, "--option " + option, problem);
      return false;
    }
    variables->emplace_back(variable_of(name), option.substr(equals + 1));
  }
  if (request.summary) variables->emplace_back("LARKLANE_SUMMARY", "on");
  if (!request.mpi.empty()) variables->emplace_back("LARKLANE_MPI", request.mpi);
  if (!request.spawned.empty()) variables->emplace_back("LARKLANE_SPAWNED", request.spawned);
  return true;
}

/// Among the processes of a launcher only the first one needs to print a message.
bool is_first_process() {
  for (const char* name : {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"}) {
    const std::string rank = environment(name);
    if (!rank.empty()) return rank == "0";
  }
  return true;
}

/// @param library_warns  the program will load our library, which itself warns of unknown names
/// @return nothing after a message: the program's initialisation would fail
std::optional<Config> check_environment(const RunRequest& request, bool library_warns) {
  std::vector<Config::Problem> problems;
  auto config = Config::load(&problems);
  for (const auto& problem : problems) {
    if (!problem.fatal && (library_warns || !is_first_process())) continue;
    std::fprintf(stderr, "larklane %s: %s%s\n", request.name,
                 problem.fatal ? "" : "warning: ", problem.text.c_str());
  }
  if (!config) return std::nullopt;
  return std::move(config).value();
}

/// The user's choice of the program's MPI.
struct Choice {
  std::string family;  ///< or `native`; empty: nothing
  std::string origin;  ///< the source of the choice
};

/// @return nothing after a message
std::optional<Choice> choice_of(const RunRequest& request) {
  static constexpr std::string_view kChoices[] = {LARKLANE_MPI_CHOICES};
  Choice choice{request.mpi, "--mpi"};
  if (choice.family.empty()) choice = {environment("LARKLANE_MPI"), "LARKLANE_MPI"};
  if (choice.family.empty() || choice.family == kChoices[0]) return Choice{};
  if (std::ranges::find(kChoices, choice.family) != std::end(kChoices)) return choice;
  refuse(request, choice.origin, "'" + choice.family + "'; accepted: " LARKLANE_MPI_CHOICES_TEXT);
  return std::nullopt;
}

std::string quoted(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_not_of(
                                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                          "0123456789_-+=./:,@%") == std::string::npos;
  if (plain) return word;
  std::string text = "'";
  for (const char letter : word) text += letter == '\'' ? "'\\''" : std::string(1, letter);
  return text + "'";
}

void print_plan(const RunRequest& request, const Choice& choice, const Program& program,
                const Place& place, const Variables& variables) {
  std::printf("would execute:\n");
  for (const auto& [name, value] : variables) {
    std::printf("  %s=%s \\\n", name.c_str(), quoted(value).c_str());
  }
  std::printf("  %s", quoted(program.path.string()).c_str());
  for (std::size_t i = 1; i < request.command.size(); ++i) {
    std::printf(" %s", quoted(request.command[i]).c_str());
  }
  const std::string& family = choice.family.empty() ? program.family : choice.family;
  const std::string how = choice.family.empty() ? program.how : choice.origin + " says so";
  std::printf("\nMPI family: %s\n", family.empty() ? "not known before it runs" : family.c_str());
  std::printf("how:        %s\n", how.c_str());
  if (!place.library(family).empty() && !family.empty()) {
    std::printf("library:    %s\n", place.library(family).c_str());
  }
}

/// With the library of another ABI the program would crash in its first call.
/// @return the error of the choice; empty if it can be right
std::string wrong_choice(const Choice& choice, const Program& program) {
  const bool free = choice.family.empty() || choice.family == kNative || program.family.empty();
  if (free || choice.family == program.family) return {};
  return choice.origin + " is " + choice.family + ", but its MPI is of the " + program.family +
         " family (" + program.how + "); leave " + choice.origin + " out";
}

/// @return why the installation can't serve this family; empty if it can
std::string missing_library(const Place& place, const std::string& family) {
  if (family.empty() || family == kNative || !place.library(family).empty()) return {};
  return "its MPI is of the " + family + " family, for which there is no library in " +
         place.folder.string() + "; build Larklane with that MPI's compiler wrapper in PATH";
}

/// Returns only if it fails.
int execute(const RunRequest& request) {
  std::vector<char*> words;
  for (const std::string& word : request.command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  return refuse(request, request.command.front(), std::strerror(errno));
}

int run_under_larklane(const RunRequest& request) {
  const std::string& name = request.command.front();
  const Place place = Place::find();
  if (place.preload.empty()) {
    return refuse(request, place.folder.string(),
                  "liblarklane_preload.so is not there; install Larklane again");
  }
  if (place.preload.string().find_first_of(" :") != std::string::npos) {
    return refuse(
        request, place.preload.string(),
        "the path has a blank or a colon, which LD_PRELOAD can't carry; install elsewhere");
  }
  Variables variables{{"LD_PRELOAD", ""}};
  if (!check_options(request, &variables)) return kRefused;
  for (const auto& [variable, value] : variables) {
    if (variable != "LD_PRELOAD") ::setenv(variable.c_str(), value.c_str(), 1);
  }
  const std::optional<Choice> choice = choice_of(request);
  if (!choice) return kRefused;
  const Program program = Program::inspect(name, !choice->family.empty());
  const bool native = choice->family == kNative;
  const bool library_warns = !native && !request.dry_run && !program.family.empty();
  const std::optional<Config> config = check_environment(request, library_warns);
  if (!config) return kRefused;
  const bool profiled = !config->profile.empty();
  if (!program.refusal.empty()) return refuse(request, name, program.refusal);
  const auto sanitizers = sanitizers_for(request, program);
  if (!sanitizers) return kRefused;
  const std::filesystem::path& preload = profiled               ? place.profile_preload
                                         : config->p2p != "off" ? place.messages_preload
                                                                : place.preload;
  variables.front().second = preload_list(*sanitizers, preload);
  if (!std::filesystem::exists(preload))
    return refuse(request, preload.string(), "it is not there; install Larklane again");
  if (native && request.summary && !profiled && is_first_process()) {
    std::fprintf(stderr, "larklane %s: warning: %s is native: there will be no summary\n",
                 request.name, choice->origin.c_str());
  }
  const std::string wrong = wrong_choice(*choice, program);
  if (!wrong.empty()) return refuse(request, name, wrong);
  const std::string missing =
      missing_library(place, choice->family.empty() ? program.family : choice->family);
  if (!missing.empty()) return refuse(request, name, missing);
  if (request.dry_run) {
    print_plan(request, *choice, program, place, variables);
    return 0;
  }
  ::setenv("LD_PRELOAD", variables.front().second.c_str(), 1);
  return execute(request);
}

}  // namespace

int run(const RunRequest& request) {
  const int status = run_under_larklane(request);
  if (status != kRefused || request.spawned.empty()) return status;
  ::unsetenv("LARKLANE_SPAWNED");
  return execute(request);
}

}  // namespace larklane::tools
