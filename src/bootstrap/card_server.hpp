#pragma once
// The server of a job's cards, in `larklane launch` or in rank 0. Its owner waits on a descriptor
// and calls serve().

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "base/unproven.hpp"
#include "bootstrap/wire.hpp"

namespace larklane::boot {

/// A connection ends when the peer's host has been silent for so long: the default of option
/// control_silence_ns.
inline constexpr std::uint64_t kSilenceNs = 30'000'000'000;

// Thread safety: single-owner.
// Invariants:
// 1. After the challenge the server sends only to processes that have proven to be of the job. It
// accepts each rank once.
// 2. The bytes from one connection cost bounded memory, and few connections may lack a proof
// (base/unproven.hpp). An invalid message ends its connection. The server warns once for all.
// 3. A process that waits for a rank learns that the rank has ended.
// 4. serve() never blocks. A peer's unread bytes are bounded: beyond the bound its connection ends.
class CardServer {
 public:
  /// @param listener  non-blocking
  static Result<std::unique_ptr<CardServer>> create(UniqueFd listener, const std::string& job,
                                                    int size);
  ~CardServer();

  /// The owner calls serve() when this is readable, and after wait_ms() at the latest (-1: no
  /// limit).
  int wait_fd() const noexcept { return epoll_.get(); }
  int wait_ms() const noexcept;
  void serve();
  /// The owner, which has started the process of `rank`, reports its end.
  void ended(int rank);

 private:
  struct Connection;
  struct Rank {
    Connection* connection = nullptr;
    bool has_come = false;
    bool has_ended = false;
    bool is_at_fence = false;
    std::optional<Card> card;
  };

  CardServer(UniqueFd listener, UniqueFd epoll, const std::string& job, int size);
  void accept_all();
  void accept(UniqueFd fd, std::uint64_t now_ns);
  bool make_room(std::uint64_t now_ns);
  void pause_accepting(std::uint64_t until_ns);
  void look_at_clock();
  void read(Connection& connection);
  void take_hello(Connection& connection);
  Verdict verdict_on(const Hello& hello) const;
  /// @return false: a process may not send this record
  bool take_record(std::uint32_t from, Record record);
  bool take_card(std::uint32_t from, Card card);
  bool take_ask(std::uint32_t from, std::uint32_t rank);
  bool take_fence(std::uint32_t from);
  void tell_of_absent(std::uint32_t to);
  void send(std::uint32_t to, const std::string& record);
  void flush(Connection& connection);
  void refuse(Connection& connection, const char* what);
  void bury_dead();
  void drop(const Connection& connection);

  const UniqueFd listener_;
  const UniqueFd epoll_;
  const Secret secret_;
  std::vector<Rank> ranks_;
  std::map<std::uint32_t, std::set<std::uint32_t>> asking_;  ///< rank without card: ranks that ask
  std::size_t at_fence_ = 0;
  std::optional<std::uint32_t> gone_;  ///< the first rank that has ended: no fence passes later
  std::map<int, std::unique_ptr<Connection>> connections_;  ///< by descriptor
  Unproven<Connection> unproven_;                           ///< those without a rank
  std::uint64_t accepts_at_ns_ = 0;                         ///< accepts again; 0: not paused
  bool has_warned_ = false;
};

}  // namespace larklane::boot
