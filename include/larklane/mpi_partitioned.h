/** @file
 * Partitioned communication (MPI 4.0, chapter 4) for an MPI with an mpi.h that lacks it, such as
 * Open MPI 4. Include it after or instead of mpi.h and link with larklane_mpi_ompi before the
 * MPI. Harmless where mpi.h has the calls. C11 and C++. */
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

#endif /* LARKLANE_MPI_PARTITIONED_H */
