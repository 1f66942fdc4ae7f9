#pragma once
// The cases that any provider has to pass. Both processes of a case run its function.

#include <span>

#include "side.hpp"

namespace larklane::provider_test {

struct Case {
  const char* name;
  void (*run)(Side& side);
  bool second_is_killed = false;  ///< process 1 ends itself by SIGKILL
};
std::span<const Case> transfer_cases();
std::span<const Case> structure_cases();
std::span<const Case> trouble_cases();
std::span<const Case> sleep_cases();
std::span<const Case> stranger_cases();

/// Half round trip of 8 bytes, in nanoseconds.
void print_latency(Side& side);

}  // namespace larklane::provider_test
