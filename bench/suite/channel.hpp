#pragma once
// One partitioned message from rank 0 to rank 1, round by round, for benchmarks that time single
// calls.

#include <mpi.h>

#include <cstdint>
#include <span>

#include "buffer.hpp"
#include "measure/options.hpp"
#include "partitioned.hpp"
#include "payload.hpp"
#include "turns.hpp"
#include "wait.hpp"

namespace larklane::bench {

/// Construction and all calls are collective over both ranks. Thread safety: single-owner.
class Channel {
 public:
  Channel(const Options& options, std::uint64_t bytes)
      : partitions_(static_cast<int>(options.send_partitions())), buffer_(bytes) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    is_sender_ = rank == 0;
    request_ = make_partitioned(
        {buffer_.data(), bytes, options.send_partitions(), is_sender_ ? 1 : 0, kTag, is_sender_});
  }
  ~Channel() { MPI_Request_free(&request_); }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  bool is_sender() const { return is_sender_; }
  int partitions() const { return partitions_; }
  MPI_Request& request() { return request_; }
  std::uint64_t round() const { return round_; }
  std::uint64_t part_bytes() const {
    return buffer_.span().size() / static_cast<std::uint64_t>(partitions_);
  }

  /// Begins a round with the next payload.
  void begin() {
    ++round_;
    if (is_sender_) fill(buffer_.span(), 0, round_);
  }
  void mark(int first, int last) {
    if (first == last)
      MPI_Pready(first, request_);
    else if (first < last)
      MPI_Pready_range(first, last, request_);
  }
  void wait() { MPI_Wait(&request_, MPI_STATUS_IGNORE); }
  /// Wrong words of the first partition, or of all.
  /// @return 0 at the sender
  std::uint64_t wrong_in_first() const { return wrong_in(part_bytes()); }
  std::uint64_t wrong_in_all() const { return wrong_in(buffer_.span().size()); }

  /// Holds back the last partition and writes it only then: no side may be complete before.
  void guard(Series* series) {
    begin();
    const std::uint64_t held = buffer_.span().size() - part_bytes();
    if (is_sender_) fill(buffer_.span().subspan(held), held, round_ - 1);
    MPI_Start(&request_);
    MPI_Barrier(MPI_COMM_WORLD);
    std::uint64_t claims = 0;
    if (is_sender_) mark(0, partitions_ - 2);
    while_held([&] { claims += is_complete(request_); });
    MPI_Barrier(MPI_COMM_WORLD);
    if (is_sender_) {
      fill(buffer_.span().subspan(held), held, round_);
      mark(partitions_ - 1, partitions_ - 1);
    }
    wait();
    judge_held_back(claims, wrong_in_all(), series);
  }

 private:
  static constexpr int kTag = 13;

  std::uint64_t wrong_in(std::uint64_t bytes) const {
    return is_sender_ ? 0 : wrong_words(buffer_.span().first(bytes), 0, round_);
  }

  const int partitions_;
  Buffer buffer_;
  bool is_sender_ = false;
  MPI_Request request_ = MPI_REQUEST_NULL;
  std::uint64_t round_ = 0;
};

/// The sum of both ranks' results of a round: a figure that one of them has, and the wrong words.
struct OfRound {
  double value = 0;
  double wrong = 0;
};
inline OfRound sum_of_both(OfRound mine) {
  MPI_Allreduce(MPI_IN_PLACE, &mine, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return mine;
}

}  // namespace larklane::bench
