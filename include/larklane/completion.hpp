#pragma once
// What a finished operation tells, and the four completion objects that hear it: synchronizer,
// completion queue, counter and handler. Each can be named by operations of this process, and, by a
// number, by those of its peers.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "larklane/export.h"
#include "larklane/status.hpp"

namespace larklane {

/// What a finished operation tells. Thread safety: immutable.
struct Completion {
  Status status{};               ///< what went wrong, and the native errno
  std::int32_t rank = -1;        ///< the peer; -1: there is none
  std::uint64_t tag = 0;         ///< the message's
  void* buffer = nullptr;        ///< where the bytes are, or were
  std::uint64_t bytes = 0;       ///< that have been moved
  void* user_context = nullptr;  ///< as it was given with the operation
};
static_assert(sizeof(Completion) <= 64, "one cache line");

/// The completion objects of one context.
class CompletionDomain;

/// By what a peer names an object that is registered here. Fits 24 bits; never 0. Processes that
/// register the same objects in the same order get the same numbers.
using RemoteCompletion = std::uint32_t;

/// What all completion objects have in common: a handle of something that the library owns.
///
/// Destroyed while operations that name it are in flight, it leaves them harmless: what they would
/// have told is lost, but that a handler may still be called, and the memory goes with a later call
/// that makes, frees or destroys an object. Who has to know when the last is over, so who owns a
/// handler's state, calls free().
///
/// Thread safety: thread-safe, but that making, moving, freeing and destroying a handle are its
/// owner's, while nobody else uses it. A handle that was moved from, or freed, may be assigned or
/// destroyed only. All of a domain's are destroyed before the domain.
class LARKLANE_API CompletionObject {
 public:
  struct LARKLANE_HIDDEN Inside;  ///< the library's

  /// Destroy the object, if no operation that names it is in flight.
  ///
  /// @errors  kAlreadyActive: there are some, or the last is not quite over; make progress, and
  ///          call again. The handle is as good as before, but peers can't name the object any more
  /// @threads its owner
  /// @owns    after success all that the object kept is gone, and no handler is called any more
  /// @cost    a mutex, and some loads for each lane
  Status free() noexcept;

  /// Let peers name the object: in a put with signal, or an active message.
  ///
  /// @return  its number, the same in every call until deregister_remote()
  /// @errors  kNoMemory: 4096 are registered, or 16 million have been
  /// @threads thread-safe
  /// @owns    what still comes under the number of an object that was deregistered or freed is
  ///          refused; no later object gets it
  /// @cost    a mutex
  Result<RemoteCompletion> register_remote() noexcept;
  /// Take the number back; nothing if it has none. What has found the object already still signals
  /// it. Thread-safe; a mutex.
  void deregister_remote() noexcept;

  Inside* inside() const noexcept { return inside_; }  ///< the library's

 protected:
  explicit CompletionObject(Inside& inside) noexcept : inside_(&inside) {}
  CompletionObject(CompletionObject&& other) noexcept
      : inside_(std::exchange(other.inside_, nullptr)) {}
  CompletionObject& operator=(CompletionObject&& other) noexcept {
    CompletionObject taken(std::move(other));
    std::swap(inside_, taken.inside_);
    return *this;
  }
  ~CompletionObject();

 private:
  Inside* inside_;
};

/// Ready when it has been signalled a given number of times; keeps what the completions told.
class LARKLANE_API Synchronizer : public CompletionObject {
 public:
  /// @param signals  until it is ready, >= 1
  /// @errors  kInvalidArgument; kNoMemory
  /// @cost    a mutex and the heap; to be made once and reset, not made for each operation
  static Result<Synchronizer> create(CompletionDomain& domain, std::uint32_t signals) noexcept;

  /// Has it been signalled as often as it needs?
  ///
  /// @threads thread-safe; who gets true sees all that the operations did
  /// @cost    one load; never blocks, never makes progress
  bool test() const noexcept;
  /// What the completions told, in the order in which they came; empty while it is not ready. Until
  /// reset().
  std::span<const Completion> completions() const noexcept;
  /// Begin anew. @pre nobody reads completions()
  ///
  /// @errors  kNotActive: it is not ready, and nothing has changed
  /// @threads one at a time; who signals meanwhile is in excess, who begins afterwards counts for
  ///          the next time
  /// @cost    two stores and an exchange: wait-free
  Status reset() noexcept;
  /// How often it has been signalled beyond that since it was made: a mistake of the program. What
  /// those told is lost. Exact while nobody signals.
  std::uint64_t excess() const noexcept;

 private:
  using CompletionObject::CompletionObject;
};

/// Keeps completions until they are popped: the oldest first, each once.
class LARKLANE_API CompletionQueue : public CompletionObject {
 public:
  /// @errors  kNoMemory
  /// @cost    a mutex and the heap
  static Result<CompletionQueue> create(CompletionDomain& domain) noexcept;

  /// Take the oldest completion.
  ///
  /// @return  empty: there is none now, or another thread is in pop() at this moment
  /// @threads thread-safe; who gets a completion sees all that its operation did. Those that one
  ///          thread signals are popped in its order
  /// @cost    two atomic exchanges, and one to give back what it travelled in, on lines that
  /// poppers
  ///          share; two loads where there is none. Never blocks, allocates or makes progress
  std::optional<Completion> pop() noexcept;

 private:
  using CompletionObject::CompletionObject;
};

/// Counts completions, and forgets what they told.
class LARKLANE_API Counter : public CompletionObject {
 public:
  /// @errors  kNoMemory
  /// @cost    a mutex and the heap
  static Result<Counter> create(CompletionDomain& domain) noexcept;

  /// All since it was made, failed or not. Thread-safe; one load. Who sees a number sees all that
  /// so many operations did.
  std::uint64_t completed() const noexcept;
  /// Of these: with an error. Asked after completed(), it has all failures of those.
  std::uint64_t failed() const noexcept;

 private:
  using CompletionObject::CompletionObject;
};

/// Calls a function with each completion.
class LARKLANE_API Handler : public CompletionObject {
 public:
  /// Called by whoever makes progress, by several threads at the same time, with no lock of the
  /// library held. It may post; it must not block, make progress or throw.
  using Function = void (*)(const Completion& completion, void* state);

  /// @param state  given to each call; the caller's, until free() has succeeded
  /// @errors  kInvalidArgument: no function; kNoMemory
  /// @cost    a mutex and the heap
  static Result<Handler> create(CompletionDomain& domain, Function function, void* state) noexcept;

 private:
  using CompletionObject::CompletionObject;
};

}  // namespace larklane
