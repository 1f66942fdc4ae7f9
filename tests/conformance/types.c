// Datatypes: layouts with holes on either side, partitions that begin at multiples of the extent
// (I8), signatures (I9).
#include <stdlib.h>
#include <string.h>

#include "case.h"

enum { kTag = 61 };

/// One pair with a type on each side; the data goes through MPI_Pack so that the test knows what
/// has to come out.
typedef struct Side {
  MPI_Datatype type;
  int partitions, count;
} Side;

static size_t span_of(Side side, MPI_Aint* before) {
  MPI_Aint lb, extent, true_lb, true_extent;
  MUST(MPI_Type_get_extent(side.type, &lb, &extent));
  MUST(MPI_Type_get_true_extent(side.type, &true_lb, &true_extent));
  const MPI_Aint elements = (MPI_Aint)side.partitions * side.count - 1;
  const MPI_Aint first = extent < 0 ? elements * extent : 0;
  const MPI_Aint last = extent < 0 ? 0 : elements * extent;
  *before = -(first + true_lb);
  return (size_t)(last - first + true_extent);
}

static void pack(const unsigned char* at, Side side, unsigned char* packed, int bytes, bool out) {
  int position = 0;
  if (out) {
    MUST(MPI_Pack(at, side.partitions * side.count, side.type, packed, bytes, &position, comm));
  } else {
    MUST(MPI_Unpack(packed, bytes, &position, (void*)(uintptr_t)at, side.partitions * side.count,
                    side.type, comm));
  }
}

/// Sends with `send`, receives with `receive`, twice; every byte of the type map has to come, no
/// byte of a hole may change.
static void through(Side send, Side receive) {
  const Side mine = my_rank == 0 ? send : receive;
  MPI_Aint before = 0;
  int size = 0;
  MUST(MPI_Type_size(mine.type, &size));
  const int bytes = size * mine.partitions * mine.count;
  const size_t span = span_of(mine, &before);
  unsigned char *memory = guarded(span), *expected = guarded(span);
  unsigned char* packed = malloc((size_t)bytes + 1);
  REQUIRE(packed != NULL, "no memory");
  unsigned char* at = memory + before;
  MPI_Request request = my_rank == 0
                            ? psend(at, mine.partitions, mine.count, mine.type, 1, kTag, comm)
                            : precv(at, mine.partitions, mine.count, mine.type, 0, kTag, comm);
  for (uint64_t round = 1; round <= 2; ++round) {
    memset(memory, kUntouched, span);
    memset(expected, kUntouched, span);
    fill(packed, (size_t)bytes, 1, round);
    pack(my_rank == 0 ? at : expected + before, mine, packed, bytes, false);
    start(&request);
    if (my_rank == 0) ready_all(request, mine.partitions);
    complete(&request);
    if (my_rank == 1) {
      size_t i = 0;
      while (i < span && memory[i] == expected[i]) ++i;
      EXPECT_DATA(i == span, "round %d: byte %zu of %zu: expected %d, found %d", (int)round, i,
                  span, i < span ? expected[i] : 0, i < span ? memory[i] : 0);
      check_guards(memory, span);
    }
  }
  drop(&request);
  free(packed);
  release_guarded(memory);
  release_guarded(expected);
}

static MPI_Datatype committed(MPI_Datatype type) {
  MUST(MPI_Type_commit(&type));
  return type;
}
static MPI_Datatype vector(int count, int block, int stride, MPI_Datatype of) {
  MPI_Datatype type;
  MUST(MPI_Type_vector(count, block, stride, of, &type));
  return committed(type);
}
static MPI_Datatype resized(MPI_Datatype of, MPI_Aint lb, MPI_Aint extent) {
  MPI_Datatype type;
  MUST(MPI_Type_create_resized(of, lb, extent, &type));
  return committed(type);
}

static Side plain_ints(int partitions, int count) { return (Side){MPI_INT, partitions, count}; }

CASE(I9_vector_to_vector, .ranks = 2) {
  MPI_Datatype a = vector(4, 1, 3, MPI_INT), b = vector(2, 2, 5, MPI_INT);
  through((Side){a, 4, 4}, (Side){a, 4, 4});
  through((Side){a, 4, 4}, (Side){b, 2, 8});
  MUST(MPI_Type_free(&a));
  MUST(MPI_Type_free(&b));
}

CASE(I9_contiguous_to_vector, .ranks = 2) {
  MPI_Datatype a = vector(8, 1, 2, MPI_INT);
  through(plain_ints(4, 8), (Side){a, 4, 1});
  through(plain_ints(32, 1), (Side){a, 2, 2});
  MUST(MPI_Type_free(&a));
}

CASE(I9_vector_to_contiguous, .ranks = 2) {
  MPI_Datatype a = vector(8, 1, 2, MPI_INT);
  through((Side){a, 4, 1}, plain_ints(4, 8));
  through((Side){a, 3, 2}, plain_ints(16, 3));
  MUST(MPI_Type_free(&a));
}

CASE(I9_signatures_match_over_the_whole, .ranks = 2) {
  through(plain_ints(3, 4), plain_ints(4, 3));
  through(plain_ints(5, 7), plain_ints(7, 5));
  through(plain_ints(1, 35), plain_ints(35, 1));
}

CASE(I8_partitions_follow_the_extent, .ranks = 2) {
  MPI_Datatype wide = resized(MPI_INT, 0, 12), wider = resized(MPI_INT, 0, 40);
  through((Side){wide, 4, 3}, (Side){wide, 4, 3});
  through((Side){wide, 6, 2}, (Side){wider, 4, 3});
  through(plain_ints(2, 6), (Side){wider, 12, 1});
  MUST(MPI_Type_free(&wide));
  MUST(MPI_Type_free(&wider));
}

CASE(I8_lower_bounds_and_negative_extents, .ranks = 2) {
  MPI_Datatype shifted, down, up;
  MUST(MPI_Type_create_hindexed_block(2, 1, (const MPI_Aint[]){8, 24}, MPI_INT, &shifted));
  shifted = committed(shifted);
  up = resized(shifted, -16, 64);
  down = resized(MPI_INT, 0, -8);
  through((Side){shifted, 4, 2}, plain_ints(4, 4));
  through((Side){up, 4, 2}, (Side){shifted, 2, 4});
  through(plain_ints(4, 2), (Side){down, 2, 4});
  through((Side){down, 4, 2}, (Side){down, 1, 8});
  MUST(MPI_Type_free(&shifted));
  MUST(MPI_Type_free(&up));
  MUST(MPI_Type_free(&down));
}

CASE(I9_structures, .ranks = 2) {
  typedef struct Cell {
    char kind;
    double value[2];
    int id;
  } Cell;
  const int lengths[3] = {1, 2, 1};
  const MPI_Aint places[3] = {offsetof(Cell, kind), offsetof(Cell, value), offsetof(Cell, id)};
  const MPI_Datatype kinds[3] = {MPI_CHAR, MPI_DOUBLE, MPI_INT};
  MPI_Datatype raw, packed;
  MUST(MPI_Type_create_struct(3, lengths, places, kinds, &raw));
  MPI_Datatype cell = resized(raw, 0, sizeof(Cell));
  const MPI_Aint tight[3] = {0, 1, 17};
  MUST(MPI_Type_create_struct(3, lengths, tight, kinds, &packed));
  packed = committed(packed);
  through((Side){cell, 8, 4}, (Side){cell, 4, 8});
  through((Side){cell, 8, 4}, (Side){packed, 16, 2});
  MUST(MPI_Type_free(&raw));
  MUST(MPI_Type_free(&cell));
  MUST(MPI_Type_free(&packed));
}

CASE(I9_subarrays_and_nested_types, .ranks = 2) {
  const int sizes[2] = {10, 12}, part[2] = {4, 5}, from[2] = {3, 2};
  MPI_Datatype block, nested, indexed;
  MUST(MPI_Type_create_subarray(2, sizes, part, from, MPI_ORDER_C, MPI_SHORT, &block));
  block = committed(block);
  nested = vector(2, 1, 2, block);
  MUST(MPI_Type_indexed(3, (const int[]){3, 0, 1}, (const int[]){7, 2, 1}, MPI_SHORT, &indexed));
  indexed = committed(indexed);
  through((Side){block, 4, 1}, (Side){block, 2, 2});
  through((Side){nested, 2, 1}, (Side){block, 4, 1});
  through((Side){indexed, 5, 4}, (Side){MPI_SHORT, 4, 20});
  MUST(MPI_Type_free(&block));
  MUST(MPI_Type_free(&nested));
  MUST(MPI_Type_free(&indexed));
}

CASE(I9_pair_types_with_padding, .ranks = 2) {
  through((Side){MPI_DOUBLE_INT, 4, 8}, (Side){MPI_DOUBLE_INT, 8, 4});
  through((Side){MPI_SHORT_INT, 3, 5}, (Side){MPI_SHORT_INT, 5, 3});
}

CASE(I9_large_strided, .ranks = 2) {
  MPI_Datatype column = vector(1024, 4, 64, MPI_DOUBLE);
  through((Side){column, 8, 1}, (Side){column, 8, 1});
  through((Side){column, 4, 2}, (Side){MPI_DOUBLE, 16, 2048});
  MUST(MPI_Type_free(&column));
}

CASE(I6_types_of_size_zero, .ranks = 2) {
  MPI_Datatype empty;
  MUST(MPI_Type_contiguous(0, MPI_INT, &empty));
  empty = committed(empty);
  through((Side){empty, 4, 4}, (Side){MPI_INT, 2, 0});
  MUST(MPI_Type_free(&empty));
}

CASE(I8_type_freed_after_init, .ranks = 2) {
  int data[64];
  MPI_Datatype type = vector(4, 1, 2, MPI_INT);
  for (int i = 0; i < 64; ++i) data[i] = my_rank == 0 ? i : -1;
  MPI_Request request = my_rank == 0 ? psend(data, 2, 4, type, 1, kTag, comm)
                                     : precv(data, 4, 2, type, 0, kTag, comm);
  MUST(MPI_Type_free(&type));
  start(&request);
  if (my_rank == 0) ready_all(request, 2);
  complete(&request);
  for (int e = 0; e < 8; ++e) {  // the extent of the vector is 7 ints
    for (int i = 0; i < 4; ++i) {
      EXPECT_DATA(data[7 * e + 2 * i] == 7 * e + 2 * i, "element %d: found %d", 7 * e + 2 * i,
                  data[7 * e + 2 * i]);
    }
  }
  drop(&request);
}
