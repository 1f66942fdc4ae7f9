#include "mpi/p2p/tally.hpp"

#include <mutex>
#include <new>
#include <vector>

namespace larklane::mpi::p2p {
namespace {

/// Never destroyed: threads may end after everything else. Thread safety: thread-safe through its
/// mutex.
struct Threads {
  std::mutex mutex;
  std::vector<const Tally*> running;
  TallyTotal ended;

  static Threads& get() noexcept {
    static Threads* const threads = new Threads;
    return *threads;
  }
};

void add(TallyTotal& total, const Tally& of) noexcept {
  total.sent += of.sent.load(std::memory_order_relaxed);
  total.sent_bytes += of.sent_bytes.load(std::memory_order_relaxed);
  total.received += of.received.load(std::memory_order_relaxed);
  total.received_bytes += of.received_bytes.load(std::memory_order_relaxed);
}

/// From a thread's first message to its end.
struct Membership {
  Membership() noexcept {
    const std::scoped_lock lock(Threads::get().mutex);
    try {
      Threads::get().running.push_back(&tally);
    } catch (const std::bad_alloc&) {  // it then counts from its end on
    }
  }
  ~Membership() {
    const std::scoped_lock lock(Threads::get().mutex);
    std::erase(Threads::get().running, &tally);
    add(Threads::get().ended, tally);
  }
};

}  // namespace

[[gnu::noinline]] void Tally::begin_slow() noexcept {
  static thread_local const Membership membership;
  static_cast<void>(&membership);
  is_counted_ = true;
}

TallyTotal tally_total() noexcept {
  const std::scoped_lock lock(Threads::get().mutex);
  TallyTotal total = Threads::get().ended;
  for (const Tally* const each : Threads::get().running) add(total, *each);
  return total;
}

}  // namespace larklane::mpi::p2p
