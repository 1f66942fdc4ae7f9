#pragma once
// Which file a descriptor number stands for. Thread safety: immutable.

#include <sys/stat.h>

namespace larklane {

/// A program may close every number that it finds, also those of others, and open files of its own
/// under them: then the number stands for another file. Two anonymous files (eventfd, epoll) can't
/// be told apart.
class FdIdentity {
 public:
  FdIdentity() noexcept = default;
  explicit FdIdentity(int fd) noexcept {
    struct stat status {};
    if (fd < 0 || ::fstat(fd, &status) != 0) return;
    device_ = status.st_dev;
    inode_ = status.st_ino;
    is_known_ = true;
  }
  /// A system call; may be called in a forked child.
  bool is_at(int fd) const noexcept {
    const FdIdentity now(is_known_ ? fd : -1);
    return now.is_known_ && now.device_ == device_ && now.inode_ == inode_;
  }
  bool is_known() const noexcept { return is_known_; }

 private:
  dev_t device_ = 0;
  ino_t inode_ = 0;
  bool is_known_ = false;
};

}  // namespace larklane
