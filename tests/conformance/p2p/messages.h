// Shorthands for ordinary messages, beside the harness of the conformance suite (../case.h).
#ifndef CONFORMANCE_P2P_MESSAGES_H
#define CONFORMANCE_P2P_MESSAGES_H

#include "../case.h"

#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
#define CASE_HAS_BUFFER_CALLS 1  // buffers of communicators and sessions, flush, automatic
#else
#define CASE_HAS_BUFFER_CALLS 0
#endif
#define CASE_HAS_LARGE_COUNTS (MPI_VERSION >= 4)
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define CASE_HAS_ISENDRECV 1
#else
#define CASE_HAS_ISENDRECV 0
#endif

/// Fills a status with bytes that no message gives it.
void spoil(MPI_Status* status);
/// Expects a status of a receive of `bytes` bytes.
#define EXPECT_STATUS(status, source, tag, bytes) \
  expect_status((status), (source), (tag), (bytes), __FILE__, __LINE__)
void expect_status(const MPI_Status* status, int source, int tag, long long bytes, const char* file,
                   int line);
/// Expects the empty status of MPI 3.7.3.
#define EXPECT_EMPTY(status) expect_empty((status), __FILE__, __LINE__)
void expect_empty(const MPI_Status* status, const char* file, int line);
/// Class of an error code.
int class_of(int code);

/// Tests until the request is complete. @return false after `seconds`
bool completes(MPI_Request* request, MPI_Status* status, double seconds);
/// Tests for `seconds`. @return true if the request stayed incomplete
bool stays_open(MPI_Request* request, double seconds);

// On `comm`. All end the case on an error.
void send_int(int value, int to, int tag);
/// @return the integer received. @param status  may be MPI_STATUS_IGNORE
int recv_int(int from, int tag, MPI_Status* status);
MPI_Request isend(const void* data, int bytes, int to, int tag);
MPI_Request issend(const void* data, int bytes, int to, int tag);
MPI_Request irecv(void* data, int bytes, int from, int tag);
MPI_Request isend_int(const int* value, int to, int tag);
MPI_Request irecv_int(int* value, int from, int tag);
/// A barrier of `world`, and no message on `comm`.
void meet(void);
/// Memory for `bytes` bytes; the case ends without it.
void* memory(size_t bytes);
/// MPI_TAG_UB of the world.
int largest_tag(void);

#endif
