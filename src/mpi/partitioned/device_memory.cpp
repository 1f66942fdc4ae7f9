#include "mpi/partitioned/device_memory.hpp"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstdint>

namespace larklane::mpi {
namespace {

// cuda.h, CUDA driver API: CUpointer_attribute and CUmemorytype.
constexpr int kAttributeMemoryType = 2;
constexpr int kAttributeIsManaged = 8;
constexpr unsigned kMemoryTypeDevice = 2;
using GetAttribute = int(void* data, int attribute, std::uint64_t pointer);

/// The number of libraries that the dynamic loader has added so far.
std::uint64_t libraries_added() noexcept {
  unsigned long long added = 0;
  const auto look = [](dl_phdr_info* info, std::size_t, void* found) {
    *static_cast<unsigned long long*>(found) = info->dlpi_adds;
    return 1;  // each object has the same count
  };
  dl_iterate_phdr(look, &added);
  return added;
}

bool is_in_device(void* driver, const void* address) noexcept {
  auto* const get = reinterpret_cast<GetAttribute*>(dlsym(driver, "cuPointerGetAttribute"));
  const auto pointer = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(address));
  unsigned type = 0, managed = 0;
  return get != nullptr && get(&type, kAttributeMemoryType, pointer) == 0 &&
         type == kMemoryTypeDevice &&
         !(get(&managed, kAttributeIsManaged, pointer) == 0 && (managed & 1u) != 0);
}

}  // namespace

bool has_device_driver() noexcept {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
  return driver != nullptr && dlclose(driver) == 0;
}

bool is_device_memory(const void* address) noexcept {
  // The count of added libraries when the driver's was last missing. A search for the driver opens
  // files; reading the count takes a hundred instructions.
  static std::atomic<std::uint64_t> added_without{0};
  const std::uint64_t added = libraries_added();
  // relaxed: the number publishes no other memory
  if (added != 0 && added_without.load(std::memory_order_relaxed) == added) return false;
  // The runtime library opens the driver's library in its own scope, where RTLD_DEFAULT misses it.
  void* const driver = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
  if (driver == nullptr) {
    added_without.store(added, std::memory_order_relaxed);  // relaxed: as above
    return false;
  }
  const bool is_device = is_in_device(driver, address);
  dlclose(driver);
  return is_device;
}

}  // namespace larklane::mpi
