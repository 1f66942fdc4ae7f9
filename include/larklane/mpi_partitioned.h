/** @file
 * Partitioned communication (MPI 4.0, chapter 4) for an MPI with an mpi.h that lacks it, such as
 * Open MPI 4. Include it after or instead of mpi.h and link with larklane_mpi_ompi before the
 * MPI. Harmless where mpi.h has the calls. C11 and C++.
 * Also declares the calls that Larklane adds to each MPI: MPIX_Pbuf_prepare and its variant. */
#ifndef LARKLANE_MPI_PARTITIONED_H
#define LARKLANE_MPI_PARTITIONED_H

#include <mpi.h>

/* Open MPI 5 says MPI 3.1 and has the calls. */
#if MPI_VERSION < 4 && !(defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#ifdef __cplusplus
extern "C" {
#endif

/** As MPI 4.0, chapter 4, defines them; thread-safe as that MPI is. @{ */
int MPI_Psend_init(const void *buf, int partitions, MPI_Count count, MPI_Datatype datatype,
                   int dest, int tag, MPI_Comm comm, MPI_Info info, MPI_Request *request);
int MPI_Precv_init(void *buf, int partitions, MPI_Count count, MPI_Datatype datatype, int source,
                   int tag, MPI_Comm comm, MPI_Info info, MPI_Request *request);
int MPI_Pready(int partition, MPI_Request request);
int MPI_Pready_range(int partition_low, int partition_high, MPI_Request request);
int MPI_Pready_list(int length, const int array_of_partitions[], MPI_Request request);
int MPI_Parrived(MPI_Request request, int partition, int *flag);

int PMPI_Psend_init(const void *buf, int partitions, MPI_Count count, MPI_Datatype datatype,
                    int dest, int tag, MPI_Comm comm, MPI_Info info, MPI_Request *request);
int PMPI_Precv_init(void *buf, int partitions, MPI_Count count, MPI_Datatype datatype, int source,
                    int tag, MPI_Comm comm, MPI_Info info, MPI_Request *request);
int PMPI_Pready(int partition, MPI_Request request);
int PMPI_Pready_range(int partition_low, int partition_high, MPI_Request request);
int PMPI_Pready_list(int length, const int array_of_partitions[], MPI_Request request);
int PMPI_Parrived(MPI_Request request, int partition, int *flag);
/** @} */

#ifdef __cplusplus
}
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** An extension of MPI, as the MPI Forum proposes it (github.com/mpi-forum/mpi-issues, 302). Weak:
 * a program that may run without Larklane asks dlsym for the name: docs/user/prepare.md.
 *
 * Waits until the receiver's buffer of the active round is ready. Then no MPI_Pready of the round
 * asks for it. Makes progress as MPI_Wait does.
 *
 * @param request  an active partitioned send. An active partitioned receive, or a request of the
 *                 MPI's own: the call returns at once.
 * @return MPI_SUCCESS. MPI_ERR_REQUEST: an inactive partitioned request, or MPI_REQUEST_NULL. The
 *         error of the round, if the buffer never becomes ready. The request stays active.
 * @threads thread-safe, between MPI_Start and the call that completes the round.
 * @cost one load of a word that the receiver writes, if the buffer is ready.
 */
int MPIX_Pbuf_prepare(MPI_Request request) __attribute__((weak));
/** The same for each request of an array. Checks all of them before it waits for the first. */
int MPIX_Pbuf_prepareall(int count, const MPI_Request array_of_requests[]) __attribute__((weak));

/** The name of MPIX_Pbuf_prepare() for tools. */
int PMPIX_Pbuf_prepare(MPI_Request request) __attribute__((weak));
/** The name of MPIX_Pbuf_prepareall() for tools. */
int PMPIX_Pbuf_prepareall(int count, const MPI_Request array_of_requests[]) __attribute__((weak));

#ifdef __cplusplus
}
#endif

#endif /* LARKLANE_MPI_PARTITIONED_H */
