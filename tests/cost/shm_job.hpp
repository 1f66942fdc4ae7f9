#pragma once
// The job of the cost tests of messages: processes over shared memory, as contexts have it.

#include <memory>
#include <string>
#include <utility>

#include "base/config.hpp"
#include "net/registry.hpp"
#include "unit/msg_job.hpp"

namespace larklane::cost {

/// Rounds before the counted ones, and counted rounds.
constexpr int kWarmup = 40, kRepeats = 21;

inline msg::Job::Options over_shm() {
  msg::Job::Options options;
  options.lane = {};  // as a context has them
  options.cells = 1024;
  options.decorate = [](std::unique_ptr<net::Fabric>, int) {
    std::string reason;
    return net::open_fabric_named(Config(), "shm", &reason).value();
  };
  return options;
}

}  // namespace larklane::cost
