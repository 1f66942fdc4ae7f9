#include "shm/copy.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "base/copy_small.hpp"
#include "base/unique_fd.hpp"

namespace larklane::shm {
namespace {

constexpr std::size_t kVectorsMax = 128;
/// One call moves at most MAX_RW_COUNT (2 GiB less a page) bytes.
constexpr std::uint64_t kCallBytesMax = std::uint64_t{1} << 30;
/// Of a pipe, by default.
constexpr std::uint64_t kPipeBytes = std::uint64_t{1} << 16;
/// On the stack of a thread of the program.
constexpr std::uint64_t kOwnBytes = std::uint64_t{4} << 10;
/// As control/helper/helper_thread.cpp names it.
constexpr std::string_view kHelperName = "larklane\n";

/// A batch of pieces of one buffer, `bytes` in all.
struct Vectors {
  iovec entries[kVectorsMax];
  std::size_t count = 0;

  std::span<const iovec> all() const noexcept { return {entries, count}; }
  std::uint64_t gather(TypeCursor& cursor, std::uint64_t bytes_max) noexcept {
    std::uint64_t bytes = 0;
    for (count = 0; count < kVectorsMax && bytes < bytes_max; ++count) {
      const auto piece = cursor.next(bytes_max - bytes);
      if (piece.length_bytes == 0) break;
      // The cursor speaks in addresses: they may be another process's.
      entries[count] = {reinterpret_cast<void*>(piece.address), piece.length_bytes};
      bytes += piece.length_bytes;
    }
    return bytes;
  }
};

/// Of a length that the compiler knows, or does not.
template <class Bytes>
[[gnu::always_inline]] inline void copy_block(std::byte* to, const std::byte* from,
                                              Bytes bytes) noexcept {
  if constexpr (std::is_same_v<Bytes, std::uint64_t>)
    copy_small(to, from, bytes);
  else
    std::memcpy(to, from, bytes);
}

/// `each(address, bytes)` of every block in turn. Common lengths are known to the compiler.
template <class Each>
[[gnu::always_inline]] inline void for_each_block(TypeCursor& cursor, Each each) noexcept {
  for (;;) {
    const TypeCursor::Run run = cursor.next_run();
    if (run.count == 0) return;
    const auto blocks_of = [&](auto length) __attribute__((always_inline)) {
      if (run.places != nullptr) {
        for (std::uint64_t i = 0; i < run.count; ++i)
          each(run.address + static_cast<std::uintptr_t>(run.places[i]), length);
      } else {
        std::uintptr_t block = run.address;
        for (std::uint64_t left = run.count; left != 0; --left, block += run.stride)
          each(block, length);
      }
    };
    if (run.entries != nullptr) {
      std::uint64_t start = run.entries[0].start;
      for (std::uint64_t i = 0; i < run.count; ++i) {
        const std::uint64_t next = run.entries[i + 1].start;
        each(run.address + static_cast<std::uintptr_t>(run.entries[i].offset), next - start);
        start = next;
      }
    } else if (run.block_bytes == 4) {
      blocks_of(std::integral_constant<std::size_t, 4>{});
    } else if (run.block_bytes == 8) {
      blocks_of(std::integral_constant<std::size_t, 8>{});
    } else if (run.block_bytes == 16) {
      blocks_of(std::integral_constant<std::size_t, 16>{});
    } else {
      blocks_of(run.block_bytes);
    }
  }
}

ssize_t attach_call(Direction direction, pid_t thread, std::span<const iovec> ours,
                    std::span<const iovec> theirs) noexcept {
  return direction == Direction::read
             ? ::process_vm_readv(thread, ours.data(), ours.size(), theirs.data(), theirs.size(), 0)
             : ::process_vm_writev(thread, ours.data(), ours.size(), theirs.data(), theirs.size(),
                                   0);
}

void advance(Piece& piece, ssize_t bytes) noexcept {
  piece.offset += static_cast<std::uint64_t>(bytes);
  piece.length -= static_cast<std::uint64_t>(bytes);
}

/// The kernel says so of numbers that this process sees.
bool is_thread_of(pid_t process, pid_t thread) noexcept {
  return ::tgkill(process, thread, 0) == 0;
}

bool is_helper(pid_t process, pid_t thread) noexcept {
  std::array<char, 64> path;
  std::array<char, 32> name;
  std::snprintf(path.data(), path.size(), "/proc/%d/task/%d/comm", process, thread);
  const UniqueFd file(::open(path.data(), O_RDONLY | O_CLOEXEC));
  const ssize_t length = file ? ::read(file.get(), name.data(), name.size()) : -1;
  return length > 0 &&
         std::string_view(name.data(), static_cast<std::size_t>(length)) == kHelperName;
}

/// The first that is(thread), but for the process's first one; 0: there is none, or no /proc.
template <class Is>
pid_t find_thread(pid_t process, Is&& is) noexcept {
  std::array<char, 32> path;
  std::snprintf(path.data(), path.size(), "/proc/%d/task", process);
  DIR* const threads = ::opendir(path.data());
  if (threads == nullptr) return 0;
  pid_t found = 0;
  while (const dirent* entry = found == 0 ? ::readdir(threads) : nullptr)
    if (const auto thread = static_cast<pid_t>(std::atol(entry->d_name));
        // The numbers in /proc may be those of another pid namespace: the kernel says if not.
        thread > 0 && thread != process && is_thread_of(process, thread) && is(thread))
      found = thread;
  ::closedir(threads);
  return found;
}

}  // namespace

void pack(const Buffer& from, std::uint64_t offset, std::uint64_t length,
          std::byte* slot) noexcept {
  if (from.type->is_contiguous()) {
    std::memcpy(slot, reinterpret_cast<const void*>(from.address + offset), length);
    return;
  }
  TypeCursor cursor(*from.type, from.address, offset, length);
  for_each_block(
      cursor, [&](std::uintptr_t block, auto bytes) __attribute__((always_inline)) {
        copy_block(slot, reinterpret_cast<const std::byte*>(block), bytes);
        slot += bytes;
      });
}

void unpack(const Buffer& to, std::uint64_t offset, std::uint64_t length,
            const std::byte* slot) noexcept {
  if (to.type->is_contiguous()) {
    std::memcpy(reinterpret_cast<void*>(to.address + offset), slot, length);
    return;
  }
  TypeCursor cursor(*to.type, to.address, offset, length);
  for_each_block(
      cursor, [&](std::uintptr_t block, auto bytes) __attribute__((always_inline)) {
        copy_block(reinterpret_cast<std::byte*>(block), slot, bytes);
        slot += bytes;
      });
}

void copy(const Buffer& from, const Buffer& to, std::uint64_t offset,
          std::uint64_t length) noexcept {
  if (from.type->is_contiguous())
    return unpack(to, offset, length, reinterpret_cast<const std::byte*>(from.address + offset));
  if (to.type->is_contiguous())
    return pack(from, offset, length, reinterpret_cast<std::byte*>(to.address + offset));
  TypeCursor source(*from.type, from.address, offset, length);
  TypeCursor target(*to.type, to.address, offset, length);
  while (source.left_bytes() != 0) {
    auto piece = source.next(source.left_bytes());
    while (piece.length_bytes != 0) {
      const auto room = target.next(piece.length_bytes);
      copy_small(reinterpret_cast<std::byte*>(room.address),
                 reinterpret_cast<const std::byte*>(piece.address), room.length_bytes);
      piece.address += room.length_bytes;
      piece.length_bytes -= room.length_bytes;
    }
  }
}

namespace {

/// Needs 10 KiB of stack, which not every thread of a program has.
[[gnu::noinline]] Status attach_copy_blocks(Direction direction, pid_t thread, const Buffer& ours,
                                            const Buffer& theirs, Piece& piece) noexcept {
  while (piece.length != 0) {
    // The side with the smaller pieces limits the batch: gather it first, then as much of the
    // other. A remainder that the other could not take is gathered again in the next turn.
    TypeCursor our_cursor(*ours.type, ours.address, piece.offset, piece.length);
    TypeCursor their_cursor(*theirs.type, theirs.address, piece.offset, piece.length);
    Vectors our_vectors;
    Vectors their_vectors;
    const std::uint64_t ready =
        our_vectors.gather(our_cursor, std::min(piece.length, kCallBytesMax));
    their_vectors.gather(their_cursor, ready);
    const ssize_t moved = attach_call(direction, thread, our_vectors.all(), their_vectors.all());
    if (moved <= 0) return Status(Errc::kTransfer, moved < 0 ? errno : EFAULT);
    advance(piece, moved);
  }
  return {};
}

}  // namespace

Status attach_copy(Direction direction, pid_t thread, const Buffer& ours, const Buffer& theirs,
                   Piece& piece) noexcept {
  if (!ours.type->is_contiguous() || !theirs.type->is_contiguous())
    return attach_copy_blocks(direction, thread, ours, theirs, piece);
  while (piece.length != 0) {
    const std::uint64_t bytes = std::min(piece.length, kCallBytesMax);
    const iovec here{reinterpret_cast<void*>(ours.address + piece.offset), bytes};
    const iovec there{reinterpret_cast<void*>(theirs.address + piece.offset), bytes};
    const ssize_t moved = attach_call(direction, thread, {&here, 1}, {&there, 1});
    if (moved <= 0) return Status(Errc::kTransfer, moved < 0 ? errno : EFAULT);
    advance(piece, moved);
  }
  return {};
}

Status attach_copy(Direction direction, pid_t process, pid_t thread, const Buffer& ours,
                   const Buffer& theirs, Piece& piece) noexcept {
  if (thread == process) return attach_copy(direction, thread, ours, theirs, piece);
  if (!is_thread_of(process, thread)) return Status(Errc::kTransfer, ESRCH);
  const Piece before = piece;
  const Status status = attach_copy(direction, thread, ours, theirs, piece);
  if (direction == Direction::write || is_thread_of(process, thread)) return status;
  piece = before;
  return Status(Errc::kTransfer, ESRCH);
}

Status attach_copy_by_owner(Direction direction, pid_t process, pid_t thread, const Buffer& ours,
                            const Buffer& theirs, Piece& piece) noexcept {
  const Typemap plain = Typemap::contiguous(1);
  std::array<std::byte, kOwnBytes> own;
  while (piece.length != 0) {
    const Piece part{piece.offset, std::min(piece.length, kOwnBytes)};
    const bool is_write = direction == Direction::write;
    if (is_write) pack(ours, part.offset, part.length, own.data());
    // The byte at part.offset is the first.
    const Buffer here{&plain, reinterpret_cast<std::uintptr_t>(own.data()) - part.offset};
    Piece left = part;
    const Status status = attach_copy(direction, process, thread, here, theirs, left);
    const std::uint64_t copied = part.length - left.length;
    if (!is_write && copied != 0) unpack(ours, part.offset, copied, own.data());
    piece.offset += copied;
    piece.length -= copied;
    if (!status.ok()) return status;
  }
  return {};
}

// Through a pipe: both system calls take memory of any kind, and none needs a permission.
Status checked_copy(const Buffer& from, const Buffer& to, Piece& piece) noexcept {
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return Status(Errc::kTransfer, errno);
  const UniqueFd out(ends[0]), in(ends[1]);
  Vectors vectors;
  while (piece.length != 0) {
    TypeCursor source(*from.type, from.address, piece.offset, piece.length);
    vectors.gather(source, std::min(piece.length, kPipeBytes));
    const ssize_t filled = ::writev(in.get(), vectors.entries, static_cast<int>(vectors.count));
    if (filled <= 0) return Status(Errc::kTransfer, filled < 0 ? errno : EFAULT);
    for (auto left = static_cast<std::uint64_t>(filled); left != 0;) {
      TypeCursor target(*to.type, to.address, piece.offset, left);
      vectors.gather(target, left);
      const ssize_t emptied = ::readv(out.get(), vectors.entries, static_cast<int>(vectors.count));
      if (emptied <= 0) return Status(Errc::kTransfer, emptied < 0 ? errno : EFAULT);
      advance(piece, emptied);
      left -= static_cast<std::uint64_t>(emptied);
    }
  }
  return {};
}

void let_peers_attach() noexcept {
  // An error means that there is no Yama, or one that refuses each process: the probe will tell.
  (void)::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

Status probe_attach(Direction direction, pid_t thread) noexcept {
  if (thread <= 0) return {Errc::kUnreachable, EINVAL};
  // The kernel asks for permission before it looks at the address; no program has memory at the top
  // of the address space.
  std::byte byte{};
  const iovec ours{&byte, 1}, theirs{reinterpret_cast<void*>(~std::uintptr_t{4095}), 1};
  const int error = attach_call(direction, thread, {&ours, 1}, {&theirs, 1}) < 0 ? errno : EPERM;
  return error == EFAULT ? Status{} : Status(Errc::kUnreachable, error);
}

pid_t attach_thread(pid_t process) noexcept {
  if (process <= 0 || probe_attach(Direction::read, process).detail() != ESRCH) return process;
  const pid_t helper =
      find_thread(process, [&](pid_t thread) { return is_helper(process, thread); });
  return helper != 0 ? helper : process;
}

bool attach_allowed_to(Direction direction, pid_t process) noexcept {
  Status status = probe_attach(direction, process);
  if (process > 0 && status.detail() == ESRCH)
    (void)find_thread(process, [&](pid_t thread) {
      status = probe_attach(direction, thread);
      return status.detail() != ESRCH;
    });
  return status.ok();
}

}  // namespace larklane::shm
