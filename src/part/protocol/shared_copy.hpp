#pragma once
// Shared copies: large runs in pieces, which waiting threads of both sides copy. So no Pready or
// Start copies a large run alone.
//
// Thread safety: thread-safe.
// Invariants:
// 1. A piece is taken once: `next` carries the job's generation, and a refill first makes `next`
// exhausted under a new generation.
// 2. The thread that finishes the last piece frees the job, then publishes the run. It touches
// nothing of the channel after that.
// 3. `open_jobs` is never lower than the number of jobs with pieces left, so a poll that reads 0
// misses no piece that it must copy.

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/status.hpp"
#include "part/protocol/block.hpp"
#include "part/protocol/layout.hpp"
#include "shm/copy.hpp"

namespace larklane::part {

using shm::Piece;  ///< of a run

/// A piece that a thread has taken. Its job stays as it is until the piece is done.
struct TakenPiece {
  std::uint32_t job;
  std::uint32_t index;
};

/// Next step for a piece that this side can't copy.
enum class Passed : std::uint8_t {
  with_rest,  ///< the other side copies it, and the rest of the job
  alone,      ///< the other side copies it alone: this side goes on with the rest
};

template <class P>
class SharedCopy {
 public:
  SharedCopy(JobBoard<P>& board, std::uint64_t partition_bytes, std::uint64_t piece_bytes) noexcept
      : board_(board), partition_bytes_(partition_bytes), piece_bytes_(piece_bytes) {}

  /// Offers `run` to all waiting threads, in pieces of about piece_bytes, at least two. False: it
  /// is too small, or all jobs are taken, and the caller copies it alone.
  bool offer(Run run) const {
    const std::uint64_t bytes = run.count * partition_bytes_;
    if (bytes < piece_bytes_) return false;
    const std::uint64_t wanted = std::clamp<std::uint64_t>(bytes / piece_bytes_, 2, kPiecesMax);
    const std::uint64_t piece_bytes = (bytes + wanted - 1) / wanted;
    for (Job<P>& job : board_.jobs) {
      std::uint32_t free = 0;
      // acquire: pairs with finish()'s release. relaxed on failure: another job is tried.
      if (!job.taken.compare_exchange_strong(free, 1, std::memory_order_acquire,
                                             std::memory_order_relaxed))
        continue;
      // relaxed: this thread owns the job.
      const std::uint64_t generation = (job.next.load(std::memory_order_relaxed) >> 32) + 1;
      // relaxed, then release: a thread that sees a new field sees this value, too, so its claim of
      // an old piece fails.
      job.next.store(generation << 32 | kExhausted, std::memory_order_relaxed);
      job.first.store(run.first, std::memory_order_release);
      job.count.store(run.count, std::memory_order_release);
      job.pieces.store(static_cast<std::uint32_t>((bytes + piece_bytes - 1) / piece_bytes),
                       std::memory_order_release);
      job.piece_bytes.store(piece_bytes, std::memory_order_release);
      job.done.store(0, std::memory_order_release);
      // release: pairs with work()'s acquire of open_jobs; relaxed would do for the count itself.
      board_.open_jobs.fetch_add(1, std::memory_order_release);
      // release: the fields; pairs with take()'s acquire.
      job.next.store(generation << 32, std::memory_order_release);
      return true;
    }
    return false;
  }

  /// Are there pieces to copy? acquire: pairs with offer()'s release.
  bool has_jobs() const { return board_.open_jobs.load(std::memory_order_acquire) != 0; }

  /// Copies pieces as long as there are any. copy(Piece&) returns a Status and leaves the bytes
  /// that it has not copied. publish(Run) publishes a complete run. pass_on(TakenPiece, Run, bytes
  /// copied) hands over a piece that this side can't copy, and returns Passed.
  /// @return the first error; its piece stays undone, so its run is never published
  template <class Copy, class Publish, class PassOn>
  Status work(Copy&& copy, Publish&& publish, PassOn&& pass_on) const {
    if (!has_jobs()) return {};
    for (std::uint32_t j = 0; j < kJobs; ++j) {
      Claim claim;
      while (take(board_.jobs[j], claim)) {
        Piece left = claim.piece;
        const Status status = copy(left);
        if (status.ok()) {
          finish(board_.jobs[j], claim, publish);
          continue;
        }
        if (status.code() != Errc::kUnreachable) return status;
        if (pass_on(TakenPiece{j, claim.index}, claim.run, claim.piece.length - left.length) ==
            Passed::with_rest)
          return {};
      }
    }
    return {};
  }

  /// The bytes of a taken piece that is not done. nullopt: no such piece.
  std::optional<Piece> piece_of(TakenPiece taken) const {
    if (taken.job >= kJobs) return std::nullopt;
    const Claim claim = claim_of(board_.jobs[taken.job], taken.index);
    return taken.index < claim.pieces ? std::optional(claim.piece) : std::nullopt;
  }

  /// The other side has copied a piece that was passed on. @pre piece_of()
  template <class Publish>
  void finish(TakenPiece taken, Publish&& publish) const {
    Job<P>& job = board_.jobs[taken.job];
    finish(job, claim_of(job, taken.index), publish);
  }

 private:
  static constexpr std::uint32_t kExhausted = ~std::uint32_t{0};
  static constexpr std::uint64_t kPiecesMax = std::uint64_t{1} << 20;
  struct Claim {
    Piece piece;
    Run run;
    std::uint32_t pieces;
    std::uint32_t index;
  };

  /// acquire: pairs with offer()'s release: fields of a newer job come with a newer `next`. No
  /// piece if index >= pieces.
  Claim claim_of(const Job<P>& job, std::uint32_t index) const {
    Claim claim{};
    claim.index = index;
    claim.pieces = job.pieces.load(std::memory_order_acquire);
    claim.run = {job.first.load(std::memory_order_acquire),
                 job.count.load(std::memory_order_acquire)};
    const std::uint64_t piece_bytes = job.piece_bytes.load(std::memory_order_acquire);
    const std::uint64_t start = index * piece_bytes;
    const std::uint64_t bytes = claim.run.count * partition_bytes_;
    claim.piece = {claim.run.first * partition_bytes_ + start,
                   std::min(piece_bytes, bytes - start)};
    return claim;
  }

  bool take(Job<P>& job, Claim& claim) const {
    // acquire: pairs with offer()'s release.
    std::uint64_t next = job.next.load(std::memory_order_acquire);
    do {
      claim = claim_of(job, static_cast<std::uint32_t>(next));
      if (claim.index >= claim.pieces) return false;
      // acq_rel: one taker for each piece; acquire on failure: as the load above.
    } while (!job.next.compare_exchange_weak(next, next + 1, std::memory_order_acq_rel,
                                             std::memory_order_acquire));
    return true;
  }

  template <class Publish>
  void finish(Job<P>& job, const Claim& claim, Publish& publish) const {
    // acq_rel: the last thread has acquired the bytes of all the others, and publishing releases
    // them.
    if (job.done.fetch_add(1, std::memory_order_acq_rel) + 1 != claim.pieces) return;
    // relaxed: only a hint.
    board_.open_jobs.fetch_sub(1, std::memory_order_relaxed);
    // release: pairs with offer()'s acquire.
    job.taken.store(0, std::memory_order_release);
    publish(claim.run);
  }

  JobBoard<P>& board_;
  std::uint64_t partition_bytes_;
  std::uint64_t piece_bytes_;
};

}  // namespace larklane::part
