#pragma once
// Two real processes with an engine each, and ways to harm them. The test itself has no engine and
// no threads: it forks, waits and kills.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <initializer_list>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.hpp"
#include "part/engine.hpp"
#include "unit/fork_with_pipe.hpp"

namespace larklane::part::fault {

using Clock = std::chrono::steady_clock;
/// The promise: an error or the fallback by then.
inline constexpr std::chrono::seconds kPromised{5};

/// In a rank: end it with a reason.
[[noreturn]] inline void give_up(const std::string& why) {
  std::fprintf(stderr, "rank %d: %s\n", static_cast<int>(::getpid()), why.c_str());
  ::_exit(1);
}
inline void require(bool holds, const std::string& what) {
  if (!holds) give_up(what);
}

inline void install(std::vector<sock_filter> code) {
  sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  require(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
  // All threads of the process, those of the engine too.
  require(::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0,
          "seccomp");
}

/// From now on the kernel refuses these calls of this process.
inline void refuse(std::initializer_list<long> calls, int error) {
  std::vector<sock_filter> code{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
  };
  for (const long call : calls) {
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1));
    code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)));
  }
  code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  install(std::move(code));
}

/// From now on the kernel refuses to map shared memory into this process.
inline void refuse_shared_mappings() {
  install({
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[3])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_SHARED, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  });
}

/// A forked process in a process group of its own, killed with all its children at the end.
class Rank {
 public:
  /// `body` runs in the child; it ends with give_up() or well.
  using Say = std::function<void()>;
  explicit Rank(const std::function<void(const Say&)>& body) {
    pid_ = fork_with_pipe(&said_);
    if (pid_ == 0) {
      (void)::setpgid(0, 0);
      const int out = said_.get();
      body([out] { require(::write(out, "x", 1) == 1, "could not say"); });
      ::_exit(0);
    }
    (void)::setpgid(pid_, pid_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  ~Rank() {
    (void)::kill(-pid_, SIGKILL);
    if (!ended_) (void)::waitpid(pid_, nullptr, 0);
  }

  /// Wait until it has reported something.
  bool hear() {
    pollfd readable{said_.get(), POLLIN, 0};
    char byte = 0;
    return ::poll(&readable, 1, 120'000) == 1 && ::read(said_.get(), &byte, 1) == 1;
  }
  /// The process itself; its children live on.
  void kill() {
    (void)::kill(pid_, SIGKILL);
    (void)wait();
  }
  /// Exit status, 128 + signal; -1 if it does not end.
  int wait() {
    const auto deadline = Clock::now() + std::chrono::seconds(120);
    int status = 0;
    while (::waitpid(pid_, &status, WNOHANG) == 0) {
      if (Clock::now() > deadline) return -1;
      (void)::poll(nullptr, 0, 1);
    }
    ended_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = 0;
  bool ended_ = false;
  UniqueFd said_;
};

/// Names of two ranks, and which of them have been bound. Each rank binds its own, because the
/// kernel reports the caller of listen() to a peer.
class Names {
 public:
  Names() {
    static int count = 0;
    base_ = "larklane-fault-" + std::to_string(::getpid()) + "-" + std::to_string(count++);
    void* shared =
        ::mmap(nullptr, sizeof(Bound), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(shared, MAP_FAILED);
    bound_ = ::new (shared) Bound{};
  }
  ~Names() { ::munmap(bound_, sizeof(Bound)); }
  Names(const Names&) = delete;
  Names& operator=(const Names&) = delete;

  control::Address address(int rank) const { return base_ + "-" + std::to_string(rank); }
  /// In a rank: its listener, when both are there.
  control::Listener bind(int rank) {
    auto listener = control::Listener::bind(address(rank));
    require(listener.has_value(), "bind");
    // release, acquire: nothing but the names is shared.
    bound_->ranks[rank].store(true, std::memory_order_release);
    while (!bound_->ranks[1 - rank].load(std::memory_order_acquire)) ::sched_yield();
    return std::move(listener).value();
  }

 private:
  struct Bound {
    std::atomic<bool> ranks[2];
  };
  std::string base_;
  Bound* bound_;
};

/// In a rank: its engine.
inline std::unique_ptr<Engine> make_engine(Names& names, int rank, const char* slot_bytes_max,
                                           const char* piece_bytes = "64K",
                                           std::shared_ptr<const shm::Regions> regions = nullptr) {
  Config config;
  std::string problem;
  require(config.set("shm_slot_bytes_max", slot_bytes_max, &problem).ok(), problem);
  require(config.set("shm_slot_cached_max", "1G", &problem).ok(), problem);
  require(config.set("shm_piece_bytes", piece_bytes, &problem).ok(), problem);
  std::vector<control::Listener> own;
  own.push_back(names.bind(rank));
  auto engine = Engine::create(std::move(own), config, std::move(regions));
  require(engine.has_value(), "no engine");
  return std::move(engine).value();
}

/// In a rank: poll until the round is over; it must be within the promise.
inline Completion complete(Request& request) {
  const auto deadline = Clock::now() + kPromised;
  for (;;) {
    const Completion completion = request.poll();
    if (completion != Completion::pending) {
      request.finish();
      return completion;
    }
    require(Clock::now() < deadline, "waits too long");
    ::sched_yield();
  }
}

inline void require_complete(Request& request) {
  const Completion completion = complete(request);
  require(completion == Completion::complete, "failed: " + request.error_text());
}

inline void expect_error(const Request& request, Errc code) {
  require(
      request.error().code() == code,
      std::string("error is ") + errc_name(request.error().code()) + ": " + request.error_text());
  require(!request.error_text().empty(), "no text");
}

}  // namespace larklane::part::fault
