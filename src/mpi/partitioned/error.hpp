#pragma once
// MPI errors that carry a sentence, raised through the right communicator's error handler.
//
// raise() and its like only note the error. settle() calls the handler, as the last act of the
// intercepted function: the handler may throw, and then no object of ours is left to destroy, no
// lock is held, and the request is what it is after the call has returned.

#include <string>

#include "base/status.hpp"
#include "mpi/abi/handles.hpp"
#include "mpi/partitioned/carrier.hpp"

namespace larklane::mpi {

/// An error code of class `error_class` whose text is `sentence`, preceded by our name and rank.
/// The text of a class is the last one given. Where the MPI makes no codes, the class itself, and
/// the sentence goes to standard error.
int error_code(int error_class, const std::string& sentence);

/// Makes the code, notes it for settle() and returns it. The handler is that of `communicator`.
/// Without a communicator (a null or foreign handle) it is that of MPI_COMM_SELF, or
/// MPI_COMM_WORLD's where only that one has been changed.
int raise(const Communicator* communicator, int error_class, const std::string& sentence);
/// The same with a code that is made already.
int raise_code(const Communicator* communicator, int code);

/// Calls the error handler of what the calling thread has noted last.
[[gnu::noinline]] int settle_failure(int code);
/// The end of an intercepted function. @return  code
inline int settle(int code) {
  if (code == MPI_SUCCESS) [[likely]]
    return code;
  return settle_failure(code);
}

/// The natural MPI class (rule E1).
int error_class_of(Errc errc) noexcept;
/// "partitioned send to rank 3, tag 7, 8 partitions"
std::string description(const Partitioned& request);
/// A refused call on a request: class and sentence from the engine's status.
int raise_refused(const Partitioned& request, const char* call, Status status,
                  const std::string& what);
/// A call on requests of ours that has no place for one of its results.
int raise_null(const char* call);
/// A code for a round that failed; its handler is not called.
int failure_code(const Partitioned& request);

}  // namespace larklane::mpi
