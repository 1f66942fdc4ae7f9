#include "launch.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/clock.hpp"
#include "base/printable.hpp"
#include "base/random.hpp"
#include "base/ranks_text.hpp"
#include "base/tcp.hpp"
#include "base/unproven.hpp"
#include "bootstrap/card_server.hpp"
#include "lines.hpp"
#include "rank_process.hpp"
#include "run.hpp"

namespace larklane::tools {
namespace {

constexpr std::uint64_t kNsPerMs = 1'000'000;
/// Between SIGTERM and SIGKILL, when a launch fails. docs/user/guide.md says so.
constexpr std::uint64_t kGraceNs = 2'000 * kNsPerMs;
/// Exit status of a failure of our own.
constexpr int kFailed = 1;
constexpr std::size_t kReadBytes = 64 * 1024;
/// Strangers may connect, too.
constexpr int kOwnDescriptors = 16 + static_cast<int>(Unproven<int>::kMost), kDescriptorsEach = 3;

/// A pipe or a socket of ours would take the place of a standard stream that is closed.
/// @return 0, or an errno
int open_closed_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO;) {
    if (::fcntl(fd, F_GETFD) >= 0)
      ++fd;
    else if (::open("/dev/null", O_RDWR) < 0)  // the lowest number that is free
      return errno;
  }
  return 0;
}

bool is_same_file(int one, int other) {
  using Stat = struct stat;
  Stat a{}, b{};
  return ::fstat(one, &a) == 0 && ::fstat(other, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

/// A secret. @errors of fill_random()
Result<std::string> fresh_job() {
  std::array<std::uint64_t, 2> words{};
  LARKLANE_TRY(fill_random(std::as_writable_bytes(std::span(words))));
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(words[0]),
                static_cast<unsigned long long>(words[1]));
  return std::string(text);
}

/// On loopback, at a port that the kernel chooses.
Result<std::unique_ptr<boot::CardServer>> serve_here(const std::string& job, int count,
                                                     std::uint16_t* port) {
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  Endpoint name;
  std::memcpy(&name.name, &any, sizeof any);
  name.length = sizeof any;
  auto listener = listen_at({name});
  if (!listener) return listener.error();
  *port = port_of(listener->get());
  return boot::CardServer::create(std::move(listener).value(), job, count);
}

/// Signals of this process while it lives; blocked, so that they come through the descriptor.
/// Ctrl-Z stops the terminal's foreground group: ranks are not in it.
UniqueFd signals_of_launch() {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGCHLD, SIG_DFL);  // even if the caller ignores it: ranks are waited for
  sigset_t wanted;
  ::sigemptyset(&wanted);
  for (const int number : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCONT})
    ::sigaddset(&wanted, number);
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

  [[gnu::format(printf, 2, 3)]] void say(const char* format, ...);
  bool prepare();
  bool refuse(const char* what, int error);
  void start_all();
  int start(std::size_t index);
  bool is_over() const;
  int wait_ms() const;
  void wait_for_work();
  LineSink& error_sink() { return has_one_output_ ? standard_output_ : standard_error_; }
  bool has_output() const;
  void hand_over_output();
  void cannot_poll(int error);
  void look_at_clock();
  void take_signals();
  void reap();
  void take_end(std::size_t rank, int status);
  std::size_t take_output(UniqueFd& fd, Lines& lines);
  void take_rest(UniqueFd& fd, Lines& lines);
  void lose_output(int error);
  void forward_input();
  void signal_all(int number) const noexcept;
  void pass_on(int number);
  void end_others(int exit_status);

  const LaunchRequest& request_;
  std::string job_;
  UniqueFd signals_;
  std::unique_ptr<boot::CardServer> server_;
  std::uint16_t port_ = 0;
  std::unique_ptr<RankGroup> group_;
  LineSink standard_output_{STDOUT_FILENO}, standard_error_{STDERR_FILENO};
  bool has_one_output_ = false;  ///< standard error is standard output
  std::vector<Rank> ranks_;
  std::string input_;  ///< for rank 0, not yet taken
  std::uint64_t too_late_ns_ = 0, kill_at_ns_ = 0, give_up_at_ns_ = 0;  ///< 0: never
  int passed_on_ = 0;                                                   ///< signals that end
  std::optional<int> failure_;  ///< the first one's exit status
  bool is_hurried_ = false;     ///< asked to end: output is not waited for longer than the grace
  bool is_poll_said_ = false;   ///< that poll() fails
};

/// To standard error: its reader may be stuck, too.
void Launch::say(const char* format, ...) {
  std::va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  std::string text(static_cast<std::size_t>(std::vsnprintf(nullptr, 0, format, again)), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, arguments);
  va_end(again);
  va_end(arguments);
  error_sink().write(this, "", "larklane launch: " + printable(text, text.size()) + "\n");
}

/// @return false, after a message
bool Launch::refuse(const char* what, int error) {
  say("can't begin: %s: %s", what, std::strerror(error));
  return false;
}

bool Launch::prepare() {
  if (const int error = open_closed_streams(); error != 0) return refuse("/dev/null", error);
  has_one_output_ = is_same_file(STDOUT_FILENO, STDERR_FILENO);
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  const auto wanted = static_cast<rlim_t>(kOwnDescriptors + kDescriptorsEach * request_.count);
  if (files.rlim_cur < wanted) {
    say("-n %d needs %lu file descriptors, but ulimit -n is %lu", request_.count,
        static_cast<unsigned long>(wanted), static_cast<unsigned long>(files.rlim_cur));
    return false;
  }
  signals_ = signals_of_launch();
  if (!signals_) return refuse("no descriptor for signals", errno);
  auto job = fresh_job();
  if (!job) return refuse("no secret of the job (getrandom)", job.error().detail());
  job_ = std::move(job).value();
  auto server = serve_here(job_, request_.count, &port_);
  if (!server)
    return refuse("no port on 127.0.0.1 where the ranks could meet", server.error().detail());
  auto group = RankGroup::create();
  if (!group) return refuse("no process group for the ranks", group.error().detail());
  server_ = std::move(server).value();
  group_ = std::move(group).value();
  return true;
}

/// If one can't be started, those before it are ended as after any other failure.
void Launch::start_all() {
  ranks_.reserve(static_cast<std::size_t>(request_.count));
  for (std::size_t index = 0; index < static_cast<std::size_t>(request_.count); ++index) {
    const int error = start(index);
    if (error == 0) continue;
    say("rank %zu: %s: %s%s", index, request_.command.front().c_str(), std::strerror(error),
        index == 0 ? "" : "; the others are ended");
    return end_others(error == ENOENT ? 127 : 126);
  }
}

/// @return 0, or an errno
int Launch::start(std::size_t index) {
  using Input = RankProcess::Input;
  const Input first = ::isatty(STDIN_FILENO) != 0 ? Input::forwarded : Input::own;
  const std::string number = std::to_string(index);
  const std::vector<std::pair<std::string, std::string>> variables{
      {"LARKLANE_RANK", number},
      {"LARKLANE_SIZE", std::to_string(request_.count)},
      {"LARKLANE_MEET", "127.0.0.1:" + std::to_string(port_)},
      {"LARKLANE_JOB", job_},
      {"LARKLANE_BOARD", ""}};
  Rank rank;
  const int error =
      rank.process.start({request_.command, variables, index == 0 ? first : Input::none, *group_});
  if (error != 0) return error;
  const std::string tag = request_.tags_output ? "[" + number + "] " : std::string();
  rank.output = std::make_unique<Lines>(standard_output_, tag);
  rank.errors = std::make_unique<Lines>(error_sink(), tag);
  rank.is_running = true;
  ranks_.push_back(std::move(rank));
  return 0;
}

bool Launch::has_output() const {
  return standard_output_.kept_bytes() + standard_error_.kept_bytes() != 0;
}

bool Launch::is_over() const {
  return std::ranges::none_of(ranks_, [](const Rank& rank) { return rank.is_running; });
}

int Launch::wait_ms() const {
  int wait = server_ ? server_->wait_ms() : -1;
  for (const std::uint64_t at : {too_late_ns_, kill_at_ns_, give_up_at_ns_}) {
    if (at == 0) continue;
    const std::uint64_t now = now_ns();
    const std::uint64_t left = at > now ? (at - now) / kNsPerMs + 1 : 0;
    const int left_ms = static_cast<int>(std::min<std::uint64_t>(left, 1'000'000));
    wait = wait < 0 ? left_ms : std::min(wait, left_ms);
  }
  return wait;
}

void Launch::wait_for_work() {
  const bool takes_input = !ranks_.empty() && ranks_[0].process.input;
  std::vector<pollfd> polled{{signals_.get(), POLLIN, 0},
                             {server_ ? server_->wait_fd() : -1, POLLIN, 0}};
  // Of rank 0's input only one end is of interest. -1: poll leaves it out.
  polled.push_back({takes_input && input_.empty() ? STDIN_FILENO : -1, POLLIN, 0});
  polled.push_back(
      {takes_input && !input_.empty() ? ranks_[0].process.input.get() : -1, POLLOUT, 0});
  for (const LineSink* const sink : {&standard_output_, &standard_error_})
    polled.push_back({sink->kept_bytes() != 0 ? sink->fd() : -1, POLLOUT, 0});
  const std::size_t begin = polled.size();
  for (const Rank& rank : ranks_) {
    polled.push_back({rank.output->is_paused() ? -1 : rank.process.output.get(), POLLIN, 0});
    polled.push_back({rank.errors->is_paused() ? -1 : rank.process.errors.get(), POLLIN, 0});
  }
  if (::poll(polled.data(), polled.size(), wait_ms()) < 0) {
    if (errno == EINTR) return;
    cannot_poll(errno);
    for (pollfd& each : polled) each.revents = POLLIN;  // no descriptor of ours blocks
    polled[2].revents = 0;
  }
  for (LineSink* const sink : {&standard_output_, &standard_error_})
    if (sink->kept_bytes() != 0 && !sink->flush()) lose_output(sink->error());
  for (std::size_t index = 0; index < ranks_.size(); ++index) {
    Rank& rank = ranks_[index];
    const pollfd *const output = &polled[begin + 2 * index], *const errors = output + 1;
    if (output->fd >= 0 && output->revents != 0) take_output(rank.process.output, *rank.output);
    if (errors->fd >= 0 && errors->revents != 0) take_output(rank.process.errors, *rank.errors);
  }
  if (takes_input && (polled[2].revents != 0 || (polled[3].fd >= 0 && polled[3].revents != 0)))
    forward_input();
  if (server_) server_->serve();
  if (polled[0].revents != 0) take_signals();
}

/// As if `ulimit -n` is made less than there are descriptors. The ranks are ended, and looked after
/// until then.
void Launch::cannot_poll(int error) {
  if (!is_poll_said_) say("can't wait for the ranks: %s; they are ended", std::strerror(error));
  is_poll_said_ = true;
  end_others(kFailed);
  const timespec pause{0, 10 * static_cast<long>(kNsPerMs)};
  ::nanosleep(&pause, nullptr);
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
  if (error != EPIPE && !failure_)
    say("output is not taken: %s%s", std::strerror(error),
        error == ENOSPC || error == EDQUOT ? "; remedy: free space there, or send it elsewhere"
                                           : "");
  end_others(error == EPIPE ? 128 + SIGPIPE : kFailed);
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
  while (::read(signals_.get(), &info, sizeof info) == ssize_t{sizeof info})
    pass_on(static_cast<int>(info.ssi_signo));
  reap();
}

void Launch::pass_on(int number) {
  if (number == SIGCHLD) return;
  if (number == SIGTSTP || number == SIGCONT) {
    signal_all(number);
    if (number == SIGTSTP) ::kill(::getpid(), SIGSTOP);  // until SIGCONT, which comes here, too
    return;
  }
  is_hurried_ = true;
  // The first is the program's to handle; a second one says that patience is at its end.
  if (++passed_on_ == 1 && !is_over())
    signal_all(number);
  else
    kill_at_ns_ = now_ns();
  if (is_over() && !failure_) failure_ = 128 + number;  // the rest of their output is not taken
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
    is_hurried_ = true;
    std::vector<int> late;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      if (ranks_[rank].is_running) late.push_back(static_cast<int>(rank));
    if (!failure_ && late.empty())
      say("output is not taken after %g s", request_.timeout_s);
    else if (!failure_)
      say("not ended after %g s: %s %s", request_.timeout_s, late.size() == 1 ? "rank" : "ranks",
          ranks_text(late).c_str());
    end_others(kTimedOut);
  }
  if (kill_at_ns_ != 0 && now >= kill_at_ns_) {
    signal_all(SIGKILL);
    kill_at_ns_ = now + kGraceNs;  // for processes that the kernel holds up
  }
}

/// The ranks have ended; their output's reader may be slow. It has the time that it needs, unless
/// this process is asked to end.
void Launch::hand_over_output() {
  for (Rank& rank : ranks_) {
    take_rest(rank.process.output, *rank.output);
    take_rest(rank.process.errors, *rank.errors);
    rank.process = {};
  }
  kill_at_ns_ = 0;
  while (has_output()) {
    if (is_hurried_ && give_up_at_ns_ == 0) give_up_at_ns_ = now_ns() + kGraceNs;
    if (give_up_at_ns_ != 0 && now_ns() >= give_up_at_ns_) return;
    wait_for_work();
    look_at_clock();
  }
}

int Launch::run() {
  if (prepare()) {
    if (request_.timeout_s > 0)
      too_late_ns_ = now_ns() + static_cast<std::uint64_t>(request_.timeout_s * 1e9);
    start_all();
    while (!is_over()) {
      wait_for_work();
      look_at_clock();
    }
    group_.reset();  // processes that they have left behind
  } else {
    failure_ = kRefused;
  }
  hand_over_output();
  return failure_.value_or(0);
}

}  // namespace

int launch(const LaunchRequest& request) { return Launch(request).run(); }

}  // namespace larklane::tools
