#pragma once
// The control block of a simulated message: memory, shape and view, as the engine shares one.
// Thread safety: immutable; the memory as part/protocol has it.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>

#include "net/loop/simulation.hpp"
#include "part/protocol/block.hpp"
#include "part/protocol/layout.hpp"
#include "sim/scenario.hpp"

namespace larklane::sim {

/// Zeroed, for direct mode.
class BlockMemory {
 public:
  explicit BlockMemory(const Scenario& scenario)
      : shape(shape_of(scenario)),
        memory_(zeroed_lines(part::BlockOffsets::of(shape).end)),
        view(memory_.get(), shape) {}

  const part::BlockShape shape;

 private:
  struct FreeLines {
    void operator()(std::byte* base) const {
      ::operator delete (base, std::align_val_t{part::kLineBytes});
    }
  };
  static std::byte* zeroed_lines(std::size_t bytes) {
    auto* const base =
        static_cast<std::byte*>(::operator new (bytes, std::align_val_t{part::kLineBytes}));
    return std::fill_n(base, bytes, std::byte{}) - bytes;
  }
  static part::BlockShape shape_of(const Scenario& scenario) {
    const auto most = part::LayoutSize::most(scenario.partitions, scenario.partitions);
    return {part::Mode::direct,
            scenario.partitions,
            scenario.partitions,
            most.words,
            most.roots,
            0,
            scenario.partition_bytes};
  }

  const std::unique_ptr<std::byte, FreeLines> memory_;

 public:
  const part::BlockView<loop::Platform> view;
};

}  // namespace larklane::sim
