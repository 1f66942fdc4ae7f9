#pragma once
// The process that made an object. Thread safety: immutable.

#include <sys/types.h>
#include <unistd.h>

namespace larklane {

/// A forked child has copies of its parent's objects, but not the threads that work for them, and
/// it shares the parent's sockets, segments and devices. Locks may be held by threads that the
/// child does not have. So an object that has any of these ends only where it was made.
class Maker {
 public:
  /// False in a child that was forked later. A system call.
  bool is_this_process() const noexcept { return ::getpid() == process_; }

 private:
  const pid_t process_ = ::getpid();
};

}  // namespace larklane
