#pragma once
// A client of PMI-1: lines of text on a socket that the process has inherited (PMI_FD). Spoken by
// Hydra (MPICH, Intel MPI), by Slurm's plugin pmi2 and by Flux. The protocol: src/pmi in MPICH.

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
// 1. Each call ends at its deadline, whatever the launcher sends.
// 2. No byte beyond the answer is read: an MPI in this process uses the same socket later.
// 3. After a call that failed, but for a launcher's own "no", all calls fail: an answer may still
// be on its way.
class Pmi {
 public:
  /// @errors kProtocol: the launcher speaks something else; kSystem, kUnreachable as below.
  static Result<Pmi> open(std::uint64_t deadline_ns, std::string* problem);

  /// The launcher's name of the job, the same on all hosts.
  const std::string& job() const noexcept { return job_; }
  /// What this process says of itself. Others see it after barrier().
  /// @errors kProtocol: the launcher does not take it, or sends nonsense; kUnreachable with
  /// ETIMEDOUT: no answer by the deadline; kSystem: the connection has ended
  Status put(int rank, std::span<const std::byte> card, std::uint64_t deadline_ns,
             std::string* problem);
  /// What `rank` has put before a barrier; nothing: it has put none. @errors as put
  Result<std::optional<Card>> get(int rank, std::uint64_t deadline_ns, std::string* problem);
  /// Returns when all processes of the job have called it as often. @errors as put
  Status barrier(std::uint64_t deadline_ns, std::string* problem);
  /// A process that ends without it counts as failed, and the launcher ends the others.
  void finalize(std::uint64_t deadline_ns);

 private:
  explicit Pmi(int fd) noexcept : fd_(fd) {}
  /// Empty: the launcher has no such word.
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
