#pragma once
// Which thread writes a page of a buffer first, and when.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace larklane::profile {

/// The pages are write-protected by userfaultfd(2). With mprotect and a signal the kernel's own
/// writes (read, process_vm_writev) would fail, a stack could not be watched, and neither could a
/// program with a handler of its own. Here the writing thread waits until its write is noted.
///
/// Thread safety: thread-safe.
/// Invariants:
/// 1. The thread that notes takes no lock and no memory: a thread that waits for it may hold
///    malloc's lock, or ours.
/// 2. If any call fails, all pages are given up, so that no thread waits for ever.
class WriteWatch {
 public:
  struct Write {
    std::uint64_t time_ns;
    std::uintptr_t page;
    int thread;  ///< the kernel's id of it
  };
  /// Kernel features that create() needs.
  static constexpr char kRemedy[] =
      "it takes Linux 5.7 and one of these: root, CAP_SYS_PTRACE, access to /dev/userfaultfd "
      "(Linux "
      "6.1), `sysctl vm.unprivileged_userfaultfd=1`";

  /// @errors kSystem: detail is the errno
  static Result<std::unique_ptr<WriteWatch>> create();
  ~WriteWatch();  ///< nothing is watched any more
  WriteWatch(const WriteWatch&) = delete;
  WriteWatch& operator=(const WriteWatch&) = delete;

  /// The next write to each page that lies within the buffer as a whole is noted.
  /// @errors kSystem: this memory can't be watched (shared or huge pages, too many buffers)
  Status watch(std::uintptr_t address, std::uint64_t bytes) noexcept;
  /// The writes noted since the last call, in order. use(const Write&)
  template <class Use>
  void take(Use use);
  std::uint64_t page_bytes() const noexcept { return page_bytes_; }
  /// Writes that were not noted: too many between two calls of take().
  std::uint64_t dropped_count() const noexcept {
    return dropped_.load(std::memory_order_relaxed);  // relaxed: a statistic
  }

 private:
  static constexpr std::size_t kBuffersMax = 4096;  // the kernel splits its map at each end of one
  static constexpr std::size_t kWritesMax = 65536;

  WriteWatch(UniqueFd faults, UniqueFd stop);
  void note_all() noexcept;
  void note(std::uintptr_t page, int thread) noexcept;
  /// @return  errno, 0
  int protect(std::uintptr_t begin, std::uint64_t bytes, bool is_on) const noexcept;
  int add_locked(std::uintptr_t begin, std::uint64_t bytes);

  const UniqueFd faults_, stop_;
  const std::uint64_t page_bytes_;
  std::mutex mutex_;
  std::set<std::uintptr_t> buffers_;  // guarded by mutex_: those that were ever watched
  std::vector<Write> writes_;         // a ring
  std::atomic<std::uint64_t> noted_{0}, taken_{0}, dropped_{0};
  std::thread noter_;
};

template <class Use>
void WriteWatch::take(Use use) {
  const std::scoped_lock lock(mutex_);
  // acquire: pairs with note() release
  const std::uint64_t end = noted_.load(std::memory_order_acquire);
  // relaxed: the mutex orders the takers
  std::uint64_t next = taken_.load(std::memory_order_relaxed);
  for (; next != end; ++next) use(writes_[next % kWritesMax]);
  taken_.store(end, std::memory_order_release);  // release: pairs with note() acquire
}

}  // namespace larklane::profile
