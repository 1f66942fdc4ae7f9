#pragma once
// Two processes' channels on one fake device.

#include <memory>

#include "device.hpp"
#include "prop/network_side.hpp"

namespace larklane::part {

/// All that can happen does: records, the device, both sides' lanes.
inline void settle(verbs::FakeDevice& device, std::unique_ptr<Side> (&sides)[2]) {
  for (bool moved = true; moved;) {
    moved = sides[0]->deliver_to(*sides[1]);
    moved |= sides[1]->deliver_to(*sides[0]);
    moved |= device.run() != 0;
    for (auto& side : sides) moved |= side->progress() != 0;
  }
}

}  // namespace larklane::part
