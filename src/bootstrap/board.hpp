#pragma once
// A board brings the processes of a native program together and carries their cards. A process
// publishes its card once. A peer fetches the card at its first use of that process, so time and
// memory grow with the peers in use. MPI programs use src/bootstrap/launcher_board.hpp instead.

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

// Thread safety: thread-safe. Calls of one kind run one after another. card_of() waits for no
// fence: other processes may need its progress before they reach the fence.
// Invariants:
// 1. A call that waits for another process ends after option `boot_wait_ns` at the latest and names
// the rank. With Peers, the program's all-gather decides how long a call waits.
// 2. A process keeps only its own card, unless it serves the cards. By Peers and by PMI-1 it keeps
// the others', too.
// 3. A failed call stores a message for the user in `*problem`. After a failed fence, and after an
// error that does not concern one peer alone, all calls fail with the same error.
class Board {
 public:
  /// Opens the board that the environment describes: options `rank`, `size`, `meet`, `board`,
  /// `job`, or else the launcher by PMIx or PMI-1. Without a description the process is alone. A
  /// process opens one board in its life: the others accept it once.
  /// @errors kBadOption; kUnreachable with ETIMEDOUT: no answer; kSystem; kNoThread; kProtocol: its
  /// rank or the size contradicts another process
  static Result<std::unique_ptr<Board>> open(const Config& config, std::string* problem);
  /// Opens a board on the program's own all-gather. @errors kInvalidArgument
  static Result<std::unique_ptr<Board>> open(Peers peers, std::string* problem);
  virtual ~Board() = default;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }

  /// True: all processes run on one host. False: they do not, or the board can't know. May wait for
  /// all. @errors as fence
  Result<bool> is_one_host(std::string* problem);

  /// Publishes this process's card. Each process calls it once, before its first card_of(). May
  /// wait for all.
  /// @param card  at most kCardBytesMax @errors kInvalidArgument, kAlreadyActive; those of card_of
  Status publish(std::span<const std::byte> card, std::string* problem);
  /// The card of `rank`; waits until `rank` has published it.
  /// @errors kUnreachable with ETIMEDOUT: not in time; kPeerDown: `rank` has ended before; kSystem,
  /// kProtocol: of the cards' server; kInvalidArgument; kNotActive: publish() comes first
  Result<Card> card_of(int rank, std::string* problem);
  /// Returns when all processes have called it as often as this one. @errors as card_of
  Status fence(std::string* problem);

 protected:
  Board(int rank, int size) noexcept : rank_(rank), size_(size) {}

 private:
  // Calls of one kind run one at a time. No other call runs beside publish_locked().
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
  std::mutex fence_mutex_, fetch_mutex_;  // one call of each kind; locked before mutex_
  std::mutex mutex_;                      // no thread waits while it holds this one
  bool is_published_ = false;             // this and the following members: guarded by mutex_
  Card own_;
  Status end_;  ///< not ok: all calls return it
  std::string why_;
};

}  // namespace larklane::boot
