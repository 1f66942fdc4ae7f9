#pragma once
// One interface for the four completion objects: have this many operations ended?

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "larklane/completion.hpp"
#include "world.hpp"

namespace larklane::bench {

/// Counts the ends of operations. A failed operation ends the process. Thread safety: single-owner.
class Heard {
 public:
  virtual ~Heard() = default;
  virtual CompletionObject& object() noexcept = 0;
  /// True if this many operations have ended since the last restart().
  virtual bool has(std::uint64_t ends) = 0;
  /// @pre all operations have ended
  virtual void restart() = 0;
};

/// @param kind     as in --completion
/// @param signals  signals that a synchronizer waits for
/// @param waiter   outlives the returned object
std::unique_ptr<Heard> make_heard(const std::string& kind, CompletionDomain& domain,
                                  std::uint32_t signals, Waiter& waiter);

/// Active messages, by tag, from 0. Thread safety: single-owner.
class Arrivals {
 public:
  virtual ~Arrivals();
  /// True if all have arrived since the last release().
  virtual bool are_all_there() = 0;
  /// @return number for the peer
  virtual RemoteCompletion register_remote() = 0;
  std::span<const std::byte> message(std::uint32_t slot) const noexcept;
  virtual void release();

 protected:
  explicit Arrivals(std::uint32_t count) : slots_(count) {}
  /// Ignores a failed completion, and one whose slot does not exist or is taken.
  /// @return true if the completion counts
  static bool keep(std::vector<Completion>& slots, const Completion& completion) noexcept;

  std::vector<Completion> slots_;
};

/// @param kind  queue, handler
std::unique_ptr<Arrivals> make_arrivals(const std::string& kind, CompletionDomain& domain,
                                        std::uint32_t count, Waiter& waiter);

}  // namespace larklane::bench
