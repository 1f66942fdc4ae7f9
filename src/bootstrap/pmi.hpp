#pragma once
// A client of PMI-1: lines of text on a socket that the process inherits (PMI_FD). Hydra (MPICH,
// Intel MPI), Slurm's plugin pmi2 and Flux speak it. The protocol: src/pmi in MPICH.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.hpp"
#include "bootstrap/board.hpp"

namespace larklane::boot {

/// Thread safety: single-owner.
// Invariants:
// 1. Each call ends at its deadline, even if the launcher sends bytes without end.
// 2. No call reads a byte beyond the answer: an MPI in this process uses the same socket later.
// 3. After a failed call all calls fail, since an answer may still arrive. A get() that finds no
// card does not count as failed.
class Pmi {
 public:
  /// @errors kProtocol: the launcher speaks another protocol; kSystem, kUnreachable as below.
  static Result<Pmi> open(std::uint64_t deadline_ns, std::string* problem);

  /// The launcher's name of the job, the same on all hosts.
  const std::string& job() const noexcept { return job_; }
  /// Puts this process's card. Other processes get it after barrier().
  /// @errors kProtocol: the launcher refuses it, or sends an invalid answer; kUnreachable with
  /// ETIMEDOUT: no answer by the deadline; kSystem: the connection has ended
  Status put(int rank, std::span<const std::byte> card, std::uint64_t deadline_ns,
             std::string* problem);
  /// The card that `rank` has put before a barrier; nothing: it has put none. @errors as put
  Result<std::optional<Card>> get(int rank, std::uint64_t deadline_ns, std::string* problem);
  /// Returns when all processes of the job have called it as often. @errors as put
  Status barrier(std::uint64_t deadline_ns, std::string* problem);
  /// A process that ends without this call counts as failed, and the launcher ends the others.
  void finalize(std::uint64_t deadline_ns);

 private:
  explicit Pmi(int fd) noexcept : fd_(fd) {}
  /// The value of `key`; empty: the launcher has none.
  Result<std::string> word(const std::string& key, std::uint64_t deadline_ns, std::string* problem);
  /// @param wanted  the answer's first word
  Result<std::string> ask(std::string line, std::string_view wanted, std::uint64_t deadline_ns,
                          std::string* problem);
  Result<std::string> answer(std::uint64_t deadline_ns, std::string* problem);
  Status give_up(Status status, const std::string& why, std::string* problem);

  int fd_;  ///< the launcher's; never closed
  std::string job_;
  Status status_;
  std::string why_;
};

}  // namespace larklane::boot
