#pragma once
// Results of C calls, and the text of larklane_last_error(). Thread safety: thread-safe; the text
// belongs to one thread.

#include <new>

#include "base/status.hpp"

namespace larklane::capi {

/// "`call`: name of the code: the formatted text". No allocation; longer than 500 characters: cut.
/// @return the code, as C has it
[[gnu::format(printf, 3, 4)]] int fail(const char* call, Status status, const char* format,
                                       ...) noexcept;
/// Nothing is known but the status.
int fail(const char* call, Status status) noexcept;

constexpr int code_of(Status status) noexcept { return -static_cast<int>(status.code()); }

inline int answer(const char* call, Status status) noexcept {
  return status.ok() ? 0 : fail(call, status);
}

/// @return the result of `body`: no exception passes
template <class Body>
int guarded(const char* call, Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return fail(call, Errc::kNoMemory);
  } catch (...) {
    return fail(call, Errc::kSystem, "an exception, which should not be");
  }
}

}  // namespace larklane::capi

/// The caller's function fails if `handle` is null.
#define LARKLANE_CAPI_NEEDS(handle)                                               \
  do {                                                                            \
    if ((handle) == nullptr) [[unlikely]]                                         \
      return ::larklane::capi::fail(__func__, ::larklane::Errc::kInvalidArgument, \
                                    #handle " is null");                          \
  } while (false)
/// The same if there is no lane behind it.
#define LARKLANE_CAPI_NEEDS_LANE(vci_)                                            \
  do {                                                                            \
    LARKLANE_CAPI_NEEDS(vci_);                                                    \
    if (!(vci_)->vci.is_open()) [[unlikely]]                                      \
      return ::larklane::capi::fail(__func__, ::larklane::Errc::kInvalidArgument, \
                                    #vci_ " was destroyed");                      \
  } while (false)
/// The same if `structure` is null or of no size that a version has.
#define LARKLANE_CAPI_NEEDS_STRUCT(structure)                                                     \
  do {                                                                                            \
    LARKLANE_CAPI_NEEDS(structure);                                                               \
    if ((structure)->struct_size != sizeof *(structure)) [[unlikely]]                             \
      return ::larklane::capi::fail(__func__, ::larklane::Errc::kInvalidArgument,                 \
                                    #structure "->struct_size is %zu; use its LARKLANE_..._INIT", \
                                    (structure)->struct_size);                                    \
  } while (false)
