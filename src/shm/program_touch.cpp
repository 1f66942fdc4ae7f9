#include "shm/program_touch.hpp"

#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <optional>

namespace larklane::shm {
namespace {

constexpr std::uintptr_t kPageBytes = 4096;  // the smallest: on larger pages several accesses
constexpr int kLooks = 200;                  // at kLookNs: time for one thread to take the signal
constexpr long kLookNs = 100'000;

enum class State : std::uint8_t { idle, posted, running, declined, done };
static_assert(std::atomic<State>::is_always_lock_free, "a signal handler uses it");

/// The one request of the process. The fields other than `state` are the requester's while it is
/// idle, and the handler's while it is running.
struct Request {
  std::atomic<State> state{State::idle};
  std::optional<TypeCursor> cursor;  ///< here, since the handler may have a small stack
  Access access = Access::read;
};
constinit Request request;
constinit std::mutex requester;  // one at a time

/// Does the calling thread block them? In a handler: the mask of the interrupted call, too, as of
/// sigsuspend().
bool blocks_faults() noexcept {
  sigset_t mask;
  if (::pthread_sigmask(SIG_BLOCK, nullptr, &mask) != 0) return true;
  return ::sigismember(&mask, SIGSEGV) == 1 || ::sigismember(&mask, SIGBUS) == 1;
}

/// A write that changes nothing, even if another thread writes the byte at the same time.
void access_byte(std::uintptr_t address, Access access) noexcept {
  auto* const byte = reinterpret_cast<unsigned char*>(address);
  // relaxed, all: the accesses fault, and carry no data.
  unsigned char value = __atomic_load_n(byte, __ATOMIC_RELAXED);
  if (access == Access::write)
    (void)__atomic_compare_exchange_n(byte, &value, value, false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED);
}

void touch_all(TypeCursor& cursor, Access access) noexcept {
  std::uintptr_t touched = 0;  // the last page
  for (auto block = cursor.next(cursor.left_bytes()); block.length_bytes != 0;
       block = cursor.next(cursor.left_bytes())) {
    const std::uintptr_t end = block.address + block.length_bytes;
    for (std::uintptr_t at = block.address; at < end; at = (at / kPageBytes + 1) * kPageBytes) {
      if (at / kPageBytes == touched) continue;
      access_byte(at, access);
      touched = at / kPageBytes;
    }
  }
}

/// On a thread of the program, anywhere in it.
void on_signal(int /*number*/, siginfo_t* info, void* /*context*/) {
  const int error = errno;
  const bool is_asked = info->si_code == SI_TKILL && info->si_pid == ::getpid();
  const bool may_fault = !blocks_faults();
  State expected = State::posted;
  // acquire: pairs with the release of `posted`, so that the fields are whole.
  if (is_asked &&
      request.state.compare_exchange_strong(expected, may_fault ? State::running : State::declined,
                                            std::memory_order_acquire, std::memory_order_relaxed) &&
      may_fault) {
    touch_all(*request.cursor, request.access);
    // release: pairs with the requester's acquire; it changes the fields after that.
    request.state.store(State::done, std::memory_order_release);
  }
  errno = error;
}

bool is_ours(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == on_signal;
}

bool is_free(int number, const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) == 0 &&
         (action.sa_handler == SIG_DFL || (action.sa_handler == SIG_IGN && number == SIGURG));
}

/// Installs the handler, unless the program has one.
bool take_signal(int number) noexcept {
  struct sigaction former {};
  if (::sigaction(number, nullptr, &former) != 0) return false;
  if (is_ours(former)) return true;
  if (!is_free(number, former)) return false;
  struct sigaction own {};
  own.sa_sigaction = on_signal;
  own.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  if (::sigaction(number, &own, &former) != 0) return false;
  if (is_free(number, former) || is_ours(former)) return true;
  (void)::sigaction(number, &former, nullptr);  // the program's, of this moment
  return false;
}

/// The signal with our handler, which stays: a thread may take the signal late. 0: none is free.
int signal_for_touches() noexcept {
  if (take_signal(SIGURG)) return SIGURG;
  for (int number = SIGRTMAX; number >= SIGRTMIN; --number)
    if (take_signal(number)) return number;
  return 0;
}

State state_now() noexcept {
  return request.state.load(
      std::memory_order_acquire);  // acquire: pairs with the handler's release
}

/// Waits until the thread has taken the signal, and then until it has finished: the buffer stays
/// its own until then. @return  the request is idle again: has it been carried out?
bool wait_for_handler(int looks_max) noexcept {
  const timespec look{0, kLookNs};
  for (int looks = 0; looks < looks_max && state_now() == State::posted; ++looks)
    ::nanosleep(&look, nullptr);
  State expected = State::posted;
  // relaxed: nothing was done for this request. Another thread that takes its signal late finds it
  // idle, or the next one, which it carries out as well.
  if (request.state.compare_exchange_strong(expected, State::idle, std::memory_order_relaxed))
    return false;
  while (state_now() == State::running) ::nanosleep(&look, nullptr);
  const bool is_done = state_now() == State::done;
  request.state.store(State::idle, std::memory_order_relaxed);  // relaxed: the handler has left
  return is_done;
}

}  // namespace

Status touch_by_program(std::span<const pid_t> threads, const Buffer& buffer, const Piece& piece,
                        Access access) noexcept {
  if (piece.length == 0) return {};
  const std::scoped_lock lock(requester);
  const int number = signal_for_touches();
  if (number == 0) return {Errc::kSystem, EBUSY};
  request.access = access;
  for (const pid_t thread : threads) {
    request.cursor.emplace(*buffer.type, buffer.address, piece.offset, piece.length);
    // release: pairs with the handler's acquire.
    request.state.store(State::posted, std::memory_order_release);
    const bool is_there = ::syscall(SYS_tgkill, ::getpid(), thread, number) == 0;
    if (wait_for_handler(is_there ? kLooks : 0)) return {};
  }
  return {Errc::kNoThread, EAGAIN};
}

}  // namespace larklane::shm
