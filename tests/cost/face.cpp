// The parts of the face that MPI_Pready and MPI_Parrived need when all goes well: there is no MPI
// behind it. The rest ends the program.

#include <cstdio>
#include <cstdlib>

#include "mpi/abi/next.hpp"
#include "mpi/partitioned/carrier.hpp"
#include "mpi/requests/error.hpp"
#include "mpi/world/process.hpp"

namespace larklane::mpi {

namespace {
[[noreturn]] void unexpected() {
  std::fputs("network_cost: not in this test\n", stderr);
  std::_Exit(1);
}
}  // namespace

namespace detail {
constinit LastingHandleTable carriers;
constinit std::atomic<std::size_t> carrier_count{0};
Next next_mpi;
Next next_pmpi;
Handles handles;
}  // namespace detail

bool is_forwarded(MPI_Request) noexcept { return false; }
int raise(const Communicator*, int, const std::string&) { unexpected(); }
int raise_at(MPI_Comm, int, const std::string&) { unexpected(); }
int raise_refused(const Request&, const char*, Status) { unexpected(); }
int raise_refused(const Partitioned&, const char*, Status, const std::string&) { unexpected(); }
int raise_null(const char*) { unexpected(); }
int settle_failure(int) { unexpected(); }
Process& Process::get() noexcept { unexpected(); }
void Process::poke_native() noexcept { unexpected(); }
Communicator::~Communicator() = default;

bool Partitioned::is_active() const noexcept { unexpected(); }
Completion Partitioned::poll(Pass&) { unexpected(); }
void Partitioned::fill(MPI_Status*) const { unexpected(); }
int Partitioned::failure_code() const { unexpected(); }
void Partitioned::finish(MPI_Request*) { unexpected(); }
Status Partitioned::start() { unexpected(); }
int Partitioned::cancel() { unexpected(); }
int Partitioned::free(MPI_Request*) { unexpected(); }
MPI_Comm Partitioned::error_target() const noexcept { unexpected(); }
std::string Partitioned::description() const { unexpected(); }
std::string Partitioned::reason() const { unexpected(); }

}  // namespace larklane::mpi

// As exports.cpp makes them.
extern "C" int MPI_Pready(int partition, MPI_Request request) {
  return larklane::mpi::face::Pready(larklane::mpi::next_mpi(), partition, request);
}
extern "C" int MPIX_Pbuf_prepare(MPI_Request request) {
  return larklane::mpi::settle(
      larklane::mpi::face::Pbuf_prepare(larklane::mpi::next_mpi(), request));
}
extern "C" int MPI_Parrived(MPI_Request request, int partition, int* flag) {
  return larklane::mpi::face::Parrived(larklane::mpi::next_mpi(), request, partition, flag);
}
