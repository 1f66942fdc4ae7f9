#pragma once
// Aggregation policies: which send partitions are planned to travel together. Pure functions.

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "model/tuning.hpp"

namespace larklane::part {

/// Thread safety: immutable.
struct Policy {
  enum class Kind : std::uint8_t {
    none,
    single,
    static_count,
    min_bytes,
    table,
    ploggp,
    timer,
    learned
  };
  Kind kind = Kind::none;
  /// Groups, bytes per group (of `learned`, in its base), the last partition's delay in ns, or a
  /// deadline in ns.
  std::uint64_t argument = 0;
  const model::Tuning* tuning = nullptr;  ///< what `table` and `ploggp` ask; null: nothing is known

  /// @param text                `none`, `single`, `static:N`, `min_bytes`, `min_bytes:BYTES` (units
  /// K, M, G), `table`, `ploggp`, `ploggp:DELAY` (units ns, us, ms, s), `timer`, `timer:DEADLINE`
  /// or `learned`
  /// @param min_bytes_default   for `min_bytes` without a number, and for `learned`
  /// @errors kBadOption
  static Result<Policy> parse(std::string_view text, std::uint64_t min_bytes_default);

  /// Is `tuning` to be set before boundaries() is asked?
  bool asks_tuning() const noexcept { return kind == Kind::table || kind == Kind::ploggp; }

  /// From the first partition of a group that is ready on, in ns: how long it waits for the others.
  /// 0: for ever.
  std::uint64_t deadline_ns() const noexcept { return kind == Kind::timer ? argument : 0; }

  /// A receive partition that is asked for waits for no group.
  bool is_on_demand() const noexcept { return kind == Kind::learned; }

  /// First partition of every group, ascending, starting with 0; if they are `learned`, those that
  /// it begins with and falls back to.
  /// @param partitions       >= 1
  /// @param partition_bytes  size of one partition
  std::vector<std::uint32_t> boundaries(std::uint32_t partitions,
                                        std::uint64_t partition_bytes) const;
};

}  // namespace larklane::part
