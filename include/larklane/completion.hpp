#pragma once
// Completions of operations, and the four completion objects that receive them: synchronizer,
// completion queue, counter and handler. Operations of this process name an object directly; those
// of its peers name it by a number.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "larklane/export.h"
#include "larklane/status.hpp"

namespace larklane {

/// The result of a finished operation. Thread safety: immutable.
struct Completion {
  Status status{};               ///< success, or the error and the native errno
  std::int32_t rank = -1;        ///< the peer; -1: there is none
  std::uint64_t tag = 0;         ///< the message's
  void* buffer = nullptr;        ///< where the bytes are, or were
  std::uint64_t bytes = 0;       ///< number of bytes moved
  void* user_context = nullptr;  ///< the pointer given with the operation
};
static_assert(sizeof(Completion) <= 64, "one cache line");

/// The completion objects of one context. Thread safety: thread-safe.
class CompletionDomain;

/// The number by which a peer names an object that is registered here. Fits 24 bits; never 0.
/// Processes that register the same objects in the same order get the same numbers.
using RemoteCompletion = std::uint32_t;

/// The common part of all completion objects: a handle of an object that the library owns.
///
/// An object may be destroyed while operations that name it are in flight: their completions are
/// lost, but a handler may still be called. Its memory is released by a later call that makes,
/// frees or destroys an object. The owner of a handler's state calls free(), which succeeds only
/// once the last operation is over.
///
/// Thread safety: thread-safe, except making, moving, freeing and destroying a handle: only its
/// owner does so, while no other thread uses it. A handle that was moved from, or freed, may only
/// be assigned or destroyed. All objects of a domain are destroyed before the domain.
class LARKLANE_API CompletionObject {
 public:
  struct LARKLANE_HIDDEN Inside;  ///< the library's

  /// Destroy the object, if no operation that names it is in flight.
  ///
  /// @errors  kAlreadyActive: operations are in flight, or the last is not quite over; make
  ///          progress, and call again. The handle stays valid, but peers can't name the object any
  ///          more
  /// @threads its owner
  /// @owns    after success all that the object kept is gone, and no handler is called any more
  /// @cost    a mutex, and some loads for each lane
  Status free() noexcept;

  /// Let peers name the object: in a put with signal, or an active message.
  ///
  /// @return  its number, the same in every call until deregister_remote()
  /// @errors  kNoMemory: 4096 are registered, or 16 million have been
  /// @threads thread-safe
  /// @owns    completions that still arrive under the number of a deregistered or freed object are
  ///          refused; no later object gets the number
  /// @cost    a mutex
  Result<RemoteCompletion> register_remote() noexcept;
  /// Take the number back; without one the call does nothing. A record that has already found the
  /// object still signals it. Thread-safe; a mutex.
  void deregister_remote() noexcept;

  Inside* inside() const noexcept { return inside_; }  ///< the library's

 protected:
  explicit CompletionObject(Inside& inside) noexcept : inside_(&inside) {}  ///< the library's
  /// Leaves `other` empty.
  CompletionObject(CompletionObject&& other) noexcept
      : inside_(std::exchange(other.inside_, nullptr)) {}
  /// Destroys the former object.
  CompletionObject& operator=(CompletionObject&& other) noexcept {
    CompletionObject taken(std::move(other));
    std::swap(inside_, taken.inside_);
    return *this;
  }
  ~CompletionObject();  ///< destroys the object

 private:
  Inside* inside_;
};

/// Becomes ready after a given number of signals; keeps their completions.
class LARKLANE_API Synchronizer : public CompletionObject {
 public:
  /// @param signals  needed until it is ready, >= 1
  /// @errors  kInvalidArgument: no signals; kNoMemory
  /// @cost    a mutex and the heap; to be made once and reset, not made for each operation
  static Result<Synchronizer> create(CompletionDomain& domain, std::uint32_t signals) noexcept;

  /// Is it ready?
  ///
  /// @return  true: all signals have come
  /// @threads thread-safe; a thread that gets true sees all effects of the operations
  /// @cost    one load; never blocks, never makes progress
  bool test() const noexcept;
  /// The completions, in the order of arrival; empty while it is not ready. Valid until reset().
  std::span<const Completion> completions() const noexcept;
  /// Begin anew. @pre no thread reads completions()
  ///
  /// @errors  kNotActive: it is not ready, and nothing has changed
  /// @threads one at a time; a signal during the call counts as excess, an operation that begins
  ///          afterwards counts for the next time
  /// @cost    two stores and an exchange: wait-free
  Status reset() noexcept;
  /// Signals beyond the number needed, since it was made: a mistake of the program. Their
  /// completions are lost. Exact while no thread signals.
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
  /// @threads thread-safe; the thread that pops a completion sees all effects of its operation.
  ///          Completions signalled by one thread are popped in its order
  /// @cost    two atomic exchanges, and one to return the node, on lines that poppers share; two
  ///          loads where the queue is empty. Never blocks, allocates or makes progress
  std::optional<Completion> pop() noexcept;

 private:
  using CompletionObject::CompletionObject;
};

/// Counts completions, and drops their contents.
class LARKLANE_API Counter : public CompletionObject {
 public:
  /// @errors  kNoMemory
  /// @cost    a mutex and the heap
  static Result<Counter> create(CompletionDomain& domain) noexcept;

  /// Completions since it was made, failed or not. Thread-safe; one load. A thread that reads n
  /// sees all effects of n operations.
  std::uint64_t completed() const noexcept;
  /// Completions with an error. Read after completed(), it includes all failures of those.
  std::uint64_t failed() const noexcept;

 private:
  using CompletionObject::CompletionObject;
};

/// Calls a function with each completion.
class LARKLANE_API Handler : public CompletionObject {
 public:
  /// Called by threads that make progress, several at the same time, with no lock of the library
  /// held. It may post; it must not block, make progress or throw.
  using Function = void (*)(const Completion& completion, void* state);

  /// @param state     passed to each call; the caller keeps it until free() has succeeded
  /// @errors  kInvalidArgument: no function; kNoMemory
  /// @cost    a mutex and the heap
  static Result<Handler> create(CompletionDomain& domain, Function function, void* state) noexcept;

 private:
  using CompletionObject::CompletionObject;
};

}  // namespace larklane
