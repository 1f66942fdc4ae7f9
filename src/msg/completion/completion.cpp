// The four completion objects: synchronizer, queue, counter, handler.

#include "larklane/completion.hpp"

#include <atomic>
#include <memory>
#include <new>

#include "msg/completion/completion_domain.hpp"
#include "msg/completion/node_queue.hpp"
#include "msg/memory/pool.hpp"

namespace larklane {
namespace {

using msg::kLineBytes;
using msg::Node;
using msg::Object;

/// Invariants:
/// 1. The signal that takes place i < signals writes completion i, then increments `arrived`. No
///    other signal writes that completion before reset().
/// 2. reset() changes nothing until all `signals` have arrived.
struct SynchronizerObject final : Object {
  SynchronizerObject(std::unique_ptr<Completion[]> completions_, std::uint32_t signals_) noexcept
      : Object(signal), signals(signals_), completions(std::move(completions_)) {}

  static bool signal(Object& object, Node& node) noexcept {
    auto& self = static_cast<SynchronizerObject&>(object);
    // acquire: pairs with the release of reset(), so its caller's reads come first.
    const std::uint64_t place = self.taken.fetch_add(1, std::memory_order_acquire);
    if (place < self.signals) {
      self.completions[place] = node.completion;
      // release: publishes the completion and the operation's effects; pairs with is_ready()'s
      // acquire.
      self.arrived.fetch_add(1, std::memory_order_release);
    }
    return true;
  }
  bool is_ready() const noexcept {
    // acquire: pairs with the release of each signal() (a release sequence).
    return arrived.load(std::memory_order_acquire) == signals;
  }

  const std::uint32_t signals;
  const std::unique_ptr<Completion[]> completions;
  alignas(kLineBytes) std::atomic<std::uint64_t> taken{0};
  std::atomic<std::uint32_t> arrived{0};
  std::atomic<std::uint64_t> excess{0};  // up to the last reset
};

struct QueueObject final : Object {
  QueueObject() noexcept : Object(signal) {}
  ~QueueObject() override {
    while (pop()) {
    }
  }

  std::optional<Completion> pop() noexcept {
    std::optional<Completion> popped;
    (void)queue.pop([&](Node& node, bool is_last) {
      popped = node.completion;
      aside_.add(node);
      if (is_last || aside_.count() == kAsideMost) aside_.give_back();
    });
    return popped;
  }

  static bool signal(Object& object, Node& node) noexcept {
    static_cast<QueueObject&>(object).queue.push(node);
    return false;
  }

  msg::NodeQueue<msg::RealPlatform> queue;

 private:
  /// pop() returns nodes in batches: at this many, and whenever the queue is empty.
  static constexpr std::uint32_t kAsideMost = 16;

  msg::ReturningNodes aside_;  // touched within pop() only, which excludes other threads
};

struct CounterObject final : Object {
  CounterObject() noexcept : Object(signal) {}

  static bool signal(Object& object, Node& node) noexcept {
    auto& self = static_cast<CounterObject&>(object);
    // relaxed: the release of `completed` covers it.
    if (!node.completion.status.ok()) self.failed.fetch_add(1, std::memory_order_relaxed);
    // release: publishes the operation's effects; pairs with completed()'s acquire.
    self.completed.fetch_add(1, std::memory_order_release);
    return true;
  }

  alignas(kLineBytes) std::atomic<std::uint64_t> completed{0};
  std::atomic<std::uint64_t> failed{0};
};

struct HandlerObject final : Object {
  HandlerObject(Handler::Function function_, void* state_) noexcept
      : Object(signal, true), function(function_), state(state_) {}

  static bool signal(Object& object, Node& node) noexcept {
    const auto& self = static_cast<HandlerObject&>(object);
    self.function(node.completion, self.state);
    return true;
  }

  const Handler::Function function;
  void* const state;
};

template <class Kind>
Kind& as(Object* object) noexcept {
  return static_cast<Kind&>(*object);
}

/// @param made  null: memory ran out
Result<Object*> adopted(CompletionDomain& domain, Object* made) noexcept {
  if (made == nullptr) return Errc::kNoMemory;
  LARKLANE_TRY(domain.adopt(std::unique_ptr<Object>(made)));
  return made;
}

}  // namespace

CompletionObject::~CompletionObject() {
  if (inside_ != nullptr) inside_->domain->destroy(*inside_);
}

Status CompletionObject::free() noexcept {
  LARKLANE_TRY(inside_->domain->free(*inside_));
  inside_ = nullptr;
  return {};
}

Result<RemoteCompletion> CompletionObject::register_remote() noexcept {
  return inside_->domain->register_remote(*inside_);
}

void CompletionObject::deregister_remote() noexcept {
  inside_->domain->deregister_remote(*inside_);
}

Result<Synchronizer> Synchronizer::create(CompletionDomain& domain,
                                          std::uint32_t signals) noexcept {
  if (signals == 0) return Errc::kInvalidArgument;
  std::unique_ptr<Completion[]> completions(new (std::nothrow) Completion[signals]);
  if (completions == nullptr) return Errc::kNoMemory;
  Result<Object*> object =
      adopted(domain, new (std::nothrow) SynchronizerObject(std::move(completions), signals));
  if (!object) return object.error();
  return Synchronizer(**object);
}

bool Synchronizer::test() const noexcept { return as<SynchronizerObject>(inside()).is_ready(); }

std::span<const Completion> Synchronizer::completions() const noexcept {
  const auto& self = as<SynchronizerObject>(inside());
  if (!self.is_ready()) return {};
  return {self.completions.get(), self.signals};
}

Status Synchronizer::reset() noexcept {
  auto& self = as<SynchronizerObject>(inside());
  if (!self.is_ready()) return Errc::kNotActive;
  // relaxed: the exchange below, a release, covers it.
  self.arrived.store(0, std::memory_order_relaxed);
  // release: orders the caller's reads of completions; pairs with the acquire of later signals.
  const std::uint64_t taken = self.taken.exchange(0, std::memory_order_release);
  // relaxed: a statistic that only reset() changes.
  self.excess.store(self.excess.load(std::memory_order_relaxed) + taken - self.signals,
                    std::memory_order_relaxed);
  return {};
}

std::uint64_t Synchronizer::excess() const noexcept {
  const auto& self = as<SynchronizerObject>(inside());
  const std::uint64_t taken = self.taken.load(std::memory_order_relaxed);  // relaxed: a statistic
  return self.excess.load(std::memory_order_relaxed) +                     // relaxed: a statistic
         (taken > self.signals ? taken - self.signals : 0);
}

Result<CompletionQueue> CompletionQueue::create(CompletionDomain& domain) noexcept {
  Result<Object*> object = adopted(domain, new (std::nothrow) QueueObject);
  if (!object) return object.error();
  return CompletionQueue(**object);
}

std::optional<Completion> CompletionQueue::pop() noexcept {
  return as<QueueObject>(inside()).pop();
}

Result<Counter> Counter::create(CompletionDomain& domain) noexcept {
  Result<Object*> object = adopted(domain, new (std::nothrow) CounterObject);
  if (!object) return object.error();
  return Counter(**object);
}

std::uint64_t Counter::completed() const noexcept {
  // acquire: pairs with the release of each signal() (a release sequence).
  return as<CounterObject>(inside()).completed.load(std::memory_order_acquire);
}

std::uint64_t Counter::failed() const noexcept {
  // relaxed: the acquire in completed() covers the failures among those.
  return as<CounterObject>(inside()).failed.load(std::memory_order_relaxed);
}

Result<Handler> Handler::create(CompletionDomain& domain, Function function, void* state) noexcept {
  if (function == nullptr) return Errc::kInvalidArgument;
  Result<Object*> object = adopted(domain, new (std::nothrow) HandlerObject(function, state));
  if (!object) return object.error();
  return Handler(**object);
}

}  // namespace larklane
