#pragma once
// Annotations of locks for clang's -Wthread-safety; nothing to other compilers.

#if defined(__clang__)
#define LARKLANE_THREAD_ANNOTATION(text) __attribute__((text))
#else
#define LARKLANE_THREAD_ANNOTATION(text)
#endif

/// Of a class: it is a lock.
#define LARKLANE_CAPABILITY(name) LARKLANE_THREAD_ANNOTATION(capability(name))
/// Of a class: it holds a lock while it lives.
#define LARKLANE_SCOPED_CAPABILITY LARKLANE_THREAD_ANNOTATION(scoped_lockable)
/// Of a member: only with the lock held.
#define LARKLANE_GUARDED_BY(lock) LARKLANE_THREAD_ANNOTATION(guarded_by(lock))
/// Of a function: the caller holds the lock.
#define LARKLANE_REQUIRES(...) LARKLANE_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define LARKLANE_ACQUIRE(...) LARKLANE_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define LARKLANE_RELEASE(...) LARKLANE_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
/// Of a function: it has taken the lock if it returns the first argument.
#define LARKLANE_TRY_ACQUIRE(...) LARKLANE_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
/// Of a function: the lock is held when it is called, by a way that the compiler can't follow.
#define LARKLANE_ASSERT_HELD(lock) LARKLANE_THREAD_ANNOTATION(assert_capability(lock))
/// Of a function: the compiler can't follow its body.
#define LARKLANE_NOT_FOLLOWED LARKLANE_THREAD_ANNOTATION(no_thread_safety_analysis)
