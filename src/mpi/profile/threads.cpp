#include "mpi/profile/threads.hpp"

#include "mpi/profile/tracer.hpp"

namespace larklane::mpi {
namespace {

using profile::Kind;

static_assert(static_cast<int>(Kind::region) == kLarklaneRegion &&
              static_cast<int>(Kind::member) == kLarklaneMember &&
              static_cast<int>(Kind::barrier) == kLarklaneBarrier &&
              static_cast<int>(Kind::thread) == kLarklaneThread &&
              static_cast<int>(Kind::join) == kLarklaneJoin);

void (*watch_threads)(LarklaneThreadHook*) = nullptr;

void record(const LarklaneThreadEvent* event) {
  // acquire: pairs with begin_recording() release
  profile::Recorder* const recorder = detail::recorder.load(std::memory_order_acquire);
  if (recorder == nullptr) return;
  recorder->write({.begin_ns = event->begin_ns,
                   .end_ns = event->end_ns,
                   .value = event->value,
                   .handle = event->busy_ns,
                   .a = event->threads,
                   .b = event->delayed_ns,
                   .request = event->region,
                   .kind = static_cast<Kind>(event->kind)});
}

}  // namespace

void set_thread_watch(void (*watch)(LarklaneThreadHook*)) noexcept { watch_threads = watch; }

void record_threads() noexcept {
  if (watch_threads != nullptr) watch_threads(record);
}

}  // namespace larklane::mpi
