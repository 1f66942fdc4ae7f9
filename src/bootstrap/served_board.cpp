// A board over TCP. A server listens at `meet`: `larklane launch`, or rank 0 if the port is free.

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <deque>
#include <mutex>
#include <utility>

#include "base/clock.hpp"
#include "base/kernel_calls.hpp"
#include "base/random.hpp"
#include "base/secret.hpp"
#include "base/tcp.hpp"
#include "base/unique_fd.hpp"
#include "bootstrap/boards.hpp"
#include "bootstrap/card_server.hpp"
#include "bootstrap/wait_text.hpp"
#include "bootstrap/wire.hpp"

namespace larklane::boot {
namespace {

constexpr std::uint64_t kNsPerMs = 1'000'000;
constexpr std::uint64_t kRetryNsMin = 10 * kNsPerMs, kRetryNsMax = 200 * kNsPerMs;
/// The limit of one attempt: a stranger at the port may never answer.
constexpr std::uint64_t kAttemptNs = 5'000 * kNsPerMs;
/// The limit for an answer that the server has at hand.
constexpr std::uint64_t kAnswerNs = 2'000 * kNsPerMs;

/// Serves in its own thread until its destruction. Thread safety: single-owner.
class Serving {
 public:
  /// @errors kNoThread, kSystem
  static Result<std::unique_ptr<Serving>> begin(std::unique_ptr<CardServer> server) {
    UniqueFd stop(::eventfd(0, EFD_CLOEXEC));
    if (!stop) return Status(Errc::kSystem, errno);
    std::unique_ptr<Serving> serving(new Serving(std::move(server), std::move(stop)));
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);  // the thread inherits the blocked signals
    const int error = ::pthread_create(&serving->thread_, nullptr, run, serving.get());
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    serving->is_running_ = error == 0;
    if (error != 0) return Status(Errc::kNoThread, error);
    return serving;
  }
  ~Serving() {
    if (!is_running_) return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
    ::pthread_join(thread_, nullptr);
  }

 private:
  Serving(std::unique_ptr<CardServer> server, UniqueFd stop) noexcept
      : server_(std::move(server)), stop_(std::move(stop)) {}
  static void* run(void* of) {
    const Serving& serving = *static_cast<const Serving*>(of);
    for (;;) {
      pollfd polled[] = {{serving.stop_.get(), POLLIN, 0}, {serving.server_->wait_fd(), POLLIN, 0}};
      ::poll(polled, 2, serving.server_->wait_ms());
      if (polled[0].revents != 0) return nullptr;
      serving.server_->serve();
    }
  }

  const std::unique_ptr<CardServer> server_;
  const UniqueFd stop_;
  pthread_t thread_{};
  bool is_running_ = false;
};

bool send_all(int socket, std::string_view bytes, std::uint64_t deadline_ns) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0)
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    else if (sent < 0 && errno == EAGAIN) {
      if (!wait_by(socket, POLLOUT, deadline_ns)) return false;
    } else if (errno != EINTR)
      return false;
  }
  return true;
}

/// Receives exactly one message of the handshake.
template <class Message>
bool receive(int socket, Message* message, std::uint64_t deadline_ns) {
  for (std::size_t had = 0; had < sizeof *message;) {
    if (!wait_by(socket, POLLIN, deadline_ns)) return false;
    const ssize_t got =
        ::recv(socket, reinterpret_cast<char*>(message) + had, sizeof *message - had, 0);
    if (got > 0)
      had += static_cast<std::size_t>(got);
    else if (got == 0 || (errno != EAGAIN && errno != EINTR))
      return false;
  }
  return true;
}

/// The result of one attempt to reach the server.
struct Attempt {
  UniqueFd socket;        ///< none: the attempt failed
  std::string why;        ///< after failure: the reason
  bool is_final = false;  ///< after failure: a retry would fail alike
  int error = 0;          ///< after failure: the connection's errno, or 0
};

bool is_loopback(const std::string& host) {
  return host.starts_with("127.") || host == "localhost" || host == "::1";
}

constexpr const char* kOneNamespace =
    "remedy: start the ranks of a host in one network namespace (containers: the host's, "
    "--network=host)";

bool is_nowhere(int error) noexcept { return error == ENETUNREACH || error == EADDRNOTAVAIL; }

/// The message for a loopback address that no retry can reach; empty: a retry may reach it.
std::string no_loopback_text(const std::string& host, int error) {
  if (!is_loopback(host) || !is_nowhere(error)) return {};
  return std::string(
             ": this process is in a network namespace of its own, whose loopback interface "
             "is down; ") +
         kOneNamespace;
}

Attempt refused_by(Verdict verdict, const Member& member) {
  if (verdict == Verdict::other_size)
    return {{}, "LARKLANE_SIZE is " + std::to_string(member.size) + " here, but not there", true};
  return {
      {},
      "rank " + std::to_string(member.rank) +
          " has come before; LARKLANE_RANK is another for each process, which meets others once",
      true};
}

Attempt introduce(UniqueFd socket, const Member& member, std::uint64_t deadline_ns) {
  const Secret secret = key_of(member.job);
  Challenge challenge;
  if (!receive(socket.get(), &challenge, deadline_ns))
    return {{}, "whoever listens there does not say who it is"};
  if (challenge.magic != kMagic) return {{}, "whoever listens there is not Larklane"};
  if (challenge.version != kVersion) return {{}, "another version of Larklane listens there"};
  Hello hello;
  hello.rank = static_cast<std::uint32_t>(member.rank);
  hello.size = static_cast<std::uint32_t>(member.size);
  if (const Status random = fill_random(std::as_writable_bytes(std::span(hello.nonce)));
      !random.ok())
    return {{}, RefusedCall{"getrandom", random.detail(), "proof of the job"}.text(), true};
  hello.proof = proof_of(secret, challenge, hello);
  const std::string_view bytes(reinterpret_cast<const char*>(&hello), sizeof hello);
  Welcome welcome;
  if (!send_all(socket.get(), bytes, deadline_ns) ||
      !receive(socket.get(), &welcome, deadline_ns) || welcome.magic != kMagic ||
      welcome.proof != answer_to(secret, challenge, hello, welcome.verdict))
    return {{}, "another job listens there (LARKLANE_JOB is not the same)"};
  if (welcome.verdict != Verdict::welcome) return refused_by(welcome.verdict, member);
  return {std::move(socket), {}};
}

Attempt attempt(const std::vector<Endpoint>& names, const Member& member,
                std::uint64_t deadline_ns) {
  Attempt last;
  for (const Endpoint& name : names) {
    auto socket = connect_by(name, deadline_ns);
    if (!socket) {
      const int error = socket.error().detail();
      if (last.why.empty()) last.why = std::strerror(error);
      // One address family may be absent: the other family's error counts.
      if (last.error == 0 || is_nowhere(last.error)) last.error = error;
      continue;
    }
    tune(socket->get(), kSilenceNs);
    last = introduce(std::move(socket).value(), member, deadline_ns);
    if (last.socket || last.is_final) break;
  }
  return last;
}

class ServedBoard final : public Board {
 public:
  ServedBoard(const Member& member, std::unique_ptr<Serving> serving, UniqueFd socket)
      : Board(member.rank, member.size),
        wait_ns_(member.wait_ns),
        is_loopback_(is_loopback(member.host)),
        who_((serving || member.rank == 0 ? "whoever serves"
                                          : "rank 0 or the launcher, who serves") +
             std::string(" the cards at ") + member.host + ":" + member.port),
        serving_(std::move(serving)),
        socket_(std::move(socket)) {}

 private:
  Status publish_locked(std::span<const std::byte> card, std::string* problem) override {
    return send(packed(Kind::publish, 0, card), problem);
  }

  Result<Card> fetch_locked(int rank, std::string* problem) override {
    const auto number = static_cast<std::uint32_t>(rank);
    LARKLANE_TRY(send(packed(Kind::ask, number), problem));
    const std::uint64_t deadline_ns = now_ns() + wait_ns_;
    for (;;) {
      Record record;
      const Status status = next(fetched_, &record, deadline_ns, problem);
      if (status.code() == Errc::kUnreachable) *problem = unpublished_text(rank, wait_ns_);
      LARKLANE_TRY(status);
      if (record.rank != number) continue;  // the answer to an abandoned request
      if (record.kind == Kind::card) return std::move(record.bytes);
      if (record.kind == Kind::gone) {
        *problem = "rank " + std::to_string(rank) + " has ended before it published its card";
        return Errc::kPeerDown;
      }
    }
  }

  Status fence_locked(std::string* problem) override {
    {
      const std::scoped_lock lock(mutex_);
      is_at_fence_ = true;
    }
    const Status status = wait_at_fence(problem);
    const std::scoped_lock lock(mutex_);
    is_at_fence_ = false;
    return status;
  }

  /// A server at a loopback address is on this host.
  Result<bool> is_one_host_locked(std::string*) override { return is_loopback_; }

  Status wait_at_fence(std::string* problem) {
    LARKLANE_TRY(send(packed(Kind::fence, 0), problem));
    const std::uint64_t deadline_ns = now_ns() + wait_ns_;
    for (;;) {
      Record record;
      const Status status = next(of_fence_, &record, deadline_ns, problem);
      if (status.code() == Errc::kUnreachable) *problem = text_of_absent();
      LARKLANE_TRY(status);
      if (record.kind == Kind::passed) return {};
      if (record.kind == Kind::gone) {
        *problem = "rank " + std::to_string(record.rank) + " has ended before the fence";
        return Errc::kPeerDown;
      }
    }
  }

  std::string text_of_absent() {
    std::string problem;
    const std::uint64_t deadline_ns = now_ns() + kAnswerNs;
    Record record;
    if (!send(packed(Kind::who, 0), &problem).ok()) return problem;
    do {
      if (!next(of_fence_, &record, deadline_ns, &problem).ok())
        return who_ + ", does not say who is not at the fence";
    } while (record.kind != Kind::absent);
    return absent_text({reinterpret_cast<const char*>(record.bytes.data()), record.bytes.size()},
                       wait_ns_);
  }

  Status send(const std::string& record, std::string* problem) {
    const std::scoped_lock lock(send_mutex_);
    if (send_all(socket_.get(), record, now_ns() + wait_ns_)) return {};
    return lost(problem);
  }

  /// The next record of `mine`. If no thread reads the socket, the waiting thread reads for both
  /// queues.
  /// @errors kUnreachable: not by `deadline_ns`
  Status next(std::deque<Record>& mine, Record* record, std::uint64_t deadline_ns,
              std::string* problem) {
    const std::chrono::steady_clock::time_point until{std::chrono::nanoseconds(deadline_ns)};
    std::unique_lock lock(mutex_);
    while (mine.empty()) {
      if (is_reading_) {
        if (changed_.wait_until(lock, until) == std::cv_status::timeout)
          return Status(Errc::kUnreachable, ETIMEDOUT);
        continue;
      }
      is_reading_ = true;
      lock.unlock();
      const Status status = read_some(deadline_ns, problem);
      lock.lock();
      is_reading_ = false;
      while (auto taken = stream_.take()) sort_locked(std::move(*taken));
      changed_.notify_all();
      if (!status.ok() && mine.empty()) return status;
    }
    *record = std::move(mine.front());
    mine.pop_front();
    return {};
  }

  Status read_some(std::uint64_t deadline_ns, std::string* problem) {
    if (stream_.is_broken()) {
      *problem = who_ + ", has sent nonsense";
      return Errc::kProtocol;
    }
    if (!wait_by(socket_.get(), POLLIN, deadline_ns)) return Status(Errc::kUnreachable, ETIMEDOUT);
    std::byte space[4096];
    const ssize_t got = ::recv(socket_.get(), space, sizeof space, 0);
    if (got > 0)
      stream_.add({space, static_cast<std::size_t>(got)});
    else if (got == 0 || (errno != EAGAIN && errno != EINTR))
      return lost(problem);
    return {};
  }

  /// Queues a record for the calls that it concerns. The end of a rank concerns both.
  void sort_locked(Record record) {
    if (is_at_fence_ && record.kind != Kind::card) of_fence_.push_back(record);
    if (record.kind == Kind::card || record.kind == Kind::gone)
      fetched_.push_back(std::move(record));
  }

  Status lost(std::string* problem) {
    *problem = who_ + ", has ended, or has dropped this process";
    return Status(Errc::kSystem, ECONNRESET);
  }

  const std::uint64_t wait_ns_;
  const bool is_loopback_;
  const std::string who_;
  const std::unique_ptr<Serving> serving_;
  const UniqueFd socket_;
  std::mutex send_mutex_;
  RecordStream stream_;  // of the reading thread

  std::mutex mutex_;  // guards the following members
  std::condition_variable changed_;
  bool is_reading_ = false, is_at_fence_ = false;
  std::deque<Record> fetched_, of_fence_;
};

/// Rank 0 serves, unless another server already listens there.
/// @return null: another server listens there
Result<std::unique_ptr<Serving>> serve_if_free(const std::vector<Endpoint>& names,
                                               const Member& member) {
  auto listener = listen_at(names);
  if (!listener) {
    if (listener.error().detail() == EADDRINUSE) return std::unique_ptr<Serving>();
    return listener.error();
  }
  auto server = CardServer::create(std::move(listener).value(), member.job, member.size);
  if (!server) return server.error();
  return Serving::begin(std::move(server).value());
}

}  // namespace

Result<std::unique_ptr<Board>> open_served_board(const Member& member, std::string* problem) {
  const std::uint64_t deadline_ns = now_ns() + member.wait_ns;
  const std::string place = "LARKLANE_MEET is " + member.host + ":" + member.port;
  std::string reason;
  const std::vector<Endpoint> names = resolve(member.host, member.port, &reason);
  if (names.empty()) {
    *problem = place + ": " + reason;
    return Errc::kBadOption;
  }
  std::unique_ptr<Serving> serving;
  if (member.rank == 0) {
    auto served = serve_if_free(names, member);
    if (!served) {
      const int error = served.error().detail();
      *problem = place + ": rank 0 can't listen there: " + std::strerror(error) +
                 no_loopback_text(member.host, error);
      return served.error();
    }
    serving = std::move(served).value();
  }
  for (std::uint64_t retry_ns = kRetryNsMin;; retry_ns = std::min(2 * retry_ns, kRetryNsMax)) {
    Attempt made = attempt(names, member, std::min(deadline_ns, now_ns() + kAttemptNs));
    if (made.socket)
      return std::unique_ptr<Board>(
          std::make_unique<ServedBoard>(member, std::move(serving), std::move(made.socket)));
    if (const std::string no_way = no_loopback_text(member.host, made.error); !no_way.empty()) {
      *problem = place + ": " + made.why + no_way;
      return Status(Errc::kUnreachable, made.error);
    }
    if (made.is_final || now_ns() + retry_ns >= deadline_ns) {
      *problem = place + ": " + made.why;
      if (made.is_final) return Errc::kProtocol;
      *problem += ", for " + seconds_text(member.wait_ns);
      if (made.error == ECONNREFUSED && is_loopback(member.host))
        *problem +=
            std::string("; if this process is in a network namespace of its own, ") + kOneNamespace;
      return Status(Errc::kUnreachable, ETIMEDOUT);
    }
    const timespec pause{0, static_cast<long>(retry_ns)};
    ::nanosleep(&pause, nullptr);
  }
}

}  // namespace larklane::boot
