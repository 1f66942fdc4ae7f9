#include "net/loop/fiber.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/sanitized.hpp"

#ifdef LARKLANE_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef LARKLANE_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace larklane::loop {
namespace {

std::size_t page_bytes() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::abort();
}

}  // namespace

Fiber::Fiber() {
#ifdef LARKLANE_TSAN
  tsan_fiber_ = __tsan_get_current_fiber();
#endif
}

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)) {
  const std::size_t guard = page_bytes();
  void* mapping = ::mmap(nullptr, guard + kStackBytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (mapping == MAP_FAILED) die("stack of a virtual thread");
  mapping_ = static_cast<std::byte*>(mapping);
  if (::mprotect(mapping_, guard, PROT_NONE) != 0) die("guard page of a virtual thread");
  if (::getcontext(&context_) != 0) die("context of a virtual thread");
  stack_bottom_ = mapping_ + guard;
  stack_bytes_ = kStackBytes;
  context_.uc_stack.ss_sp = mapping_ + guard;
  context_.uc_stack.ss_size = kStackBytes;
  context_.uc_link = nullptr;
  // makecontext passes int arguments only.
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  ::makecontext(&context_, reinterpret_cast<void (*)()>(&Fiber::enter), 2,
                static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
#ifdef LARKLANE_TSAN
  tsan_fiber_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
  if (mapping_ == nullptr) return;
#ifdef LARKLANE_TSAN
  __tsan_destroy_fiber(tsan_fiber_);
#endif
#ifdef LARKLANE_ASAN
  // A stack that was left for good keeps the poison of its frames, and its addresses come again.
  ASAN_UNPOISON_MEMORY_REGION(mapping_ + page_bytes(), kStackBytes);
#endif
  ::munmap(mapping_, page_bytes() + kStackBytes);
}

void Fiber::enter(unsigned high, unsigned low) {
  auto* self = reinterpret_cast<Fiber*>((std::uintptr_t{high} << 32) | low);
  self->arrived();
  self->body_();
  std::abort();
}

void Fiber::switch_to(Fiber& next) {
  next.came_from_ = this;
#ifdef LARKLANE_ASAN
  __sanitizer_start_switch_fiber(&fake_stack_, next.stack_bottom_, next.stack_bytes_);
#endif
#ifdef LARKLANE_TSAN
  __tsan_switch_to_fiber(next.tsan_fiber_, 0);
#endif
  if (::swapcontext(&context_, &next.context_) != 0) die("switch of virtual threads");
  arrived();
}

void Fiber::arrived() {
#ifdef LARKLANE_ASAN
  // The first switch away from the system's stack tells where that is.
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(fake_stack_, &bottom, &bytes);
  came_from_->stack_bottom_ = bottom;
  came_from_->stack_bytes_ = bytes;
#endif
}

}  // namespace larklane::loop
