#pragma once
// The objects behind the handles of C.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "larklane/completion.hpp"
#include "larklane/context.hpp"
#include "larklane/larklane.h"

namespace larklane::capi {

/// The call of a handler. Thread safety: immutable.
struct HandlerCall {
  larklane_handler function;
  void* state;
};

larklane_completion completion_of(const Completion& completion) noexcept;

}  // namespace larklane::capi

// Thread safety: thread-safe.
// Invariants:
// 1. `made` is how many handles there are that must be gone before it.
// 2. The call of a handler that was destroyed in use lives as long as the context.
// 3. So does the handle of a lane that was destroyed: each use of it reports that.
struct larklane_context {
  explicit larklane_context(std::unique_ptr<larklane::Context> inside_) noexcept;
  ~larklane_context();

  // Declared first: destroyed when the context calls no handler any more.
  std::mutex mutex;
  std::vector<std::unique_ptr<larklane::capi::HandlerCall>> left;  // guarded by mutex
  std::vector<std::unique_ptr<larklane_vci>> destroyed;            // guarded by mutex
  std::atomic<std::uint32_t> made{0};
  const std::unique_ptr<larklane::Context> inside;
};

namespace larklane::capi {

/// An object that was made of a context. Thread safety: immutable.
class Made {
 public:
  explicit Made(larklane_context& context) noexcept : context_(context) {
    context_.made.fetch_add(1, std::memory_order_relaxed);  // relaxed: as its owner orders it
  }
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;
  ~Made() {
    // release: pairs with the acquire of larklane_context_destroy().
    context_.made.fetch_sub(1, std::memory_order_release);
  }
  larklane_context& context() const noexcept { return context_; }

 private:
  larklane_context& context_;
};

}  // namespace larklane::capi

// Thread safety, of the three: thread-safe; destroyed by their owners.

struct larklane_vci {
  larklane_vci(larklane_context& context, larklane::Vci vci_) noexcept
      : made(std::in_place, context), vci(std::move(vci_)) {}

  std::optional<larklane::capi::Made> made;  // nothing: destroyed
  larklane::Vci vci;
};

inline larklane_context::larklane_context(std::unique_ptr<larklane::Context> inside_) noexcept
    : inside(std::move(inside_)) {}
inline larklane_context::~larklane_context() = default;

struct larklane_region {
  larklane_region(larklane_context& context, larklane::Region region_) noexcept
      : made(context), region(std::move(region_)) {}

  const larklane::capi::Made made;
  larklane::Region region;
};

struct larklane_completion_object {
  template <class Kind>
  larklane_completion_object(larklane_context& context, Kind object_,
                             std::unique_ptr<larklane::capi::HandlerCall> call_) noexcept
      : made(context), call(std::move(call_)), object(std::move(object_)) {}

  larklane::CompletionObject& base() noexcept {
    return std::visit([](auto& kind) -> larklane::CompletionObject& { return kind; }, object);
  }
  const larklane::CompletionObject& base() const noexcept {
    return const_cast<larklane_completion_object*>(this)->base();
  }

  const larklane::capi::Made made;
  std::unique_ptr<larklane::capi::HandlerCall> call;  // of a handler
  std::variant<larklane::Synchronizer, larklane::CompletionQueue, larklane::Counter,
               larklane::Handler>
      object;
};
