#include "bootstrap/card_server.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "base/kernel_calls.hpp"
#include "base/log.hpp"
#include "base/random.hpp"
#include "base/ranks_text.hpp"
#include "base/secret.hpp"
#include "base/tcp.hpp"

namespace larklane::boot {
namespace {

constexpr std::uint64_t kNsPerMs = 1'000'000;
constexpr std::uint64_t kShortageNs = 1'000 * kNsPerMs;
constexpr int kAcceptsMax = 256;                  // then other connections have their turn
constexpr std::size_t kUnreadBytesMax = 1 << 20;  // some 250 of the largest cards
constexpr std::size_t kReadBytes = 16 * 1024;
constexpr int kReadsMax = 4;  // then other connections have their turn

bool watch(int epoll, int operation, int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  return ::epoll_ctl(epoll, operation, fd, &event) == 0;
}

}  // namespace

struct CardServer::Connection {
  UniqueFd fd;
  Challenge challenge;
  std::vector<std::byte> hello;       // the bytes received so far
  std::optional<std::uint32_t> rank;  // set after the proof
  RecordStream records;
  std::string unsent;
  bool is_dead = false;
};

Result<std::unique_ptr<CardServer>> CardServer::create(UniqueFd listener, const std::string& job,
                                                       int size) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll || !watch(epoll.get(), EPOLL_CTL_ADD, listener.get(), EPOLLIN))
    return Status(Errc::kSystem, errno);
  return std::unique_ptr<CardServer>(
      new CardServer(std::move(listener), std::move(epoll), job, size));
}

CardServer::CardServer(UniqueFd listener, UniqueFd epoll, const std::string& job, int size)
    : listener_(std::move(listener)),
      epoll_(std::move(epoll)),
      secret_(key_of(job)),
      ranks_(static_cast<std::size_t>(size)) {}

CardServer::~CardServer() = default;

int CardServer::wait_ms() const noexcept {
  constexpr std::uint64_t kNever = Unproven<Connection>::kNever;
  const std::uint64_t accepts_ns = accepts_at_ns_ != 0 ? accepts_at_ns_ : kNever;
  const std::uint64_t until_ns = std::min(unproven_.deadline_ns(), accepts_ns);
  if (until_ns == kNever) return -1;
  const std::uint64_t now = now_ns();
  return until_ns <= now ? 0 : static_cast<int>((until_ns - now) / kNsPerMs + 1);
}

void CardServer::serve() {
  std::array<epoll_event, 64> events;
  const int count =
      ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), /*timeout=*/0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.fd == listener_.get()) {
      accept_all();
      continue;
    }
    const auto found = connections_.find(event.data.fd);
    if (found == connections_.end()) continue;
    if ((event.events & EPOLLOUT) != 0) flush(*found->second);
    if ((event.events & ~std::uint32_t{EPOLLOUT}) != 0) read(*found->second);
  }
  look_at_clock();
  bury_dead();
}

void CardServer::accept_all() {
  const std::uint64_t now = now_ns();
  for (int count = 0; count < kAcceptsMax && make_room(now); ++count) {
    auto fd = accept_from(listener_.get());
    if (fd) {
      accept(std::move(fd).value(), now);
      continue;
    }
    const int error = fd.error().detail();
    if (error != EAGAIN) {
      log_warn_once("boot accept",
                    "a process that wants to know its peers has to wait: accept: %s; remedy: %s",
                    std::strerror(error), remedy_of(error));
      pause_accepting(now + kShortageNs);
    }
    return;
  }
}

void CardServer::accept(UniqueFd fd, std::uint64_t now_ns) {
  tune(fd.get(), kSilenceNs);
  const int number = fd.get();
  auto connection = std::make_unique<Connection>();
  connection->fd = std::move(fd);
  if (const Status random =
          fill_random(std::as_writable_bytes(std::span(connection->challenge.nonce)));
      !random.ok()) {
    const RefusedCall refused{"getrandom", random.detail(), "proof that a process is of this job"};
    log_warn_once("boot random", "a process is not served: %s", refused.text().c_str());
    return;
  }
  const Challenge& challenge = connection->challenge;
  // A fresh connection always has room for these few bytes.
  if (!watch(epoll_.get(), EPOLL_CTL_ADD, number, EPOLLIN) ||
      ::send(number, &challenge, sizeof challenge, MSG_NOSIGNAL) != ssize_t{sizeof challenge})
    return;
  unproven_.add(*connection, now_ns);
  connections_[number] = std::move(connection);
}

/// A process that is pushed out retries: open_served_board().
bool CardServer::make_room(std::uint64_t now_ns) {
  const auto room = unproven_.room(now_ns);
  if (room.pushed_out != nullptr) drop(*room.pushed_out);
  if (!room.is_there) pause_accepting(now_ns + Unproven<Connection>::kGraceNs);
  return room.is_there;
}

/// Drops a connection without a rank.
void CardServer::drop(const Connection& connection) {
  unproven_.remove(connection);
  connections_.erase(connection.fd.get());
}

void CardServer::pause_accepting(std::uint64_t until_ns) {
  accepts_at_ns_ = until_ns;
  watch(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), 0);
}

void CardServer::look_at_clock() {
  const std::uint64_t now = now_ns();
  if (accepts_at_ns_ != 0 && now >= accepts_at_ns_) {
    accepts_at_ns_ = 0;
    watch(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), EPOLLIN);
  }
  while (Connection* const late = unproven_.late(now)) {
    refuse(*late, "has not said who it is");
    drop(*late);
  }
}

void CardServer::read(Connection& connection) {
  std::array<std::byte, kReadBytes> space;
  for (int turn = 0; turn < kReadsMax && !connection.is_dead; ++turn) {
    const std::size_t wanted =
        connection.rank ? space.size() : sizeof(Hello) - connection.hello.size();
    const ssize_t got = ::recv(connection.fd.get(), space.data(), wanted, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
      connection.is_dead = true;
      return;
    }
    const std::span<const std::byte> bytes(space.data(), static_cast<std::size_t>(got));
    if (!connection.rank) {
      connection.hello.insert(connection.hello.end(), bytes.begin(), bytes.end());
      if (connection.hello.size() == sizeof(Hello)) take_hello(connection);
      continue;
    }
    connection.records.add(bytes);
    while (auto record = connection.records.take())
      if (!take_record(*connection.rank, std::move(*record)))
        return refuse(connection, "has sent what no process of the job would");
    if (connection.records.is_broken()) return refuse(connection, "has sent no record");
  }
}

void CardServer::take_hello(Connection& connection) {
  Hello hello;
  std::memcpy(&hello, connection.hello.data(), sizeof hello);
  if (hello.magic != kMagic) return refuse(connection, "is no process of Larklane");
  if (hello.version != kVersion) return refuse(connection, "runs another version of Larklane");
  if (hello.proof != proof_of(secret_, connection.challenge, hello))
    return refuse(connection, "does not know this job's LARKLANE_JOB");
  Welcome welcome;
  welcome.verdict = verdict_on(hello);
  welcome.proof = answer_to(secret_, connection.challenge, hello, welcome.verdict);
  connection.unsent.append(reinterpret_cast<const char*>(&welcome), sizeof welcome);
  flush(connection);
  if (welcome.verdict != Verdict::welcome) {  // the process itself reports the reason
    connection.is_dead = true;
    return;
  }
  connection.rank = hello.rank;
  unproven_.remove(connection);
  Rank& rank = ranks_[hello.rank];
  rank.has_come = true;
  rank.connection = &connection;
}

Verdict CardServer::verdict_on(const Hello& hello) const {
  if (hello.size != ranks_.size() || hello.rank >= hello.size) return Verdict::other_size;
  return ranks_[hello.rank].has_come ? Verdict::rank_taken : Verdict::welcome;
}

bool CardServer::take_record(std::uint32_t from, Record record) {
  switch (record.kind) {
    case Kind::publish:
      return take_card(from, std::move(record.bytes));
    case Kind::ask:
      return take_ask(from, record.rank);
    case Kind::fence:
      return take_fence(from);
    case Kind::who:
      tell_of_absent(from);
      return true;
    default:
      return false;
  }
}

bool CardServer::take_card(std::uint32_t from, Card card) {
  Rank& rank = ranks_[from];
  if (rank.card) return false;
  rank.card = std::move(card);
  if (const auto asking = asking_.extract(from)) {
    const std::string answer = packed(Kind::card, from, *rank.card);
    for (const std::uint32_t who : asking.mapped()) send(who, answer);
  }
  return true;
}

bool CardServer::take_ask(std::uint32_t from, std::uint32_t rank) {
  if (rank >= ranks_.size()) return false;
  if (ranks_[rank].card)
    send(from, packed(Kind::card, rank, *ranks_[rank].card));
  else if (ranks_[rank].has_ended)
    send(from, packed(Kind::gone, rank));
  else
    asking_[rank].insert(from);
  return true;
}

bool CardServer::take_fence(std::uint32_t from) {
  Rank& rank = ranks_[from];
  if (rank.is_at_fence) return false;
  if (gone_) {
    send(from, packed(Kind::gone, *gone_));
    return true;
  }
  rank.is_at_fence = true;
  if (++at_fence_ < ranks_.size()) return true;
  at_fence_ = 0;
  for (Rank& one : ranks_) one.is_at_fence = false;
  for (std::uint32_t one = 0; one < ranks_.size(); ++one) send(one, packed(Kind::passed, 0));
  return true;
}

void CardServer::tell_of_absent(std::uint32_t to) {
  std::vector<int> absent;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
    if (!ranks_[rank].is_at_fence) absent.push_back(static_cast<int>(rank));
  std::string text = ranks_text(absent);
  if (text.size() > kCardBytesMax) text = text.substr(0, kCardBytesMax - 3) + "...";
  send(to, packed(Kind::absent, 0, std::as_bytes(std::span(text))));
}

void CardServer::ended(int rank) {
  const auto number = static_cast<std::uint32_t>(rank);
  Rank& gone = ranks_[number];
  if (std::exchange(gone.has_ended, true)) return;
  const std::string news = packed(Kind::gone, number);
  if (const auto asking = asking_.extract(number))
    for (const std::uint32_t who : asking.mapped()) send(who, news);
  if (gone_) return;
  gone_ = number;
  for (std::uint32_t one = 0; one < ranks_.size(); ++one)
    if (std::exchange(ranks_[one].is_at_fence, false)) send(one, news);
}

void CardServer::send(std::uint32_t to, const std::string& record) {
  Connection* const connection = ranks_[to].connection;
  if (connection == nullptr || connection->is_dead) return;
  connection->unsent += record;
  flush(*connection);
}

void CardServer::flush(Connection& connection) {
  std::string& unsent = connection.unsent;
  while (!unsent.empty() && !connection.is_dead) {
    const ssize_t sent =
        ::send(connection.fd.get(), unsent.data(), unsent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) break;
    if (sent < 0)
      connection.is_dead = true;
    else
      unsent.erase(0, static_cast<std::size_t>(sent));
  }
  if (unsent.size() > kUnreadBytesMax) refuse(connection, "reads nothing");
  watch(epoll_.get(), EPOLL_CTL_MOD, connection.fd.get(),
        unsent.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

void CardServer::refuse(Connection& connection, const char* what) {
  connection.is_dead = true;
  if (std::exchange(has_warned_, true)) return;
  const std::string who =
      connection.rank ? "rank " + std::to_string(*connection.rank) : std::string("somebody");
  log_warn("%s at port %u, where this job's processes meet, %s: dropped (as will be others)",
           who.c_str(), port_of(listener_.get()), what);
}

void CardServer::bury_dead() {
  for (bool is_done = false; !is_done;) {
    is_done = true;
    for (auto it = connections_.begin(); it != connections_.end();) {
      if (!it->second->is_dead) {
        ++it;
        continue;
      }
      const auto dead = connections_.extract(it++);
      if (!dead.mapped()->rank) {
        unproven_.remove(*dead.mapped());
        continue;
      }
      ranks_[*dead.mapped()->rank].connection = nullptr;
      ended(static_cast<int>(*dead.mapped()->rank));  // may mark further connections dead
      is_done = false;
    }
  }
}

}  // namespace larklane::boot
