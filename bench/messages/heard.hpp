#pragma once
// The four completion objects behind one face: has so much been heard?

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "larklane/completion.hpp"
#include "world.hpp"

namespace larklane::bench {

/// Hears of the ends of operations. One that has failed ends the process.
/// Thread safety: single-owner.
class Heard {
 public:
  virtual ~Heard() = default;
  virtual CompletionObject& object() noexcept = 0;
  /// Of as many since the last restart()?
  virtual bool has(std::uint64_t ends) = 0;
  /// @pre it has heard of all that will come
  virtual void restart() = 0;
};

/// @param kind     as --completion says
/// @param signals  what a synchronizer waits for
/// @param waiter   outlives it
std::unique_ptr<Heard> make_heard(const std::string& kind, CompletionDomain& domain,
                                  std::uint32_t signals, Waiter& waiter);

/// Active messages, by tag, from 0. Thread safety: single-owner.
class Arrivals {
 public:
  virtual ~Arrivals();
  /// Have all come since the last release()?
  virtual bool are_all_there() = 0;
  /// @return number for the peer
  virtual RemoteCompletion register_remote() = 0;
  std::span<const std::byte> message(std::uint32_t slot) const noexcept;
  virtual void release();

 protected:
  explicit Arrivals(std::uint32_t count) : slots_(count) {}
  /// What tells of no slot, or of one that is taken, is not counted. @return is it counted?
  static bool keep(std::vector<Completion>& slots, const Completion& completion) noexcept;

  std::vector<Completion> slots_;
};

/// @param kind  queue, handler
std::unique_ptr<Arrivals> make_arrivals(const std::string& kind, CompletionDomain& domain,
                                        std::uint32_t count, Waiter& waiter);

}  // namespace larklane::bench
