#include "noise.hpp"

#include <array>
#include <cmath>
#include <utility>

#include "base/parse.hpp"
#include "machines.hpp"
#include "random.hpp"

namespace larklane::bench {
namespace {

struct Preset {
  std::string_view name;
  double hz, us;
  std::string_view what;
};

/// Three patterns of 2.5 % of the processor each, which Ferreira, Bridges and Brightwell injected
/// into Catamount (SC'08, section 3). They imitate daemons, the scheduler's tick and interrupts.
constexpr std::array<Preset, 3> kPresets{{
    {"daemon", 10, 2500, "10 times a second for 2500 us (SC'08: a daemon)"},
    {"scheduler", 100, 250, "100 times a second for 250 us (SC'08: the scheduler)"},
    {"interrupt", 1000, 25, "1000 times a second for 25 us (SC'08: interrupts)"},
}};

Recording periodic(double hz, double us) { return {{}, {1e9 / hz, {{{0, us * 1e3}}}}}; }

/// "HZ:US"
bool parse_periodic(std::string_view text, Recording* recording) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return false;
  const auto hz = number_of<double>(text.substr(0, colon));
  const auto us = number_of<double>(text.substr(colon + 1));
  if (!hz || !us) return false;
  // The parser also accepts "nan" and "inf" as numbers.
  if (!(*hz > 0 && *us >= 0 && *us * *hz <= kDetoursShareMax * 1e6 && std::isfinite(1e9 / *hz)))
    return false;
  *recording = periodic(*hz, *us);
  return true;
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
      noise.replay(periodic(preset.hz, preset.us));
      return noise;
    }
  }
  if (text.starts_with("periodic:")) {
    Recording recording;
    if (!parse_periodic(text.substr(9), &recording))
      *error = "--noise " + std::string(text) +
               ": expected periodic:HZ:US, together at most 99 % of the time";
    noise.replay(std::move(recording));
    return noise;
  }
  if (text.starts_with("trace:")) {
    noise.replay(read_recording(std::string(text.substr(6)), error));
    return noise;
  }
  for (const Machine& machine : kMachines) {
    if (text == machine.name) {
      noise.replay(parse_recording(machine.recording, std::string(text), error));
      return noise;
    }
  }
  *error = "--noise " + std::string(text) +
           ": expected none, single, uniform, gaussian, exponential, periodic:HZ:US, trace:FILE, "
           "or one of the presets\n" +
           noise_presets();
  return noise;
}

void Noise::replay(Recording recording) {
  kind_ = recording.delays.empty() ? Kind::detours : Kind::delays;
  recording_ = std::move(recording);
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
    case Kind::delays: {
      const std::vector<double>& delays = recording_.delays[round % recording_.delays.size()];
      return compute_ns + delays[thread % delays.size()];
    }
    case Kind::detours: {
      const Detours& detours = recording_.detours;
      Random of_round(seed_, threads, round);
      const double begin = thread < detours.cores.size() ? of_round.uniform() : random.uniform();
      return detours.disturbed_ns(compute_ns, thread % detours.cores.size(),
                                  begin * detours.span_ns);
    }
  }
  return compute_ns;
}

std::string noise_presets() {
  std::string text;
  for (const Preset& preset : kPresets)
    text += "  " + std::string(preset.name) + ": " + std::string(preset.what) + "\n";
  for (const Machine& machine : kMachines)
    text += "  " + std::string(machine.name) + ": " + std::string(machine.what) + "\n";
  return text;
}

}  // namespace larklane::bench
