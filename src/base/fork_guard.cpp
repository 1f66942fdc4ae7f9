#include "base/fork_guard.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstddef>
#include <mutex>
#include <vector>

#include "base/fd_identity.hpp"

namespace larklane {
namespace {

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
    const int error = errno;
    if (fd) {
      const auto number = static_cast<std::size_t>(fd.get());
      if (number >= sockets_.size()) sockets_.resize(number + 1);
      sockets_[number] = FdIdentity(fd.get());
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
    for (std::size_t number = 0; number < sockets_.size(); ++number) {
      const int fd = static_cast<int>(number);
      if (sockets_[number].is_at(fd)) ::dup3(dummy_.get(), fd, O_CLOEXEC);
    }
    sockets_.clear();
    mutex_.unlock();
  }

  std::mutex mutex_;
  UniqueFd dummy_;
  std::vector<FdIdentity> sockets_;  // by number, all so far
};

}  // namespace

UniqueFd keep_from_children(int (*make)(void*), void* argument) {
  return Guard::get().keep(make, argument);
}

}  // namespace larklane
