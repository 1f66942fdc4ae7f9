#pragma once
// The bell that wakes the helper.

#include "base/fd_identity.hpp"
#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace larklane::control {

/// An eventfd, and a socket that shows whether the program has closed the library's descriptors.
/// Thread safety: thread-safe, once it is open.
class Bell {
 public:
  /// @errors kSystem
  Status open();
  /// Does nothing if is_lost(): its number may be a file of the program's.
  void ring() const noexcept;
  /// Clears all rings so far.
  void hear() const noexcept;
  int fd() const noexcept { return fd_.get(); }
  /// The program has closed the descriptors of this process, and perhaps opened others. Makes a
  /// system call.
  bool is_lost() const noexcept { return !identity_.is_at(sentinel_.get()); }
  /// Closes nothing: the numbers no longer belong to the bell.
  void forget() noexcept {
    (void)fd_.release();
    (void)sentinel_.release();
  }

 private:
  UniqueFd fd_;
  UniqueFd sentinel_;  // has an inode of its own, unlike an eventfd
  FdIdentity identity_;
};

}  // namespace larklane::control
