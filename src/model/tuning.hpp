#pragma once
// Measured figures of a type of host, for aggregation policies: a text of lines
// (docs/user/tuning.md). Pure functions.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "model/loggp.hpp"

namespace larklane::model {

/// Hosts that are taken to be alike.
struct HostType {
  std::string cpu;  ///< its model
  std::uint32_t cores = 0;
  friend bool operator==(const HostType&, const HostType&) = default;

  /// Of letters, digits and '-', for the name of a file.
  std::string key() const;
};
/// @param cpuinfo  the text of /proc/cpuinfo: cores of the host, not only those of this process
/// @param machine  uname's name of the machine, where cpuinfo names no model
HostType host_type_of(std::string_view cpuinfo, std::string_view machine);

/// Thread safety: immutable.
struct Tuning {
  /// Messages of these sizes follow LogGP with these parameters.
  struct Range {
    std::uint64_t first_bytes = 0, last_bytes = 0;
    LogGP network;
  };
  /// The best number of equal groups that a search has found, and of queue pairs.
  struct Entry {
    std::uint32_t partitions = 0;
    std::uint64_t bytes = 0;  ///< of the whole message
    std::uint32_t groups = 0;
    std::uint32_t queues = 0;  ///< 0: not searched
  };
  static constexpr std::uint32_t kQueuesMax = 16;

  std::string fabric;
  HostType host;
  std::string measured;        ///< when and how the ranges were measured; empty: there are none
  std::vector<Range> ranges;   ///< ascending, disjoint
  std::string searched;        ///< when and how the entries were found; empty: there are none
  std::vector<Entry> entries;  ///< ascending by partitions, then bytes

  /// @param problem  set on failure: the line and its problem
  /// @errors kInvalidArgument
  static Result<Tuning> parse(std::string_view text, std::string* problem);
  /// A text that parse() reads. No text of it may have line ends.
  std::string print() const;

  /// Of the range that has `bytes`, or is nearest; null: there is none.
  const LogGP* network_of(std::uint64_t bytes) const noexcept;
  /// For as many partitions and the largest size that is not above `bytes`; null: there is none.
  const Entry* entry_of(std::uint32_t partitions, std::uint64_t bytes) const noexcept;
  /// The entry's groups.
  std::optional<std::uint32_t> groups_of(std::uint32_t partitions,
                                         std::uint64_t bytes) const noexcept;
};

/// Of any version: may it be replaced by another one?
bool is_tuning(std::string_view text) noexcept;

}  // namespace larklane::model
