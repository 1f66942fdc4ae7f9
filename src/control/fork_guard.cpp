#include "control/fork_guard.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <vector>

namespace larklane::control {
namespace {

/// A socket is known by its inode: its number may be another file's by now.
struct Kept {
  int fd;
  ino_t inode;
};

bool is_open(const Kept& kept) noexcept {
  struct stat status {};
  return ::fstat(kept.fd, &status) == 0 && S_ISSOCK(status.st_mode) && status.st_ino == kept.inode;
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
    if (kept_.size() == kept_.capacity()) {
      std::erase_if(kept_, [](const Kept& kept) { return !is_open(kept); });
      kept_.reserve(2 * kept_.size() + 16);
    }
    UniqueFd fd(make(argument));
    struct stat status {};
    const int error = errno;
    if (fd && ::fstat(fd.get(), &status) == 0) kept_.push_back({fd.get(), status.st_ino});
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
    for (const Kept& kept : kept_) {
      if (is_open(kept)) ::dup3(dummy_.get(), kept.fd, O_CLOEXEC);
    }
    kept_.clear();
    mutex_.unlock();
  }

  std::mutex mutex_;
  UniqueFd dummy_;
  std::vector<Kept> kept_;
};

}  // namespace

UniqueFd keep_from_children(int (*make)(void*), void* argument) {
  return Guard::get().keep(make, argument);
}

}  // namespace larklane::control
