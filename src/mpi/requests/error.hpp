#pragma once
// MPI errors with a sentence, raised through the error handler of the right communicator.
//
// raise() and its variants only note the error. settle() calls the handler, as the last step of the
// intercepted function, because the handler may throw. By then no object of ours remains to be
// destroyed, the thread holds no lock, and the request has its state of after the call.

#include <string>

#include "base/status.hpp"
#include "mpi/abi/handles.hpp"
#include "mpi/requests/request.hpp"

namespace larklane::mpi {

class Communicator;

/// An error code of class `error_class` with the text `sentence`, preceded by our name and rank.
/// Each class keeps only its latest text. Where the MPI makes no codes, returns the class itself,
/// and the sentence goes to standard error.
int error_code(int error_class, const std::string& sentence);

/// Makes the code, notes it for settle() and returns it. The handler is that of `communicator`.
/// Without a communicator (a null or foreign handle), it is the handler of MPI_COMM_SELF. If that
/// one is still MPI_ERRORS_ARE_FATAL, it is the handler of MPI_COMM_WORLD.
int raise(const Communicator* communicator, int error_class, const std::string& sentence);
/// The same with an existing code.
int raise_code(const Communicator* communicator, int code);
/// The same with the handler of `target`; comm_null: no handler.
int raise_at(MPI_Comm target, int error_class, const std::string& sentence);
int raise_code_at(MPI_Comm target, int code);

/// Calls the error handler for the calling thread's last noted error.
[[gnu::noinline]] int settle_failure(int code);
/// Ends an intercepted function: calls the error handler after a failure. @return  code
inline int settle(int code) {
  if (code == MPI_SUCCESS) [[likely]]
    return code;
  return settle_failure(code);
}

/// The MPI class of an error (rule E1).
int error_class_of(Errc errc) noexcept;
/// Raises the error of a refused call on a request: class and sentence come from the status.
int raise_refused(const Request& request, const char* call, Status status);
/// Raises the error of a call on our requests that gives no place for one of its results.
int raise_null(const char* call);
/// Raises the error of a call on fewer than 0 requests.
int raise_bad_count(const char* call, int count);

}  // namespace larklane::mpi
