#include "mpi/requests/error.hpp"

#include <cstring>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "base/log.hpp"
#include "base/printable.hpp"
#include "mpi/abi/next.hpp"
#include "mpi/world/communicator.hpp"
#include "mpi/world/process.hpp"

namespace larklane::mpi {
namespace {

/// One code per class, made at its first use; MPI_SUCCESS where the MPI makes none.
/// Thread safety: thread-safe through its mutex.
struct Codes {
  std::mutex mutex;
  std::map<int, int> by_class;

  static Codes& get() noexcept {
    static Codes* const codes = new Codes;
    return *codes;
  }
};

int make_code(int error_class) {
  const Next& real = next_pmpi();
  int code = MPI_SUCCESS, found = MPI_SUCCESS;
  if (real.Add_error_code == nullptr || real.Add_error_code(error_class, &code) != MPI_SUCCESS) {
    return MPI_SUCCESS;
  }
  if (real.Error_class(code, &found) != MPI_SUCCESS || found != error_class) return MPI_SUCCESS;
  // MPICH 4.0 accepts a text for such a code, and then returns another.
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  const bool keeps_text = real.Add_error_string(code, "larklane") == MPI_SUCCESS &&
                          real.Error_string(code, text, &length) == MPI_SUCCESS &&
                          std::string_view(text) == "larklane";
  return keeps_text ? code : MPI_SUCCESS;
}

/// The communicator with the handler for errors without a communicator. MPI 4.0, 9.3 names
/// MPI_COMM_SELF, earlier versions MPI_COMM_WORLD: the result is the one that the program changed.
MPI_Comm default_target() {
  Process& process = Process::get();
  if (!process.has_world()) return process.is_open() ? process.private_comm() : handles().comm_null;
  const Next& real = next_pmpi();
  MPI_Errhandler handler;
  if (real.Comm_get_errhandler(handles().comm_self, &handler) != MPI_SUCCESS)
    return handles().comm_world;
  const bool is_fatal = handler == handles().errors_are_fatal;
  real.Errhandler_free(&handler);
  return is_fatal ? handles().comm_world : handles().comm_self;
}

/// The error noted by raise_code(). `target` is comm_null where no communicator has a handler.
struct Noted {
  MPI_Comm target;
  int code;  ///< MPI_SUCCESS: nothing
};
thread_local constinit Noted noted{{}, MPI_SUCCESS};

}  // namespace

int error_code(int error_class, const std::string& sentence) {
  Process& process = Process::get();
  // A sentence may quote text of the environment or of another process.
  std::string text = "larklane: rank " + std::to_string(process.identity().rank) + ": " +
                     printable(sentence, MPI_MAX_ERROR_STRING);
  if (process.is_open()) {
    Codes& codes = Codes::get();
    const std::scoped_lock lock(codes.mutex);
    auto found = codes.by_class.find(error_class);
    if (found == codes.by_class.end()) {
      found = codes.by_class.emplace(error_class, make_code(error_class)).first;
    }
    if (text.size() >= MPI_MAX_ERROR_STRING) text.resize(MPI_MAX_ERROR_STRING - 1);
    if (found->second != MPI_SUCCESS &&
        next_pmpi().Add_error_string(found->second, text.c_str()) == MPI_SUCCESS) {
      return found->second;
    }
  }
  log_warn("%s", sentence.c_str());
  return error_class;
}

int raise_code_at(MPI_Comm target, int code) {
  noted = {target, code};
  return code;
}

int raise_code(const Communicator* communicator, int code) {
  return raise_code_at(communicator != nullptr ? communicator->error_target() : default_target(),
                       code);
}

int settle_failure(int code) {
  const Noted error = std::exchange(noted, {{}, MPI_SUCCESS});
  if (error.code != MPI_SUCCESS && error.target != handles().comm_null)
    next_pmpi().Comm_call_errhandler(error.target, error.code);
  return code;
}

int raise_at(MPI_Comm target, int error_class, const std::string& sentence) {
  return raise_code_at(target, error_code(error_class, sentence));
}

int raise(const Communicator* communicator, int error_class, const std::string& sentence) {
  return raise_code(communicator, error_code(error_class, sentence));
}

int error_class_of(Errc errc) noexcept {
  switch (errc) {
    case Errc::kOk:
      return MPI_SUCCESS;
    case Errc::kInvalidArgument:
    case Errc::kAlreadyReady:
      return MPI_ERR_ARG;
    case Errc::kNotActive:
    case Errc::kAlreadyActive:
    case Errc::kWrongKind:
      return MPI_ERR_REQUEST;
    case Errc::kUnsupportedBuffer:
      return MPI_ERR_BUFFER;
    case Errc::kSizeMismatch:
      return MPI_ERR_TRUNCATE;
    case Errc::kNoMemory:
      return MPI_ERR_NO_MEM;
    case Errc::kBadOption:
      return MPI_ERR_INFO_VALUE;
    default:
      return MPI_ERR_OTHER;
  }
}

int raise_refused(const Request& request, const char* call, Status status) {
  std::string sentence = std::string(call) + " on " + request.description() + ": ";
  switch (status.code()) {
    case Errc::kNotActive:
      sentence += "the request is inactive: expected MPI_Start before";
      break;
    case Errc::kAlreadyActive:
      sentence += "the request is active: expected its completion before";
      break;
    case Errc::kWrongKind:
      sentence += "the request is of another kind: expected one that the call serves";
      break;
    default: {
      const std::string reason = request.reason();
      sentence += reason.empty() ? errc_name(status.code()) : reason;
    }
  }
  return raise_at(request.error_target(), error_class_of(status.code()), sentence);
}

int raise_bad_count(const char* call, int count) {
  return raise(nullptr, MPI_ERR_ARG,
               std::string(call) + ": count is " + std::to_string(count) + ": expected 0 or more");
}

int raise_null(const char* call) {
  return raise(nullptr, MPI_ERR_ARG,
               std::string(call) + ": a null pointer: expected a place for each result");
}

}  // namespace larklane::mpi
