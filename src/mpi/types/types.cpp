#include "mpi/types/types.hpp"

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mpi/abi/next.hpp"
#include "mpi/types/layout.hpp"

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

bool is_predefined(int combiner) {
  return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL ||
         combiner == MPI_COMBINER_F90_COMPLEX || combiner == MPI_COMBINER_F90_INTEGER;
}

namespace {

/// The arguments that constructed a derived type. The calls with int and those with MPI_Count
/// return the same numbers in the same order, read as one list: integers, then addresses, or large
/// counts in their place. Only subarray and darray differ.
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

Contents::~Contents() {
  // The contents call made new handles, except of predefined types.
  for (MPI_Datatype& type : types) {
    if (!is_predefined(combiner_of(type))) next_pmpi().Type_free(&type);
  }
}

bool read_small(MPI_Datatype type, Contents& contents) {
  const Next& real = next_pmpi();
  int integers = 0, addresses = 0, types = 0;
  if (real.Type_get_envelope(type, &integers, &addresses, &types, &contents.combiner) !=
      MPI_SUCCESS)
    return false;
  if (is_predefined(contents.combiner)) return true;
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
  if (is_predefined(contents.combiner)) return true;
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

/// Flattens a type level by level. Thread safety: single-owner.
class Flattener {
 public:
  explicit Flattener(std::string* problem) : problem_(problem) {}
  bool flatten(MPI_Datatype type, TypePart* part);
  TypeBuilder& builder() { return builder_; }

 private:
  bool flatten_named(MPI_Datatype type, TypePart* part);
  bool flatten_struct(const Contents& contents, TypePart* part);
  bool flatten_value_index(MPI_Datatype type, const Contents& contents, TypePart* part);
  bool flatten_uniform(const Contents& contents, const Element& element, TypePart* part);
  TypePart flatten_indexed(const Contents& contents, const Element& element);
  bool flatten_member(MPI_Datatype type, Element* element);

  TypeBuilder builder_;
  std::string* problem_;
};

/// The blocks of one predefined type: one block, or the two blocks of a pair with a gap between.
bool Flattener::flatten_named(MPI_Datatype type, TypePart* part) {
  const Next& real = next_pmpi();
  MPI_Count size = 0, true_lb = 0, true_extent = 0;
  if (real.Type_size_x(type, &size) != MPI_SUCCESS ||
      real.Type_get_true_extent_x(type, &true_lb, &true_extent) != MPI_SUCCESS || size < 0) {
    return false;
  }
  if (size == 0 || true_extent == size) {
    *part = TypeBuilder::dense(true_lb, static_cast<std::uint64_t>(size));
    return true;
  }
  // MPI_SHORT_INT: the only predefined pair with a gap between its first member and its int.
  if (size != sizeof(short) + sizeof(int)) return false;
  std::vector<TypePart> pair;
  TypeBuilder::append(TypeBuilder::dense(true_lb, sizeof(short)), &pair);
  TypeBuilder::append(
      TypeBuilder::dense(true_lb + true_extent - static_cast<MPI_Count>(sizeof(int)), sizeof(int)),
      &pair);
  *part = builder_.sequence(std::move(pair));
  return true;
}

bool extent_of(MPI_Datatype type, std::int64_t* extent) {
  MPI_Count lb = 0, length = 0;
  if (next_pmpi().Type_get_extent_x(type, &lb, &length) != MPI_SUCCESS) return false;
  *extent = length;
  return true;
}

/// One member type, with its extent.
bool Flattener::flatten_member(MPI_Datatype type, Element* element) {
  return flatten(type, &element->part) && extent_of(type, &element->extent);
}

bool Flattener::flatten_struct(const Contents& contents, TypePart* part) {
  const std::size_t members = contents.count(0);
  std::unordered_map<MPI_Datatype, Element> known;  // the handles stay while `contents` does
  std::vector<TypePart> parts;
  for (std::size_t i = 0; i < members; ++i) {
    const MPI_Datatype type = contents.types.at(i);
    const auto [found, is_new] = known.try_emplace(type);
    Element& element = found->second;
    if (is_new && !flatten_member(type, &element)) return false;
    TypeBuilder::append(
        builder_.shifted(builder_.repeated(element.part, contents.count(1 + i), element.extent),
                         contents.value(1 + members + i)),
        &parts);
  }
  *part = builder_.sequence(std::move(parts));
  return true;
}

#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
/// MPI 4.1: a pair of any two predefined types; the index lies where a C struct would place it.
bool Flattener::flatten_value_index(MPI_Datatype type, const Contents& contents, TypePart* part) {
  MPI_Count true_lb = 0, true_extent = 0, index_size = 0;
  TypePart value, index;
  if (!flatten(contents.types.at(0), &value) || !flatten(contents.types.at(1), &index) ||
      next_pmpi().Type_get_true_extent_x(type, &true_lb, &true_extent) != MPI_SUCCESS ||
      next_pmpi().Type_size_x(contents.types.at(1), &index_size) != MPI_SUCCESS) {
    return false;
  }
  std::vector<TypePart> parts;
  TypeBuilder::append(value, &parts);
  TypeBuilder::append(builder_.shifted(index, true_lb + true_extent - index_size), &parts);
  *part = builder_.sequence(std::move(parts));
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

/// Blocks of one common length, or each of its own length.
TypePart Flattener::flatten_indexed(const Contents& contents, const Element& element) {
  const int combiner = contents.combiner;
  const bool in_extents =
      combiner == MPI_COMBINER_INDEXED || combiner == MPI_COMBINER_INDEXED_BLOCK;
  const bool is_block =
      combiner == MPI_COMBINER_INDEXED_BLOCK || combiner == MPI_COMBINER_HINDEXED_BLOCK;
  const std::size_t count = contents.count(0), places = is_block ? 2 : 1 + count;
  const std::int64_t unit = in_extents ? element.extent : 1;
  std::vector<TypePart> parts;
  TypePart block;
  std::size_t length = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t next = contents.count(is_block ? 1 : 1 + i);
    if (i == 0 || next != length) block = builder_.repeated(element.part, next, element.extent);
    length = next;
    TypeBuilder::append(builder_.shifted(block, contents.value(places + i) * unit), &parts);
  }
  return builder_.sequence(std::move(parts));
}

/// Types with one member type.
bool Flattener::flatten_uniform(const Contents& contents, const Element& element, TypePart* part) {
  const std::size_t count = contents.values.empty() ? 0 : contents.count(0);
  const std::int64_t extent = element.extent;
  switch (contents.combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED:
      *part = element.part;
      return true;
    case MPI_COMBINER_CONTIGUOUS:
      *part = builder_.repeated(element.part, count, extent);
      return true;
    case MPI_COMBINER_VECTOR:
    case MPI_COMBINER_HVECTOR: {
      const std::int64_t unit = contents.combiner == MPI_COMBINER_VECTOR ? extent : 1;
      const TypePart block = builder_.repeated(element.part, contents.count(1), extent);
      *part = builder_.repeated(block, count, contents.value(2) * unit);
      return true;
    }
    case MPI_COMBINER_INDEXED:
    case MPI_COMBINER_HINDEXED:
    case MPI_COMBINER_INDEXED_BLOCK:
    case MPI_COMBINER_HINDEXED_BLOCK:
      *part = flatten_indexed(contents, element);
      return true;
    case MPI_COMBINER_SUBARRAY:
      *part = subarray_part(read_subarray(contents), element, builder_);
      return true;
    case MPI_COMBINER_DARRAY:
      *part = darray_part(read_darray(contents), element, builder_);
      return true;
    default:
      return false;
  }
}

bool Flattener::flatten(MPI_Datatype type, TypePart* part) {
  Contents contents;
  const bool read = next_pmpi().Type_get_envelope_c != nullptr ? read_large(type, contents)
                                                               : read_small(type, contents);
  bool done = false;
  if (!read) {
    *problem_ = "the MPI does not tell what the datatype is made of";
    return false;
  }
  if (is_predefined(contents.combiner)) {
    done = flatten_named(type, part);
  } else if (contents.combiner == MPI_COMBINER_STRUCT) {
    return flatten_struct(contents, part);
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
  } else if (contents.combiner == MPI_COMBINER_VALUE_INDEX) {
    return flatten_value_index(type, contents, part);
#endif
  } else {
    Element element;
    if (!flatten_member(contents.types.at(0), &element)) return false;
    done = flatten_uniform(contents, element, part);
  }
  if (!done)
    *problem_ =
        "datatypes with combiner " + std::to_string(contents.combiner) + " are not supported";
  return done;
}

}  // namespace

Result<FlatType> flatten(MPI_Datatype datatype, std::string* problem) {
  Flattener flattener(problem);
  TypePart part;
  std::int64_t extent = 0;
  if (!flattener.flatten(datatype, &part)) return Errc::kInvalidArgument;
  if (!extent_of(datatype, &extent)) {
    *problem = "the MPI does not tell the datatype's extent";
    return Errc::kInvalidArgument;
  }
  const std::int64_t first = part.offset;
  part.offset = 0;
  auto type = flattener.builder().build(part, extent);
  if (!type) {
    *problem = "the datatype's size, or the distance of its bytes, is more than 2^63 - 1 bytes";
    return type.error();
  }
  return FlatType{std::make_shared<const Typemap>(std::move(type).value()), first};
}

}  // namespace larklane::mpi
