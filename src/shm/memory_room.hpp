#pragma once
// How much memory may be taken before the kernel starts to kill processes for it.

#include <cstdint>
#include <string>

namespace larklane::shm {

/// Bytes that this process could still fill: the machine's available memory, swap included, or the
/// room under the memory control groups above this process, whichever is less. The largest value
/// where the system does not tell. Other processes may take the same bytes at the same time.
/// @param proc, cgroups  where procfs and the control groups are mounted
std::uint64_t memory_room_bytes(const std::string& proc = "/proc",
                                const std::string& cgroups = "/sys/fs/cgroup");

}  // namespace larklane::shm
