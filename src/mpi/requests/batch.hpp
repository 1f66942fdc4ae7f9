#pragma once
// The array of a call that takes several requests, split into ours and the MPI's.

#include <cstddef>
#include <vector>

#include "mpi/abi/handles.hpp"
#include "mpi/requests/request.hpp"

namespace larklane::mpi {

/// True if the program gives no place for a result. Statuses may be ignored, in some MPIs by a null
/// pointer.
template <class... Results>
constexpr bool any_null(const MPI_Status* status, const Results*... results) noexcept {
  return (status == nullptr && MPI_STATUS_IGNORE != nullptr) || ((results == nullptr) || ...);
}

/// Our request behind the program's pointer. Null for a request of the MPI, and for a null pointer,
/// which the MPI refuses.
inline Request* find_carrier_at(const MPI_Request* request) noexcept {
  return request != nullptr ? find_carrier(*request) : nullptr;
}

/// True if any entry is ours. Makes one pass and copies nothing.
inline bool any_ours(int count, const MPI_Request* requests) noexcept {
  return !no_carriers() && requests != nullptr && any_carrier(count, requests);
}

/// `count` values, on the stack up to 64. Thread safety: single-owner.
template <class T>
class Scratch {
 public:
  explicit Scratch(int count) : data_(small_) {
    if (static_cast<std::size_t>(count) > kSmall) {
      large_.resize(static_cast<std::size_t>(count));
      data_ = large_.data();
    }
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  T& operator[](int i) noexcept { return data_[i]; }
  const T& operator[](int i) const noexcept { return data_[i]; }
  T* data() noexcept { return data_; }

 private:
  static constexpr std::size_t kSmall = 64;
  T small_[kSmall];
  std::vector<T> large_;
  T* data_;
};

/// Calls `call`, then `after`, even if `call` throws: the error handler of the MPI's requests may.
template <class Call, class After>
int call_then(Call&& call, After&& after) {
  struct End {
    After& after;
    ~End() { after(); }
  };
  const End end{after};
  return call();
}

/// The array of a call, with a copy for the MPI: our entries are MPI_REQUEST_NULL there. Thread
/// safety: single-owner.
class Batch {
 public:
  Batch(int count, const MPI_Request* requests) : count_(count), natives_(count), ours_(count) {
    for (int i = 0; i < count; ++i) {
      Request* const ours = find_carrier(requests[i]);
      ours_[i] = ours;
      natives_[i] = ours == nullptr ? requests[i] : handles().request_null;
      if (ours != nullptr) continue;
      are_all_ours_ = false;
      if (requests[i] != handles().request_null) ++native_count_;
    }
  }

  int count() const noexcept { return count_; }
  /// No entry is the MPI's, or null.
  bool are_all_ours() const noexcept { return are_all_ours_; }
  /// The number of the MPI's entries that are not null.
  int native_count() const noexcept { return native_count_; }
  MPI_Request* natives() noexcept { return natives_.data(); }
  MPI_Request native_at(int i) const noexcept { return natives_[i]; }
  /// Our request of entry `i`; null if the entry is not ours.
  Request* ours(int i) const noexcept { return ours_[i]; }
  /// True if the entry is ours and in a round.
  bool is_active(int i) const noexcept { return ours_[i] != nullptr && ours_[i]->is_active(); }
  bool any_active() const noexcept {
    for (int i = 0; i < count_; ++i) {
      if (is_active(i)) return true;
    }
    return false;
  }
  /// Makes the MPI's call on the copy. Then copies the MPI's handles back to the user's array.
  template <class Call>
  int call_native(MPI_Request* requests, Call&& call) {
    return call_then(call, [&] {
      for (int i = 0; i < count_; ++i) {
        if (ours_[i] == nullptr) requests[i] = natives_[i];
      }
    });
  }

 private:
  int count_;
  int native_count_ = 0;
  bool are_all_ours_ = true;
  Scratch<MPI_Request> natives_;
  Scratch<Request*> ours_;
};

}  // namespace larklane::mpi
