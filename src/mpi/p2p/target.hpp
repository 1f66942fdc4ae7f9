#pragma once
// The communicator with the error handler of a request of an ordinary message.

#include <atomic>
#include <memory>

#include "mpi/abi/handles.hpp"
#include "mpi/world/communicator.hpp"

namespace larklane::mpi::p2p {

/// It outlives its handle. Thread safety: keep() runs beside get() and beside a clear() of another
/// communicator's request; the program orders the end of a communicator and of its requests.
class Target {
 public:
  Target() noexcept = default;
  ~Target() { release(); }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  // relaxed: keep() of another thread reads it
  void set(MPI_Comm comm) noexcept { comm_.store(comm, std::memory_order_relaxed); }
  void clear() noexcept {
    set(handles().comm_null);
    release();
  }
  MPI_Comm get() const noexcept {
    return record_ != nullptr ? record_->error_target() : comm_.load(std::memory_order_relaxed);
  }
  /// See Request::keep_target().
  void keep(MPI_Comm freed, const std::shared_ptr<Communicator>& record) {
    if (comm_.load(std::memory_order_relaxed) != freed || record_ != nullptr) return;
    record_ = record;
    record->request_count.fetch_add(1, std::memory_order_relaxed);  // relaxed: as in release()
  }
  /// Of a communicator that the program frees or has freed; null: it has not.
  const Communicator* record() const noexcept { return record_.get(); }

 private:
  void release() noexcept {
    if (record_ == nullptr) [[likely]]
      return;
    // relaxed: the program orders the end of a communicator and of its requests
    record_->request_count.fetch_sub(1, std::memory_order_relaxed);
    record_.reset();
  }

  std::atomic<MPI_Comm> comm_{};
  std::shared_ptr<Communicator> record_;  // of a freed communicator
};

}  // namespace larklane::mpi::p2p
