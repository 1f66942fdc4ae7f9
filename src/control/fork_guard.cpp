#include "control/fork_guard.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <mutex>
#include <vector>

namespace larklane::control {
namespace {

/// The number may be another file's by now: a socket is known by its inode.
bool is_socket(int fd, ino_t inode) noexcept {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode) && status.st_ino == inode;
}

// Invariants: 1. Under the mutex no socket exists that is not listed. 2. fork holds the mutex.
class Guard {
 public:
  /// Lives as long as the process: a fork may come at any time.
  static Guard& get() {
    static Guard* const guard = new Guard;
    return *guard;
  }

  UniqueFd keep(int (*make)(void*), void* argument) {
    const std::lock_guard lock(mutex_);
    if (!dummy_) dummy_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    UniqueFd fd(make(argument));
    struct stat status {};
    const int error = errno;
    if (fd && ::fstat(fd.get(), &status) == 0) {
      const auto number = static_cast<std::size_t>(fd.get());
      if (number >= inodes_.size()) inodes_.resize(number + 1);
      inodes_[number] = status.st_ino;
    }
    errno = error;
    return fd;
  }

 private:
  Guard() {
    ::pthread_atfork([] { get().mutex_.lock(); }, [] { get().mutex_.unlock(); },
                     [] { get().in_child(); });
  }
  /// System calls only: another thread may have held any lock of the library at the fork. The
  /// numbers stay in use, since their owners will close them.
  void in_child() noexcept {
    for (std::size_t number = 0; number < inodes_.size(); ++number) {
      const int fd = static_cast<int>(number);
      if (inodes_[number] != 0 && is_socket(fd, inodes_[number])) {
        ::dup3(dummy_.get(), fd, O_CLOEXEC);
      }
    }
    inodes_.clear();
    mutex_.unlock();
  }

  std::mutex mutex_;
  UniqueFd dummy_;
  std::vector<ino_t> inodes_;  // by number, of all sockets so far; 0: none
};

}  // namespace

UniqueFd keep_from_children(int (*make)(void*), void* argument) {
  return Guard::get().keep(make, argument);
}

}  // namespace larklane::control
