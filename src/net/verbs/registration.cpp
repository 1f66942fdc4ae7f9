#include "net/verbs/registration.hpp"

#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>

namespace larklane::verbs {
namespace {

bool does_kernel_copy_at_fork() noexcept {
  utsname system{};
  int major = 0, minor = 0;
  return ::uname(&system) == 0 && std::sscanf(system.release, "%d.%d", &major, &minor) == 2 &&
         (major > 5 || (major == 5 && minor >= 12));
}

void give_to_children(void* start, std::uint64_t bytes) noexcept {
  static const bool do_they_get_copies = does_kernel_copy_at_fork();
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  if (!do_they_get_copies) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(start) & ~(page - 1);
  const auto end = (reinterpret_cast<std::uintptr_t>(start) + bytes + page - 1) & ~(page - 1);
  // Refused for some mappings, of huge pages or a device's: as it was.
  (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DOFORK);
}

}  // namespace

Registration register_range(ibv_pd* domain, void* start, std::uint64_t bytes, int access) noexcept {
  Registration registration(ibv_reg_mr(domain, start, bytes, access));
  if (registration) give_to_children(start, bytes);
  return registration;
}

}  // namespace larklane::verbs
