// provider_test [--folder DIR] [--gid-index N] [--case NAME] [--latency] PROVIDER [DEVICE]
//
// The cases that every provider has to pass, each between two processes that are forked before
// anything is opened. Exit status: 0, 1 a case has failed, 2 wrong use, 77 there is no such
// provider here.

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"
#include "cases.hpp"

namespace larklane::provider_test {
namespace {

constexpr unsigned kCaseSeconds = 120;

struct Arguments {
  Wanted wanted;
  std::string only;
  bool is_latency = false;
};

/// @return exit status of a process; killed: 128 + signal
int end_of(pid_t process) {
  int status = 0;
  if (::waitpid(process, &status, 0) != process) return 1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

template <class Body>
pid_t start(const Body& body) {
  std::fflush(nullptr);
  const pid_t process = ::fork();
  if (process != 0) return process;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::alarm(kCaseSeconds);
  body();
  std::fflush(nullptr);
  ::_exit(0);
}

/// @return whether the case has succeeded
bool run(const Case& each, const Wanted& wanted) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return false;
  UniqueFd sockets[] = {UniqueFd(ends[0]), UniqueFd(ends[1])};
  pid_t processes[2];
  for (int rank = 0; rank < 2; ++rank)
    processes[rank] = start([&] {
      sockets[1 - rank].reset();
      Side side(rank, sockets[rank].get(), wanted);
      each.run(side);
    });
  for (UniqueFd& socket : sockets) socket.reset();
  const int first = end_of(processes[0]);
  if (first != 0) ::kill(processes[1], SIGKILL);
  const int second = end_of(processes[1]);
  return first == 0 && second == (each.second_is_killed ? 128 + SIGKILL : 0);
}

int run_all(const Arguments& arguments) {
  const pid_t probe = start([&] { open_wanted(arguments.wanted); });
  if (const int status = end_of(probe); status != 0) return status == 77 ? 77 : 1;
  if (arguments.is_latency) return run({"latency", print_latency}, arguments.wanted) ? 0 : 1;
  int failed = 0;
  int passed = 0;
  for (const auto& cases :
       {structure_cases(), transfer_cases(), trouble_cases(), sleep_cases(), stranger_cases()}) {
    for (const Case& each : cases) {
      if (!arguments.only.empty() && arguments.only != each.name) continue;
      const bool is_good = run(each, arguments.wanted);
      std::printf("%s: %s\n", each.name, is_good ? "ok" : "FAILED");
      ++(is_good ? passed : failed);
    }
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed != 0 || passed == 0 ? 1 : 0;
}

bool parse(int argc, char** argv, Arguments* arguments) {
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--latency") {
      arguments->is_latency = true;
    } else if (word.starts_with("--") && i + 1 < argc) {
      const std::string value = argv[++i];
      if (word == "--folder")
        arguments->wanted.folder = value;
      else if (word == "--case")
        arguments->only = value;
      else if (word == "--gid-index")
        arguments->wanted.options.gid_index = std::atoi(value.c_str());
      else
        return false;
    } else {
      names.push_back(word);
    }
  }
  if (names.empty() || names.size() > 2 || names[0].starts_with("-")) return false;
  arguments->wanted.provider = names[0];
  if (names.size() == 2) arguments->wanted.options.device = names[1];
  return true;
}

}  // namespace
}  // namespace larklane::provider_test

int main(int argc, char** argv) {
  larklane::provider_test::Arguments arguments;
  if (!larklane::provider_test::parse(argc, argv, &arguments)) {
    std::fprintf(stderr,
                 "usage: provider_test [--folder DIR] [--gid-index N] [--case NAME] [--latency] "
                 "PROVIDER [DEVICE]\n");
    return 2;
  }
  return larklane::provider_test::run_all(arguments);
}
