// The fit of LogGP to measured trains (loggp.hpp).

#include <algorithm>
#include <cmath>
#include <optional>

#include "model/loggp.hpp"

namespace larklane::model {
namespace {

/// How far a real network may be off its line before that is a change of protocol, and how far a
/// gap must be above an overhead to be something else.
constexpr double kTolerance = 0.02;
/// Measured without any noise: errors are relative to something.
constexpr double kLeastError = 1e-9;
/// Sizes on either side whose errors are taken together: the error of a few samples says little.
constexpr std::size_t kNeighbours = 3;

/// The figures of one size. x: bytes after the first
struct Shown {
  Measured latency;        ///< L and the time of the bytes
  Measured send_overhead;  ///< o_s
  Measured recv_overhead;  ///< o_r
  Measured gap;            ///< h and the gap between two messages for their bytes
};

bool are_times(const std::vector<double>& samples) {
  return samples.size() >= kSamplesMin && std::ranges::all_of(samples, [](double sample) {
           return std::isfinite(sample) && sample >= 0;
         });
}

/// Of one message without delay.
std::optional<Measured> round_trip_of(const Trains& size, double x) {
  const auto single = std::ranges::find_if(size.trains, [](const Trains::Train& train) {
    return train.messages == 1 && train.delay_ns == 0;
  });
  const bool are_good = std::ranges::all_of(size.trains, [](const Trains::Train& train) {
    return train.messages >= 1 && std::isfinite(train.delay_ns) && train.delay_ns >= 0 &&
           are_times(train.samples_ns);
  });
  if (single == size.trains.end() || !are_good) return std::nullopt;
  return median_of(x, single->samples_ns);
}

/// The slope of times over messages, as a measured value.
std::optional<Measured> gap_of(const Trains& size, const Measured& single) {
  std::vector<Measured> points{{1, single.y, single.error}};
  for (const auto& train : size.trains)
    if (train.messages > 1 && train.delay_ns == 0)
      points.push_back(median_of(train.messages, train.samples_ns));
  if (points.size() < 2) return std::nullopt;
  double weights = 0, mean = 0, spread = 0;
  for (const Measured& point : points) {
    weights += 1 / (point.error * point.error);
    mean += point.x / (point.error * point.error);
  }
  mean /= weights;
  for (const Measured& point : points)
    spread += (point.x - mean) * (point.x - mean) / (point.error * point.error);
  return Measured{single.x, fit_line(points).slope.value, 1 / std::sqrt(spread)};
}

std::optional<Shown> shown_by(const Trains& size) {
  const double x = static_cast<double>(size.bytes) - 1;
  const auto single = round_trip_of(size, x);
  const auto gap = single ? gap_of(size, *single) : std::nullopt;
  const auto train = std::ranges::find_if(size.trains, [](const Trains::Train& each) {
    return each.messages > 1 && each.delay_ns > 0;
  });
  if (!gap || train == size.trains.end() || !are_times(size.receive_ns)) return std::nullopt;
  if (train->delay_ns < gap->y * (1 - kTolerance)) return std::nullopt;
  const Measured delayed = median_of(x, train->samples_ns);
  const double gaps = train->messages - 1;
  const Measured send{x, (delayed.y - single->y) / gaps - train->delay_ns,
                      std::hypot(delayed.error, single->error) / gaps};
  const Measured recv = median_of(x, size.receive_ns);
  // The round trip is in o_s, too.
  const Measured latency{
      x, single->y / 2 - send.y - recv.y,
      std::hypot(single->error * (0.5 + 1 / gaps), delayed.error / gaps, recv.error)};
  return Shown{latency, send, recv, *gap};
}

bool are_sizes(std::span<const Trains> sizes) {
  const auto descends = [](const Trains& a, const Trains& b) { return a.bytes >= b.bytes; };
  return sizes.size() >= kSizesMin && sizes.front().bytes >= 1 &&
         std::ranges::adjacent_find(sizes, descends) == sizes.end();
}

/// Each error becomes the median of its own and its neighbours'.
void pool_errors(std::vector<Measured>* curve) {
  const std::vector<Measured> alone = *curve;
  for (std::size_t i = 0; i < alone.size(); ++i) {
    std::vector<double> errors;
    const std::size_t first = i < kNeighbours ? 0 : i - kNeighbours;
    for (std::size_t k = first; k < std::min(i + kNeighbours + 1, alone.size()); ++k)
      errors.push_back(alone[k].error);
    const auto middle = errors.begin() + static_cast<std::ptrdiff_t>(errors.size() / 2);
    std::ranges::nth_element(errors, middle);
    (*curve)[i].error = *middle;
  }
}

}  // namespace

Measured median_of(double x, std::vector<double> samples) {
  std::ranges::sort(samples);
  const auto count = static_cast<double>(samples.size());
  const std::size_t middle = samples.size() / 2;
  const double median =
      samples.size() % 2 != 0 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
  constexpr double kQuantile = 2.5758;  // 99.5 % of the normal distribution
  const double rank = std::round((count + 1) / 2 - kQuantile * std::sqrt(count / 4));
  const auto low = static_cast<std::size_t>(std::max(rank, 1.0)) - 1;
  const double error = (samples[samples.size() - 1 - low] - samples[low]) / (2 * kQuantile);
  return {x, median, std::max(error, kLeastError * std::max(std::abs(median), 1.0))};
}

Result<std::vector<Segment>> fit_loggp(std::span<const Trains> sizes) {
  if (!are_sizes(sizes)) return Errc::kInvalidArgument;
  std::vector<std::vector<Measured>> curves(4);
  for (const Trains& size : sizes) {
    const auto shown = shown_by(size);
    if (!shown) return Errc::kInvalidArgument;
    curves[0].push_back(shown->latency);
    curves[1].push_back(shown->send_overhead);
    curves[2].push_back(shown->recv_overhead);
    curves[3].push_back(shown->gap);
  }
  for (auto& curve : curves) pool_errors(&curve);
  const std::vector<std::size_t> firsts = find_changes(curves, kSizesMin, kTolerance);
  std::vector<Segment> segments;
  for (std::size_t i = 0; i < firsts.size(); ++i) {
    const std::size_t first = firsts[i];
    const std::size_t end = i + 1 < firsts.size() ? firsts[i + 1] : sizes.size();
    const auto line_of = [&](const std::vector<Measured>& curve) {
      return fit_line(std::span(curve).subspan(first, end - first));
    };
    const Line latency = line_of(curves[0]), send = line_of(curves[1]), recv = line_of(curves[2]),
               gap = line_of(curves[3]);
    segments.push_back(
        {.first_bytes = sizes[first].bytes,
         .last_bytes = sizes[end - 1].bytes,
         .latency_ns = latency.at_zero,
         .send_overhead_ns = send.at_zero,
         .recv_overhead_ns = recv.at_zero,
         .send_overhead_per_byte_ns = send.slope,
         .recv_overhead_per_byte_ns = recv.slope,
         .gap_per_byte_ns = latency.slope,
         .injection_ns = gap.at_zero,
         .injection_per_byte_ns = gap.slope,
         .is_gap_known =
             gap.at_zero.low > (1 + kTolerance) * std::max(send.at_zero.high, recv.at_zero.high)});
  }
  return segments;
}

Result<Gap> fit_gap(std::span<const Trains> sizes) {
  if (!are_sizes(sizes)) return Errc::kInvalidArgument;
  std::vector<Measured> gaps;
  for (const Trains& size : sizes) {
    const auto single = round_trip_of(size, static_cast<double>(size.bytes) - 1);
    const auto gap = single ? gap_of(size, *single) : std::nullopt;
    if (!gap) return Errc::kInvalidArgument;
    gaps.push_back(*gap);
  }
  pool_errors(&gaps);
  const Line line = fit_line(gaps);
  return Gap{line.at_zero, line.slope};
}

}  // namespace larklane::model
