#pragma once
// The two sides of a channel: Start and completion in either mode, for real and simulated rounds.
//
// Thread safety: as LastComer, SlotWriter, SlotReader and Arrival. start() and open() belong to
// the thread that calls MPI_Start, complete() to one thread at a time.

#include <cstdint>

#include "part/protocol/arrival.hpp"
#include "part/protocol/block.hpp"
#include "part/protocol/last_comer.hpp"
#include "part/protocol/plans.hpp"
#include "part/protocol/slots.hpp"

namespace larklane::part {

template <class P>
class SendSide {
 public:
  SendSide(BlockView<P> block, const BlockShape& shape)
      : block_(block),
        mode_(shape.mode),
        partitions_(shape.partitions),
        plans_(block_, shape),
        last_comer_(block_, plans_),
        slots_(block_, shape) {}
  SendSide(const SendSide&) = delete;
  SendSide& operator=(const SendSide&) = delete;

  /// Direct mode: sets the groups of all rounds, before the other side sees the block. Called again
  /// before start(r), it sets those of the rounds after r. @param boundaries  first partition of
  /// each group
  /// @errors kInvalidArgument: no groups, or more than the block was made for
  Status choose(std::span<const std::uint32_t> boundaries) { return plans_.choose(boundaries); }

  void start(std::uint64_t round) {
    // The other side's core has this line; Wait loads it to test whether the round before has been
    // read.
    __builtin_prefetch(&block_.header().moved_count);
    if (mode_ == Mode::slots) slots_.own_first(round);
    if (mode_ != Mode::direct) return;
    plans_.write(round + 1);
    last_comer_.clear(round + 1);
    last_comer_.own_first(round);
  }

  /// The state that Pready of one partition needs in `round`, in slot mode and in direct mode.
  SlotWindow<P> slot_window(std::uint64_t round) const { return slots_.window(round); }
  WordWindow<P> word_window(std::uint64_t round) const { return last_comer_.window(round); }

  /// Pready of a run.
  /// @param mover  direct mode: move(Run), for runs that the caller moves now; slots: fill(slot,
  /// offset, length)
  template <class Mover>
  Status mark(std::uint64_t round, Run run, Mover& mover) const {
    if (mode_ == Mode::slots)
      return slots_.mark(round, run, [&](auto... where) { mover.fill(where...); });
    return last_comer_.mark(round, run.first, run.count, [&](Run moved) { mover.move(moved); });
  }

  /// Has the receiver started `round`, so that no mark of it waits for that? Once the round is
  /// complete the answer may be false. @pre the round is not over here
  bool is_open(std::uint64_t round) const {
    return mode_ == Mode::slots ? slots_.is_open(round) : last_comer_.is_open(round);
  }

  /// May the program overwrite every byte of the round?
  bool complete(std::uint64_t round) {
    return mode_ == Mode::slots ? slots_.complete(round) : rounds_moved(block_, partitions_, round);
  }

  const BlockView<P>& block() const noexcept { return block_; }
  const LastComer<P>& last_comer() const noexcept { return last_comer_; }
  SlotWriter<P>& slots() noexcept { return slots_; }
  Mode mode() const noexcept { return mode_; }

 private:
  BlockView<P> block_;
  Mode mode_;
  std::uint32_t partitions_;
  Plans<P> plans_;
  LastComer<P> last_comer_;
  SlotWriter<P> slots_;
};

template <class P>
class RecvSide {
 public:
  RecvSide(BlockView<P> block, const BlockShape& shape, std::uint32_t recv_partitions)
      : block_(block),
        mode_(shape.mode),
        partitions_(shape.partitions),
        arrival_(block_, shape.partitions, recv_partitions),
        plans_(block_, shape),
        last_comer_(block_, plans_),
        slots_(block_, shape) {}
  RecvSide(const RecvSide&) = delete;
  RecvSide& operator=(const RecvSide&) = delete;

  /// Start: the buffer may be written.
  /// @param mover  move(Run): direct mode, for runs that the caller moves now
  /// @errors kProtocol: the sender's plan for the round is malformed; nothing is open
  template <class Mover>
  Status open(std::uint64_t round, Mover& mover) {
    if (mode_ == Mode::direct) {
      LARKLANE_TRY(plans_.read(round));
      last_comer_.open(round, [&](Run run) { mover.move(run); });
    } else {
      // release: pairs with SlotWriter::is_open()'s acquire.
      block_.header().opened_round.store(round, std::memory_order_release);
    }
    return {};
  }

  /// Slots: no push begins from now on.
  void shut() {
    // release: pairs with SlotWriter::is_open()'s acquire.
    block_.header().opened_round.store(0, std::memory_order_release);
  }

  /// By receive partition: mark_of(round) once it has arrived. Null: call arrived().
  const auto* marks() const noexcept { return arrival_.marks(); }

  /// Has receive partition `partition` arrived?
  /// @param mover  empty(slot, offset, length): slots, copies out
  template <class Mover>
  bool arrived(std::uint64_t round, std::uint32_t partition, Mover& mover) {
    if (mode_ == Mode::slots) slots_.drain(round, arrival_.covering(partition), emptier(mover));
    return arrival_.arrived(round, partition);
  }

  /// Direct mode: the receiver needs receive partition `partition` now. May come after the end of
  /// `round`.
  /// @param mover  move(Run): for runs that the caller moves now
  template <class Mover>
  void ask(std::uint64_t round, std::uint32_t partition, Mover& mover) const {
    last_comer_.ask(round, arrival_.covering(partition), [&](Run run) { mover.move(run); });
  }

  bool all_arrived(std::uint64_t round) const { return arrival_.all_arrived(round); }

  /// Is every byte of the round in the buffer?
  template <class Mover>
  bool complete(std::uint64_t round, Mover& mover) {
    if (mode_ == Mode::direct) return rounds_moved(block_, partitions_, round);
    slots_.drain_all(round, emptier(mover));
    if (!all_arrived(round)) return false;
    slots_.end_round(round);
    // release: every slot has been read; pairs with rounds_moved() in SlotWriter::complete().
    block_.header().moved_count.store(round * partitions_, std::memory_order_release);
    return true;
  }

  /// Another thread is copying slots out: the round is neither complete nor failed, even if the
  /// sender is gone.
  bool reading(std::uint64_t round) const { return mode_ == Mode::slots && slots_.reading(round); }

  const BlockView<P>& block() const noexcept { return block_; }
  const LastComer<P>& last_comer() const noexcept { return last_comer_; }
  Mode mode() const noexcept { return mode_; }

 private:
  template <class Mover>
  static auto emptier(Mover& mover) {
    return [&mover](const std::byte* slot, std::uint64_t offset, std::uint64_t length) {
      mover.empty(slot, offset, length);
    };
  }

  BlockView<P> block_;
  Mode mode_;
  std::uint32_t partitions_;
  Arrival<P> arrival_;
  Plans<P> plans_;
  LastComer<P> last_comer_;
  SlotReader<P> slots_;
};

}  // namespace larklane::part
