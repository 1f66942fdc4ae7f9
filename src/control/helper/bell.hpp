#pragma once
// What wakes the helper.

#include "base/fd_identity.hpp"
#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace larklane::control {

/// An eventfd, and a socket by which it is noticed that the program has closed what is not its own.
/// Thread safety: thread-safe, once it is open.
class Bell {
 public:
  /// @errors kSystem
  Status open();
  /// Nothing if is_lost(): its number may be a file of the program's.
  void ring() const noexcept;
  /// What has been rung so far is heard.
  void hear() const noexcept;
  int fd() const noexcept { return fd_.get(); }
  /// The program has closed the descriptors of this process, and perhaps opened others. A system
  /// call.
  bool is_lost() const noexcept { return !identity_.is_at(sentinel_.get()); }
  /// Closes nothing: the numbers are not the owner's any more.
  void forget() noexcept {
    (void)fd_.release();
    (void)sentinel_.release();
  }

 private:
  UniqueFd fd_;
  UniqueFd sentinel_;  // with an inode of its own, which an eventfd has not
  FdIdentity identity_;
};

}  // namespace larklane::control
