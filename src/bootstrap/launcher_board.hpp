#pragma once
// The launcher's board carries the cards of one MPI world's processes. It uses the exchange that
// every MPI makes in its own initialisation. So no process waits for a process without Larklane,
// and the MPI sends no extra message (ADR 0016). The board makes no MPI call.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace larklane::boot {

/// Thread safety: single-owner. The MPI makes no call to the launcher at the same time.
class LauncherBoard {
 public:
  /// True: the launcher states that the job has several hosts. False: one host, or no statement.
  static bool spans_hosts();
  /// By PMI-1 of Hydra or Flux, or by PMIx. Null: the launcher speaks neither, or cards add
  /// nothing. They add nothing to a world of one process or, except under Hydra, on one host.
  static std::unique_ptr<LauncherBoard> open();
  virtual ~LauncherBoard() = default;
  /// A name that all processes of the world share, and no other process. Empty: the launcher's own
  /// name is the same everywhere.
  virtual std::string world() const { return {}; }
  /// Comes before the MPI's own initialisation. @param text  at most kCardBytesMax
  /// @return false: no process will get it
  virtual bool put(const std::string& text) = 0;
  /// A process without an MPI takes part in the exchange by this call. false: this launcher has no
  /// exchange for it.
  virtual bool meet() { return false; }
  /// Comes after the exchange. @return by rank; empty: the rank has put none, or none came within
  /// `wait_ns`
  virtual std::vector<std::string> get_all(int ranks, std::uint64_t wait_ns) = 0;
};

/// The stub calls it before PMIx_Commit. Thread-safe.
void put_before_commit();

}  // namespace larklane::boot
