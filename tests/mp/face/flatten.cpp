// Datatypes flattened by the face against MPI_Pack: every constructor, nested at random, with
// holes, negative strides and resized extents. One process; linked with the MPI whose header it was
// compiled with.

#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "mpi/abi/handles.hpp"
#include "mpi/abi/next.hpp"
#include "mpi/types/types.hpp"

namespace larklane::mpi::detail {
Next next_mpi;
Next next_pmpi;
Handles handles;
}  // namespace larklane::mpi::detail

namespace {

constexpr unsigned kSeed = 20261121;
constexpr int kTypes = 400;
constexpr int kElements = 2;

class Maker {
 public:
  explicit Maker(unsigned seed) : random_(seed) {}

  /// A committed type, `depth` constructors deep; its recipe goes to `text`.
  MPI_Datatype make(int depth, std::string* text) {
    if (depth == 0) return named(text);
    MPI_Datatype type = MPI_DATATYPE_NULL;
    const int kind = below(13);
    if (kind == 7) {
      make_struct(depth, &type, text);
    } else {
      std::string inner_text;
      MPI_Datatype inner = make(depth - 1, &inner_text);
      make_uniform(kind, inner, &type, text);
      *text += "(" + inner_text + ")";
      if (depth > 1) MPI_Type_free(&inner);
    }
    MPI_Type_commit(&type);
    return type;
  }

 private:
  int below(int bound) { return static_cast<int>(random_() % static_cast<unsigned>(bound)); }

  MPI_Datatype named(std::string* text) {
    struct Named {
      MPI_Datatype type;
      const char* name;
    };
    // No long double: MPICH's MPI_Pack leaves its padding bytes out.
    const Named kinds[] = {{MPI_BYTE, "byte"},
                           {MPI_INT, "int"},
                           {MPI_DOUBLE, "double"},
                           {MPI_SHORT_INT, "short_int"},
                           {MPI_DOUBLE_INT, "double_int"},
                           {MPI_C_DOUBLE_COMPLEX, "complex"}};
    const Named& chosen = kinds[below(6)];
    *text += chosen.name;
    return chosen.type;
  }

  void make_struct(int depth, MPI_Datatype* type, std::string* text) {
    std::string a_text, b_text;
    MPI_Datatype members[2] = {make(depth - 1, &a_text), make(depth - 1, &b_text)};
    MPI_Aint lb, extent;
    MPI_Type_get_extent(members[0], &lb, &extent);
    const int lengths[2] = {1 + below(2), below(3)};
    const MPI_Aint places[2] = {below(8), 3 * extent + 64 + below(9)};
    MPI_Type_create_struct(2, lengths, places, members, type);
    *text += "struct{" + a_text + "," + b_text + "}";
    for (MPI_Datatype& member : members) {
      if (depth > 1) MPI_Type_free(&member);
    }
  }

  void make_array(bool distributed, MPI_Datatype inner, MPI_Datatype* type, std::string* text) {
    const int order = below(2) == 0 ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
    int sizes[2] = {3 + below(3), 4 + below(3)};
    if (distributed) {
      int kinds[2] = {below(2) == 0 ? MPI_DISTRIBUTE_BLOCK : MPI_DISTRIBUTE_CYCLIC,
                      MPI_DISTRIBUTE_CYCLIC};
      int arguments[2] = {MPI_DISTRIBUTE_DFLT_DARG, 1 + below(2)};
      int grid[2] = {2, 2};
      MPI_Type_create_darray(4, below(4), 2, sizes, kinds, arguments, grid, order, inner, type);
      *text += "darray";
    } else {
      int parts[2] = {1 + below(2), 2};
      int starts[2] = {below(2), below(2)};
      MPI_Type_create_subarray(2, sizes, parts, starts, order, inner, type);
      *text += "subarray";
    }
  }

  void make_uniform(int kind, MPI_Datatype inner, MPI_Datatype* type, std::string* text) {
    MPI_Aint lb, extent;
    MPI_Type_get_extent(inner, &lb, &extent);
    const int lengths[3] = {1 + below(2), below(3), 1};
    const int places[3] = {below(3), 5 + below(3), 10};
    const MPI_Aint bytes[3] = {below(5), 4 * extent + below(7), 9 * extent + 11};
    switch (kind) {
      case 0:
        MPI_Type_contiguous(below(4), inner, type);
        *text += "contiguous";
        break;
      case 1:
        MPI_Type_vector(1 + below(3), 1 + below(2), 2 + below(3), inner, type);
        *text += "vector";
        break;
      case 2:
        MPI_Type_create_hvector(2, 1 + below(2), 3 * extent + below(5), inner, type);
        *text += "hvector";
        break;
      case 3:
        MPI_Type_indexed(3, lengths, places, inner, type);
        *text += "indexed";
        break;
      case 4:
        MPI_Type_create_hindexed(3, lengths, bytes, inner, type);
        *text += "hindexed";
        break;
      case 5:
        MPI_Type_create_indexed_block(3, 2, places, inner, type);
        *text += "indexed_block";
        break;
      case 6:
        MPI_Type_create_hindexed_block(3, 1, bytes, inner, type);
        *text += "hindexed_block";
        break;
      case 8:
        MPI_Type_dup(inner, type);
        *text += "dup";
        break;
      case 9:
        MPI_Type_create_resized(inner, 0, extent + below(9), type);
        *text += "resized";
        break;
      case 10:
        make_array(false, inner, type, text);
        break;
      case 11:
        make_array(true, inner, type, text);
        break;
      default:
        MPI_Type_vector(2, 1, -2, inner, type);
        *text += "vector backwards";
        break;
    }
  }

  std::mt19937 random_;
};

std::vector<unsigned char> packed_by_mpi(MPI_Datatype type, const unsigned char* base) {
  int size = 0, position = 0;
  MPI_Pack_size(kElements, type, MPI_COMM_SELF, &size);
  std::vector<unsigned char> packed(static_cast<std::size_t>(++size));  // Open MPI refuses length 0
  MPI_Pack(base, kElements, type, packed.data(), size, &position, MPI_COMM_SELF);
  packed.resize(static_cast<std::size_t>(position));
  return packed;
}

std::vector<unsigned char> packed_by_us(const larklane::Typemap& type, const unsigned char* base) {
  std::vector<unsigned char> packed;
  const auto address = reinterpret_cast<std::uintptr_t>(base);
  larklane::TypeCursor cursor(type, address, 0, kElements * type.size_bytes());
  while (cursor.left_bytes() > 0) {
    const auto piece = cursor.next(UINT64_MAX);
    const unsigned char* const from = base + (piece.address - address);
    packed.insert(packed.end(), from, from + piece.length_bytes);
  }
  return packed;
}

bool agrees(MPI_Datatype type, const std::string& text) {
  MPI_Aint lb, extent;
  MPI_Type_get_true_extent(type, &lb, &extent);
  MPI_Aint soft_lb, soft_extent;
  MPI_Type_get_extent(type, &soft_lb, &soft_extent);
  const std::size_t before =
      static_cast<std::size_t>(std::abs(lb)) + static_cast<std::size_t>(std::abs(soft_extent)) + 64;
  std::vector<unsigned char> buffer(2 * before + static_cast<std::size_t>(extent) * 2 + 64);
  for (std::size_t i = 0; i < buffer.size(); ++i)
    buffer[i] = static_cast<unsigned char>(i * 131 + i / 256);
  std::string problem;
  auto flat = larklane::mpi::flatten(type, &problem);
  if (!flat) {
    std::printf("%s: %s\n", text.c_str(), problem.c_str());
    return false;
  }
  const larklane::Typemap& map = *(*flat).map;
  const unsigned char* const first = buffer.data() + before + (*flat).first_byte;
  int size = 0;
  MPI_Type_size(type, &size);
  const bool same = map.size_bytes() == static_cast<std::uint64_t>(size) &&
                    map.extent_bytes() == soft_extent &&
                    packed_by_us(map, first) == packed_by_mpi(type, buffer.data() + before);
  if (!same) {
    std::printf("%s: size %llu (MPI: %d), extent %lld (MPI: %lld), or the bytes differ\n",
                text.c_str(), static_cast<unsigned long long>(map.size_bytes()), size,
                static_cast<long long>(map.extent_bytes()), static_cast<long long>(soft_extent));
  }
  return same;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  larklane::mpi::Next& real = larklane::mpi::detail::next_pmpi;
  real.Type_get_envelope = PMPI_Type_get_envelope;
  real.Type_get_contents = PMPI_Type_get_contents;
#ifdef LARKLANE_TEST_LARGE_COUNTS
  real.Type_get_envelope_c = PMPI_Type_get_envelope_c;
  // MPICH 5 has MPI_Aint where the standard has MPI_Count: both have 64 bits.
  real.Type_get_contents_c =
      reinterpret_cast<decltype(real.Type_get_contents_c)>(PMPI_Type_get_contents_c);
#endif
  real.Type_size_x = PMPI_Type_size_x;
  real.Type_get_extent_x = PMPI_Type_get_extent_x;
  real.Type_get_true_extent_x = PMPI_Type_get_true_extent_x;
  real.Type_free = PMPI_Type_free;
  int wrong = 0;
  Maker maker(kSeed);
  for (int i = 0; i < kTypes; ++i) {
    const int depth = i % 4;
    std::string text;
    MPI_Datatype type = maker.make(depth, &text);
    if (!agrees(type, text)) ++wrong;
    if (depth > 0) MPI_Type_free(&type);
  }
  std::printf("flatten: %d types, %d wrong, seed %u\n", kTypes, wrong, kSeed);
  MPI_Finalize();
  return wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
