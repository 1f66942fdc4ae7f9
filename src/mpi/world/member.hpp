#pragma once
// Processes of any world, named by the world's job and the rank in it. No MPI call.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "part/engine.hpp"

namespace larklane::mpi {

/// Name of a world's job: letters, digits and `.@_-`. Shared by its members; null: not known.
using Job = std::shared_ptr<const std::string>;

/// Thread safety: immutable.
struct Member {
  Job job;
  int rank = -1;  ///< in the MPI_COMM_WORLD of that job
  bool is_known() const noexcept { return job != nullptr; }
};

/// True if the job of each member is known.
bool all_known(std::span<const Member> members) noexcept;

/// `0-3,7@job+0@other`: in order, ascending neighbours of one job as a range. All must be known.
std::string text_of(std::span<const Member> members);
/// Empty if the text is not of that form, or names more than a million processes.
std::optional<std::vector<Member>> members_of_text(std::string_view text);

/// Processes of other worlds, and the recipe of the intercommunicator with them.
/// Thread safety: immutable.
struct Meeting {
  ContextId recipe;  ///< of the intercommunicator between both
  std::vector<Member> others;

  /// `recipe:others`, without blanks.
  std::string text() const;
  static std::optional<Meeting> of_text(std::string_view text);
};

/// The parents' message to a world that they spawn. It takes precedence over the world's launcher.
/// Thread safety: immutable.
struct Birth {
  Job job;
  Meeting with_parents;

  /// `job:recipe:parents`, without blanks.
  std::string text() const;
  static std::optional<Birth> of_text(std::string_view text);
};

/// 32 hexadecimal digits.
std::string text_of(const ContextId& id);

}  // namespace larklane::mpi
