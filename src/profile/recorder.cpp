#include "profile/recorder.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <new>
#include <string_view>

#include "base/clock.hpp"
#include "base/kernel_calls.hpp"
#include "base/unique_fd.hpp"

namespace larklane::profile {
namespace {

template <std::size_t kSize>
void set_text(char (&place)[kSize], const std::string& text) noexcept {
  const std::size_t length = std::min(text.size(), kSize - 1);
  std::memcpy(place, text.data(), length);
  place[length] = '\0';
}

std::uint64_t unix_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

std::string host_name() {
  char name[64] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

/// "0-3,8"; empty: not known
std::string allowed_cores() {
  constexpr std::string_view kName = "Cpus_allowed_list:\t";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(kName)) return line.substr(kName.size());
  return {};
}

/// By number: libc's is a cancellation point, in calls of MPI that are none. @return errno, or 0
int write_at(int fd, const void* data, std::size_t bytes, std::uint64_t offset) noexcept {
  const int errno_of_program = errno;
  const auto* from = static_cast<const std::byte*>(data);
  int error = 0;
  while (bytes > 0 && error == 0) {
    const long written = ::syscall(SYS_pwrite64, fd, from, bytes, offset);
    if (written <= 0) {
      if (written == 0 || errno != EINTR) error = written == 0 ? EIO : errno;
      continue;
    }
    from += written;
    offset += static_cast<std::uint64_t>(written);
    bytes -= static_cast<std::size_t>(written);
  }
  errno = errno_of_program;
  return error;
}

}  // namespace

std::uint64_t clock_identity() {
  std::string text;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> text;
  struct stat time_namespace {};
  if (::stat("/proc/self/ns/time", &time_namespace) == 0)
    text += "." + std::to_string(time_namespace.st_ino);
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const char letter : text)
    hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211u;
  return hash;
}

thread_local constinit Recorder::ThreadChunk Recorder::thread_chunk{nullptr, nullptr, 0};

/// Gives a thread's chunk and number to the next one when the thread ends.
struct Recorder::Leaver {
  ~Leaver() {
    ThreadChunk& mine = thread_chunk;
    if (mine.owner != nullptr) mine.owner->give_back(mine.chunk);
    mine = {nullptr, nullptr, 0};
  }
};

Result<std::unique_ptr<Recorder>> Recorder::create(const std::string& path, const Facts& facts,
                                                   std::uint64_t bytes_max) {
  // It names host, job and program: its user's alone.
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (fd.get() < 0) return Status(Errc::kSystem, errno);
  rlimit longest{};
  if (::getrlimit(RLIMIT_FSIZE, &longest) != 0) longest.rlim_cur = RLIM_INFINITY;
  const std::uint64_t wanted = std::max<std::uint64_t>(bytes_max, kHeaderBytes + sizeof(Chunk));
  const std::uint64_t bytes = std::min<std::uint64_t>(wanted, longest.rlim_cur);
  if (bytes < kHeaderBytes + sizeof(Chunk)) {
    ::unlink(path.c_str());
    return Status(Errc::kSystem, EFBIG);
  }
  const std::uint64_t chunks = (bytes - kHeaderBytes) / sizeof(Chunk);
  struct stat file {};
  int error = ::fstat(fd.get(), &file) != 0 ? errno : 0;
  if (error == 0) error = allocate_file(fd.get(), 0, kHeaderBytes);
  void* memory = MAP_FAILED;
  if (error == 0) {
    // Beyond the end of the file, which grows chunk by chunk.
    memory = ::mmap(nullptr, kHeaderBytes + chunks * sizeof(Chunk), PROT_READ | PROT_WRITE,
                    MAP_SHARED, fd.get(), 0);
    error = memory == MAP_FAILED ? errno : 0;
  }
  if (error != 0) {
    ::unlink(path.c_str());
    return Status(Errc::kSystem, error);
  }
  std::unique_ptr<Recorder> recorder(new Recorder(fd.release(), memory, chunks, facts.has_writes));
  recorder->device_ = file.st_dev;
  recorder->inode_ = file.st_ino;
  recorder->limit_errno_ = bytes < wanted ? EFBIG : 0;
  FileHeader& header = *recorder->header_;
  header.version = kVersion;
  header.header_bytes = kHeaderBytes;
  header.chunk_bytes = sizeof(Chunk);
  header.record_bytes = sizeof(Record);
  header.rank = facts.rank;
  header.size = facts.size;
  header.pid = static_cast<std::uint32_t>(::getpid());
  header.is_native = facts.is_native ? 1 : 0;
  header.begin_ns = now_ns();
  header.begin_unix_ns = unix_ns();
  header.bytes_max = bytes_max;
  header.clock_id = clock_identity();
  set_text(header.host, host_name());
  set_text(header.job, facts.job);
  set_text(header.larklane, facts.larklane);
  set_text(header.mpi, facts.mpi);
  set_text(header.program, facts.program);
  set_text(header.cores, allowed_cores());
  set_text(header.ordinary, facts.ordinary);
  std::memcpy(header.magic, kMagic, sizeof kMagic);  // last: before, it is no profile
  return recorder;
}

Recorder::Recorder(int fd, void* memory, std::uint64_t chunks_max, bool has_writes) noexcept
    : header_(::new (memory) FileHeader{}),
      chunks_(reinterpret_cast<Chunk*>(static_cast<std::byte*>(memory) + kHeaderBytes)),
      chunks_max_(chunks_max),
      fd_(fd),
      has_writes_(has_writes) {}

Recorder::~Recorder() {
  if (thread_chunk.owner == this) forget_thread();
  ::munmap(header_, kHeaderBytes + chunks_max_ * sizeof(Chunk));
  ::close(fd_);
}

void Recorder::forget_thread() noexcept { thread_chunk = {nullptr, nullptr, 0}; }

bool Recorder::take_chunk_slow() noexcept {
  thread_local Leaver leaver;
  static_cast<void>(leaver);
  ThreadChunk& mine = thread_chunk;
  // relaxed: a thread that misses it finds no chunk
  if (header_->full_since_ns.load(std::memory_order_relaxed) != 0) return drop();
  const std::scoped_lock lock(mutex_);
  if (mine.owner != this) {
    Chunk* const chunk = first_chunk_locked();
    if (chunk == nullptr) return drop();
    // relaxed: the mutex has brought the last owner's store
    mine = {this, chunk, chunk->count.load(std::memory_order_relaxed)};
    if (mine.used < Chunk::kRecords) return true;
  }
  Chunk& full = *mine.chunk;
  if (!copy_locked(full)) return drop();
  // A kill between these two leaves an empty chunk with the number of the copy.
  full.count.store(0, std::memory_order_relaxed);
  // release: pairs with nothing in this process; the file has both in this order
  full.sequence.fetch_add(1, std::memory_order_release);
  mine.used = 0;
  return true;
}

Chunk* Recorder::first_chunk_locked() {
  const int id = has_writes_ ? ::gettid() : 0;
  const auto named = named_.find(id);
  Chunk* chunk = nullptr;
  if (named != named_.end() && named->second.is_kept) {
    chunk = new_chunk_locked(named->second.number);
  } else if (!left_.empty()) {
    // The lowest number first: threads that are made anew in each step keep theirs.
    const auto lowest = std::ranges::min_element(left_, {}, &Chunk::thread);
    chunk = *lowest;
    left_.erase(lowest);
  } else {
    chunk = new_chunk_locked(threads_);
    if (chunk != nullptr) ++threads_;
  }
  if (has_writes_ && chunk != nullptr) named_[id] = {chunk->thread, false};
  return chunk;
}

std::uint32_t Recorder::number_of_thread(int id) {
  const std::scoped_lock lock(mutex_);
  const auto [named, is_new] = named_.try_emplace(id, Named{threads_, true});
  if (is_new) ++threads_;
  return named->second.number;
}

std::uint64_t Recorder::end_locked() const noexcept {
  return kHeaderBytes + chunks_used_ * sizeof(Chunk);
}

bool Recorder::reserve_locked() noexcept {
  if (chunks_used_ == chunks_max_) full_errno_ = limit_errno_;
  if (full_errno_ != 0 || chunks_used_ == chunks_max_) return false;
  struct stat now {};
  const int errno_of_program = errno;
  // A program that closes all its descriptors may have opened a file of its own in this one's
  // place.
  if (::fstat(fd_, &now) != 0 || now.st_dev != device_ || now.st_ino != inode_)
    full_errno_ = EBADF;
  else
    full_errno_ = allocate_file(fd_, static_cast<off_t>(end_locked()),
                                static_cast<off_t>(end_locked() + sizeof(Chunk)));
  errno = errno_of_program;
  return full_errno_ == 0;
}

Chunk* Recorder::new_chunk_locked(std::uint32_t thread) noexcept {
  if (!reserve_locked()) return nullptr;
  Chunk* const chunk = &chunks_[chunks_used_++];
#ifdef MADV_POPULATE_WRITE
  // At once takes less than page by page, as a kernel before 5.14 does it.
  const int errno_of_program = errno;
  const bool has_no_room =
      ::madvise(chunk, sizeof(Chunk), MADV_POPULATE_WRITE) != 0 && errno == EFAULT;
  errno = errno_of_program;
  if (has_no_room) {
    full_errno_ = ENOSPC;
    return nullptr;
  }
#endif
  chunk->magic = Chunk::kMagicNumber;
  chunk->thread = thread;
  return chunk;
}

bool Recorder::copy_locked(const Chunk& full) noexcept {
  if (!reserve_locked()) return false;
  constexpr std::size_t kHead = offsetof(Chunk, records);
  // The head last: without one it is no chunk.
  full_errno_ = write_at(fd_, full.records, sizeof full.records, end_locked() + kHead);
  if (full_errno_ == 0) full_errno_ = write_at(fd_, &full, kHead, end_locked());
  if (full_errno_ != 0) return false;
  ++chunks_used_;
  return true;
}

bool Recorder::drop() noexcept {
  // relaxed: read when all is over
  header_->dropped_count.fetch_add(1, std::memory_order_relaxed);
  if (header_->full_since_ns.load(std::memory_order_relaxed) == 0)
    header_->full_since_ns.store(now_ns(), std::memory_order_relaxed);
  return false;
}

void Recorder::give_back(Chunk* chunk) noexcept {
  const std::scoped_lock lock(mutex_);
  left_.push_back(chunk);
}

void Recorder::set_clock(const ClockSample& at_begin, const ClockSample& at_end) noexcept {
  header_->at_begin = at_begin;
  header_->at_end = at_end;
}

void Recorder::finish() noexcept {
  header_->end_ns.store(now_ns(), std::memory_order_relaxed);  // relaxed: read when all is over
}

std::uint64_t Recorder::dropped_count() const noexcept {
  return header_->dropped_count.load(std::memory_order_relaxed);  // relaxed: a statistic
}

int Recorder::dropped_errno() const noexcept {
  const std::scoped_lock lock(mutex_);
  return full_errno_;
}

}  // namespace larklane::profile
