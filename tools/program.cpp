#include "program.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "base/config.hpp"
#include "elf_file.hpp"
#include "linked_libraries.hpp"

namespace larklane::tools {
namespace {

/// The file that execvp would run; empty if there is none.
std::filesystem::path find_in_path(const std::string& name) {
  const auto is_program = [](const std::filesystem::path& path) {
    std::error_code error;
    return std::filesystem::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) return is_program(name) ? name : "";
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "/bin:/usr/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const auto candidate = std::filesystem::path(folder.empty() ? "." : folder) / name;
    if (is_program(candidate)) return candidate;
  }
  return {};
}

std::string not_found_text(const std::string& name) {
  struct stat status;
  if (name.find('/') == std::string::npos) {
    const bool here = ::access(name.c_str(), X_OK) == 0;
    return "not found in PATH" + (here ? "; did you mean ./" + name + "?" : std::string());
  }
  if (::stat(name.c_str(), &status) != 0) return std::strerror(errno);
  if (S_ISDIR(status.st_mode)) return "is a folder";
  return "is not executable; chmod +x makes it so";
}

/// The one that a script names in its first line; empty if it names none.
std::string interpreter_of_script(const std::filesystem::path& path) {
  char begin[256] = {};  // as much as the kernel looks at
  std::ifstream(path, std::ios::binary).read(begin, sizeof begin);
  std::string line(begin, sizeof begin);
  line.resize(std::min(line.find_first_of(std::string_view("\n\0", 2)), line.size()));
  if (!line.starts_with("#!")) return {};
  const std::size_t start = std::min(line.find_first_not_of(" \t", 2), line.size());
  return line.substr(start, line.find_first_of(" \t", start) - start);
}

/// execvp would say of the program itself that there is no such file.
/// @return why it can't be started; empty if it can
std::string missing_interpreter(const std::string& interpreter) {
  if (interpreter.empty() || ::access(interpreter.c_str(), F_OK) == 0) return {};
  if (interpreter.back() == '\r') {
    return "its first line ends in a carriage return, so that no interpreter of that name is found";
  }
  return "its interpreter, " + interpreter + ", is not there";
}

/// The kernel will start it in secure-execution mode, in which the dynamic linker ignores
/// LD_PRELOAD (ld.so(8)).
bool gains_rights(const std::filesystem::path& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) return false;
  if ((status.st_mode & S_ISUID) != 0 && status.st_uid != ::getuid()) return true;
  if ((status.st_mode & S_ISGID) != 0 && status.st_gid != ::getgid()) return true;
  return ::getuid() != 0 && ::getxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
}

/// The output of a command; empty if it can't be run.
std::string output_of(const std::vector<std::string>& command) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> words;
  for (const auto& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_t pid = 0;
  const int failed = ::posix_spawn(&pid, words[0], &actions, nullptr, words.data(),
                                   environment_without_secrets().data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::string output;
  char buffer[4096];
  for (ssize_t size; !failed && (size = ::read(ends[0], buffer, sizeof buffer)) > 0;) {
    output.append(buffer, static_cast<std::size_t>(size));
  }
  ::close(ends[0]);
  if (!failed) ::waitpid(pid, nullptr, 0);
  return output;
}

/// Every library that the program is linked with, directly or not, as its own dynamic linker finds
/// them now.
std::vector<std::filesystem::path> libraries_of(const std::string& linker,
                                                const std::filesystem::path& path,
                                                const ElfFile& elf) {
  if (auto found = linked_libraries(path, elf)) return std::move(*found);
  std::vector<std::filesystem::path> libraries;
  std::istringstream lines(output_of({linker, "--list", path.string()}));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t start = line.find("=> /");
    if (start == std::string::npos) continue;
    libraries.emplace_back(line.substr(start + 3, line.rfind(" (") - start - 3));
  }
  return libraries;
}

/// By the same symbols as in the loaded process (src/mpi/preload/resolve.c); null if it is none of
/// ours.
const char* symbol_of_family(const ElfFile& library, std::string* family) {
  for (const auto& [symbol, name] : {std::pair{"ompi_mpi_comm_world", "ompi"},
                                     {"MPIR_Dup_fn", "mpich"},
                                     {"MPI_Abi_get_version", "abi"}}) {
    if (!library.defines(symbol)) continue;
    *family = name;
    return symbol;
  }
  return nullptr;
}

void find_family(const ElfFile& elf, bool family_given, Program* program) {
  const auto libraries = libraries_of(elf.interpreter(), program->path, elf);
  std::ranges::copy_if(libraries, std::back_inserter(program->sanitizers), is_sanitizer);
  for (const auto& path : libraries) {
    if (path.filename().string().starts_with("liblarklane_")) continue;
    const auto library = ElfFile::read(path);
    if (!library || !library->defines("PMPI_Init")) continue;
    if (const char* symbol = symbol_of_family(*library, &program->family)) {
      program->mpi = path;
      program->how = path.string() + " defines " + symbol;
      return;
    }
    program->how = path.string() + " defines PMPI_Init but has none of the ABIs known here";
    if (family_given) return;
    program->refusal =
        "its MPI, " + path.string() +
        ", has none of the ABIs known here (MPICH, Open MPI, MPI 5.0 standard ABI); if it does, "
        "say which with --mpi mpich, ompi or abi";
    return;
  }
  program->how = "not linked with an MPI; the first MPI call shows which one is loaded";
}

/// Static programs without a symbol table still carry the names of MPI's functions, for error
/// messages.
bool mentions_mpi(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  return bytes.find("MPI_Init_thread") != std::string::npos;
}

void inspect_elf(const ElfFile& elf, bool family_given, Program* program) {
  constexpr const char* kRelink =
      "its MPI is linked in statically, so nothing can be put between; link it with the MPI's "
      "shared library";
  if (elf.machine() == ElfFile::Machine::other_width) {
    program->refusal = "it is a 32-bit program; Larklane is built for 64 bits";
  } else if (elf.machine() == ElfFile::Machine::other_machine) {
    program->refusal = "it is built for another processor than this one";
  } else if (!elf.problem().empty()) {
    program->refusal = "it is damaged: " + elf.problem();
  } else if (elf.defines("PMPI_Init")) {
    program->refusal = kRelink;
  } else if (auto missing = missing_interpreter(elf.interpreter()); !missing.empty()) {
    program->refusal = missing;
  } else if (elf.is_static()) {
    program->kind = Program::Kind::static_executable;
    program->how = "a static program without MPI; what it starts runs on Larklane";
    if (elf.is_stripped() && mentions_mpi(program->path)) program->refusal = kRelink;
  } else {
    find_family(elf, family_given, program);
  }
}

}  // namespace

Program Program::inspect(const std::string& name, bool family_given) {
  Program program;
  program.path = find_in_path(name);
  if (program.path.empty()) {
    program.refusal = not_found_text(name);
  } else if (gains_rights(program.path)) {
    program.refusal =
        "it is set-user-id, set-group-id or has file capabilities, so the dynamic linker ignores "
        "preloads; run a copy "
        "without them (cp does not keep them)";
  } else if (const auto elf = ElfFile::read(program.path)) {
    program.linker = elf->interpreter();
    inspect_elf(*elf, family_given, &program);
  } else {
    program.kind = Kind::script;
    program.how = "a script; the first MPI call of what it starts shows which MPI is loaded";
    const std::string interpreter = interpreter_of_script(program.path);
    program.refusal = missing_interpreter(interpreter);
    if (const auto starts = ElfFile::read(interpreter)) program.linker = starts->interpreter();
  }
  return program;
}

bool is_sanitizer(const std::filesystem::path& library) {
  const std::string name = library.filename().string();
  const bool is_named =
      std::ranges::any_of(std::array{"libasan.so", "libtsan.so", "liblsan.so", "libubsan.so",
                                     "libhwasan.so", "libclang_rt."},
                          [&](const char* begin) { return name.starts_with(begin); });
  if (!is_named || !library.has_parent_path()) return is_named;
  const auto elf = ElfFile::read(library);
  return elf && std::ranges::any_of(std::array{"__asan_init", "__tsan_init", "__lsan_do_leak_check",
                                               "__ubsan_handle_add_overflow", "__hwasan_init"},
                                    [&](const char* symbol) { return elf->defines(symbol); });
}

std::vector<std::filesystem::path> sanitizers_of(const std::filesystem::path& file,
                                                 const std::string& linker) {
  const auto elf = ElfFile::read(file);
  if (!elf) return {};
  std::vector<std::filesystem::path> found;
  std::ranges::copy_if(
      libraries_of(elf->interpreter().empty() ? linker : elf->interpreter(), file, *elf),
      std::back_inserter(found), is_sanitizer);
  return found;
}

}  // namespace larklane::tools
