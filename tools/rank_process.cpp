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
  if (::setpgid(0, 0) != 0) ::_exit(1);  // the group to be killed would be the caller's
  ::prctl(PR_SET_NAME, "larklane-keeper");
  char byte = 0;
  while (::read(life, &byte, 1) < 0 && errno == EINTR) {
  }
  ::kill(0, SIGKILL);
  ::_exit(0);
}

/// In the child: all that a process inherits and should not, undone. @return 0, or an errno
int become_ordinary(const RankProcess::Start& how, pid_t launcher) {
  if (::setpgid(0, how.group.id()) != 0) return errno;
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
  return 0;
}

/// @return 0, or an errno
int set_non_blocking(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0 ? 0 : errno;
}

}  // namespace

Result<std::unique_ptr<RankGroup>> RankGroup::create() {
  Pipe life;
  if (!life.open()) return Status(Errc::kSystem, errno);
  const pid_t leader = ::fork();
  if (leader == 0) {
    life.in.reset();
    lead(life.out.get());
  }
  if (leader < 0) return Status(Errc::kSystem, errno);
  ::setpgid(leader, leader);  // the leader does it, too: the first of the two succeeds
  return std::unique_ptr<RankGroup>(new RankGroup(leader, std::move(life.in)));
}

RankGroup::~RankGroup() {
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
    if (!in.out) return errno;
  }
  for (const UniqueFd* const fd : {&in.in, &out.out, &err.out})
    if (const int error = *fd ? set_non_blocking(fd->get()) : 0; error != 0) return error;
  std::vector<char*> words;
  for (const std::string& word : how.command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t launcher = ::getpid();
  pid = ::fork();
  if (pid == 0) {
    int error = become_ordinary(how, launcher);
    if (error == 0 && (!in.out || ::dup2(in.out.get(), STDIN_FILENO) >= 0) &&
        ::dup2(out.in.get(), STDOUT_FILENO) >= 0 && ::dup2(err.in.get(), STDERR_FILENO) >= 0)
      ::execvp(words[0], words.data());
    if (error == 0) error = errno;
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
  return 0;
}

}  // namespace larklane::tools
