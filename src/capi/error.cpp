#include "capi/error.hpp"

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "base/printable.hpp"
#include "larklane/larklane.h"

namespace larklane::capi {
namespace {

thread_local char last_error[512] = "";

#define LARKLANE_SAME(c, cpp) \
  static_assert(LARKLANE_ERR_##c == -static_cast<int>(Errc::cpp), "the codes of C and C++")
LARKLANE_SAME(INVALID_ARGUMENT, kInvalidArgument);
LARKLANE_SAME(NOT_ACTIVE, kNotActive);
LARKLANE_SAME(ALREADY_ACTIVE, kAlreadyActive);
LARKLANE_SAME(ALREADY_READY, kAlreadyReady);
LARKLANE_SAME(WRONG_KIND, kWrongKind);
LARKLANE_SAME(UNSUPPORTED_BUFFER, kUnsupportedBuffer);
LARKLANE_SAME(SIZE_MISMATCH, kSizeMismatch);
LARKLANE_SAME(TRANSFER, kTransfer);
LARKLANE_SAME(VERSION, kVersion);
LARKLANE_SAME(PEER_FREED, kPeerFreed);
LARKLANE_SAME(PEER_DOWN, kPeerDown);
LARKLANE_SAME(UNREACHABLE, kUnreachable);
LARKLANE_SAME(FOREIGN_USER, kForeignUser);
LARKLANE_SAME(PROTOCOL, kProtocol);
LARKLANE_SAME(NO_MEMORY, kNoMemory);
LARKLANE_SAME(NO_THREAD, kNoThread);
LARKLANE_SAME(SYSTEM, kSystem);
LARKLANE_SAME(BAD_OPTION, kBadOption);
#undef LARKLANE_SAME

}  // namespace

int fail(const char* call, Status status, const char* format, ...) noexcept {
  int used =
      std::snprintf(last_error, sizeof last_error, "%s: %s: ", call, errc_name(status.code()));
  if (used < 0 || static_cast<std::size_t>(used) >= sizeof last_error) used = 0;
  std::va_list arguments;
  va_start(arguments, format);
  char text[sizeof last_error];
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  // It may quote the environment, a file or another process.
  const std::size_t room = sizeof last_error - 1 - static_cast<std::size_t>(used);
  last_error[static_cast<std::size_t>(used) + print_to(text, last_error + used, room)] = '\0';
  return code_of(status);
}

int fail(const char* call, Status status) noexcept {
  char reason[128];
  if (status.detail() != 0)
    std::snprintf(last_error, sizeof last_error, "%s: %s: %s", call, errc_name(status.code()),
                  ::strerror_r(status.detail(), reason, sizeof reason));
  else
    std::snprintf(last_error, sizeof last_error, "%s: %s", call, errc_name(status.code()));
  return code_of(status);
}

}  // namespace larklane::capi

using larklane::Errc;

const char* larklane_error_name(int error) {
  return larklane::errc_name(error > 0 || error < LARKLANE_ERR_BAD_OPTION
                                 ? static_cast<Errc>(-1)
                                 : static_cast<Errc>(-error));
}

const char* larklane_version(void) { return LARKLANE_VERSION; }

const char* larklane_last_error(void) { return larklane::capi::last_error; }
