#pragma once
// A lock for doubles of networks. The thread sanitizer does not see it. A real network gives no
// order but that of its completions and immediates. A lock that every poll takes would hide all
// races of the layers above. happens_before() and happens_after() state the order that a network
// does give.

#include <mutex>

#include "base/sanitized.hpp"

#ifdef LARKLANE_TSAN
extern "C" {  // of the sanitizer's runtime; its header has only the last two
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#endif

namespace larklane::net {

/// Accesses of the calling thread before this call ...
inline void happens_before([[maybe_unused]] void* token) noexcept {
#ifdef LARKLANE_TSAN
  __tsan_release(token);
#endif
}
/// ... are seen by threads after this one. Not while an UnseenGuard lives, but in a Seen.
inline void happens_after([[maybe_unused]] void* token) noexcept {
#ifdef LARKLANE_TSAN
  __tsan_acquire(token);
#endif
}

/// Thread safety: thread-safe.
class UnseenLock {
 private:
  friend class UnseenGuard;
  std::mutex mutex_;
};

/// Holds the lock; meanwhile the sanitizer looks away. Thread safety: single-owner.
class UnseenGuard {
 public:
  explicit UnseenGuard(UnseenLock& lock) : lock_(lock) {
    look_away();
    lock_.mutex_.lock();
  }
  ~UnseenGuard() {
    lock_.mutex_.unlock();
    look_again();
  }
  UnseenGuard(const UnseenGuard&) = delete;
  UnseenGuard& operator=(const UnseenGuard&) = delete;

 private:
  friend class Seen;
  static void look_away() noexcept {
#ifdef LARKLANE_TSAN
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
#endif
  }
  static void look_again() noexcept {
#ifdef LARKLANE_TSAN
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
  }

  UnseenLock& lock_;
};

/// While an UnseenGuard lives: accesses that the sanitizer is to see. Thread safety: single-owner.
class Seen {
 public:
  Seen() { UnseenGuard::look_again(); }
  ~Seen() { UnseenGuard::look_away(); }
  Seen(const Seen&) = delete;
  Seen& operator=(const Seen&) = delete;
};

}  // namespace larklane::net
