#pragma once
// Buffers in a GPU's memory, which we refuse by name.

namespace larklane::mpi {

/// True if CUDA's driver library is loaded already and says that `address` is in a device's memory
/// that the host can't reach. Never loads a library.
bool is_device_memory(const void* address) noexcept;

}  // namespace larklane::mpi
