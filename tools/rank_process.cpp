#include "rank_process.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

namespace larklane::tools {
namespace {

struct Pipe {
  UniqueFd out, in;  ///< read, write
  bool open() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return false;
    out.reset(ends[0]);
    in.reset(ends[1]);
    return true;
  }
};

[[noreturn]] void lead(int life) {
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::setpgid(0, 0);
  ::prctl(PR_SET_NAME, "larklane-keeper");
  char byte = 0;
  while (::read(life, &byte, 1) < 0 && errno == EINTR) {
  }
  ::kill(0, SIGKILL);
  ::_exit(0);
}

/// In the child: all that a process inherits and should not, undone.
void become_ordinary(const RankProcess::Start& how, pid_t launcher) {
  ::setpgid(0, how.group.id());
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(1);  // it has ended before
  ::signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const auto& [name, value] : how.variables) {
    if (value.empty())
      ::unsetenv(name.c_str());
    else
      ::setenv(name.c_str(), value.c_str(), 1);
  }
}

void set_non_blocking(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }

}  // namespace

RankGroup::RankGroup() {
  Pipe life;
  if (!life.open()) return;
  leader_ = ::fork();
  if (leader_ == 0) {
    life.in.reset();
    lead(life.out.get());
  }
  if (leader_ < 0) return;
  ::setpgid(leader_, leader_);  // whoever of the two comes first
  life_ = std::move(life.in);
}

RankGroup::~RankGroup() {
  if (!is_there()) return;
  signal(SIGKILL);
  ::waitpid(leader_, nullptr, 0);
}

void RankGroup::signal(int number) const noexcept { ::kill(-leader_, number); }

int RankProcess::start(const Start& how) {
  Pipe in, out, err, failure;
  if (!out.open() || !err.open() || !failure.open()) return errno;
  if (how.input == Input::forwarded) {
    if (!in.open()) return errno;
  } else if (how.input == Input::none) {
    in.out.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  }
  std::vector<char*> words;
  for (const std::string& word : how.command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t launcher = ::getpid();
  pid = ::fork();
  if (pid == 0) {
    become_ordinary(how, launcher);
    if (in.out) ::dup2(in.out.get(), STDIN_FILENO);
    ::dup2(out.in.get(), STDOUT_FILENO);
    ::dup2(err.in.get(), STDERR_FILENO);
    ::execvp(words[0], words.data());
    const int error = errno;
    [[maybe_unused]] const ssize_t told = ::write(failure.in.get(), &error, sizeof error);
    ::_exit(127);
  }
  if (pid < 0) return errno;
  ::setpgid(pid, how.group.id());
  failure.in.reset();
  int error = 0;
  if (::read(failure.out.get(), &error, sizeof error) == ssize_t{sizeof error}) {
    ::waitpid(pid, nullptr, 0);
    return error;
  }
  input = std::move(in.in);
  output = std::move(out.out);
  errors = std::move(err.out);
  for (const UniqueFd* const fd : {&input, &output, &errors})
    if (*fd) set_non_blocking(fd->get());
  return 0;
}

}  // namespace larklane::tools
