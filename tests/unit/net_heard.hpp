#pragma once
// A receiver that records a provider's callbacks. Thread safety: single-owner.

#include <cstdint>
#include <vector>

#include "net/provider.hpp"

namespace larklane::net {

/// How an operation has ended, and how often.
struct Note : Operation {
  Note() { complete = &ended; }
  static void ended(Operation& operation, Status status) {
    auto& note = static_cast<Note&>(operation);
    ++note.ends;
    note.status = status;
  }
  int ends = 0;
  Status status;
};

struct Heard final : Receiver {
  void on_immediate(std::uint32_t immediate) override { all.push_back(immediate); }
  void on_wide_immediate(std::uint64_t immediate) override { wide.push_back(immediate); }
  std::vector<std::uint32_t> all;
  std::vector<std::uint64_t> wide;
};

}  // namespace larklane::net
