#include "mpi/device_memory.hpp"

#include <dlfcn.h>

#include <cstdint>

namespace larklane::mpi {
namespace {

// cuda.h, CUDA driver API: CUpointer_attribute and CUmemorytype.
constexpr int kAttributeMemoryType = 2;
constexpr int kAttributeIsManaged = 8;
constexpr unsigned kMemoryTypeDevice = 2;
using GetAttribute = int(void* data, int attribute, std::uint64_t pointer);

}  // namespace

bool is_device_memory(const void* address) noexcept {
  // The runtime library opens the driver's in its own scope: RTLD_DEFAULT would miss it.
  void* const driver = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
  if (driver == nullptr) return false;
  auto* const get = reinterpret_cast<GetAttribute*>(dlsym(driver, "cuPointerGetAttribute"));
  const auto pointer = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(address));
  unsigned type = 0, managed = 0;
  const bool is_device = get != nullptr && get(&type, kAttributeMemoryType, pointer) == 0 &&
                         type == kMemoryTypeDevice &&
                         !(get(&managed, kAttributeIsManaged, pointer) == 0 && (managed & 1u) != 0);
  dlclose(driver);
  return is_device;
}

}  // namespace larklane::mpi
