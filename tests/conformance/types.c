// Datatypes: layouts with holes on either side, partitions that begin at multiples of the extent
// (I8), signatures (I9).
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "case.h"

enum { kTag = 61 };

/// One pair with a type on each side; the data goes through MPI_Pack so that the test knows the
/// expected bytes.
typedef struct Side {
  MPI_Datatype type;
  int partitions, count;
} Side;

static void free_types(int count, ...) {
  va_list types;
  va_start(types, count);
  for (int i = 0; i < count; ++i) MUST(MPI_Type_free(va_arg(types, MPI_Datatype*)));
  va_end(types);
}

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

/// How a request names its memory.
typedef enum Named {
  kByAddress,    ///< the buffer's address, displacements from it
  kFromBottom,   ///< MPI_BOTTOM and absolute addresses
  kFromFarBelow  ///< an address 8 GiB below
} Named;

/// The type with all its displacements moved by `by`.
static MPI_Datatype moved(MPI_Datatype type, MPI_Aint by) {
  MPI_Aint lb, extent;
  MPI_Datatype shifted, same_extent;
  MUST(MPI_Type_get_extent(type, &lb, &extent));
  MUST(MPI_Type_create_hindexed(1, (const int[]){1}, &by, type, &shifted));
  MUST(MPI_Type_create_resized(shifted, by, extent, &same_extent));
  MUST(MPI_Type_commit(&same_extent));
  MUST(MPI_Type_free(&shifted));
  return same_extent;
}

static MPI_Request init_of(Side side, void* at, Named named) {
  MPI_Aint address = 0;
  void* buffer = at;
  MPI_Datatype type = side.type;
  if (named == kFromBottom) {
    MUST(MPI_Get_address(at, &address));
    buffer = MPI_BOTTOM;
  } else if (named == kFromFarBelow) {
    address = (MPI_Aint)1 << 33;
    buffer = (void*)((uintptr_t)at - (uintptr_t)address);
  }
  if (named != kByAddress) type = moved(side.type, address);
  MPI_Request request = my_rank == 0
                            ? psend(buffer, side.partitions, side.count, type, 1, kTag, comm)
                            : precv(buffer, side.partitions, side.count, type, 0, kTag, comm);
  if (named != kByAddress) MUST(MPI_Type_free(&type));
  return request;
}

/// Sends with `send`, receives with `receive`, twice; every byte of the type map has to come, no
/// byte of a hole may change.
static void through_named(Side send, Side receive, Named send_named, Named receive_named) {
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
  MPI_Request request = init_of(mine, at, my_rank == 0 ? send_named : receive_named);
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

static void through(Side send, Side receive) {
  through_named(send, receive, kByAddress, kByAddress);
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
  free_types(2, &a, &b);
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
  free_types(2, &wide, &wider);
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
  free_types(3, &shifted, &up, &down);
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
  free_types(3, &raw, &cell, &packed);
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
  free_types(3, &block, &nested, &indexed);
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

/// Each pair, with each way of naming the memory on either side.
static void through_all_named(Side send, Side receive) {
  for (int way = 1; way < 9; ++way)
    through_named(send, receive, (Named)(way / 3), (Named)(way % 3));
}

CASE(I8_absolute_addresses, .ranks = 2) {
  MPI_Datatype a = vector(4, 1, 3, MPI_INT), down = resized(MPI_INT, 0, -8);
  through_all_named(plain_ints(3, 4), plain_ints(4, 3));
  through_all_named((Side){a, 3, 4}, plain_ints(4, 12));
  through_all_named((Side){a, 4, 4}, (Side){a, 2, 8});
  through_all_named((Side){down, 4, 2}, (Side){down, 1, 8});
  through_all_named((Side){MPI_BYTE, 3, 40000}, (Side){MPI_BYTE, 2, 60000});
  free_types(2, &a, &down);
}

/// One partition a side, or many: the type has all the addresses.
CASE(I8_absolute_addresses_of_scattered_variables, .ranks = 2) {
  enum { kParts = 4, kInts = 30 };
  int* parts[kParts];
  MPI_Aint addresses[kParts];
  int lengths[kParts];
  MPI_Datatype kinds[kParts], raw, all;
  for (int i = 0; i < kParts; ++i) {
    parts[i] = guarded(kInts * sizeof(int));
    lengths[i] = kInts;
    kinds[i] = MPI_INT;
  }
  // In another order than in memory.
  for (int i = 0; i < kParts; ++i) MUST(MPI_Get_address(parts[(i + 2) % kParts], &addresses[i]));
  MUST(MPI_Type_create_struct(kParts, lengths, addresses, kinds, &raw));
  all = committed(raw);
  int plain[kParts * kInts];
  MPI_Request request = my_rank == 0 ? psend(MPI_BOTTOM, 1, 1, all, 1, kTag, comm)
                                     : precv(plain, 5, kParts * kInts / 5, MPI_INT, 0, kTag, comm);
  MPI_Request back = my_rank == 0 ? precv(MPI_BOTTOM, 1, 1, all, 1, kTag, comm)
                                  : psend(plain, 3, kParts * kInts / 3, MPI_INT, 0, kTag, comm);
  for (int round = 1; round <= 3; ++round) {
    for (int i = 0; i < kParts * kInts; ++i) {
      plain[i] = -1;
      parts[i / kInts][i % kInts] = 1000 * round + i;
    }
    start(&request);
    if (my_rank == 0) ready_all(request, 1);
    complete(&request);
    for (int i = 0; i < kParts * kInts; ++i) {
      const int expected = 1000 * round + (i / kInts + 2) % kParts * kInts + i % kInts;
      if (my_rank == 1)
        EXPECT_DATA(plain[i] == expected, "%d: expected %d, found %d", i, expected, plain[i]);
      parts[i / kInts][i % kInts] = -1;
    }
    start(&back);
    if (my_rank == 1) ready_all(back, 3);
    complete(&back);
    for (int i = 0; my_rank == 0 && i < kParts * kInts; ++i) {
      const int found = parts[i / kInts][i % kInts];
      EXPECT_DATA(found == 1000 * round + i, "%d: found %d", i, found);
    }
  }
  for (int i = 0; i < kParts; ++i) check_guards(parts[i], kInts * sizeof(int));
  drop(&request);
  drop(&back);
  MUST(MPI_Type_free(&all));
  for (int i = 0; i < kParts; ++i) release_guarded(parts[i]);
}

CASE(I9_nested_strides_cut_anywhere, .ranks = 2) {
  const int sizes[3] = {5, 6, 7}, part[3] = {3, 2, 4}, from[3] = {1, 3, 2};
  MPI_Datatype rows = vector(4, 1, 2, MPI_INT), planes, cube, down;
  MUST(MPI_Type_create_hvector(3, 1, 100, rows, &planes));
  planes = committed(planes);  // 12 ints
  MUST(MPI_Type_create_hvector(2, 1, -400, planes, &down));
  down = committed(down);  // 24 ints, backwards
  MUST(MPI_Type_create_subarray(3, sizes, part, from, MPI_ORDER_FORTRAN, MPI_INT, &cube));
  cube = committed(cube);  // 24 ints
  through((Side){planes, 6, 1}, (Side){cube, 3, 1});
  through((Side){cube, 5, 1}, plain_ints(8, 15));
  through(plain_ints(7, 24), (Side){cube, 7, 1});
  through((Side){down, 3, 1}, (Side){rows, 18, 1});
  through((Side){down, 2, 6}, (Side){down, 3, 4});
  through_named((Side){cube, 6, 1}, (Side){planes, 4, 3}, kFromBottom, kFromFarBelow);
  free_types(4, &rows, &planes, &down, &cube);
}

CASE(I9_listed_places_cut_anywhere, .ranks = 2) {
  enum { kPlaces = 60 };
  int even[kPlaces], odd[kPlaces], lengths[kPlaces];
  int next = 0, ints = 0;
  for (int i = 0; i < kPlaces; ++i) {
    even[i] = 3 * i;
    odd[i] = next;
    lengths[i] = 1 + i * i % 3;
    ints += lengths[i];
    next += lengths[i] + 1 + i * 7 % 5;
  }
  MPI_Datatype regular, places, blocks, of_pairs;
  MUST(MPI_Type_create_indexed_block(kPlaces, 1, even, MPI_INT, &regular));
  MUST(MPI_Type_create_indexed_block(kPlaces, 1, odd, MPI_INT, &places));
  MUST(MPI_Type_indexed(kPlaces, lengths, odd, MPI_INT, &blocks));
  regular = committed(regular);
  places = committed(places);
  blocks = committed(blocks);
  of_pairs = vector(2, 1, 2, places);
  through((Side){regular, 4, 1}, (Side){places, 2, 2});
  through((Side){places, 3, 1}, plain_ints(9, 20));
  through((Side){blocks, 4, 1}, plain_ints(2, 2 * ints));
  through(plain_ints(3, ints), (Side){blocks, 1, 3});
  through((Side){of_pairs, 3, 1}, (Side){regular, 2, 3});
  free_types(4, &regular, &places, &blocks, &of_pairs);
}

/// The MPI may give a freed type's handle to the next one.
CASE(I8_handle_of_a_freed_type, .ranks = 2) {
  for (int stride = 2; stride < 12; ++stride) {
    MPI_Datatype type = vector(4, 1, stride, MPI_INT);
    MPI_Datatype copy;
    MUST(MPI_Type_dup(type, &copy));
    through((Side){type, 2, 3}, (Side){type, 3, 2});
    MUST(MPI_Type_free(&type));
    through(plain_ints(4, 6), (Side){copy, 6, 1});
    MUST(MPI_Type_free(&copy));
  }
}

static long resident_kib(void) {
  long whole = 0, resident = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  REQUIRE(file != NULL, "no /proc/self/statm");
  if (fscanf(file, "%ld %ld", &whole, &resident) != 2) resident = 0;
  fclose(file);
  return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static double used_s(void) {
  struct timespec used;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

/// Listing the blocks takes 3 s and 340 MB for each request; beside few blocks of as many bytes,
/// which a network packs and registers, too.
CASE(I9_four_million_blocks, .ranks = 2, .deadline_s = 60) {
  enum { kBlocks = 4000000, kRequests = 4 };
  enum { kFew = 4, kStride = 2 * kBlocks / kFew };
  MPI_Datatype types[3] = {vector(kFew, kBlocks / kFew, kStride, MPI_FLOAT),
                           vector(kFew, kBlocks / kFew, kStride - 1, MPI_FLOAT),
                           vector(kBlocks, 1, 2, MPI_FLOAT)};
  float* data = malloc(2 * sizeof(float) * kBlocks);
  REQUIRE(data != NULL, "no memory");
  for (int i = 0; i < 2 * kBlocks; ++i) data[i] = my_rank == 0 ? (float)(i % 10007) : -1;
  MPI_Request requests[3 * kRequests];
  double seconds[3];
  long kib[3];
  for (int t = 0; t < 3; ++t) {  // the first ones make the engine
    const long before_kib = resident_kib();
    const double before_s = used_s();
    for (int i = t * kRequests; i < (t + 1) * kRequests; ++i)
      requests[i] = my_rank == 0 ? psend(data, 1, 1, types[t], 1, kTag + i, comm)
                                 : precv(data, 1, 1, types[t], 0, kTag + i, comm);
    seconds[t] = used_s() - before_s;
    kib[t] = resident_kib() - before_kib;
  }
  EXPECT(seconds[2] < 0.2 + 10 * seconds[1],
         "%d requests took %.3f s of this process, of a few blocks %.3f s", (int)kRequests,
         seconds[2], seconds[1]);
  EXPECT(kib[2] < kib[1] + 4 * 1024, "%d requests took %ld KiB, of a few blocks %ld KiB",
         (int)kRequests, kib[2], kib[1]);
  MPI_Request* const large = &requests[2 * kRequests];
  start(large);
  if (my_rank == 0) ready_all(*large, 1);
  complete(large);
  for (int i = 0; my_rank == 1 && i < 2 * kBlocks; ++i) {
    const float expected = i % 2 == 1 ? -1 : (float)(i % 10007);
    if (data[i] != expected) {
      EXPECT_DATA(false, "%d: expected %g, found %g", i, (double)expected, (double)data[i]);
      break;
    }
  }
  for (int i = 0; i < 3 * kRequests; ++i) drop(&requests[i]);
  for (int t = 0; t < 3; ++t) MUST(MPI_Type_free(&types[t]));
  free(data);
}
