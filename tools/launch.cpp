#include "launch.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include "base/clock.hpp"
#include "base/ranks_text.hpp"
#include "base/unproven.hpp"
#include "boot/card_server.hpp"
#include "boot/tcp.hpp"
#include "boot/wire.hpp"
#include "lines.hpp"
#include "rank_process.hpp"
#include "run.hpp"

namespace larklane::tools {
namespace {

constexpr std::uint64_t kNsPerMs = 1'000'000;
/// Between SIGTERM and SIGKILL, when a launch fails. docs/guide.md says so.
constexpr std::uint64_t kGraceNs = 2'000 * kNsPerMs;
/// Exit status: what the ranks print is not taken.
constexpr int kNotWritten = 1;
constexpr std::size_t kReadBytes = 64 * 1024;
/// Strangers may connect, too.
constexpr int kOwnDescriptors = 16 + static_cast<int>(Unproven<int>::kMost), kDescriptorsEach = 3;

[[gnu::format(printf, 1, 2)]] void say(const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  std::fputs("larklane launch: ", stderr);
  std::vfprintf(stderr, format, arguments);
  std::fputc('\n', stderr);
  va_end(arguments);
}

bool is_same_file(int one, int other) {
  using Stat = struct stat;
  Stat a{}, b{};
  return ::fstat(one, &a) == 0 && ::fstat(other, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

std::string fresh_job() {
  char text[33];
  const boot::Nonce words = boot::fresh_nonce();
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(words[0]),
                static_cast<unsigned long long>(words[1]));
  return text;
}

/// On loopback, at a port that the kernel chooses.
Result<std::unique_ptr<boot::CardServer>> serve_here(const std::string& job, int count,
                                                     std::uint16_t* port) {
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  boot::SocketName name;
  std::memcpy(&name.name, &any, sizeof any);
  name.length = sizeof any;
  auto listener = boot::listen_at({name});
  if (!listener) return listener.error();
  *port = boot::port_of(listener->get());
  return boot::CardServer::create(std::move(listener).value(), job, count);
}

/// Of this process while it lives; blocked, so that they come through the descriptor.
UniqueFd signals_of_launch() {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGCHLD, SIG_DFL);  // whoever ignored it: ranks are waited for
  sigset_t wanted;
  ::sigemptyset(&wanted);
  for (const int number : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&wanted, number);
  ::sigprocmask(SIG_BLOCK, &wanted, nullptr);
  return UniqueFd(::signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC));
}

class Launch {
 public:
  explicit Launch(const LaunchRequest& request) : request_(request) {}
  int run();

 private:
  struct Rank {
    RankProcess process;
    bool is_running = false;
    std::unique_ptr<Lines> output, errors;
  };

  bool prepare();
  std::optional<int> start_all();
  bool is_over() const;
  int wait_ms() const;
  void wait_for_work();
  void look_at_clock();
  void take_signals();
  void reap();
  void take_end(std::size_t rank, int status);
  std::size_t take_output(UniqueFd& fd, Lines& lines);
  void take_rest(UniqueFd& fd, Lines& lines);
  void lose_output(int error);
  void forward_input();
  void signal_all(int number) const noexcept;
  void end_others(int exit_status);

  const LaunchRequest& request_;
  const std::string job_ = fresh_job();
  UniqueFd signals_;
  std::unique_ptr<boot::CardServer> server_;
  std::uint16_t port_ = 0;
  std::unique_ptr<RankGroup> group_;
  LineSink standard_output_{STDOUT_FILENO}, standard_error_{STDERR_FILENO};
  std::vector<Rank> ranks_;
  std::string input_;                               ///< for rank 0, not yet taken
  std::uint64_t too_late_ns_ = 0, kill_at_ns_ = 0;  ///< 0: never
  int passed_on_ = 0;                               ///< signals
  std::optional<int> failure_;                      ///< the first one's exit status
};

bool Launch::prepare() {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  const auto wanted = static_cast<rlim_t>(kOwnDescriptors + kDescriptorsEach * request_.count);
  if (files.rlim_cur < wanted) {
    say("-n %d needs %lu file descriptors, but ulimit -n is %lu", request_.count,
        static_cast<unsigned long>(wanted), static_cast<unsigned long>(files.rlim_cur));
    return false;
  }
  signals_ = signals_of_launch();
  auto server = serve_here(job_, request_.count, &port_);
  group_ = std::make_unique<RankGroup>();
  if (!signals_ || !server || !group_->is_there()) {
    say("can't begin: %s", std::strerror(errno));
    return false;
  }
  server_ = std::move(server).value();
  return true;
}

/// @return an exit status, if a rank can't be started
std::optional<int> Launch::start_all() {
  ranks_.resize(static_cast<std::size_t>(request_.count));
  for (std::size_t index = 0; index < ranks_.size(); ++index) {
    using Input = RankProcess::Input;
    const Input first = ::isatty(STDIN_FILENO) != 0 ? Input::forwarded : Input::own;
    const std::string number = std::to_string(index);
    const std::vector<std::pair<std::string, std::string>> variables{
        {"LARKLANE_RANK", number},
        {"LARKLANE_SIZE", std::to_string(request_.count)},
        {"LARKLANE_MEET", "127.0.0.1:" + std::to_string(port_)},
        {"LARKLANE_JOB", job_},
        {"LARKLANE_BOARD", ""}};
    Rank& rank = ranks_[index];
    const int error = rank.process.start(
        {request_.command, variables, index == 0 ? first : Input::none, *group_});
    if (error != 0) {
      say("%s: %s", request_.command.front().c_str(), std::strerror(error));
      return error == ENOENT ? 127 : 126;
    }
    const std::string tag = request_.tags_output ? "[" + number + "] " : std::string();
    rank.output = std::make_unique<Lines>(standard_output_, tag);
    rank.errors = std::make_unique<Lines>(
        is_same_file(STDOUT_FILENO, STDERR_FILENO) ? standard_output_ : standard_error_, tag);
    rank.is_running = true;
  }
  return std::nullopt;
}

bool Launch::is_over() const {
  return std::ranges::none_of(ranks_, [](const Rank& rank) { return rank.is_running; });
}

int Launch::wait_ms() const {
  int wait = server_->wait_ms();
  for (const std::uint64_t at : {too_late_ns_, kill_at_ns_}) {
    if (at == 0) continue;
    const std::uint64_t now = now_ns();
    const std::uint64_t left = at > now ? (at - now) / kNsPerMs + 1 : 0;
    const int left_ms = static_cast<int>(std::min<std::uint64_t>(left, 1'000'000));
    wait = wait < 0 ? left_ms : std::min(wait, left_ms);
  }
  return wait;
}

void Launch::wait_for_work() {
  const bool takes_input = static_cast<bool>(ranks_[0].process.input);
  std::vector<pollfd> polled{{signals_.get(), POLLIN, 0}, {server_->wait_fd(), POLLIN, 0}};
  // Of rank 0's input only one end is of interest. -1: poll leaves it out.
  polled.push_back({takes_input && input_.empty() ? STDIN_FILENO : -1, POLLIN, 0});
  polled.push_back(
      {takes_input && !input_.empty() ? ranks_[0].process.input.get() : -1, POLLOUT, 0});
  const std::size_t begin = polled.size();
  for (const Rank& rank : ranks_) {
    polled.push_back({rank.process.output.get(), POLLIN, 0});
    polled.push_back({rank.process.errors.get(), POLLIN, 0});
  }
  if (::poll(polled.data(), polled.size(), wait_ms()) < 0) return;
  for (std::size_t index = 0; index < ranks_.size(); ++index) {
    Rank& rank = ranks_[index];
    if (polled[begin + 2 * index].revents != 0) take_output(rank.process.output, *rank.output);
    if (polled[begin + 2 * index + 1].revents != 0) take_output(rank.process.errors, *rank.errors);
  }
  if (polled[2].revents != 0 || polled[3].revents != 0) forward_input();
  server_->serve();
  if (polled[0].revents != 0) take_signals();
}

/// @return bytes that one read has given
std::size_t Launch::take_output(UniqueFd& fd, Lines& lines) {
  std::string space(kReadBytes, '\0');
  const ssize_t got = ::read(fd.get(), space.data(), space.size());
  bool is_read = true;
  if (got > 0) {
    is_read = lines.add({space.data(), static_cast<std::size_t>(got)});
  } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
    is_read = lines.finish();
    fd.reset();
  }
  if (!is_read) lose_output(lines.error());
  return got > 0 ? static_cast<std::size_t>(got) : 0;
}

/// The bytes that are in the pipe now: a process that has left the group may write on for ever.
void Launch::take_rest(UniqueFd& fd, Lines& lines) {
  int in_pipe = 0;
  if (!fd || ::ioctl(fd.get(), FIONREAD, &in_pipe) != 0) in_pipe = 0;
  for (auto left = static_cast<std::size_t>(in_pipe); left != 0;) {
    const std::size_t got = take_output(fd, lines);
    if (got == 0) break;
    left -= std::min(left, got);
  }
  lines.finish();
}

/// A reader that has seen enough ends the job as it would end a command; a full disk is a failure.
void Launch::lose_output(int error) {
  if (error != EPIPE && !failure_) say("output is not taken: %s", std::strerror(error));
  end_others(error == EPIPE ? 128 + SIGPIPE : kNotWritten);
}

void Launch::forward_input() {
  UniqueFd& to = ranks_[0].process.input;
  if (input_.empty()) {
    char space[4096];
    const ssize_t got = ::read(STDIN_FILENO, space, sizeof space);
    if (got > 0)
      input_.assign(space, static_cast<std::size_t>(got));
    else if (got == 0 || errno != EINTR)
      to.reset();
    return;
  }
  const ssize_t written = ::write(to.get(), input_.data(), input_.size());
  if (written > 0)
    input_.erase(0, static_cast<std::size_t>(written));
  else if (errno != EAGAIN && errno != EINTR)
    to.reset();  // it does not want more
}

void Launch::take_signals() {
  signalfd_siginfo info;
  while (::read(signals_.get(), &info, sizeof info) == ssize_t{sizeof info}) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGCHLD) continue;
    // The first is the program's to handle; who sends another has no more patience.
    if (++passed_on_ == 1)
      signal_all(number);
    else
      kill_at_ns_ = now_ns();
  }
  reap();
}

void Launch::reap() {
  for (std::size_t index = 0; index < ranks_.size(); ++index) {
    Rank& rank = ranks_[index];
    int status = 0;
    if (!rank.is_running || ::waitpid(rank.process.pid, &status, WNOHANG) <= 0) continue;
    rank.is_running = false;
    take_end(index, status);
  }
}

void Launch::take_end(std::size_t rank, int status) {
  server_->ended(static_cast<int>(rank));
  const bool by_signal = WIFSIGNALED(status);
  const int number = by_signal ? WTERMSIG(status) : WEXITSTATUS(status);
  if (number == 0 || failure_) return;
  const char* const others = is_over() ? "" : "; the others are ended";
  if (by_signal)
    say("rank %zu was ended by signal %d (%s)%s", rank, number, ::strsignal(number), others);
  else
    say("rank %zu ended with status %d%s", rank, number, others);
  end_others(by_signal ? 128 + number : number);
}

/// The group, if it is still there, and those ranks that have left it, as timeout(1) does.
void Launch::signal_all(int number) const noexcept {
  if (!group_) return;
  group_->signal(number);
  for (const Rank& rank : ranks_)
    if (rank.is_running && ::getpgid(rank.process.pid) != group_->id())
      ::kill(rank.process.pid, number);
}

void Launch::end_others(int exit_status) {
  if (!failure_) failure_ = exit_status;
  if (kill_at_ns_ != 0) return;
  signal_all(SIGTERM);
  kill_at_ns_ = now_ns() + kGraceNs;
}

void Launch::look_at_clock() {
  const std::uint64_t now = now_ns();
  if (too_late_ns_ != 0 && now >= too_late_ns_) {
    too_late_ns_ = 0;
    std::vector<int> late;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      if (ranks_[rank].is_running) late.push_back(static_cast<int>(rank));
    if (!failure_)
      say("not ended after %g s: %s %s", request_.timeout_s, late.size() == 1 ? "rank" : "ranks",
          ranks_text(late).c_str());
    end_others(kTimedOut);
  }
  if (kill_at_ns_ != 0 && now >= kill_at_ns_) {
    signal_all(SIGKILL);
    kill_at_ns_ = now + kGraceNs;  // for what the kernel holds up
  }
}

int Launch::run() {
  if (!prepare()) return kRefused;
  if (request_.timeout_s > 0)
    too_late_ns_ = now_ns() + static_cast<std::uint64_t>(request_.timeout_s * 1e9);
  if (const auto status = start_all()) return *status;
  while (!is_over()) {
    wait_for_work();
    look_at_clock();
  }
  group_.reset();  // what they have left behind
  for (Rank& rank : ranks_) {
    take_rest(rank.process.output, *rank.output);
    take_rest(rank.process.errors, *rank.errors);
  }
  return failure_.value_or(0);
}

}  // namespace

int launch(const LaunchRequest& request) { return Launch(request).run(); }

}  // namespace larklane::tools
