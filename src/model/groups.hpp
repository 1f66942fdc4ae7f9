#pragma once
// Into how many equal groups partitions are put, as policies of aggregation choose it: from 1 to
// as many as there are partitions. Pure functions.

#include <cstdint>

#include "model/tuning.hpp"

namespace larklane::model {

/// Table I of the PLogGP paper as a formula: sqrt(bytes / 192 KiB), of the powers of two the one
/// that is nearest in log2. 1 group up to 256 KiB, 2 from 512 KiB, 32 at 128 MiB.
/// @param partitions  >= 1, here and below
std::uint32_t ruled_groups(std::uint32_t partitions, std::uint64_t partition_bytes);

/// Of 1, 2, 4, ... and as many as there are partitions the best, says PLogGP for a last partition
/// that is `delay_ns` late and others that are there at once.
/// @param tuning  null or without ranges: ruled_groups()
std::uint32_t modelled_groups(const Tuning* tuning, std::uint32_t partitions,
                              std::uint64_t partition_bytes, double delay_ns);

/// The groups that a search found. @param tuning  null or without a fitting entry: ruled_groups()
std::uint32_t tabled_groups(const Tuning* tuning, std::uint32_t partitions,
                            std::uint64_t partition_bytes);

/// The queue pairs that a search found. @param tuning  null, or without a fitting entry: 0
std::uint32_t tabled_queues(const Tuning* tuning, std::uint32_t partitions,
                            std::uint64_t partition_bytes);

}  // namespace larklane::model
