// Random numbers, the bytes of messages, and their layouts in memory.
#include <stdlib.h>
#include <string.h>

#include "random.h"

enum { kWiped = 0xa5, kGapsChecked = 1 << 14 };

uint64_t next_random(uint64_t* state) {  // splitmix64
  uint64_t x = (*state += 0x9e3779b97f4a7c15u);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

int between(uint64_t* state, int low, int high) {
  return low + (int)(next_random(state) % (uint64_t)(high - low + 1));
}

bool one_in(uint64_t* state, int n) { return between(state, 1, n) == 1; }

static uint64_t word_of(uint64_t id, size_t index) {
  uint64_t x = id * 0xd6e8feb86659fd93u + (uint64_t)index * 0xa0761d6478bd642fu;
  x ^= x >> 32;
  x *= 0xe7037ed1a0b428dbu;
  return x ^ (x >> 29);
}

void fill_stream(unsigned char* to, size_t bytes, uint64_t id) {
  size_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    const uint64_t word = word_of(id, i / 8);
    memcpy(to + i, &word, 8);
  }
  const uint64_t word = word_of(id, i / 8);
  memcpy(to + i, &word, bytes - i);
}

long long wrong_in_stream(const unsigned char* from, size_t bytes, uint64_t id) {
  for (size_t i = 0; i < bytes; i += 8) {
    const uint64_t word = word_of(id, i / 8);
    const size_t some = bytes - i < 8 ? bytes - i : 8;
    if (memcmp(from + i, &word, some) == 0) continue;
    unsigned char right[8];
    memcpy(right, &word, 8);
    for (size_t j = 0; j < some; ++j) {
      if (from[i + j] != right[j]) return (long long)(i + j);
    }
  }
  return -1;
}

// Layouts
// ------------------------------------------------------------------------------------------

static const int kBytesInStream[kBases] = {1, 4, 8, 12}, kBytesInMemory[kBases] = {1, 4, 8, 16};

size_t bytes_of(Base base, int elements) { return (size_t)elements * (size_t)kBytesInStream[base]; }

int basic_elements(Base base, int elements) { return base == kBasePair ? 2 * elements : elements; }

Layout random_layout(uint64_t* random, Base base, int elements, int spare) {
  Layout layout = {.base = base, .shape = (Shape)between(random, 0, kShapes - 1), .block = 1};
  layout.is_swapped = one_in(random, 2);
  layout.capacity = elements + spare;
  if (layout.capacity == 0 || one_in(random, 2)) layout.shape = kPlain;
  if (layout.capacity > 4096 && (layout.shape == kIndexed || layout.shape == kReversed)) {
    layout.shape = kVector;
  }
  if (layout.shape == kSpaced || layout.shape == kVector) {
    layout.block = layout.capacity > 4096 ? 64 : between(random, 1, 5);
    if (spare > 0) {
      layout.capacity += layout.block - 1 - (layout.capacity - 1) % layout.block;
    } else {
      while (layout.capacity % layout.block != 0) --layout.block;
    }
  }
  return layout;
}

/// Index of element i among the places of the buffer.
static size_t place_of(const Layout* layout, int i) {
  static const int kOfSix[6] = {0, 2, 3, 5, 6, 7};
  switch (layout->shape) {
    case kSpaced:
    case kVector:
      return (size_t)(i / layout->block) * (size_t)(layout->block + 1) +
             (size_t)(i % layout->block);
    case kIndexed:
      return (size_t)(i / 6) * 9 + (size_t)kOfSix[i % 6];
    case kReversed:
      return (size_t)(layout->capacity - 1 - i);
    default:
      return (size_t)i;
  }
}

size_t span_of(const Layout* layout) {
  const size_t last = layout->shape == kReversed || layout->capacity == 0
                          ? (size_t)layout->capacity
                          : place_of(layout, layout->capacity - 1) + 1;
  return (last + 1) * (size_t)kBytesInMemory[layout->base];  // a place beyond the end, to be kept
}

static MPI_Datatype basic_type(const Layout* layout, bool* is_made) {
  static const int kOnes[2] = {1, 1};
  *is_made = layout->base == kBasePair;
  if (layout->base == kBaseByte) return MPI_BYTE;
  if (layout->base == kBaseInt) return MPI_INT;
  if (layout->base == kBaseDouble) return MPI_DOUBLE;
  const MPI_Aint at[2] = {layout->is_swapped ? 8 : 0, layout->is_swapped ? 0 : 8};
  const MPI_Datatype types[2] = {MPI_INT, MPI_DOUBLE};
  MPI_Datatype both, whole;
  MPI_Type_create_struct(2, kOnes, at, types, &both);
  MPI_Type_create_resized(both, 0, 16, &whole);
  MPI_Type_free(&both);
  MPI_Type_commit(&whole);
  return whole;
}

static MPI_Datatype indexed_type(const Layout* layout, MPI_Datatype basic) {
  const int blocks = layout->capacity;  // at most
  int* lengths = malloc(2 * sizeof(int) * (size_t)blocks);
  int *places = lengths + blocks, used = 0;
  for (int i = 0; i < layout->capacity; ++used) {
    lengths[used] = used % 3 + 1;
    if (lengths[used] > layout->capacity - i) lengths[used] = layout->capacity - i;
    places[used] = (int)place_of(layout, i);
    i += lengths[used];
  }
  MPI_Datatype type;
  MPI_Type_indexed(used, lengths, places, basic, &type);
  free(lengths);
  return type;
}

static MPI_Datatype reversed_type(const Layout* layout, MPI_Datatype basic) {
  MPI_Aint* places = malloc(sizeof(MPI_Aint) * (size_t)layout->capacity);
  for (int i = 0; i < layout->capacity; ++i) {
    places[i] = (MPI_Aint)place_of(layout, i) * kBytesInMemory[layout->base];
  }
  MPI_Datatype type;
  MPI_Type_create_hindexed_block(layout->capacity, 1, places, basic, &type);
  free(places);
  return type;
}

Typed make_type(const Layout* layout) {
  Typed typed = {.count = 1, .is_made = true};
  typed.basic = basic_type(layout, &typed.is_basic_made);
  const int blocks = layout->capacity / layout->block;
  MPI_Datatype block;
  switch (layout->shape) {
    case kSpaced:
      MPI_Type_contiguous(layout->block, typed.basic, &block);
      MPI_Type_create_resized(
          block, 0, (MPI_Aint)(layout->block + 1) * kBytesInMemory[layout->base], &typed.type);
      MPI_Type_free(&block);
      typed.count = blocks;
      break;
    case kVector:
      MPI_Type_vector(blocks, layout->block, layout->block + 1, typed.basic, &typed.type);
      break;
    case kIndexed:
      typed.type = indexed_type(layout, typed.basic);
      break;
    case kReversed:
      typed.type = reversed_type(layout, typed.basic);
      break;
    case kContiguous:
      MPI_Type_contiguous(layout->capacity, typed.basic, &typed.type);
      break;
    default:
      typed.type = typed.basic;
      typed.count = layout->capacity;
      typed.is_made = false;
  }
  if (typed.is_made) MPI_Type_commit(&typed.type);
  return typed;
}

void free_type(Typed* typed) {
  if (typed->is_made) MPI_Type_free(&typed->type);
  if (typed->is_basic_made) MPI_Type_free(&typed->basic);
  typed->is_made = typed->is_basic_made = false;
}

/// Copies element i between the buffer and the stream.
static void copy_element(unsigned char* to, const unsigned char* from, const Layout* layout,
                         bool into_buffer) {
  if (layout->base != kBasePair) {
    memcpy(to, from, (size_t)kBytesInMemory[layout->base]);
    return;
  }
  const int of_int = layout->is_swapped ? 8 : 0, of_double = layout->is_swapped ? 0 : 8;
  if (into_buffer) {
    memcpy(to + of_int, from, 4);
    memcpy(to + of_double, from + 4, 8);
  } else {
    memcpy(to, from + of_int, 4);
    memcpy(to + 4, from + of_double, 8);
  }
}

static bool is_dense(const Layout* layout) {
  return layout->base != kBasePair && (layout->shape == kPlain || layout->shape == kContiguous);
}

void lay_out(unsigned char* buffer, const Layout* layout, int elements, uint64_t id) {
  const size_t bytes = bytes_of(layout->base, elements);
  if (is_dense(layout)) {
    fill_stream(buffer, bytes, id);
    return;
  }
  unsigned char* stream = malloc(bytes + 1);
  fill_stream(stream, bytes, id);
  for (int i = 0; i < elements; ++i) {
    copy_element(buffer + place_of(layout, i) * (size_t)kBytesInMemory[layout->base],
                 stream + bytes_of(layout->base, i), layout, true);
  }
  free(stream);
}

void wipe(unsigned char* buffer, const Layout* layout) { memset(buffer, kWiped, span_of(layout)); }

/// @return false if a byte outside the elements has changed
static bool are_gaps_whole(const unsigned char* buffer, const Layout* layout, int elements) {
  const size_t span = span_of(layout), each = (size_t)kBytesInMemory[layout->base];
  if (span > kGapsChecked) return true;
  unsigned char* expected = malloc(span);
  memset(expected, kWiped, span);
  unsigned char element[12];
  for (int i = 0; i < elements; ++i) {
    const size_t at = place_of(layout, i) * each;
    copy_element(element, buffer + at, layout, false);
    copy_element(expected + at, element, layout, true);
  }
  const bool whole = memcmp(expected, buffer, span) == 0;
  free(expected);
  return whole;
}

long long wrong_in_layout(const unsigned char* buffer, const Layout* layout, int elements,
                          uint64_t id) {
  const size_t bytes = bytes_of(layout->base, elements);
  long long wrong;
  if (is_dense(layout)) {
    wrong = wrong_in_stream(buffer, bytes, id);
  } else {
    unsigned char* stream = malloc(bytes + 1);
    for (int i = 0; i < elements; ++i) {
      copy_element(stream + bytes_of(layout->base, i),
                   buffer + place_of(layout, i) * (size_t)kBytesInMemory[layout->base], layout,
                   false);
    }
    wrong = wrong_in_stream(stream, bytes, id);
    free(stream);
  }
  return wrong < 0 && !are_gaps_whole(buffer, layout, elements) ? -2 : wrong;
}

int expected_count(const Layout* layout, int elements) {
  if (layout->shape == kPlain) return elements;
  if (layout->shape == kSpaced) {
    return elements % layout->block ? MPI_UNDEFINED : elements / layout->block;
  }
  if (elements == 0) return 0;
  return elements == layout->capacity ? 1 : MPI_UNDEFINED;
}
