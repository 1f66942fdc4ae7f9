#pragma once
// A flow of control with a stack of its own, and the switch between two of them.

#include <ucontext.h>

#include <cstddef>
#include <functional>

namespace larklane::loop {

/// Thread safety: single-owner: a fiber is made, run and destroyed by one thread of the system.
/// The address sanitizer and the thread sanitizer are told of every switch.
class Fiber {
 public:
  /// The calling flow of control: something to come back to.
  Fiber();
  /// A new one, on a stack of kStackBytes above a page that may not be touched.
  /// `body` must not return: it switches away for good.
  explicit Fiber(std::function<void()> body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  static constexpr std::size_t kStackBytes = std::size_t{1} << 18;

  /// Leave `*this`, which must be the running fiber, and go on in `next`. Returns when a fiber
  /// switches back.
  void switch_to(Fiber& next);

 private:
  static void enter(unsigned high, unsigned low);
  void arrived();

  std::function<void()> body_;
  ucontext_t context_{};
  std::byte* mapping_ = nullptr;
  Fiber* came_from_ = nullptr;  // the fiber that switched here last
  // For the sanitizers.
  const void* stack_bottom_ = nullptr;
  std::size_t stack_bytes_ = 0;
  [[maybe_unused]] void* fake_stack_ = nullptr;
  [[maybe_unused]] void* tsan_fiber_ = nullptr;
};

}  // namespace larklane::loop
