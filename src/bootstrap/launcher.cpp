#include "bootstrap/launcher.hpp"

#include <sys/socket.h>

#include <utility>

#include "base/config.hpp"
#include "base/parse.hpp"

namespace larklane::boot {
namespace {

bool is_set(const char* variable) { return !environment(variable).empty(); }

bool is_socket(int fd) noexcept {
  int type = 0;
  socklen_t length = sizeof type;
  return ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0;
}

/// The variables of a launcher. A process of a job has `mark` and a number in `size`.
struct Row {
  const char* title;
  const char* mark;
  const char* rank;
  const char* size;
};
// The innermost first. SLURM_NTASKS does not count: batch scripts and shells of salloc have it.
constexpr Row kRows[] = {
    {"a launcher that speaks PMI", "PMI_SIZE", "PMI_RANK", "PMI_SIZE"},
    {"Open MPI's launcher", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"Flux", "FLUX_TASK_RANK", "FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
    {"PALS", "PALS_RANKID", "PALS_RANKID", "PALS_SIZE"},
    {"PALS", "PALS_RANKID", "PALS_RANKID", "PALS_LOCAL_SIZE"},
    {"srun", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
};

/// A launcher's own counts take precedence over the nodes of the job around it.
void find_hosts(Launcher* launcher) {
  for (const auto& [all, here] : {std::pair{"PMI_SIZE", "MPI_LOCALNRANKS"},
                                  {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"}}) {
    const auto count = number_in_environment(all), local = number_in_environment(here);
    if (!count || !local) continue;
    launcher->spans_hosts = *local < *count;
    launcher->ranks_here = local;
    return;
  }
  for (const auto& [mark, nodes] : {std::pair{"FLUX_TASK_RANK", "FLUX_JOB_NNODES"},
                                    {"SLURM_STEP_ID", "SLURM_STEP_NUM_NODES"}}) {
    const auto count = number_in_environment(nodes);
    if (!is_set(mark) || !count) continue;
    launcher->spans_hosts = *count > 1;
    if (*count == 1) launcher->ranks_here = launcher->size;
    return;
  }
}

}  // namespace

std::optional<int> number_in_environment(const char* variable) {
  return number_of<int>(environment(variable));
}

Launcher Launcher::of_environment() {
  Launcher launcher;
  const auto pmi_fd = number_in_environment("PMI_FD");
  const bool has_pmi = pmi_fd && is_socket(*pmi_fd);
  for (const Row& row : kRows) {
    const auto size = number_in_environment(row.size);
    if (!is_set(row.mark) || !size) continue;
    // A job of one process may have started another launcher, unless its own launcher still holds
    // the socket.
    const bool is_final = *size > 1 || has_pmi;
    if (!is_final && !launcher.title.empty()) continue;
    launcher.title = row.title;
    launcher.size_variable = row.size;
    launcher.size = *size;
    launcher.rank = number_in_environment(row.rank).value_or(-1);
    if (is_final) break;
  }
  if (is_set("PMIX_NAMESPACE"))
    launcher.speech = Speech::pmix;
  else if (has_pmi || (pmi_fd && launcher.size_variable == "PMI_SIZE"))
    launcher.speech = Speech::pmi;
  find_hosts(&launcher);
  launcher.is_hydra = is_set("MPI_LOCALNRANKS");
  launcher.is_flux = is_set("FLUX_TASK_RANK");
  return launcher;
}

}  // namespace larklane::boot
