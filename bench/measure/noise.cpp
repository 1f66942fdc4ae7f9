#include "noise.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>

#include "delay_trace.hpp"
#include "random.hpp"

namespace larklane::bench {
namespace {

struct Preset {
  std::string_view name;
  PeriodicNoise noise;
  std::string_view what;
};

/// The three patterns, 2.5 % of the processor each, that Ferreira, Bridges and Brightwell injected
/// into Catamount (SC'08, section 3): what daemons, the scheduler's tick and interrupts look like.
constexpr std::array<Preset, 3> kPresets{{
    {"daemon", {1e8, 2.5e6}, "10 times a second for 2500 us (SC'08: a daemon)"},
    {"scheduler", {1e7, 2.5e5}, "100 times a second for 250 us (SC'08: the scheduler)"},
    {"interrupt", {1e6, 2.5e4}, "1000 times a second for 25 us (SC'08: interrupts)"},
}};

bool to_number(std::string_view text, double* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc{} && end == text.data() + text.size();
}

/// "HZ:US"
bool parse_periodic(std::string_view text, PeriodicNoise* noise) {
  const std::size_t colon = text.find(':');
  double hz = 0, us = 0;
  if (colon == std::string_view::npos || !to_number(text.substr(0, colon), &hz) ||
      !to_number(text.substr(colon + 1), &us) || hz <= 0 || us < 0 || us * hz >= 1e6)
    return false;
  *noise = {1e9 / hz, us * 1e3};
  return true;
}

/// Time after which `compute_ns` of undisturbed work is done, the next interruption coming after
/// `phase_ns`.
double disturbed(double compute_ns, double phase_ns, const PeriodicNoise& noise) {
  const double work_between = noise.period_ns - noise.length_ns;
  if (compute_ns <= phase_ns) return compute_ns;
  const double hits = 1 + std::floor((compute_ns - phase_ns) / work_between);
  return compute_ns + hits * noise.length_ns;
}

}  // namespace

Noise Noise::parse(std::string_view text, double percent, std::uint64_t seed, std::string* error) {
  error->clear();
  Noise noise;
  noise.share_ = percent / 100;
  noise.seed_ = seed;
  constexpr std::array<std::pair<std::string_view, Kind>, 5> kPlain{
      {{"none", Kind::none},
       {"single", Kind::single},
       {"uniform", Kind::uniform},
       {"gaussian", Kind::gaussian},
       {"exponential", Kind::exponential}}};
  for (const auto& [name, kind] : kPlain) {
    if (text == name) {
      noise.kind_ = kind;
      return noise;
    }
  }
  for (const Preset& preset : kPresets) {
    if (text == preset.name) {
      noise.kind_ = Kind::periodic;
      noise.periodic_ = preset.noise;
      return noise;
    }
  }
  if (text.starts_with("periodic:")) {
    noise.kind_ = Kind::periodic;
    if (!parse_periodic(text.substr(9), &noise.periodic_))
      *error = "--noise " + std::string(text) +
               ": expected periodic:HZ:US, together less than all of the time";
    return noise;
  }
  if (text.starts_with("trace:")) {
    noise.kind_ = Kind::trace;
    noise.delays_ = read_delay_trace(std::string(text.substr(6)), error);
    return noise;
  }
  *error = "--noise " + std::string(text) +
           ": expected none, single, uniform, gaussian, exponential, periodic:HZ:US, trace:FILE, "
           "or one of the presets\n" +
           noise_presets();
  return noise;
}

double Noise::compute_ns(double compute_ns, std::uint64_t round, std::uint32_t thread,
                         std::uint32_t threads) const {
  Random random(seed_, thread, round);
  switch (kind_) {
    case Kind::none:
      return compute_ns;
    case Kind::single: {
      Random of_round(seed_, threads, round);
      return of_round.below(threads) == thread ? compute_ns * (1 + share_) : compute_ns;
    }
    case Kind::uniform:
      return compute_ns * (1 + share_ * random.uniform());
    case Kind::gaussian:
      for (;;) {
        const double time = compute_ns * (1 + share_ * random.gaussian());
        if (time >= 0) return time;
      }
    case Kind::exponential:
      return compute_ns * (1 + share_ * random.exponential());
    case Kind::periodic:
      return disturbed(compute_ns, random.uniform() * (periodic_.period_ns - periodic_.length_ns),
                       periodic_);
    case Kind::trace: {
      const std::vector<double>& delays = delays_[round % delays_.size()];
      return compute_ns + delays[thread % delays.size()];
    }
  }
  return compute_ns;
}

std::string noise_presets() {
  std::string text;
  for (const Preset& preset : kPresets)
    text += "  " + std::string(preset.name) + ": " + std::string(preset.what) + "\n";
  return text;
}

}  // namespace larklane::bench
