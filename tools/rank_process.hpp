#pragma once
// One process of a launch, and the group in which all are. Thread safety: single-owner.

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace larklane::tools {

/// The process group of all ranks and their children. Its leader does nothing but wait for the end
/// of this process, however it comes: then it kills the group. So nothing outlives a launch, apart
/// from processes that leave the group.
class RankGroup {
 public:
  /// @errors kSystem: no pipe, or no process
  static Result<std::unique_ptr<RankGroup>> create();
  ~RankGroup();  ///< kills the group
  RankGroup(const RankGroup&) = delete;

  pid_t id() const noexcept { return leader_; }
  void signal(int number) const noexcept;

 private:
  RankGroup(pid_t leader, UniqueFd life) noexcept : leader_(leader), life_(std::move(life)) {}

  const pid_t leader_;
  UniqueFd life_;  ///< the leader sees it close
};

struct RankProcess {
  pid_t pid = 0;
  UniqueFd input;           ///< to its standard input, non-blocking; none: it has another
  UniqueFd output, errors;  ///< of the process, non-blocking

  enum class Input { none, own, forwarded };  ///< own: that of this process
  struct Start {
    const std::vector<std::string>& command;
    const std::vector<std::pair<std::string, std::string>>& variables;  ///< empty: removed
    Input input;
    const RankGroup& group;
  };
  /// @return an errno: that of execvp or of an earlier call; 0: it runs
  int start(const Start& how);
};

}  // namespace larklane::tools
