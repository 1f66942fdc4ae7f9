#include "bootstrap/launcher_board.hpp"

#include <charconv>
#include <optional>
#include <utility>

#include "base/config.hpp"

namespace larklane::mpi {
namespace {

std::optional<int> count_in(const char* variable) {
  const std::string text = environment(variable);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

// Hydra's and Open MPI's own counts before those of the job in which they may have been started.
bool LauncherBoard::spans_hosts() {
  for (const auto& [all, here] : {std::pair{"PMI_SIZE", "MPI_LOCALNRANKS"},
                                  {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"}}) {
    const auto count = count_in(all), local = count_in(here);
    if (count && local) return *local < *count;
  }
  return count_in("SLURM_STEP_NUM_NODES").value_or(1) > 1;
}

std::unique_ptr<LauncherBoard> LauncherBoard::open() {
  // On one host PMIx itself wants one user and one network namespace: cards would tell nothing.
  if (!environment("PMIX_NAMESPACE").empty()) return spans_hosts() ? open_pmix_board() : nullptr;
  // Hydra's; others (Slurm's PMI-2) speak something else on a descriptor of the same name.
  if (count_in("MPI_LOCALNRANKS") && count_in("PMI_SIZE").value_or(1) > 1) return open_pmi_board();
  return nullptr;
}

}  // namespace larklane::mpi
