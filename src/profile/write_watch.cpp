#include "profile/write_watch.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/clock.hpp"

namespace larklane::profile {
namespace {

/// @return  without a file: errno says why
UniqueFd open_faults() noexcept {
  UniqueFd faults(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK)));
#ifdef USERFAULTFD_IOC_NEW
  if (!faults && errno == EPERM) {
    const UniqueFd device(::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
    if (device) faults.reset(::ioctl(device.get(), USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK));
    if (!faults) errno = EPERM;
  }
#endif
  if (!faults) return faults;
  uffdio_api api{UFFD_API, UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_THREAD_ID, 0};
  if (::ioctl(faults.get(), UFFDIO_API, &api) != 0) faults.reset();
  return faults;
}

}  // namespace

Result<std::unique_ptr<WriteWatch>> WriteWatch::create() {
  UniqueFd faults = open_faults();
  if (!faults) return Status(Errc::kSystem, errno);
  UniqueFd stop(::eventfd(0, EFD_CLOEXEC));
  if (!stop) return Status(Errc::kSystem, errno);
  return std::unique_ptr<WriteWatch>(new WriteWatch(std::move(faults), std::move(stop)));
}

WriteWatch::WriteWatch(UniqueFd faults, UniqueFd stop)
    : faults_(std::move(faults)),
      stop_(std::move(stop)),
      page_bytes_(static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))),
      writes_(kWritesMax) {
  // The program's signals are for its own threads.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  noter_ = std::thread([this] { note_all(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

WriteWatch::~WriteWatch() {
  ::eventfd_write(stop_.get(), 1);
  noter_.join();
}

int WriteWatch::protect(std::uintptr_t begin, std::uint64_t bytes, bool is_on) const noexcept {
  uffdio_writeprotect order{{begin, bytes}, is_on ? UFFDIO_WRITEPROTECT_MODE_WP : 0};
  while (::ioctl(faults_.get(), UFFDIO_WRITEPROTECT, &order) != 0) {
    if (errno != EAGAIN) return errno;
    ::sched_yield();  // the memory map is just being changed
  }
  return 0;
}

int WriteWatch::add_locked(std::uintptr_t begin, std::uint64_t bytes) {
  if (buffers_.size() == kBuffersMax && !buffers_.contains(begin)) return ENOBUFS;
  uffdio_register order{{begin, bytes}, UFFDIO_REGISTER_MODE_WP, 0};
  if (::ioctl(faults_.get(), UFFDIO_REGISTER, &order) != 0) return errno;
  buffers_.insert(begin);
  return protect(begin, bytes, true);
}

Status WriteWatch::watch(std::uintptr_t address, std::uint64_t bytes) noexcept {
  const std::uintptr_t begin = (address + page_bytes_ - 1) / page_bytes_ * page_bytes_;
  const std::uintptr_t end = (address + bytes) / page_bytes_ * page_bytes_;
  if (end <= begin) return {};
  const std::scoped_lock lock(mutex_);
  int error = protect(begin, end - begin, true);
  if (error == ENOENT) error = add_locked(begin, end - begin);
  return error == 0 ? Status() : Status(Errc::kSystem, error);
}

void WriteWatch::note_all() noexcept {
  for (;;) {
    pollfd ready[] = {{faults_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    ::poll(ready, 2, -1);
    if (ready[1].revents != 0) break;
    uffd_msg message;
    if (::read(faults_.get(), &message, sizeof message) != sizeof message) continue;
    if (message.event != UFFD_EVENT_PAGEFAULT) continue;
    const std::uintptr_t page = message.arg.pagefault.address / page_bytes_ * page_bytes_;
    note(page, static_cast<int>(message.arg.pagefault.feat.ptid));
    const int error = protect(page, page_bytes_, false);
    if (error == 0) continue;
    if (error != ENOENT) break;
    uffdio_range gone{page, page_bytes_};
    ::ioctl(faults_.get(), UFFDIO_WAKE, &gone);
  }
  // The last reference to the protection becomes one to something else: all threads go on.
  ::dup2(stop_.get(), faults_.get());
}

void WriteWatch::note(std::uintptr_t page, int thread) noexcept {
  const std::uint64_t next = noted_.load(std::memory_order_relaxed);  // relaxed: this thread's own
  // acquire: pairs with take() release, after which the place is free
  if (next - taken_.load(std::memory_order_acquire) == kWritesMax) {
    dropped_.fetch_add(1, std::memory_order_relaxed);  // relaxed: a statistic
    return;
  }
  writes_[next % kWritesMax] = {now_ns(), page, thread};
  noted_.store(next + 1, std::memory_order_release);  // release: pairs with take() acquire
}

}  // namespace larklane::profile
