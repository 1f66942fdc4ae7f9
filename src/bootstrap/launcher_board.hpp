#pragma once
// The cards of the processes of one MPI world, through their launcher. The exchange that carries
// them is the one that every MPI makes in its own initialisation, so no process waits for one
// without Larklane, and no message of the MPI is sent (ADR 0016). No MPI call.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace larklane::boot {

/// Thread safety: single-owner. The MPI does not talk to the launcher at the same time.
class LauncherBoard {
 public:
  /// As the launcher says; false: one host, or it does not say.
  static bool spans_hosts();
  /// PMI-1 of Hydra or Flux, or PMIx. Null: the launcher speaks neither, or there is nothing to
  /// tell: the world is one process or, but for Hydra, on one host.
  static std::unique_ptr<LauncherBoard> open();
  virtual ~LauncherBoard() = default;
  /// By this name all processes of the world know it, and no other; empty: the launcher's own name
  /// is the same everywhere.
  virtual std::string world() const { return {}; }
  /// Before the MPI's own initialisation. @param text  kCardBytesMax at most
  /// @return false: no process will see it
  virtual bool put(const std::string& text) = 0;
  /// For a process that has no MPI: its part of that exchange. false: this launcher has none for
  /// it.
  virtual bool meet() { return false; }
  /// After it. @return by rank; empty: that one has put none, or nothing came within `wait_ns`
  virtual std::vector<std::string> get_all(int ranks, std::uint64_t wait_ns) = 0;
};

/// What the stub calls before PMIx_Commit. Thread-safe.
void put_before_commit();

}  // namespace larklane::boot
