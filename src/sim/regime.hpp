#pragma once
// Networks to simulate, each parameter with where it comes from. Nothing is fitted to a result.
// Thread safety: immutable.

#include <cstdint>
#include <span>
#include <string_view>

#include "net/loop/costs.hpp"
#include "sim/scenario.hpp"

namespace larklane::sim {

struct Parameter {
  std::string_view name;
  std::string_view value;
  std::string_view source;
};

struct Regime {
  std::string_view name;
  std::string_view title;
  loop::NetworkCosts network;
  loop::Costs processor;
  TwoSidedCosts two_sided;
  std::span<const Parameter> parameters;
};

std::span<const Regime> regimes();
/// Null: there is none of that name.
const Regime* regime_named(std::string_view name);

}  // namespace larklane::sim
