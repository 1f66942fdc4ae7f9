#pragma once
// Who the processes of a native program are, and what each says of itself: its card. A card is
// published once and fetched when its process is first used, so that time and memory grow with the
// peers that are used. (What MPI programs have instead: src/bootstrap/launcher_board.hpp.)

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/status.hpp"
#include "larklane/boot.hpp"

namespace larklane::boot {

using Card = std::vector<std::byte>;
inline constexpr std::size_t kCardBytesMax = 4096;

// Thread safety: thread-safe. A call waits for those of its kind that came before it; card_of() for
// no fence: it may be what others need before they come there.
// Invariants:
// 1. A call that has to wait for another process ends after option `boot_wait_ns` at the latest,
//    and names the rank. (Peers: the all-gather is the program's, and so are its waits.)
// 2. A process keeps no card but its own, unless it serves those of others (or Peers say all).
// 3. A call that fails leaves `*problem` for people. After a fence that failed, and after an error
//    that is not one peer's, all calls fail with the same.
class Board {
 public:
  /// As the environment says (options `rank`, `size`, `meet`, `board`, `job`), or PMIx: a
  /// process that is told nothing is alone. One board in the life of a process: the others know it
  /// once.
  /// @errors kBadOption; kUnreachable with ETIMEDOUT: nobody has answered; kSystem; kNoThread;
  /// kProtocol: its rank or the size does not fit those of others
  static Result<std::unique_ptr<Board>> open(const Config& config, std::string* problem);
  /// As the program says. @errors kInvalidArgument
  static Result<std::unique_ptr<Board>> open(Peers peers, std::string* problem);
  virtual ~Board() = default;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }

  /// Do all processes run on one host, as far as whoever brings them together tells? May wait for
  /// all. @errors as fence
  Result<bool> is_one_host(std::string* problem);

  /// Every process, once, before it asks for cards; may wait for all.
  /// @param card  kCardBytesMax at most @errors kInvalidArgument, kAlreadyActive; those of card_of
  Status publish(std::span<const std::byte> card, std::string* problem);
  /// What `rank` has published; waits until it has.
  /// @errors kUnreachable with ETIMEDOUT: not in time; kPeerDown: it has ended before; kSystem,
  /// kProtocol: of whoever has the cards; kInvalidArgument, kNotActive: publish() comes first
  Result<Card> card_of(int rank, std::string* problem);
  /// Returns when all processes have called it as often as this one. @errors as card_of
  Status fence(std::string* problem);

 protected:
  Board(int rank, int size) noexcept : rank_(rank), size_(size) {}

 private:
  // One of each at a time, and nothing else while publish_locked() runs.
  virtual Status publish_locked(std::span<const std::byte> card, std::string* problem) = 0;
  /// @param rank  of another process
  virtual Result<Card> fetch_locked(int rank, std::string* problem) = 0;
  virtual Status fence_locked(std::string* problem) = 0;
  virtual Result<bool> is_one_host_locked(std::string* problem) = 0;
  Status end(Status status, const std::string& problem);
  Status ended_locked(std::string* problem) const;
  Status ended(std::string* problem);

  const int rank_;
  const int size_;
  std::mutex fence_mutex_, fetch_mutex_;  // of the calls; first this one
  std::mutex mutex_;                      // nobody waits with it
  bool is_published_ = false;             // this and what follows: guarded by mutex_
  Card own_;
  Status end_;  ///< ok: it works
  std::string why_;
};

}  // namespace larklane::boot
