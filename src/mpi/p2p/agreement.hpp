#pragma once
// The agreement in MPI_Init: the ranks of a world decide together whether Larklane carries their
// ordinary messages. An AND over a tree of control connections. Round 1 asks each rank. Where a
// wire needs a communicator of the MPI, round 2 asks whether it was made everywhere. No MPI call,
// no socket.
// (docs/design/protocols/ordinary_messages.md; model: tests/protocol/agreement.pml)

#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace larklane::mpi::p2p {

/// Why messages stay with the MPI. The values are on the wire: never renumber.
enum class Objection : std::uint8_t {
  none = 0,
  without_larklane = 1,
  without_p2p = 2,
  version = 3,
  family = 4,
  options = 5,
  late = 6,
  ended = 7,
  unusable = 8,
  several_hosts = 9,
  no_communicator = 10,
  devices = 11,
  not_in_auto = 12,
  unreadable = 13,
};

/// An objection, and the rank that it concerns. Thread safety: immutable.
struct Reason {
  Objection objection = Objection::none;
  std::int32_t rank = -1;
};
/// With a remedy, for people. @param wait_ns  the deadline
std::string text_of(const Reason& reason, std::uint64_t wait_ns);

/// The properties that all ranks must share. Thread safety: immutable.
struct Terms {
  std::uint32_t byte_order = 0x01020304;
  std::uint16_t version = 2;  ///< of the records here and of the messages that follow
  std::uint16_t family = 0;   ///< of the MPI's ABI
  std::uint64_t options = 0;  ///< digest of the options that must be equal
};

/// Records of the agreement. Thread safety: immutable.
enum class BallotKind : std::uint8_t {
  vote,      ///< child to parent: yes or no of the whole subtree
  answer,    ///< parent to child: the root's yes, or a no
  question,  ///< rank to root: `round` alone counts
  reply,     ///< root to rank: as answer
};
struct Ballot {
  Terms terms;
  std::int32_t from;  ///< rank of the sender
  std::int32_t objector;
  std::uint8_t round;  ///< 1 or 2
  std::uint8_t is_yes;
  std::uint8_t objection;
  std::uint8_t offers;  ///< in a vote: of all ranks of the subtree; in an answer or reply: of all
  std::uint8_t zero[4] = {};
};
static_assert(sizeof(Ballot) == 32);

/// The connections to other ranks. The agreement calls it with its lock held, so it does not call
/// back. Thread safety: thread-safe.
class Lines {
 public:
  virtual ~Lines() = default;
  /// none: the rank listens for ballots.
  virtual Objection absence(int rank) = 0;
  /// Connects, unless the rank is connected. False: no process listens there, or it has ended.
  virtual bool connect(int rank) = 0;
  /// none: the two processes can read and write each other's memory, or `rank` has ended.
  /// @pre connect(rank) was true, or a ballot of `rank` has come
  virtual Objection obstacle(int rank) = 0;
  /// Lost if the connection has ended. @pre connect(to) was true, or a ballot of `to` has come
  virtual void send(int to, BallotKind kind, const Ballot& ballot) = 0;
};

// Thread safety: thread-safe. The helper passes ballots and ends of connections; the thread inside
// MPI_Init passes its own votes and waits.
// Invariants (numbers of the model's rules):
// 1. A rank says yes to its parent when it agrees and each child has said yes.
// 2. Before its yes a rank may decide no alone. It says yes only while it can reach parent and
//    root.
// 3. After its yes a rank decides only by an answer or a reply. It has no deadline.
// 4. If the connection to the parent ends after the yes, the rank asks the root, once a round. If
//    the root is gone, the rank aborts.
// 5. The root replies to a question when it has decided, not before.
// 6. The offers of a yes are those that all ranks have made in round 1, equal on all ranks.
// 7. A decision goes to each child that has voted. A child that votes later finds the answer no.
class Agreement {
 public:
  static constexpr int kRoundsMax = 2;
  static constexpr int kChildren = 2;
  /// Offers: a bit for each thing that the ranks do only if all can.
  static constexpr std::uint8_t kLanesByTag = 1;
  static int parent_of(int rank) noexcept { return (rank - 1) / kChildren; }

  enum class Outcome : std::uint8_t {
    open,
    yes,
    no,
    aborted,  ///< parent and root ended after this rank's yes: it cannot know the others' decision
  };

  /// @param rounds  equal on all ranks: the yes of the last one is final
  Agreement(int rank, int size, const Terms& terms, Lines& lines, int rounds);

  /// This process's own yes in `round`; the second after the yes of the first.
  /// @param offers  of round 1
  void agree(int round, std::uint8_t offers = 0);
  /// Its own no, in the round that is open.
  void object(Reason reason);
  /// The deadline has passed: counts before this rank's yes of round 1 only.
  void expire();
  void on_ballot(BallotKind kind, const Ballot& ballot);
  /// All earlier ballots of `rank` on the connection have been passed. @return true: it is a child
  /// that has said yes, and not all is decided: others rely on it, and may wait for it in the MPI
  bool on_ended(int rank);

  Outcome outcome(int round) const;
  /// Waits for the decision. Calls expire() after `wait_ns`; 0: no deadline.
  Outcome await(int round, std::uint64_t wait_ns);
  /// Of a no.
  Reason reason() const;
  /// The offers of all ranks, after the yes of round 1.
  std::uint8_t offers() const;

 private:
  struct Child {
    int rank;
    bool has_voted = false;   ///< yes, in this round
    bool is_met = false;      ///< it has sent a ballot
    bool has_agreed = false;  ///< yes, in round 1
    bool has_ended = false;
    std::uint8_t offers = 0;  ///< of its subtree
  };

  bool is_open_locked() const noexcept { return round_ <= rounds_ && !is_no_ && !is_aborted_; }
  bool is_waiting_locked() const noexcept { return is_open_locked() && has_said_yes_; }
  void on_vote_locked(const Ballot& vote);
  void on_question_locked(const Ballot& question);
  void on_decision_locked(const Ballot& ballot);
  /// The objection that follows from a child's yes with other terms; none: equal.
  Objection compare(const Terms& theirs) const noexcept;
  void decide_locked(bool is_yes, Reason reason);
  /// A no before this rank's yes: also goes to the parent.
  void refuse_locked(Reason reason);
  /// Takes the steps that the state allows.
  void step_locked();
  void vote_locked();
  void ask_locked();
  void send_locked(int to, BallotKind kind, int round, bool is_yes, Reason reason = {});

  const int rank_;
  const Terms terms_;
  Lines& lines_;
  const int rounds_;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::vector<Child> children_;
  int round_ = 1;            // the open one; rounds_ + 1: the last has been decided yes
  bool has_agreed_ = false;  // this process, in this round
  bool has_said_yes_ = false;
  bool is_no_ = false, is_aborted_ = false;
  Reason reason_;
  std::uint8_t offers_ = 0;  // own; then the subtree's; after the yes of round 1 those of all ranks
  bool has_parent_ended_ = false, has_root_ended_ = false, has_asked_ = false;
  bool is_parent_met_ = false;
  // The root's.
  std::array<std::optional<bool>, kRoundsMax + 1> finals_;  // by round
  std::vector<std::uint8_t> waiting_;  // by rank: the round that it asked about too early; 0: none
};

}  // namespace larklane::mpi::p2p
