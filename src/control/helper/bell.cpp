#include "control/helper/bell.hpp"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace larklane::control {

Status Bell::open() {
  fd_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd_) return Status(Errc::kSystem, errno);
  sentinel_.reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  identity_ = FdIdentity(sentinel_.get());
  return identity_.is_known() ? Status() : Status(Errc::kSystem, errno);
}

void Bell::ring() const noexcept {
  if (is_lost()) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(fd_.get(), &one, sizeof one);
}

void Bell::hear() const noexcept {
  std::uint64_t rings = 0;
  [[maybe_unused]] const ssize_t got = ::read(fd_.get(), &rings, sizeof rings);
}

}  // namespace larklane::control
