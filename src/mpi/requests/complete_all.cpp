// MPI_Waitall, MPI_Testall, MPI_Request_get_status_all.

#include "mpi/abi/next.hpp"
#include "mpi/requests/complete_many.hpp"
#include "mpi/requests/error.hpp"
#include "mpi/requests/status.hpp"
#include "mpi/requests/waiting.hpp"

namespace larklane::mpi {

Failure finish_round(Request& ours, Completion completion, MPI_Request* handle,
                     MPI_Status* status) {
  Failure failure;
  if (completion == Completion::failed) failure = {ours.failure_code(), ours.error_target()};
  ours.fill(status);
  ours.finish(handle);
  return failure;
}

unsigned next_turn() noexcept {
  thread_local unsigned turn = 0;
  return turn++;
}

namespace {

/// The completions of our active requests, entry by entry.
class Rounds {
 public:
  explicit Rounds(const Batch& batch) : batch_(batch), completion_(batch.count()) {
    for (int i = 0; i < batch.count(); ++i) completion_[i] = Completion::pending;
  }
  /// Polls the pending ones. @return the number that remain pending
  int poll(Pass& pass) {
    int pending = 0;
    for (int i = 0; i < batch_.count(); ++i) {
      if (batch_.ours(i) == nullptr || completion_[i] != Completion::pending) continue;
      completion_[i] = batch_.ours(i)->poll(pass);
      if (completion_[i] == Completion::pending) ++pending;
      if (completion_[i] == Completion::failed) failed_ = true;
    }
    return pending;
  }
  bool any_failed() const noexcept { return failed_; }
  Completion operator[](int i) const noexcept { return completion_[i]; }

 private:
  const Batch& batch_;
  Scratch<Completion> completion_;
  bool failed_ = false;
};

/// Replaces the MPI's call where no request is the MPI's.
int set_empty_but_ours(const Batch& batch, MPI_Status* statuses) {
  if (batch.are_all_ours()) return MPI_SUCCESS;
  for (int i = 0; i < batch.count(); ++i) {
    if (batch.ours(i) == nullptr) set_empty(status_at(statuses, i));
  }
  return MPI_SUCCESS;
}

/// Makes the MPI's call on its requests, if any: a call on our requests alone is not passed on.
template <class Call>
int call_native_if_any(Batch& batch, MPI_Request* requests, MPI_Status* statuses, Call&& call) {
  return batch.native_count() > 0 ? batch.call_native(requests, call)
                                  : set_empty_but_ours(batch, statuses);
}

/// Ends our rounds after all requests, the MPI's and ours, have completed without a failure.
int commit(const Batch& batch, const Rounds& rounds, MPI_Request* requests, MPI_Status* statuses) {
  for (int i = 0; i < batch.count(); ++i) {
    Request* const ours = batch.ours(i);
    if (ours == nullptr) continue;
    if (rounds[i] == Completion::complete)
      ours->end(requests + i, status_at(statuses, i));
    else
      set_empty(status_at(statuses, i));
  }
  return MPI_SUCCESS;
}

/// Sets the MPI_ERROR of each status after a request has failed.
/// @param natives_done         the MPI has filled the statuses of its entries
/// @param natives_have_errors  and their MPI_ERROR
int commit_failed(const Batch& batch, const Rounds& rounds, bool natives_done,
                  bool natives_have_errors, MPI_Request* requests, MPI_Status* statuses) {
  Failure first;
  for (int i = 0; i < batch.count(); ++i) {
    MPI_Status* const status = status_at(statuses, i);
    int code = MPI_SUCCESS;
    if (batch.ours(i) == nullptr) {
      if (natives_done && natives_have_errors) continue;
      const bool is_null = batch.native_at(i) == handles().request_null;
      code = natives_done || is_null ? MPI_SUCCESS : MPI_ERR_PENDING;
      if (!natives_done && is_null) set_empty(status);
    } else if (rounds[i] == Completion::inactive) {
      set_empty(status);
    } else if (rounds[i] == Completion::pending) {
      code = MPI_ERR_PENDING;
    } else {
      const Failure failure = finish_round(*batch.ours(i), rounds[i], requests + i, status);
      code = failure.code;
      if (code != MPI_SUCCESS && first.code == MPI_SUCCESS) first = failure;
    }
    if (is_wanted(status)) status->MPI_ERROR = code;
  }
  if (first.code != MPI_SUCCESS) raise_code_at(first.target, first.code);
  return MPI_ERR_IN_STATUS;
}

/// Ends the call after one of our rounds has failed: tests the MPI's requests once, without a wait.
int finish_after_failure(const Next& next, Batch& batch, const Rounds& rounds,
                         MPI_Request* requests, MPI_Status* statuses) {
  int flag = 0;
  const int code = call_native_if_any(batch, requests, statuses, [&] {
    return next.Testall(batch.count(), batch.natives(), &flag, statuses);
  });
  const bool in_status = code == MPI_ERR_IN_STATUS;
  return commit_failed(batch, rounds, flag != 0 || in_status, in_status, requests, statuses);
}

/// A wait for ordinary messages at the front of an array: ends them one after the other, so no
/// request is polled again once it is complete. Thread safety: single-owner.
class Front {
 public:
  Front(int count, MPI_Request* requests, MPI_Status* statuses) noexcept
      : count_(count), requests_(requests), statuses_(statuses) {}

  /// @return the number of requests that it has ended, or that are null. The next one is the MPI's,
  ///   it is inactive, or one of the rest has failed
  int wait() {
    while (ended_ < count_ && try_end()) ++ended_;
    return ended_;
  }

 private:
  /// True: the first request has ended.
  bool try_end() {
    Request* const first = find_carrier(requests_[ended_]);
    if (first == nullptr) return is_null();
    Pass pass;
    const Completion completion =
        first->try_end(pass, requests_ + ended_, status_at(statuses_, ended_));
    if (completion != Completion::pending) return completion == Completion::complete;
    return wait_slow(*first, pass);
  }
  bool is_null() {
    if (requests_[ended_] != handles().request_null) return false;
    set_empty(status_at(statuses_, ended_));
    return true;
  }
  [[gnu::noinline]] bool wait_slow(Request& first, Pass pass) {
    Waiting waiting;
    for (;;) {
      if (!poll_rest(pass, rounds_++ % kWholeRoundEvery == 0)) return false;
      waiting.idle(pass);
      pass = {};
      const Completion completion =
          first.try_end(pass, requests_ + ended_, status_at(statuses_, ended_));
      if (completion != Completion::pending) return completion == Completion::complete;
    }
  }
  /// Makes a turn of each lane of the other requests. A whole round polls each of them: one may
  /// have failed, and then the call ends without the first one. @return false: so it is
  bool poll_rest(Pass& pass, bool is_whole) {
    for (int i = ended_ + 1; i < count_; ++i) {
      if (!is_whole && !needs_all_ && (pass.lanes & lanes_) == lanes_) return true;
      Request* const ours = find_carrier(requests_[i]);
      if (ours != nullptr && ours->poll(pass) == Completion::failed) return false;
    }
    lanes_ = pass.lanes;
    needs_all_ = pass.needs_all;
    return true;
  }

  /// A whole round costs some 40 instructions for each request.
  static constexpr std::uint32_t kWholeRoundEvery = 64;

  const int count_;
  MPI_Request* const requests_;
  MPI_Status* const statuses_;
  int ended_ = 0;
  std::uint32_t rounds_ = 0;
  std::uint64_t lanes_ = 0;  // of the last whole round
  bool needs_all_ = false;
};

/// Of the entries from the first one that is not at the front.
int wait_for_all(const Next& next, int count, MPI_Request* requests, MPI_Status* statuses) {
  Batch batch(count, requests);
  Rounds rounds(batch);
  Waiting waiting;
  for (;;) {
    Pass pass;
    if (rounds.poll(pass) == 0 || rounds.any_failed()) break;
    waiting.idle(pass);
  }
  if (rounds.any_failed()) return finish_after_failure(next, batch, rounds, requests, statuses);
  // The MPI may block now: no request that it waits for needs our progress, because the last comer
  // of a group, sender or receiver, moves the data.
  const int code = call_native_if_any(
      batch, requests, statuses, [&] { return next.Waitall(count, batch.natives(), statuses); });
  if (code == MPI_ERR_IN_STATUS) {
    static_cast<void>(commit_failed(batch, rounds, true, true, requests, statuses));
    return code;
  }
  commit(batch, rounds, requests, statuses);
  return code;
}

}  // namespace
}  // namespace larklane::mpi

namespace larklane::mpi::face {

int Waitall(const Next& next, int count, MPI_Request array_of_requests[],
            MPI_Status* array_of_statuses) {
  if (is_bad_count(count)) [[unlikely]]
    return raise_bad_count("MPI_Waitall", count);
  if (!any_ours(count, array_of_requests)) [[likely]] {
    return next.Waitall(count, array_of_requests, array_of_statuses);
  }
  if (any_null(array_of_statuses)) [[unlikely]]
    return raise_null("MPI_Waitall");
  const int ended = Front(count, array_of_requests, array_of_statuses).wait();
  if (ended == count) [[likely]]
    return MPI_SUCCESS;
  const bool are_wanted = array_of_statuses != MPI_STATUSES_IGNORE;
  const int code = wait_for_all(next, count - ended, array_of_requests + ended,
                                are_wanted ? array_of_statuses + ended : array_of_statuses);
  if (code == MPI_ERR_IN_STATUS && are_wanted)
    for (int i = 0; i < ended; ++i) array_of_statuses[i].MPI_ERROR = MPI_SUCCESS;
  return code;
}

int Testall(const Next& next, int count, MPI_Request array_of_requests[], int* flag,
            MPI_Status* array_of_statuses) {
  if (is_bad_count(count)) [[unlikely]]
    return raise_bad_count("MPI_Testall", count);
  if (!any_ours(count, array_of_requests)) [[likely]] {
    help_before_native();
    return next.Testall(count, array_of_requests, flag, array_of_statuses);
  }
  if (any_null(array_of_statuses, flag)) [[unlikely]]
    return raise_null("MPI_Testall");
  Batch batch(count, array_of_requests);
  Rounds rounds(batch);
  Pass pass;
  const int pending = rounds.poll(pass);
  if (rounds.any_failed()) {
    *flag = 1;
    return finish_after_failure(next, batch, rounds, array_of_requests, array_of_statuses);
  }
  if (pending > 0) {
    // All or nothing: the MPI's own requests are not completed, but make progress.
    *flag = 0;
    Process::get().poke_native();
    return MPI_SUCCESS;
  }
  *flag = 1;
  const int code = call_native_if_any(batch, array_of_requests, array_of_statuses, [&] {
    return next.Testall(count, batch.natives(), flag, array_of_statuses);
  });
  if (code == MPI_ERR_IN_STATUS) {
    static_cast<void>(
        commit_failed(batch, rounds, true, true, array_of_requests, array_of_statuses));
  } else if (code == MPI_SUCCESS && *flag != 0) {
    commit(batch, rounds, array_of_requests, array_of_statuses);
  }
  return code;
}

int Request_get_status_all(const Next& next, int count, const MPI_Request array_of_requests[],
                           int* flag, MPI_Status* array_of_statuses) {
  if (is_bad_count(count)) [[unlikely]]
    return raise_bad_count("MPI_Request_get_status_all", count);
  if (!any_ours(count, array_of_requests)) [[likely]] {
    return next.Request_get_status_all(count, array_of_requests, flag, array_of_statuses);
  }
  if (any_null(array_of_statuses, flag)) [[unlikely]]
    return raise_null("MPI_Request_get_status_all");
  Batch batch(count, array_of_requests);
  Rounds rounds(batch);
  Pass pass;
  if (rounds.poll(pass) > 0) {
    *flag = 0;
    Process::get().poke_native();
    return MPI_SUCCESS;
  }
  *flag = 1;
  const int code = batch.native_count() > 0 ? next.Request_get_status_all(count, batch.natives(),
                                                                          flag, array_of_statuses)
                                            : set_empty_but_ours(batch, array_of_statuses);
  if (code != MPI_SUCCESS || *flag == 0) return code;
  for (int i = 0; i < count; ++i) {
    if (is_over(rounds[i]))
      batch.ours(i)->fill(status_at(array_of_statuses, i));
    else if (batch.ours(i) != nullptr)
      set_empty(status_at(array_of_statuses, i));
  }
  return MPI_SUCCESS;
}

}  // namespace larklane::mpi::face
