// MPI_Alloc_mem, MPI_Free_mem: memory that peers can map, by option or info key.

#include "base/log.hpp"
#include "base/status_text.hpp"
#include "mpi/abi/info.hpp"
#include "mpi/abi/next.hpp"
#include "mpi/requests/error.hpp"
#include "mpi/world/process.hpp"

namespace larklane::mpi::face {

int Alloc_mem(const Next& next, MPI_Aint size, MPI_Info info, void* baseptr) {
  const Process& process = Process::get();
  const bool wanted =
      process.is_open() && size > 0 &&
      (process.config().alloc_mem_mapped || info_value(info, "larklane_mapped") == "true");
  if (!wanted) return next.Alloc_mem(size, info, baseptr);
  auto memory = process.regions()->allocate(static_cast<std::uint64_t>(size));
  if (!memory && memory.error().code() == Errc::kSystem) {
    log_warn_once("mapped memory refused",
                  "MPI_Alloc_mem: no memory that peers can map: %s; the MPI's own memory is taken",
                  status_text(memory.error()).c_str());
    return next.Alloc_mem(size, info, baseptr);
  }
  if (!memory) {
    return raise(nullptr, MPI_ERR_NO_MEM,
                 "MPI_Alloc_mem: " + std::to_string(size) + " bytes of mapped memory were refused");
  }
  *static_cast<void**>(baseptr) = *memory;
  return MPI_SUCCESS;
}

int Free_mem(const Next& next, void* base) {
  return Process::get().regions()->release(base) ? MPI_SUCCESS : next.Free_mem(base);
}

}  // namespace larklane::mpi::face
