#include "mpi/types.hpp"

#include <cstdint>
#include <vector>

#include "mpi/layout.hpp"
#include "mpi/next.hpp"

namespace larklane::mpi {

int combiner_of(MPI_Datatype type) {
  const Next& real = next_pmpi();
  int combiner = MPI_UNDEFINED, integers = 0, addresses = 0, types = 0;
  if (real.Type_get_envelope_c != nullptr) {
    MPI_Count integers_c = 0, addresses_c = 0, large = 0, types_c = 0;
    real.Type_get_envelope_c(type, &integers_c, &addresses_c, &large, &types_c, &combiner);
  } else {
    real.Type_get_envelope(type, &integers, &addresses, &types, &combiner);
  }
  return combiner;
}

namespace {

/// What a derived type was made of. The calls with int and those with MPI_Count give the same
/// numbers in the same order when integers, then addresses or, for the latter, large counts are
/// read as one list (only subarray and darray differ).
struct Contents {
  int combiner = 0;
  bool large = false;
  std::vector<int> integers;
  std::vector<std::int64_t> values;  ///< integers then addresses, or the large counts
  std::vector<MPI_Datatype> types;

  Contents() = default;
  Contents(const Contents&) = delete;
  Contents& operator=(const Contents&) = delete;
  ~Contents();

  std::int64_t value(std::size_t i) const { return values.at(i); }
  std::size_t count(std::size_t i) const { return static_cast<std::size_t>(values.at(i)); }
};

bool is_named(int combiner) {
  return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL ||
         combiner == MPI_COMBINER_F90_COMPLEX || combiner == MPI_COMBINER_F90_INTEGER;
}

Contents::~Contents() {
  // The contents call made new handles, except of predefined types.
  for (MPI_Datatype& type : types) {
    if (!is_named(combiner_of(type))) next_pmpi().Type_free(&type);
  }
}

bool read_small(MPI_Datatype type, Contents& contents) {
  const Next& real = next_pmpi();
  int integers = 0, addresses = 0, types = 0;
  if (real.Type_get_envelope(type, &integers, &addresses, &types, &contents.combiner) !=
      MPI_SUCCESS)
    return false;
  if (is_named(contents.combiner)) return true;
  contents.integers.resize(static_cast<std::size_t>(integers));
  std::vector<MPI_Aint> places(static_cast<std::size_t>(addresses));
  std::vector<MPI_Datatype> made(static_cast<std::size_t>(types));
  if (real.Type_get_contents(type, integers, addresses, types, contents.integers.data(),
                             places.data(), made.data()) != MPI_SUCCESS) {
    return false;
  }
  contents.types = std::move(made);
  contents.values.assign(contents.integers.begin(), contents.integers.end());
  contents.values.insert(contents.values.end(), places.begin(), places.end());
  return true;
}

bool read_large(MPI_Datatype type, Contents& contents) {
  const Next& real = next_pmpi();
  MPI_Count integers = 0, addresses = 0, large = 0, types = 0;
  if (real.Type_get_envelope_c(type, &integers, &addresses, &large, &types, &contents.combiner) !=
      MPI_SUCCESS)
    return false;
  if (is_named(contents.combiner)) return true;
  contents.integers.resize(static_cast<std::size_t>(integers));
  std::vector<MPI_Count> places(static_cast<std::size_t>(addresses)),
      counts(static_cast<std::size_t>(large));
  std::vector<MPI_Datatype> made(static_cast<std::size_t>(types));
  if (real.Type_get_contents_c(type, integers, addresses, large, types, contents.integers.data(),
                               places.data(), counts.data(), made.data()) != MPI_SUCCESS) {
    return false;
  }
  contents.types = std::move(made);
  contents.large = large > 0;
  if (!contents.large) contents.values.assign(contents.integers.begin(), contents.integers.end());
  contents.values.insert(contents.values.end(), places.begin(), places.end());
  contents.values.insert(contents.values.end(), counts.begin(), counts.end());
  return true;
}

/// The blocks of one predefined type: one, or the two of a pair with a hole in between.
bool flatten_named(MPI_Datatype type, Blocks* blocks) {
  const Next& real = next_pmpi();
  MPI_Count size = 0, true_lb = 0, true_extent = 0;
  if (real.Type_size_x(type, &size) != MPI_SUCCESS ||
      real.Type_get_true_extent_x(type, &true_lb, &true_extent) != MPI_SUCCESS || size < 0) {
    return false;
  }
  if (size == 0) return true;
  if (true_extent == size) {
    blocks->push_back({true_lb, static_cast<std::uint64_t>(size)});
    return true;
  }
  // MPI_SHORT_INT: the only predefined pair whose int does not follow its first member at once.
  if (size != sizeof(short) + sizeof(int)) return false;
  blocks->push_back({true_lb, sizeof(short)});
  blocks->push_back({true_lb + true_extent - static_cast<MPI_Count>(sizeof(int)), sizeof(int)});
  return true;
}

bool extent_of(MPI_Datatype type, std::int64_t* lower, std::int64_t* extent) {
  MPI_Count lb = 0, length = 0;
  if (next_pmpi().Type_get_extent_x(type, &lb, &length) != MPI_SUCCESS) return false;
  *lower = lb;
  *extent = length;
  return true;
}

bool flatten_into(MPI_Datatype type, Blocks* blocks, std::string* problem);

/// One member type, with its extent.
bool flatten_member(MPI_Datatype type, Element* element, std::string* problem) {
  std::int64_t lower = 0;
  return flatten_into(type, &element->blocks, problem) && extent_of(type, &lower, &element->extent);
}

bool flatten_struct(const Contents& contents, Blocks* blocks, std::string* problem) {
  const std::size_t members = contents.count(0);
  for (std::size_t i = 0; i < members; ++i) {
    Element element;
    if (!flatten_member(contents.types.at(i), &element, problem)) return false;
    append_repeated(element.blocks, contents.value(1 + members + i), contents.count(1 + i),
                    element.extent, blocks);
  }
  return true;
}

#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
/// MPI 4.1: a pair made of any two predefined types, the index where a C struct would have it.
bool flatten_value_index(MPI_Datatype type, const Contents& contents, Blocks* blocks,
                         std::string* problem) {
  MPI_Count true_lb = 0, true_extent = 0, index_size = 0;
  Blocks index;
  if (!flatten_into(contents.types.at(0), blocks, problem) ||
      !flatten_into(contents.types.at(1), &index, problem) ||
      next_pmpi().Type_get_true_extent_x(type, &true_lb, &true_extent) != MPI_SUCCESS ||
      next_pmpi().Type_size_x(contents.types.at(1), &index_size) != MPI_SUCCESS) {
    return false;
  }
  append_repeated(index, true_lb + true_extent - index_size, 1, 0, blocks);
  return true;
}
#endif

Subarray read_subarray(const Contents& contents) {
  Subarray array;
  const std::size_t dims = static_cast<std::size_t>(contents.integers.at(0));
  const std::size_t first = contents.large ? 0 : 1;
  for (std::size_t i = 0; i < dims; ++i) {
    array.sizes.push_back(contents.value(first + i));
    array.subsizes.push_back(contents.value(first + dims + i));
    array.starts.push_back(contents.value(first + 2 * dims + i));
  }
  array.row_major = contents.integers.back() == MPI_ORDER_C;
  return array;
}

Darray read_darray(const Contents& contents) {
  Darray array;
  const auto& integers = contents.integers;
  array.rank = integers.at(1);
  const std::size_t dims = static_cast<std::size_t>(integers.at(2));
  const std::size_t distribution = contents.large ? 3 : 3 + dims;
  for (std::size_t i = 0; i < dims; ++i) {
    array.sizes.push_back(contents.value(contents.large ? i : 3 + i));
    const int kind = integers.at(distribution + i);
    const int argument = integers.at(distribution + dims + i);
    array.cyclic.push_back(kind == MPI_DISTRIBUTE_CYCLIC);
    array.whole.push_back(kind == MPI_DISTRIBUTE_NONE);
    array.arguments.push_back(argument == MPI_DISTRIBUTE_DFLT_DARG ? 0 : argument);
    array.processes.push_back(integers.at(distribution + 2 * dims + i));
  }
  array.row_major = integers.back() == MPI_ORDER_C;
  return array;
}

/// Types made of one member type.
bool flatten_uniform(const Contents& contents, const Element& element, Blocks* blocks) {
  const std::size_t count = contents.values.empty() ? 0 : contents.count(0);
  const std::int64_t extent = element.extent;
  const auto append = [&](std::int64_t offset, std::size_t length) {
    append_repeated(element.blocks, offset, length, extent, blocks);
  };
  switch (contents.combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED:
      append(0, 1);
      return true;
    case MPI_COMBINER_CONTIGUOUS:
      append(0, count);
      return true;
    case MPI_COMBINER_VECTOR:
    case MPI_COMBINER_HVECTOR: {
      const std::int64_t unit = contents.combiner == MPI_COMBINER_VECTOR ? extent : 1;
      Blocks block;
      append_repeated(element.blocks, 0, contents.count(1), extent, &block);
      append_repeated(block, 0, count, contents.value(2) * unit, blocks);
      return true;
    }
    case MPI_COMBINER_INDEXED:
    case MPI_COMBINER_HINDEXED: {
      const std::int64_t unit = contents.combiner == MPI_COMBINER_INDEXED ? extent : 1;
      for (std::size_t i = 0; i < count; ++i)
        append(contents.value(1 + count + i) * unit, contents.count(1 + i));
      return true;
    }
    case MPI_COMBINER_INDEXED_BLOCK:
    case MPI_COMBINER_HINDEXED_BLOCK: {
      const std::int64_t unit = contents.combiner == MPI_COMBINER_INDEXED_BLOCK ? extent : 1;
      for (std::size_t i = 0; i < count; ++i)
        append(contents.value(2 + i) * unit, contents.count(1));
      return true;
    }
    case MPI_COMBINER_SUBARRAY:
      append_subarray(read_subarray(contents), element, blocks);
      return true;
    case MPI_COMBINER_DARRAY:
      append_darray(read_darray(contents), element, blocks);
      return true;
    default:
      return false;
  }
}

bool flatten_into(MPI_Datatype type, Blocks* blocks, std::string* problem) {
  Contents contents;
  const bool read = next_pmpi().Type_get_envelope_c != nullptr ? read_large(type, contents)
                                                               : read_small(type, contents);
  bool done = false;
  if (!read) {
    *problem = "the MPI does not tell what the datatype is made of";
    return false;
  }
  if (is_named(contents.combiner)) {
    done = flatten_named(type, blocks);
  } else if (contents.combiner == MPI_COMBINER_STRUCT) {
    return flatten_struct(contents, blocks, problem);
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
  } else if (contents.combiner == MPI_COMBINER_VALUE_INDEX) {
    return flatten_value_index(type, contents, blocks, problem);
#endif
  } else {
    Element element;
    if (!flatten_member(contents.types.at(0), &element, problem)) return false;
    done = flatten_uniform(contents, element, blocks);
  }
  if (!done)
    *problem =
        "datatypes with combiner " + std::to_string(contents.combiner) + " are not supported";
  return done;
}

}  // namespace

Result<std::shared_ptr<const Typemap>> flatten(MPI_Datatype datatype, std::string* problem) {
  Blocks blocks;
  std::int64_t lower = 0, extent = 0;
  if (!flatten_into(datatype, &blocks, problem)) return Errc::kInvalidArgument;
  if (!extent_of(datatype, &lower, &extent)) {
    *problem = "the MPI does not tell the datatype's extent";
    return Errc::kInvalidArgument;
  }
  return std::shared_ptr<const Typemap>(std::make_shared<Typemap>(std::move(blocks), extent));
}

}  // namespace larklane::mpi
