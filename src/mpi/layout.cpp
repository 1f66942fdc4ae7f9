#include "mpi/layout.hpp"

#include <algorithm>

namespace larklane::mpi {
namespace {

/// Indices [first, first + count) of one dimension.
struct Run {
  std::int64_t first, count;
};

void append_block(const TypeBlock& block, Blocks* out) {
  if (block.length_bytes == 0) return;
  if (!out->empty() &&
      out->back().offset_bytes + static_cast<std::int64_t>(out->back().length_bytes) ==
          block.offset_bytes) {
    out->back().length_bytes += block.length_bytes;
  } else {
    out->push_back(block);
  }
}

/// The elements of an array whose indices are in one of the runs of each dimension, the fastest
/// dimension first.
void append_grid(const std::vector<std::int64_t>& sizes, const std::vector<std::vector<Run>>& runs,
                 bool row_major, const Element& element, Blocks* out) {
  Blocks inner = element.blocks;
  std::int64_t stride = element.extent;
  const std::size_t dims = sizes.size();
  for (std::size_t k = 0; k < dims; ++k) {
    const std::size_t dim = row_major ? dims - 1 - k : k;
    Blocks outer;
    for (const Run& run : runs[dim]) {
      append_repeated(inner, run.first * stride, static_cast<std::size_t>(run.count), stride,
                      &outer);
    }
    inner = std::move(outer);
    stride *= sizes[dim];
  }
  append_repeated(inner, 0, 1, 0, out);
}

/// The indices that process `coordinate` of `processes` owns (MPI 4.0, 5.1.4).
std::vector<Run> owned(std::int64_t size, bool whole, bool cyclic, std::int64_t argument,
                       std::int64_t processes, std::int64_t coordinate) {
  if (whole) return {{0, size}};
  const std::int64_t length =
      argument > 0 ? argument : (cyclic ? 1 : (size + processes - 1) / processes);
  std::vector<Run> runs;
  for (std::int64_t first = coordinate * length; first < size; first += processes * length) {
    runs.push_back({first, std::min(length, size - first)});
    if (!cyclic) break;
  }
  return runs;
}

}  // namespace

void append_repeated(const Blocks& blocks, std::int64_t offset, std::size_t count,
                     std::int64_t stride, Blocks* out) {
  if (blocks.size() == 1 && stride == static_cast<std::int64_t>(blocks[0].length_bytes)) {
    append_block({offset + blocks[0].offset_bytes, blocks[0].length_bytes * count}, out);
    return;
  }
  for (std::size_t i = 0; i < count; ++i, offset += stride) {
    for (const TypeBlock& block : blocks)
      append_block({offset + block.offset_bytes, block.length_bytes}, out);
  }
}

void append_subarray(const Subarray& array, const Element& element, Blocks* out) {
  std::vector<std::vector<Run>> runs;
  for (std::size_t i = 0; i < array.sizes.size(); ++i)
    runs.push_back({{array.starts[i], array.subsizes[i]}});
  append_grid(array.sizes, runs, array.row_major, element, out);
}

void append_darray(const Darray& array, const Element& element, Blocks* out) {
  const std::size_t dims = array.sizes.size();
  std::vector<std::int64_t> coordinates(dims);
  std::int64_t rest = array.rank;
  for (std::size_t i = dims; i-- > 0; rest /= array.processes[i])
    coordinates[i] = rest % array.processes[i];
  std::vector<std::vector<Run>> runs;
  for (std::size_t i = 0; i < dims; ++i) {
    runs.push_back(owned(array.sizes[i], array.whole[i], array.cyclic[i], array.arguments[i],
                         array.processes[i], coordinates[i]));
  }
  append_grid(array.sizes, runs, array.row_major, element, out);
}

}  // namespace larklane::mpi
