// MPI_Comm_spawn, MPI_Comm_spawn_multiple, MPI_Comm_get_parent: the children run under Larklane,
// too. Both sides know each other without a message: the parents compute the children's job, and
// the children get both from their command line.

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <sstream>
#include <string_view>

#include "base/log.hpp"
#include "mpi/abi/info.hpp"
#include "mpi/abi/next.hpp"
#include "mpi/p2p/left.hpp"
#include "mpi/world/communicator.hpp"
#include "mpi/world/process.hpp"

namespace larklane::mpi {
namespace {

/// Process managers truncate longer words (PMI-1: a line of 1024 characters).
constexpr std::size_t kBirthBytesMax = 700;

bool is_program(const std::string& path) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         ::access(path.c_str(), X_OK) == 0;
}

std::string find_in(const std::string& folders, const std::string& name) {
  std::istringstream list(folders);
  for (std::string folder; std::getline(list, folder, ':');) {
    const std::string path = (folder.empty() ? "." : folder) + "/" + name;
    if (is_program(path)) return path;
  }
  return {};
}

/// The program for `larklane run` to start, the same that the MPI would start. Empty if it is not
/// found: the MPI then reports the error.
std::string program_of(const std::string& command, MPI_Info info) {
  const std::string wdir = info_value(info, "wdir");
  const std::string from_there = wdir.empty() ? command : wdir + "/" + command;
  if (command.starts_with('/')) return is_program(command) ? command : "";
  if (command.find('/') != std::string::npos) return is_program(from_there) ? command : "";
#ifndef LARKLANE_FAMILY_OMPI  // Open MPI ignores the key
  const std::string by_key = find_in(info_value(info, "path"), command);
  if (!by_key.empty()) return by_key;
#endif
  if (!find_in(environment("PATH"), command).empty()) return command;
#ifdef LARKLANE_FAMILY_OMPI  // Open MPI searches the child's folder last
  if (is_program(from_there)) return "./" + command;
#endif
  return {};
}

/// The path of this library's own command; empty if it is missing.
std::string larklane_command() {
  Dl_info here{};
  if (::dladdr(reinterpret_cast<void*>(&larklane_command), &here) == 0) return {};
  const std::string library = here.dli_fname;
  const std::size_t slash = library.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : library.substr(0, slash);
  for (const char* relative : {LARKLANE_COMMAND_FROM_LIBRARIES, "../bin/larklane"}) {
    char resolved[PATH_MAX];
    const std::string path = folder + "/" + relative;
    if (is_program(path) && ::realpath(path.c_str(), resolved) != nullptr) return resolved;
  }
  return {};
}

/// One program of a spawn as its root gives it to the MPI. Thread safety: single-owner.
class Child {
 public:
  Child(const char* command, char** argv, MPI_Info info)
      : command_(command), argv_(argv), info_(info) {}
  ~Child() {
    if (has_own_info_) next_pmpi().Info_free(&info_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Puts `larklane run` in front, unless the program is not found.
  void put_under_larklane(const std::string& larklane, const Birth& birth) {
    const std::string program = program_of(command_, info_);
    if (program.empty() || program.starts_with('-')) return;
    words_ = {"run", "--spawned", birth.text()};
    // The options of this process: process managers need not pass on its environment.
    for (const Config::Row& row : Process::get().config().rows()) {
      // A secret's text is not its value, and the parents name the child's job.
      if (row.source == Config::Source::default_value || row.type == "secret") continue;
      words_.insert(words_.end(), {"--option", std::string(row.name) + "=" + row.value_text});
    }
    if (const std::string family = environment("LARKLANE_MPI"); !family.empty()) {
      words_.insert(words_.end(), {"--mpi", family});
    }
    words_.push_back(program);
    for (char** word = argv_; word != nullptr && *word != nullptr; ++word) {
      words_.emplace_back(*word);
    }
    for (std::string& word : words_) pointers_.push_back(word.data());
    pointers_.push_back(nullptr);
    argv_ = pointers_.data();
    command_ = larklane;
    drop_path();
  }
  char* command() noexcept { return command_.data(); }
  char** argv() const noexcept { return argv_; }
  MPI_Info info() const noexcept { return info_; }

 private:
  /// Removes the key `path`, a search path for the program alone: hydra would put it in front of
  /// Larklane's command, too.
  void drop_path() {
    if (info_value(info_, "path").empty()) return;
    has_own_info_ = next_pmpi().Info_dup(info_, &info_) == MPI_SUCCESS;
    if (has_own_info_) next_pmpi().Info_delete(info_, "path");
  }

  std::string command_;
  char** argv_;
  MPI_Info info_;
  bool has_own_info_ = false;
  std::vector<std::string> words_;
  std::vector<char*> pointers_;
};

/// The children of a spawn, as all parents know them before it. Thread safety: single-owner.
class Offspring {
 public:
  /// Takes the ordinal even if the parents are not known: the other parents count it, too.
  explicit Offspring(MPI_Comm parents) : ordinal_(find_communicator(parents), Origin::spawn) {
    if (ordinal_.parent() == nullptr) return;
    const Communicator::Members& members = ordinal_.parent()->members();
    if (!members.known || !all_known(members.peers)) return;
    birth_.with_parents.others = members.peers;
    // Communicators split from one parent have equal ordinals; their processes differ.
    birth_.with_parents.recipe = ContextHash(Origin::spawn)
                                     .add(ordinal_.recipe())
                                     .add(text_of(std::span(members.peers)))
                                     .id();
    birth_.job =
        std::make_shared<const std::string>("spawn-" + text_of(birth_.with_parents.recipe));
  }

  /// Puts a child under Larklane. Call at the root, before the spawn.
  void adopt(Child& child) const {
    if (birth_.job == nullptr || info_value(child.info(), "larklane") == "off") return;
    const std::string larklane = larklane_command();
    if (larklane.empty() || birth_.text().size() > kBirthBytesMax) {
      log_warn_once("spawn", "%s runs without Larklane: %s", child.command(),
                    larklane.empty() ? "the command larklane is not where this library expects it"
                                     : "its parents' ranks make too long a list");
      return;
    }
    child.put_under_larklane(larklane, birth_);
  }
  bool is_root(int root) const {
    return ordinal_.parent() != nullptr && ordinal_.parent()->members().rank == root;
  }

  /// Call after the spawn. @param code  the MPI's return code
  // A failed spawn has failed at the other parents, too, so its ordinal is given back. Its class
  // does not matter: a program that can't start is MPI_ERR_OTHER on MPICH, MPI_ERR_UNKNOWN on Open
  // MPI. The next children get the same name of their job: the process manager leaves no child of
  // the failed spawn.
  void conclude(int code, const MPI_Comm* intercomm) {
    if (code != MPI_SUCCESS) return;
    ordinal_.keep();
    remember(*intercomm);
  }

 private:
  void remember(MPI_Comm intercomm) const {
    int size = 0;
    if (birth_.job == nullptr || intercomm == handles().comm_null ||
        next_pmpi().Comm_remote_size(intercomm, &size) != MPI_SUCCESS) {
      return;
    }
    Meeting with_children{birth_.with_parents.recipe, {}};
    for (int rank = 0; rank < size; ++rank) with_children.others.push_back({birth_.job, rank});
    remember_meeting(intercomm, with_children, ordinal_.parent()->foreigners());
  }

  ChildOrdinal ordinal_;
  Birth birth_;
};

/// True if the arguments that the root of a spawn of several programs reads are present. Otherwise
/// the MPI reports the error.
bool are_there(char* const* commands, const MPI_Info* infos, int count) {
  return count > 0 && commands != nullptr && infos != nullptr &&
         std::find(commands, commands + count, nullptr) == commands + count;
}

}  // namespace
}  // namespace larklane::mpi

namespace larklane::mpi::face {

int Comm_spawn(const Next& next, const char* command, char* argv[], int maxprocs, MPI_Info info,
               int root, MPI_Comm comm, MPI_Comm* intercomm, int array_of_errcodes[]) {
  Offspring offspring(comm);
  std::optional<Child> child;
  if (offspring.is_root(root) && command != nullptr) {
    offspring.adopt(child.emplace(command, argv, info));
    command = child->command();
    argv = child->argv();
    info = child->info();
  }
  const int code =
      next.Comm_spawn(command, argv, maxprocs, info, root, comm, intercomm, array_of_errcodes);
  if (code == MPI_SUCCESS) p2p::note_left(*intercomm);
  offspring.conclude(code, intercomm);
  return code;
}

int Comm_spawn_multiple(const Next& next, int count, char* array_of_commands[],
                        char** array_of_argv[], const int array_of_maxprocs[],
                        const MPI_Info array_of_info[], int root, MPI_Comm comm,
                        MPI_Comm* intercomm, int array_of_errcodes[]) {
  Offspring offspring(comm);
  std::deque<Child> children;  // a deque: they keep their addresses
  std::vector<char*> commands;
  std::vector<char**> argvs;
  std::vector<MPI_Info> infos;
  if (offspring.is_root(root) && are_there(array_of_commands, array_of_info, count)) {
    for (int i = 0; i < count; ++i) {
      Child& child = children.emplace_back(
          array_of_commands[i], array_of_argv == MPI_ARGVS_NULL ? MPI_ARGV_NULL : array_of_argv[i],
          array_of_info[i]);
      offspring.adopt(child);
      commands.push_back(child.command());
      argvs.push_back(child.argv());
      infos.push_back(child.info());
    }
    array_of_commands = commands.data();
    array_of_argv = argvs.data();
    array_of_info = infos.data();
  }
  const int code =
      next.Comm_spawn_multiple(count, array_of_commands, array_of_argv, array_of_maxprocs,
                               array_of_info, root, comm, intercomm, array_of_errcodes);
  if (code == MPI_SUCCESS) p2p::note_left(*intercomm);
  offspring.conclude(code, intercomm);
  return code;
}

int Comm_get_parent(const Next& next, MPI_Comm* parent) {
  const int code = next.Comm_get_parent(parent);
  const auto& birth = Process::get().birth();
  if (code == MPI_SUCCESS && birth && *parent != handles().comm_null &&
      !find_communicator(*parent)) {
    remember_meeting(*parent, birth->with_parents, nullptr);
  }
  return code;
}

}  // namespace larklane::mpi::face
