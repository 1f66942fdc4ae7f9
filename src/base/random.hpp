#pragma once
// Bytes that can't be guessed, of the kernel. Thread safety: thread-safe.

#include <sys/random.h>

#include <cerrno>
#include <cstddef>
#include <span>

#include "base/status.hpp"

namespace larklane {

/// @errors kSystem: the kernel gives none. There is no weaker source.
inline Status fill_random(std::span<std::byte> bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t count = ::getrandom(bytes.data(), bytes.size(), 0);
    if (count > 0)
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    else if (errno != EINTR)
      return Status(Errc::kSystem, errno);
  }
  return {};
}

}  // namespace larklane
