#include "mpi/types/layout.hpp"

#include <algorithm>
#include <utility>

namespace larklane::mpi {
namespace {

/// The indices of one dimension: `blocks` runs of `length`, `period` apart, then `rest` more.
struct Runs {
  std::int64_t first, length;
  std::int64_t blocks = 1, period = 0;
  std::int64_t rest = 0;
};

TypePart run_of(TypePart inner, std::int64_t first, std::int64_t count, std::int64_t stride,
                TypeBuilder& builder) {
  return builder.shifted(
      builder.repeated(inner, static_cast<std::uint64_t>(std::max<std::int64_t>(count, 0)), stride),
      first * stride);
}

/// The elements of an array with indices in the runs of each dimension.
TypePart grid_part(const std::vector<std::int64_t>& sizes, const std::vector<Runs>& runs,
                   bool row_major, const Element& element, TypeBuilder& builder) {
  TypePart inner = element.part;
  std::int64_t stride = element.extent;
  const std::size_t dims = sizes.size();
  for (std::size_t k = 0; k < dims; ++k) {  // the fastest dimension first
    const std::size_t dim = row_major ? dims - 1 - k : k;
    const Runs& run = runs[dim];
    std::vector<TypePart> parts;
    TypeBuilder::append(
        builder.repeated(run_of(inner, run.first, run.length, stride, builder),
                         static_cast<std::uint64_t>(run.blocks), run.period * stride),
        &parts);
    TypeBuilder::append(
        run_of(inner, run.first + run.blocks * run.period, run.rest, stride, builder), &parts);
    inner = builder.sequence(std::move(parts));
    stride *= sizes[dim];
  }
  return inner;
}

/// The indices that process `coordinate` of `processes` owns (MPI 4.0, 5.1.4).
Runs owned(std::int64_t size, bool whole, bool cyclic, std::int64_t argument,
           std::int64_t processes, std::int64_t coordinate) {
  if (whole) return {0, size};
  const std::int64_t length =
      argument > 0 ? argument : (cyclic ? 1 : (size + processes - 1) / processes);
  const std::int64_t first = coordinate * length;
  const std::int64_t left = std::max<std::int64_t>(size - first, 0);
  if (!cyclic || left < length) return {first, std::min(length, left)};
  const std::int64_t period = processes * length;
  const std::int64_t blocks = (left - length) / period + 1;
  return {first, length, blocks, period,
          std::clamp<std::int64_t>(left - blocks * period, 0, length)};
}

}  // namespace

TypePart subarray_part(const Subarray& array, const Element& element, TypeBuilder& builder) {
  std::vector<Runs> runs;
  for (std::size_t i = 0; i < array.sizes.size(); ++i)
    runs.push_back({array.starts[i], array.subsizes[i]});
  return grid_part(array.sizes, runs, array.row_major, element, builder);
}

TypePart darray_part(const Darray& array, const Element& element, TypeBuilder& builder) {
  const std::size_t dims = array.sizes.size();
  std::vector<std::int64_t> coordinates(dims);
  std::int64_t rest = array.rank;
  for (std::size_t i = dims; i-- > 0; rest /= array.processes[i])
    coordinates[i] = rest % array.processes[i];
  std::vector<Runs> runs;
  for (std::size_t i = 0; i < dims; ++i) {
    runs.push_back(owned(array.sizes[i], array.whole[i], array.cyclic[i], array.arguments[i],
                         array.processes[i], coordinates[i]));
  }
  return grid_part(array.sizes, runs, array.row_major, element, builder);
}

}  // namespace larklane::mpi
