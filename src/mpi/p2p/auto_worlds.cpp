#include "mpi/p2p/auto_worlds.hpp"

#include <algorithm>
#include <array>

namespace larklane::mpi::p2p {
namespace {

struct Entry {
  std::string_view title, level;
};

constexpr std::array kEntries = {
#define LARKLANE_P2P_AUTO(mpi, thread_level, hosts, record) Entry{mpi, thread_level},
#include "base/p2p_auto.def"
#undef LARKLANE_P2P_AUTO
};

}  // namespace

std::string mpi_title(std::string_view library_version) {
  constexpr std::string_view kDigits = "0123456789";
  const std::size_t digit =
      std::min(library_version.find_first_of(kDigits), library_version.size());
  const std::size_t end =
      std::min(library_version.find_first_not_of(kDigits, digit), library_version.size());
  std::string_view name = library_version.substr(0, digit);
  for (const std::string_view after :
       {" ", "v", "Version:", " "})  // "MPICH Version:   5", "Open MPI v5"
    while (name.ends_with(after)) name.remove_suffix(after.size());
  return std::string(name) + " " + std::string(library_version.substr(digit, end - digit));
}

bool auto_may_own(std::string_view title) noexcept {
  return auto_owns(title, true) || auto_owns(title, false);
}

bool auto_owns(std::string_view title, bool is_multiple) noexcept {
  return std::ranges::any_of(kEntries, [&](const Entry& entry) {
    return entry.title == title && (entry.level == "any thread level" || is_multiple);
  });
}

}  // namespace larklane::mpi::p2p
