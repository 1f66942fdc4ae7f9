#include "shm/memory_room.hpp"

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string_view>

namespace larklane::shm {
namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

/// The number in a file that holds one number; none if it holds a word ("max") or is not there.
std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  if (!(file >> value)) return std::nullopt;
  return value;
}

/// Sum of the values behind `keys` in a file of lines "key value"; none if there is no such line.
std::optional<std::uint64_t> sum_in(const std::string& path,
                                    std::initializer_list<std::string_view> keys) {
  std::ifstream file(path);
  std::optional<std::uint64_t> sum;
  std::string key;
  for (std::uint64_t value = 0; file >> key >> value; file.ignore(256, '\n'))
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) sum = sum.value_or(0) + value;
  return sum;
}

/// The room under one group: limit - use + its reclaimable bytes.
std::uint64_t room_under(std::uint64_t limit, std::uint64_t used, std::uint64_t reclaimable) {
  const std::uint64_t held = used - std::min(used, reclaimable);
  return limit - std::min(limit, held);
}

std::uint64_t room_of_group(const std::string& folder, std::uint64_t swap_free) {
  const auto files = [&](std::initializer_list<std::string_view> keys) {
    return sum_in(folder + "/memory.stat", keys).value_or(0);
  };
  if (const auto limit = number_in(folder + "/memory.max")) {
    const std::uint64_t room = room_under(*limit, number_in(folder + "/memory.current").value_or(0),
                                          files({"active_file", "inactive_file"}));
    // none: as much as there is
    const std::uint64_t swap = number_in(folder + "/memory.swap.max").value_or(kUnlimited);
    const std::uint64_t swapped = number_in(folder + "/memory.swap.current").value_or(0);
    return room + std::min(swap_free, swap - std::min(swap, swapped));
  }
  if (const auto limit = number_in(folder + "/memory.limit_in_bytes"))
    return room_under(*limit, number_in(folder + "/memory.usage_in_bytes").value_or(0),
                      files({"total_active_file", "total_inactive_file"}));
  return kUnlimited;
}

/// The least that the group `path` under `root` and those above it leave. A path of another
/// namespace is not found, and then only the root counts, which is this container's group.
std::uint64_t room_of_groups(const std::string& root, std::string path, std::uint64_t swap_free) {
  std::uint64_t room = kUnlimited;
  for (;;) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    room = std::min(room, room_of_group(root + path, swap_free));
    if (path.empty()) return room;
    path.resize(path.find_last_of('/') + 1);
  }
}

}  // namespace

std::uint64_t memory_room_bytes(const std::string& proc, const std::string& cgroups) {
  std::uint64_t room = kUnlimited;
  std::ifstream machine(proc + "/meminfo");
  std::uint64_t available = 0;
  std::uint64_t swap_free = 0;
  std::string key;
  for (std::uint64_t kib = 0; machine >> key >> kib; machine.ignore(256, '\n')) {
    if (key == "MemAvailable:") available = kib * 1024;
    if (key == "SwapFree:") swap_free = kib * 1024;
  }
  if (available != 0) room = available + swap_free;

  std::ifstream groups(proc + "/self/cgroup");  // hierarchy:controllers:path
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty())
      room = std::min(room, room_of_groups(cgroups, path, swap_free));
    else if (("," + controllers + ",").find(",memory,") != std::string::npos)
      room = std::min(room, room_of_groups(cgroups + "/memory", path, swap_free));
  }
  return room;
}

}  // namespace larklane::shm
