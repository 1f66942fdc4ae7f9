// The calls that complete requests: records of the completed requests, and of the call's begin and
// end.

#include <algorithm>

#include "mpi/partitioned/carrier.hpp"
#include "mpi/profile/tracer.hpp"
#include "mpi/requests/batch.hpp"

namespace larklane::mpi {
namespace {

using profile::Kind;
using profile::SeenBy;

enum Flags : std::uint8_t { kIsTest = 1, kHasFailed = 2 };

/// Larklane polls no request with more partitions: that would cost more than the program waits.
constexpr int kLooksMax = 1024;

/// The requests of a completing call, copied before it: the call may change the program's handles.
/// Thread safety: single-owner.
class Completing {
 public:
  enum Mode { waits, tests };
  Completing(int count, const MPI_Request* requests, Mode mode)
      : mode_(mode),
        count_(call_ && requests != nullptr ? std::max(count, 0) : 0),
        handles_(count_),
        traced_(count_) {
    for (int i = 0; i < count_; ++i) {
      handles_[i] = requests[i];
      traced_[i] = find_traced(requests[i]);
    }
    if (mode == waits) {
      look(SeenBy::entry);
      outer_ = std::exchange(current, this);
    }
  }
  ~Completing() {
    if (mode_ == waits) current = outer_;
  }
  Completing(const Completing&) = delete;
  Completing& operator=(const Completing&) = delete;

  /// Records that entry `i` is complete. @param code  the call's return code
  void done(int i, int code) {
    if (i < 0 || i >= count_ || handles_[i] == handles().request_null) return;
    Traced* const request = traced_[i];
    if (request != nullptr && !request->is_active()) return;
    const std::uint64_t now = end_ns_ != 0 ? end_ns_ : (end_ns_ = now_ns());
    call_.recorder().write(
        {.begin_ns = call_.begin_ns(),
         .end_ns = now,
         .handle = handle_bits(handles_[i]),
         .request = request != nullptr ? request->number() : 0,
         .kind = Kind::wait,
         .flags = static_cast<std::uint8_t>((mode_ == tests ? kIsTest : 0) |
                                            (code != MPI_SUCCESS ? kHasFailed : 0))});
    if (request != nullptr)
      request->complete(call_.recorder(), now, is_looked_at(i) ? SeenBy::waiting : SeenBy::entry);
  }
  void all_done(int code) {
    for (int i = 0; i < count_; ++i) done(i, code);
  }
  void some_done(int count, const int* indices, int code) {
    for (int i = 0; i < count; ++i) done(indices[i], code);  // MPI_UNDEFINED is negative
  }
  void look(SeenBy by) {
    for (int i = 0; i < count_; ++i) {
      if (is_looked_at(i)) look_at(i, by);
    }
  }

  static thread_local constinit Completing* current;

 private:
  /// True for a partitioned receive of Larklane in a round: a waiting call polls each partition.
  bool is_looked_at(int i) const noexcept {
    const Traced* const request = traced_[i];
    return mode_ == waits && request != nullptr && request->is_receive() && !request->is_native() &&
           request->is_active() && request->partitions() <= kLooksMax;
  }
  void look_at(int i, SeenBy by) {
    const Partitioned* const ours =
        as_partitioned(find_carrier(handles_[i]), Request::Kind::partitioned_receive);
    if (ours == nullptr) return;
    traced_[i]->look_at_missing(call_.recorder(), by, [&](int partition) {
      bool arrived = false;
      return ours->receive->parrived(partition, &arrived).ok() && arrived;
    });
  }

  const Observed call_;
  const Mode mode_;
  const int count_;
  Scratch<MPI_Request> handles_;
  Scratch<Traced*> traced_;
  std::uint64_t end_ns_ = 0;
  Completing* outer_ = nullptr;
};
thread_local constinit Completing* Completing::current = nullptr;

}  // namespace

void look_while_waiting() noexcept {
  if (Completing::current != nullptr) Completing::current->look(SeenBy::waiting);
}

}  // namespace larklane::mpi

namespace larklane::mpi::profiled {

using enum Completing::Mode;

namespace {

/// MPI_Waitsome and MPI_Testsome. @param call  the face's
template <class Call>
int some(Completing::Mode mode, Call call, const Next& next, int incount,
         MPI_Request array_of_requests[], int* outcount, int array_of_indices[],
         MPI_Status* array_of_statuses) {
  Completing completing(incount, array_of_requests, mode);
  const int code =
      call(next, incount, array_of_requests, outcount, array_of_indices, array_of_statuses);
  if (outcount != nullptr) completing.some_done(*outcount, array_of_indices, code);
  return code;
}

}  // namespace

int Wait(const Next& next, MPI_Request* request, MPI_Status* status) {
  Completing completing(1, request, waits);
  const int code = face::Wait(next, request, status);
  completing.done(0, code);
  return code;
}

int Waitall(const Next& next, int count, MPI_Request array_of_requests[],
            MPI_Status* array_of_statuses) {
  Completing completing(count, array_of_requests, waits);
  const int code = face::Waitall(next, count, array_of_requests, array_of_statuses);
  completing.all_done(code);
  return code;
}

int Waitany(const Next& next, int count, MPI_Request array_of_requests[], int* index,
            MPI_Status* status) {
  Completing completing(count, array_of_requests, waits);
  const int code = face::Waitany(next, count, array_of_requests, index, status);
  if (index != nullptr) completing.done(*index, code);
  return code;
}

int Waitsome(const Next& next, int incount, MPI_Request array_of_requests[], int* outcount,
             int array_of_indices[], MPI_Status* array_of_statuses) {
  return some(waits, face::Waitsome, next, incount, array_of_requests, outcount, array_of_indices,
              array_of_statuses);
}

int Test(const Next& next, MPI_Request* request, int* flag, MPI_Status* status) {
  Completing completing(1, request, tests);
  const int code = face::Test(next, request, flag, status);
  if (flag != nullptr && *flag != 0) completing.done(0, code);
  return code;
}

int Testall(const Next& next, int count, MPI_Request array_of_requests[], int* flag,
            MPI_Status* array_of_statuses) {
  Completing completing(count, array_of_requests, tests);
  const int code = face::Testall(next, count, array_of_requests, flag, array_of_statuses);
  if (flag != nullptr && *flag != 0) completing.all_done(code);
  return code;
}

int Testany(const Next& next, int count, MPI_Request array_of_requests[], int* index, int* flag,
            MPI_Status* status) {
  Completing completing(count, array_of_requests, tests);
  const int code = face::Testany(next, count, array_of_requests, index, flag, status);
  if (flag != nullptr && index != nullptr && *flag != 0) completing.done(*index, code);
  return code;
}

int Testsome(const Next& next, int incount, MPI_Request array_of_requests[], int* outcount,
             int array_of_indices[], MPI_Status* array_of_statuses) {
  return some(tests, face::Testsome, next, incount, array_of_requests, outcount, array_of_indices,
              array_of_statuses);
}

}  // namespace larklane::mpi::profiled
