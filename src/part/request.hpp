#pragma once
// A partitioned request as src/mpi holds it: its arguments, its state, the calls on it. Ids of
// MPI's rules are those of docs/user/conformance.md.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/context_id.hpp"
#include "base/copy_small.hpp"
#include "base/status.hpp"
#include "base/typemap.hpp"
#include "control/plane/plane.hpp"
#include "part/counters.hpp"
#include "part/protocol/block.hpp"
#include "part/protocol/slot_window.hpp"
#include "part/protocol/word_window.hpp"

namespace larklane::part {

/// One side of a pair. `partitions` >= 1; the total is partitions * count * type.size_bytes()
/// bytes.
struct InitArgs {
  ContextId context;
  std::int32_t source = 0;  ///< rank of the sender, in the group in which the receiver names it
  std::int32_t tag = 0;
  control::Address peer;   ///< the other side's process; own address for a self channel
  void* buffer = nullptr;  ///< never written for a send; may be null if the total is 0
  std::int32_t partitions = 1;
  std::uint64_t count = 0;  ///< elements per partition
  std::shared_ptr<const Typemap> type;
  std::string policy;  ///< empty: the option's; same form as option `policy`
};

enum class Kind : std::uint8_t { send, receive };
enum class Completion : std::uint8_t { pending, complete, failed };

class RoundWatch;
/// Pready of `partition` in a sampled round. Out of line: most rounds are not sampled.
void note_ready(RoundWatch& watch, std::uint32_t partition) noexcept;

/// A partitioned request, made by Engine, ended by Engine::free.
/// Thread safety: pready on disjoint partitions, parrived and arrival in other requests may run at
/// the same time on any threads (MPI 11.6; rules T1, T2). start, test and free: one thread at a
/// time.
class Request {
 public:
  virtual ~Request() = default;
  Kind kind() const noexcept { return kind_; }
  std::int32_t partitions() const noexcept { return partitions_; }
  std::uint64_t total_bytes() const noexcept { return total_bytes_; }
  /// From start to the test that returns another result than pending. relaxed: the caller orders
  /// start, use and completion of a request itself.
  bool active() const noexcept { return active_.load(std::memory_order_relaxed); }

  /// Begins a round. Local: never waits for the peer. @errors kAlreadyActive
  virtual Status start() = 0;
  /// Makes progress on this request and returns the state of its round; does not deactivate it.
  /// Never blocks. An inactive request is `complete`.
  virtual Completion poll() = 0;
  /// After `complete` or `failed`: the round is over, the request inactive.
  virtual void finish() = 0;
  /// The error after `failed`; includes sizes on both sides where they are known.
  virtual Status error() const noexcept = 0;
  /// One sentence for users: the peer, the expected and the actual state. Empty without an error.
  virtual std::string error_text() const = 0;
  RoundTotals totals() const noexcept {
    const std::uint64_t rounds = round() - (active() ? 1 : 0);
    return {rounds, rounds * total_bytes_, 0, 0};
  }

 protected:
  Request(Kind kind, std::int32_t partitions, std::uint64_t total_bytes) noexcept
      : kind_(kind), partitions_(partitions), total_bytes_(total_bytes) {}
  const Kind kind_;
  const std::int32_t partitions_;
  const std::uint64_t total_bytes_;
  std::atomic<bool> active_{false};
  /// The last one started. relaxed: the caller orders its own calls; the helper learns it from
  /// records.
  std::atomic<std::uint64_t> round_{0};
  std::uint64_t round() const noexcept { return round_.load(std::memory_order_relaxed); }
};

class SendRequest : public Request {
 public:
  using Request::Request;
  /// Marks partitions [first, first + count) ready. Never blocks, never allocates. An error before
  /// the first mark changes nothing; a double mark harms no other partition.
  /// @errors kNotActive, kInvalidArgument (range), kAlreadyReady
  virtual Status pready(std::int32_t first, std::int32_t count) = 0;
  /// The same for one partition. Inline for a slot, and for a mark that does not complete its
  /// group.
  [[gnu::always_inline]] Status pready(std::int32_t partition) {
    const auto index = static_cast<std::uint32_t>(partition);
    if (has_slot(index)) [[likely]]
      return fill_slot(index);
    if (has_word(index)) return mark_word(index);
    // relaxed: as in has_slot().
    if (index >= watched_words_.load(std::memory_order_relaxed)) return pready(partition, 1);
    note_ready(*watch_, index);
    return mark_word(index);
  }

  /// Is the receiver's buffer of the active round ready, so that no Pready of it has to ask? Makes
  /// progress if not. Never blocks. Any thread, between Start and the call that ends the round.
  /// @param[out] is_ready  false may also mean that the round is about to be complete
  /// @errors kNotActive, and those of error(): the buffer never becomes ready
  /// @cost one load of a word that the receiver writes, if it is ready
  virtual Status look_for_receiver(bool* is_ready) = 0;

  // The steps of pready(), for callers that treat each differently. relaxed: Start wrote both, and
  // the program orders Start before its Pready.
  bool has_slot(std::uint32_t index) const noexcept {
    return index < open_slots_.load(std::memory_order_relaxed);
  }
  /// Not in a sampled round.
  bool has_word(std::uint32_t index) const noexcept {
    return index < open_words_.load(std::memory_order_relaxed);
  }
  [[gnu::always_inline]] Status fill_slot(std::uint32_t index) {
    return slots_.mark_one(index,
                           [this](std::byte* slot, std::uint64_t offset, std::uint64_t length) {
                             copy_small(slot, contiguous_from_ + offset, length);
                           });
  }
  [[gnu::always_inline]] Status mark_word(std::uint32_t index) {
    return words_.mark_one(index, [this, index](const Cell& cell, std::uint64_t old) {
      mark_further(cell, index, old);
    });
  }

 protected:
  /// WordWindow::mark_one()'s `further`, of a request that opens words.
  virtual void mark_further(const Cell& cell, std::size_t partition, std::uint64_t old) = 0;
  /// In Start and finish: `count` partitions may be marked through words_.
  void open_words(std::uint32_t count) noexcept {
    // relaxed: the caller orders its own calls.
    open_words_.store(watch_ == nullptr ? count : 0, std::memory_order_relaxed);
    watched_words_.store(watch_ == nullptr ? 0 : count, std::memory_order_relaxed);
  }

  const std::byte* contiguous_from_ = nullptr;  ///< the buffer; null if strided or empty
  // Of the active round.
  SlotWindow<RealPlatform> slots_;
  WordWindow<RealPlatform> words_;
  std::atomic<std::uint32_t> open_slots_{0};  ///< partitions that slots_ can mark
  RoundWatch* watch_ = nullptr;               ///< of a sampled round; else null

 private:
  std::atomic<std::uint32_t> open_words_{0}, watched_words_{0};  ///< partitions for words_
};

class RecvRequest : public Request {
 public:
  using Request::Request;
  /// @param[out] arrived  true on an inactive request (rule P2), or if every byte of the partition
  /// is in the buffer.
  /// @errors kInvalidArgument (range), and those of error()
  [[gnu::always_inline]] Status parrived(std::int32_t partition, bool* arrived) {
    if (has_mark(static_cast<std::uint32_t>(partition))) [[likely]] {
      *arrived = true;
      return {};
    }
    return look(partition, arrived);
  }

  // The steps of parrived(), for callers that treat each differently.
  [[gnu::always_inline]] bool has_mark(std::uint32_t index) const noexcept {
    // acquire: pairs with the match's release of `arrival_marks_`, and with the mark's of the
    // bytes. relaxed: written by Start, which the program orders before its Parrived.
    return index < marks_count_.load(std::memory_order_acquire) &&
           arrival_marks_[index].load(std::memory_order_acquire) ==
               round_mark_.load(std::memory_order_relaxed);
  }
  /// parrived() without an arrival mark.
  virtual Status look(std::int32_t partition, bool* arrived) = 0;

 protected:
  /// By partition, if the send has the same ones: the mark of its last arrival.
  const std::atomic<std::uint8_t>* arrival_marks_ = nullptr;
  std::atomic<std::uint32_t> marks_count_{0};
  std::atomic<std::uint8_t> round_mark_{0};  ///< of the last round started
};

}  // namespace larklane::part
