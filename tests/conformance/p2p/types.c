// Datatypes of every combiner, on both sides, and receives of another layout of one signature.
#include <stdlib.h>
#include <string.h>

#include "messages.h"

enum { kTag = 131, kRoom = 1 << 16 };

/// Sends `count` elements of `type` from a patterned buffer. The receiver gets them in the same
/// layout, and once more packed; MPI_Pack of the pattern says which bytes are right.
static void both_layouts(MPI_Datatype type, int count, const char* what) {
  MPI_Aint lower, extent, true_lower, true_extent;
  MUST(MPI_Type_commit(&type));
  MUST(MPI_Type_get_extent(type, &lower, &extent));
  MUST(MPI_Type_get_true_extent(type, &true_lower, &true_extent));
  unsigned char *pattern = memory(2 * kRoom), *data = memory(2 * kRoom), *at = pattern + kRoom / 2;
  fill(pattern, 2 * kRoom, 71, 0);
  int size = 0, end = 0, got = 0;
  MUST(MPI_Pack_size(count, type, comm, &size));
  REQUIRE(size <= kRoom, "%s: too large for the test", what);
  char *expected = memory((size_t)size), *packed = memory((size_t)size);
  MUST(MPI_Pack(at, count, type, expected, size, &end, comm));
  if (my_rank == 0) {
    MUST(MPI_Send(at, count, type, 1, kTag, comm));
    MUST(MPI_Ssend(at, count, type, 1, kTag, comm));
  } else {
    MPI_Status status;
    MPI_Request request;
    memset(data, kUntouched, 2 * kRoom);
    MUST(MPI_Irecv(data + kRoom / 2, count, type, 0, kTag, comm, &request));
    MUST(MPI_Wait(&request, &status));
    MUST(MPI_Get_count(&status, type, &got));
    EXPECT(got == count || end == 0, "%s: count %d of %d", what, got, count);
    got = 0;
    MUST(MPI_Pack(data + kRoom / 2, count, type, packed, size, &got, comm));
    EXPECT_DATA(got == end && memcmp(packed, expected, (size_t)end) == 0, "%s: wrong bytes", what);
    int touched = 0;
    for (int i = 0; i < 2 * kRoom; ++i) touched += data[i] != kUntouched;
    EXPECT_DATA(touched <= end, "%s: %d bytes written, %d received", what, touched, end);
    memset(packed, 0, (size_t)size);
    MUST(MPI_Recv(packed, size, MPI_PACKED, 0, kTag, comm, &status));
    EXPECT_DATA(memcmp(packed, expected, (size_t)end) == 0, "%s: wrong bytes as MPI_PACKED", what);
  }
  free(pattern);
  free(data);
  free(expected);
  free(packed);
  MUST(MPI_Type_free(&type));
}

static MPI_Datatype made;
#define TYPE_CASE(id, count, constructor)   \
  CASE(id, .ranks = 2) {                    \
    MUST(constructor);                      \
    both_layouts(made, (count), #id);       \
    both_layouts_again(&made, constructor); \
  }
/// The type once more, made anew and dropped: nothing of the first one is left.
#define both_layouts_again(type, constructor) \
  do {                                        \
    MUST(constructor);                        \
    both_layouts(*(type), 1, #constructor);   \
  } while (0)

TYPE_CASE(TY1_dup, 5, MPI_Type_dup(MPI_DOUBLE, &made))
TYPE_CASE(TY1_contiguous, 7, MPI_Type_contiguous(5, MPI_SHORT, &made))
TYPE_CASE(TY1_vector, 4, MPI_Type_vector(6, 2, 5, MPI_INT, &made))
TYPE_CASE(TY1_vector_of_negative_stride, 2, MPI_Type_vector(6, 1, -2, MPI_INT, &made))
TYPE_CASE(TY1_hvector, 4, MPI_Type_create_hvector(6, 3, 29, MPI_CHAR, &made))
TYPE_CASE(TY1_indexed, 3,
          MPI_Type_indexed(3, (const int[]){2, 0, 3}, (const int[]){4, 1, 9}, MPI_INT, &made))
TYPE_CASE(TY1_indexed_out_of_order, 2,
          MPI_Type_indexed(3, (const int[]){2, 1, 3}, (const int[]){9, 1, 4}, MPI_INT, &made))
TYPE_CASE(TY1_hindexed, 3,
          MPI_Type_create_hindexed(2, (const int[]){3, 5}, (const MPI_Aint[]){-16, 33}, MPI_CHAR,
                                   &made))
TYPE_CASE(TY1_indexed_block, 3,
          MPI_Type_create_indexed_block(3, 2, (const int[]){0, 8, 4}, MPI_FLOAT, &made))
TYPE_CASE(TY1_hindexed_block, 3,
          MPI_Type_create_hindexed_block(3, 2, (const MPI_Aint[]){0, 40, 17}, MPI_CHAR, &made))
TYPE_CASE(TY1_struct, 5,
          MPI_Type_create_struct(3, (const int[]){1, 3, 2}, (const MPI_Aint[]){0, 8, 40},
                                 (const MPI_Datatype[]){MPI_INT, MPI_DOUBLE, MPI_CHAR}, &made))
TYPE_CASE(TY1_subarray_of_c_order, 2,
          MPI_Type_create_subarray(3, (const int[]){6, 5, 4}, (const int[]){2, 3, 2},
                                   (const int[]){1, 2, 1}, MPI_ORDER_C, MPI_INT, &made))
TYPE_CASE(TY1_subarray_of_fortran_order, 2,
          MPI_Type_create_subarray(2, (const int[]){6, 5}, (const int[]){2, 3}, (const int[]){1, 2},
                                   MPI_ORDER_FORTRAN, MPI_DOUBLE, &made))
TYPE_CASE(TY1_darray, 1,
          MPI_Type_create_darray(4, 1, 2, (const int[]){12, 10},
                                 (const int[]){MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC},
                                 (const int[]){MPI_DISTRIBUTE_DFLT_DARG, 2}, (const int[]){2, 2},
                                 MPI_ORDER_C, MPI_INT, &made))
TYPE_CASE(TY1_resized, 6, MPI_Type_create_resized(MPI_INT, -4, 24, &made))
TYPE_CASE(TY1_empty, 3, MPI_Type_contiguous(0, MPI_INT, &made))
TYPE_CASE(TY1_pair_type, 9, MPI_Type_dup(MPI_DOUBLE_INT, &made))

/// A type of types of types.
CASE(TY1_nested, .ranks = 2) {
  MPI_Datatype inner, middle, outer;
  MUST(MPI_Type_vector(3, 1, 2, MPI_SHORT, &inner));
  MUST(MPI_Type_create_struct(2, (const int[]){2, 1}, (const MPI_Aint[]){4, 64},
                              (const MPI_Datatype[]){inner, MPI_DOUBLE}, &middle));
  MUST(MPI_Type_create_hvector(3, 2, 400, middle, &outer));
  MUST(MPI_Type_free(&inner));
  MUST(MPI_Type_free(&middle));
  both_layouts(outer, 3, "nested");
}

typedef struct Named {
  const char* name;
  MPI_Datatype type;
} Named;

CASE(TY2_predefined_types, .ranks = 2) {
  const Named kTypes[] = {{"CHAR", MPI_CHAR},
                          {"SIGNED_CHAR", MPI_SIGNED_CHAR},
                          {"UNSIGNED_CHAR", MPI_UNSIGNED_CHAR},
                          {"WCHAR", MPI_WCHAR},
                          {"SHORT", MPI_SHORT},
                          {"UNSIGNED_SHORT", MPI_UNSIGNED_SHORT},
                          {"INT", MPI_INT},
                          {"UNSIGNED", MPI_UNSIGNED},
                          {"LONG", MPI_LONG},
                          {"UNSIGNED_LONG", MPI_UNSIGNED_LONG},
                          {"LONG_LONG", MPI_LONG_LONG},
                          {"UNSIGNED_LONG_LONG", MPI_UNSIGNED_LONG_LONG},
                          {"FLOAT", MPI_FLOAT},
                          {"DOUBLE", MPI_DOUBLE},
                          {"LONG_DOUBLE", MPI_LONG_DOUBLE},
                          {"C_BOOL", MPI_C_BOOL},
                          {"INT8_T", MPI_INT8_T},
                          {"INT16_T", MPI_INT16_T},
                          {"INT32_T", MPI_INT32_T},
                          {"INT64_T", MPI_INT64_T},
                          {"UINT8_T", MPI_UINT8_T},
                          {"UINT16_T", MPI_UINT16_T},
                          {"UINT32_T", MPI_UINT32_T},
                          {"UINT64_T", MPI_UINT64_T},
                          {"C_FLOAT_COMPLEX", MPI_C_FLOAT_COMPLEX},
                          {"C_DOUBLE_COMPLEX", MPI_C_DOUBLE_COMPLEX},
                          {"AINT", MPI_AINT},
                          {"OFFSET", MPI_OFFSET},
                          {"COUNT", MPI_COUNT},
                          {"BYTE", MPI_BYTE}};
  unsigned char out[50 * 32], in[50 * 32];
  for (size_t i = 0; i < sizeof(kTypes) / sizeof(kTypes[0]); ++i) {
    int size = 0, count = 0;
    MPI_Status status;
    MUST(MPI_Type_size(kTypes[i].type, &size));
    fill(out, sizeof(out), 72, i);
    memset(in, 0, sizeof(in));
    MUST(MPI_Sendrecv(out, 50, kTypes[i].type, my_peer, kTag, in, 50, kTypes[i].type, my_peer, kTag,
                      comm, &status));
    MUST(MPI_Get_count(&status, kTypes[i].type, &count));
    EXPECT(count == 50, "MPI_%s: count %d", kTypes[i].name, count);
    EXPECT_DATA(memcmp(in, out, 50 * (size_t)size) == 0 || kTypes[i].type == MPI_LONG_DOUBLE,
                "MPI_%s: wrong bytes", kTypes[i].name);
  }
}

/// Both sides may lay one signature out in their own way.
CASE(TY3_other_layout_on_the_other_side, .ranks = 2) {
  enum { kInts = 6000 };
  int* data = memory(4 * kInts * sizeof(int));
  MPI_Datatype strided, listed;
  int places[kInts / 3];
  for (int i = 0; i < kInts / 3; ++i) places[i] = 4 * (kInts / 3 - 1 - i);
  MUST(MPI_Type_vector(kInts / 2, 2, 5, MPI_INT, &strided));
  MUST(MPI_Type_create_indexed_block(kInts / 3, 3, places, MPI_INT, &listed));
  MUST(MPI_Type_commit(&strided));
  MUST(MPI_Type_commit(&listed));
  for (int i = 0; i < 4 * kInts; ++i) data[i] = my_rank == 0 ? i : -1;
  if (my_rank == 0) {
    MUST(MPI_Send(data, 1, strided, 1, kTag, comm));
  } else {
    MUST(MPI_Recv(data, 1, listed, 0, kTag, comm, MPI_STATUS_IGNORE));
    for (int i = 0; i < kInts; ++i) {
      const int sent = 5 * (i / 2) + i % 2, place = places[i / 3] + i % 3;
      EXPECT_DATA(data[place] == sent, "element %d: %d, expected %d", i, data[place], sent);
    }
  }
  MUST(MPI_Type_free(&strided));
  MUST(MPI_Type_free(&listed));
  free(data);
}

/// A message may end within the receiver's type.
CASE(TY3_message_ends_within_the_receivers_type, .ranks = 2) {
  int data[40];
  MPI_Datatype strided;
  MUST(MPI_Type_vector(10, 1, 2, MPI_INT, &strided));
  MUST(MPI_Type_commit(&strided));
  for (int i = 0; i < 40; ++i) data[i] = my_rank == 0 ? i : -1;
  if (my_rank == 0) {
    MUST(MPI_Send(data, 13, MPI_INT, 1, kTag, comm));
  } else {
    MPI_Status status;
    int count = 0, elements = 0;
    MUST(MPI_Recv(data, 2, strided, 0, kTag, comm, &status));
    MUST(MPI_Get_count(&status, strided, &count));
    MUST(MPI_Get_elements(&status, strided, &elements));
    EXPECT(count == MPI_UNDEFINED && elements == 13, "count %d, elements %d", count, elements);
    for (int i = 0; i < 10; ++i) EXPECT_DATA(data[2 * i] == i, "element %d: %d", i, data[2 * i]);
    for (int i = 1; i < 20; i += 2) {
      EXPECT_DATA(data[i] == (i < 19 ? -1 : 10), "gap %d: %d", i, data[i]);
    }
  }
  MUST(MPI_Type_free(&strided));
}

CASE(TY4_absolute_addresses, .ranks = 2) {
  int first[3] = {0}, second = 0;
  MPI_Aint places[2];
  MPI_Datatype type;
  MUST(MPI_Get_address(first, &places[0]));
  MUST(MPI_Get_address(&second, &places[1]));
  MUST(MPI_Type_create_hindexed(2, (const int[]){3, 1}, places, MPI_INT, &type));
  MUST(MPI_Type_commit(&type));
  for (int round = 1; round <= 3; ++round) {
    if (my_rank == 0) {
      for (int i = 0; i < 3; ++i) first[i] = 10 * round + i;
      second = 10 * round + 3;
      MUST(MPI_Send(MPI_BOTTOM, 1, type, 1, kTag, comm));
    } else {
      MUST(MPI_Recv(MPI_BOTTOM, 1, type, 0, kTag, comm, MPI_STATUS_IGNORE));
      EXPECT_DATA(first[0] == 10 * round && first[2] == 10 * round + 2 && second == 10 * round + 3,
                  "%d, %d, %d", first[0], first[2], second);
    }
  }
  MUST(MPI_Type_free(&type));
}

/// A type that is freed while its operation is open is freed after it.
CASE(TY4_type_freed_while_its_operation_is_open, .ranks = 2) {
  enum { kBlocks = 50000 };
  int* data = memory(3 * kBlocks * sizeof(int));
  for (int round = 0; round < 4; ++round) {
    MPI_Datatype type, other;
    MPI_Request request;
    for (int i = 0; i < 3 * kBlocks; ++i) data[i] = my_rank == 0 ? i + round : -1;
    MUST(MPI_Type_vector(kBlocks, 1, 3, MPI_INT, &type));
    MUST(MPI_Type_commit(&type));
    if (my_rank == 0) MUST(MPI_Isend(data, 1, type, 1, kTag, comm, &request));
    if (my_rank == 1) MUST(MPI_Irecv(data, 1, type, 0, kTag, comm, &request));
    MUST(MPI_Type_free(&type));
    MUST(MPI_Type_vector(kBlocks, 2, 3, MPI_INT, &other));  // may get the same handle
    MUST(MPI_Type_commit(&other));
    complete(&request);
    for (int i = 0; my_rank == 1 && i < 3 * kBlocks; ++i) {
      EXPECT_DATA(data[i] == (i % 3 ? -1 : i + round), "round %d, %d: %d", round, i, data[i]);
    }
    MUST(MPI_Type_free(&other));
  }
  free(data);
}

/// MPI_Pack makes what any type of that signature receives.
CASE(TY5_packed_messages, .ranks = 2) {
  char packed[400];
  int place = 0, n = 17;
  double x[3] = {1.5, 2.5, 3.5};
  if (my_rank == 0) {
    MUST(MPI_Pack(&n, 1, MPI_INT, packed, 400, &place, comm));
    MUST(MPI_Pack(x, 3, MPI_DOUBLE, packed, 400, &place, comm));
    MUST(MPI_Send(packed, place, MPI_PACKED, 1, kTag, comm));
  } else {
    MUST(MPI_Recv(packed, 400, MPI_PACKED, 0, kTag, comm, MPI_STATUS_IGNORE));
    n = 0;
    memset(x, 0, sizeof(x));
    MUST(MPI_Unpack(packed, 400, &place, &n, 1, MPI_INT, comm));
    MUST(MPI_Unpack(packed, 400, &place, x, 3, MPI_DOUBLE, comm));
    EXPECT_DATA(n == 17 && x[0] == 1.5 && x[2] == 3.5, "%d, %g, %g", n, x[0], x[2]);
  }
}

/// Long messages of many little pieces.
CASE(TY5_long_strided_messages, .ranks = 2) {
  enum { kBlocks = 400000 };
  unsigned char* data = memory(3 * kBlocks);
  MPI_Datatype type;
  MUST(MPI_Type_vector(kBlocks, 1, 3, MPI_BYTE, &type));
  MUST(MPI_Type_commit(&type));
  for (int way = 0; way < 3; ++way) {
    unsigned char* flat = memory(kBlocks);
    fill(flat, kBlocks, 73, (uint64_t)way);
    memset(data, 0, 3 * kBlocks);
    if (my_rank == 0) {
      for (int i = 0; i < kBlocks; ++i) data[3 * i] = flat[i];
      if (way != 1) MUST(MPI_Send(data, 1, type, 1, kTag, comm));
      if (way == 1) MUST(MPI_Send(flat, kBlocks, MPI_BYTE, 1, kTag, comm));
    } else {
      unsigned char* in = way == 2 ? flat : data;
      if (way == 2) memset(flat, 0, kBlocks);
      MUST(MPI_Recv(in, way == 2 ? kBlocks : 1, way == 2 ? MPI_BYTE : type, 0, kTag, comm,
                    MPI_STATUS_IGNORE));
      for (int i = 0; way != 2 && i < kBlocks; ++i) {
        REQUIRE(data[3 * i] == flat[i] && data[3 * i + 1] == 0, "way %d: byte %d", way, i);
      }
      if (way == 2) EXPECT_STREAM(flat, kBlocks, 73, (uint64_t)way);
    }
    free(flat);
  }
  MUST(MPI_Type_free(&type));
  free(data);
}
