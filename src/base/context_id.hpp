#pragma once
// The identity of a communicator.

#include <compare>
#include <cstdint>

namespace larklane {

/// 128-bit identity of a communicator, computed alike by all its processes.
struct ContextId {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend auto operator<=>(const ContextId&, const ContextId&) = default;
};

}  // namespace larklane
