#pragma once
// Which sanitizers this is built with: gcc and clang say it differently.

#if defined(__SANITIZE_THREAD__)
#define LARKLANE_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LARKLANE_TSAN 1
#endif
#endif

#if defined(__SANITIZE_ADDRESS__)
#define LARKLANE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LARKLANE_ASAN 1
#endif
#endif

#if defined(LARKLANE_TSAN) || defined(LARKLANE_ASAN)
#define LARKLANE_SANITIZED 1  ///< all is many times as slow
#endif
