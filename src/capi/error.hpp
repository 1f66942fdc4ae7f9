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

/// The caller's function fails with the formatted text unless `condition` holds.
#define LARKLANE_CAPI_REQUIRES(condition, ...)                                                  \
  do {                                                                                          \
    if (!(condition)) [[unlikely]]                                                              \
      return ::larklane::capi::fail(__func__, ::larklane::Errc::kInvalidArgument, __VA_ARGS__); \
  } while (false)
/// `handle` must not be null.
#define LARKLANE_CAPI_NEEDS(handle) LARKLANE_CAPI_REQUIRES((handle) != nullptr, #handle " is null")
/// The same, and there must be a lane behind it.
#define LARKLANE_CAPI_NEEDS_LANE(vci_)                                     \
  do {                                                                     \
    LARKLANE_CAPI_NEEDS(vci_);                                             \
    LARKLANE_CAPI_REQUIRES((vci_)->vci.is_open(), #vci_ " was destroyed"); \
  } while (false)
/// `structure` must not be null, and must have a size that a version has.
#define LARKLANE_CAPI_NEEDS_STRUCT(structure)                                            \
  do {                                                                                   \
    LARKLANE_CAPI_NEEDS(structure);                                                      \
    LARKLANE_CAPI_REQUIRES((structure)->struct_size == sizeof *(structure),              \
                           #structure "->struct_size is %zu; use its LARKLANE_..._INIT", \
                           (structure)->struct_size);                                    \
  } while (false)
