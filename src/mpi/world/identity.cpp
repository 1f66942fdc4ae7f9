#include "mpi/world/identity.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>

#include "base/config.hpp"
#include "base/parse.hpp"
#include "base/secret.hpp"
#include "mpi/world/context_id.hpp"

namespace larklane::mpi {
namespace {

/// Longest name of a job in an address; a longer one is hashed.
constexpr std::size_t kJobNameBytesMax = 40;

std::optional<int> number(const std::string& text) {
  const auto value = number_of<int>(text);
  return value.value_or(-1) < 0 ? std::nullopt : value;
}

std::optional<int> rank_from(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const auto rank = number(environment(name))) return rank;
  }
  return std::nullopt;
}

/// The id of a process with its start time (proc(5), field 22 of stat), which distinguishes it from
/// a later process with the same id.
std::string process_name(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  std::size_t at = stat.rfind(')');
  for (int field = 2; field < 22 && at != std::string::npos; ++field) at = stat.find(' ', at + 1);
  if (at == std::string::npos) return std::to_string(pid);
  return std::to_string(pid) + "-" + stat.substr(at + 1, stat.find(' ', at + 1) - at - 1);
}

/// A job name for hydra, which gives no job id: on one host all its processes connect to one proxy,
/// over a socket pair or a local socket.
std::optional<std::string> proxy_of(const std::string& pmi_fd) {
  const auto fd = number(pmi_fd);
  ucred peer{};
  socklen_t length = sizeof peer;
  if (!fd || getsockopt(*fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.pid <= 0) {
    return std::nullopt;
  }
  return "hydra-" + process_name(peer.pid);
}

}  // namespace

Job job_named(const std::string& name) {
  const bool is_plain =
      name.size() <= kJobNameBytesMax &&
      std::all_of(name.begin(), name.end(), [](unsigned char letter) {
        return std::isalnum(letter) != 0 ||
               std::string_view(".@_-").find(static_cast<char>(letter)) != std::string_view::npos;
      });
  return std::make_shared<const std::string>(
      is_plain ? name : "h" + text_of(ContextHash(Origin::world).add(std::string_view(name)).id()));
}

Identity Identity::of_this_process(const Birth* birth) {
  const std::string pmix = environment("PMIX_NAMESPACE");
  const auto pmix_rank = rank_from({"PMIX_RANK", "OMPI_COMM_WORLD_RANK"});
  const auto rank = rank_from({"PMI_RANK", "SLURM_PROCID", "LARKLANE_RANK"});
  const bool has_pmix = !pmix.empty() && pmix_rank;
  if (birth != nullptr) {
    if (!has_pmix && !rank) return {};
    return {birth->job, has_pmix ? *pmix_rank : *rank};
  }
  if (has_pmix) return {job_named("pmix-" + pmix), *pmix_rank};

  // Worlds that a program spawns have the same proxy, but their own ranks.
  const bool is_spawned = environment("PMI_SPAWNED") == "1";
  const auto proxy = proxy_of(environment("PMI_FD"));
  if (proxy && rank) return {is_spawned ? nullptr : job_named(*proxy), *rank};

  const std::string slurm = environment("SLURM_JOB_ID");
  const std::string step = environment("SLURM_STEP_ID");
  if (!slurm.empty() && !step.empty() && rank) {
    return {job_named("slurm-" + slurm + "-" + step), *rank};
  }
  const std::string own = environment("LARKLANE_JOB");
  if (!own.empty() && rank) return {job_named("own-" + public_name(own, "larklane job")), *rank};
  if (rank) return {nullptr, *rank};
  return {job_named("single-" + process_name(getpid())), 0};
}

control::Address address_named(const std::string& rest) {
  return std::string("larklane.") + LARKLANE_VERSION + "." + std::to_string(getuid()) + "." + rest;
}

control::Address address_of(const Member& member) {
  return address_named(*member.job + "." + std::to_string(member.rank));
}

}  // namespace larklane::mpi
