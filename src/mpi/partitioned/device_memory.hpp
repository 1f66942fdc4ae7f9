#pragma once
// Detection of buffers in a GPU's memory, which the init calls refuse.

namespace larklane::mpi {

/// True if CUDA's driver library is already loaded and reports `address` in device memory that the
/// host can't reach. Never loads a library.
bool is_device_memory(const void* address) noexcept;
/// True if that library is loaded.
bool has_device_driver() noexcept;

}  // namespace larklane::mpi
