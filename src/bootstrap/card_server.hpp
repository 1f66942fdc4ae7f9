#pragma once
// Who has the cards of a job and serves them: in `larklane launch`, or in rank 0. Whoever owns it
// waits on a descriptor and calls.

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

/// A host that is gone ends a connection after it: the default of option control_silence_ns.
inline constexpr std::uint64_t kSilenceNs = 30'000'000'000;

// Thread safety: single-owner.
// Invariants:
// 1. Only who has proven that it is of the job is told anything, and each rank only once.
// 2. What one connection sends costs bounded memory, and few may be there without a proof
// (base/unproven.hpp). Nonsense ends a connection, with one warning for all.
// 3. Who waits for a rank that has ended is told so.
// 4. serve() never blocks, and what nobody reads is bounded: then that connection ends.
class CardServer {
 public:
  /// @param listener  non-blocking
  static Result<std::unique_ptr<CardServer>> create(UniqueFd listener, const std::string& job,
                                                    int size);
  ~CardServer();

  /// Readable: call serve(). So it is after wait_ms() at the latest (-1: it has no end).
  int wait_fd() const noexcept { return epoll_.get(); }
  int wait_ms() const noexcept;
  void serve();
  /// Known to who has started it: the process of `rank` is not there any more.
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
  /// @return false: no record that a process may send
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
  std::map<std::uint32_t, std::set<std::uint32_t>> asking_;  ///< rank without a card: who asks
  std::size_t at_fence_ = 0;
  std::optional<std::uint32_t> gone_;  ///< the first rank that has ended: no fence passes any more
  std::map<int, std::unique_ptr<Connection>> connections_;  ///< by descriptor
  Unproven<Connection> unproven_;                           ///< of these
  std::uint64_t accepts_at_ns_ = 0;                         ///< again; 0: it does
  bool has_warned_ = false;
};

}  // namespace larklane::boot
