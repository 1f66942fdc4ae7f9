#pragma once
// What the processes of one world tell each other through their launcher. The exchange that carries
// it is the one that every MPI makes in its own initialisation, so nobody waits for a process
// without Larklane, and no message of the MPI is sent (ADR 0016). No MPI call.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace larklane::mpi {

/// Thread safety: single-owner. The MPI does not talk to the launcher at the same time.
class LauncherBoard {
 public:
  /// As the launcher says; false: one host, or it does not say.
  static bool spans_hosts();
  /// Hydra's PMI-1, or PMIx. Null: the launcher is neither, or there is nothing to tell: the world
  /// is one process or, with PMIx, on one host.
  static std::unique_ptr<LauncherBoard> open();
  virtual ~LauncherBoard() = default;
  /// By this name all processes of the world know it, and no other; empty: the launcher's own name
  /// is the same everywhere.
  virtual std::string world() const { return {}; }
  /// Before the MPI's own initialisation. @param text  without blanks, kTextBytesMax at most
  /// @return false: nobody will see it
  virtual bool put(const std::string& text) = 0;
  /// For a process that has no MPI: its part of that exchange. false: this launcher has none for
  /// it.
  virtual bool meet() { return false; }
  /// After it. @return by rank; empty: that one has put none, or nothing came within `wait_ns`
  virtual std::vector<std::string> get_all(int ranks, std::uint64_t wait_ns) = 0;

  static constexpr std::size_t kTextBytesMax = 800;  // PMI-1: lines of 1024
};

std::unique_ptr<LauncherBoard> open_pmi_board();
std::unique_ptr<LauncherBoard> open_pmix_board();
/// What the stub calls before PMIx_Commit. Thread-safe.
void put_before_commit();

}  // namespace larklane::mpi
