// The table from MPI handles to requests.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "mpi/requests/handle_table.hpp"

namespace larklane::mpi {
namespace {

void* object(std::uint64_t handle) { return reinterpret_cast<void*>(handle * 16 + 8); }

TEST(HandleTable, ContainsAnyFindsOneAmongMany) {
  HandleTable table;
  std::vector<int> objects(40);
  for (std::size_t i = 0; i < objects.size(); ++i) table.insert(1000 + 8 * i, &objects[i]);
  const auto is_among = [&](std::uint64_t last) {
    return table.contains_any(
        500, [&](int i) { return i == 499 ? last : 500000 + static_cast<std::uint64_t>(i); });
  };
  EXPECT_FALSE(is_among(7));
  for (std::size_t i = 0; i < objects.size(); ++i) EXPECT_TRUE(is_among(1000 + 8 * i)) << i;
  table.remove(1000);
  EXPECT_FALSE(is_among(1000));
  EXPECT_FALSE(HandleTable().contains_any(1, [](int) { return std::uint64_t{1000}; }));
}

TEST(MpiHandleTable, AnEmptyTableKnowsNothing) {
  const HandleTable table;
  EXPECT_EQ(table.find(0x98000001), nullptr);
  EXPECT_EQ(table.size(), 0u);
}

TEST(MpiHandleTable, AgreesWithAMapUnderChurn) {
  HandleTable table;
  std::map<std::uint64_t, void*> model;
  std::mt19937_64 random(7);
  for (int step = 0; step < 200000; ++step) {
    // Few distinct handles, so that they come back, at distances that collide.
    const std::uint64_t handle = 2 + (random() % 700) * 4096;
    if (model.contains(handle)) {
      EXPECT_EQ(table.find(handle), model[handle]);
      table.remove(handle);
      model.erase(handle);
      EXPECT_EQ(table.find(handle), nullptr);
    } else {
      EXPECT_EQ(table.find(handle), nullptr);
      table.insert(handle, object(handle));
      model[handle] = object(handle);
    }
    EXPECT_EQ(table.size(), model.size());
  }
  EXPECT_EQ(table.values().size(), model.size());
}

TEST(MpiHandleTable, NewHandlesForeverDoNotFillIt) {
  HandleTable table;
  for (std::uint64_t i = 0; i < 1'000'000; ++i) {
    const std::uint64_t handle = 2 + i * 48;
    table.insert(handle, object(handle));
    table.remove(handle);
  }
  EXPECT_EQ(table.size(), 0u);
  EXPECT_EQ(table.find(2), nullptr);
}

TEST(MpiHandleTable, NewHandlesBesideOneThatStaysDoNotFillIt) {
  HandleTable table;
  table.insert(7, object(7));
  std::mt19937_64 random(11);
  for (int i = 0; i < 200000; ++i) {
    const std::uint64_t handle = 1000 + random() % 2000;
    table.insert(handle, object(handle));
    table.remove(handle);
    ASSERT_EQ(table.find(handle), nullptr);  // would not return from a table without empty slots
  }
  EXPECT_EQ(table.find(7), object(7));
  EXPECT_EQ(table.size(), 1u);
}

TEST(MpiHandleTable, NoBitsMeetARemovedSlot) {
  HandleTable table;
  // Neighbours in a table of 64 slots: the first one's slot remains removed before the other's.
  for (std::uint64_t handle = 2; handle < 200; ++handle)
    for (std::uint64_t neighbour = 2; neighbour < 200; ++neighbour) {
      if (neighbour == handle) continue;
      table.insert(handle, object(handle));
      table.insert(neighbour, object(neighbour));
      table.remove(handle);
      for (const std::uint64_t bits :
           {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}, handle})
        ASSERT_EQ(table.find(bits), nullptr) << bits << " beside " << handle << ", " << neighbour;
      ASSERT_EQ(table.find(neighbour), object(neighbour));
      table.remove(neighbour);
    }
}

TEST(MpiHandleTable, KeysOfRemovedSlotsAreHandlesLikeOthers) {
  constexpr std::uint64_t kInverse = 0xF1DE83E19937733Du;  // of the factor of the hash
  HandleTable table;
  table.insert(7, object(7));
  for (std::uint64_t slot = 0; slot < 64; ++slot) {
    const std::uint64_t key = (slot << 58 | 1) * kInverse;
    for (std::uint64_t other = 2; other < 200; ++other) {
      if (other == 7) continue;
      table.insert(other, object(other));
      ASSERT_EQ(table.find(key), nullptr);
      table.insert(key, object(key));
      table.remove(other);
      ASSERT_EQ(table.find(key), object(key)) << slot << " " << other;
      ASSERT_EQ(table.find(other), nullptr);
      table.insert(other, object(other));
      table.remove(key);
      ASSERT_EQ(table.find(key), nullptr) << slot << " " << other;
      ASSERT_EQ(table.find(other), object(other));
      table.remove(other);
    }
  }
  EXPECT_EQ(table.size(), 1u);
  EXPECT_EQ(table.values(), std::vector<void*>{object(7)});
}

TEST(MpiHandleTable, RemovingAnAbsentHandleDoesNothing) {
  HandleTable table;
  table.insert(10, object(10));
  table.remove(11);
  EXPECT_EQ(table.find(10), object(10));
  EXPECT_EQ(table.size(), 1u);
}

TEST(MpiHandleTable, ReadersSeeTheirHandleWhileOthersComeAndGo) {
  HandleTable table;
  constexpr std::uint64_t kKept = 50;
  for (std::uint64_t h = 0; h < kKept; ++h) table.insert(1000 + h, object(1000 + h));
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> readers;
  for (std::uint64_t r = 0; r < 2; ++r) {
    readers.emplace_back([&, r] {
      for (std::uint64_t i = r; !stop.load(std::memory_order_relaxed); ++i) {
        const std::uint64_t kept = 1000 + i % kKept;
        if (table.find(kept) != object(kept)) wrong.fetch_add(1, std::memory_order_relaxed);
        // Never inserted: another thread's handle must not be taken for it.
        if (table.find(500'000 + i % 1000) != nullptr)
          wrong.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  for (std::uint64_t round = 0; round < 300; ++round) {
    for (std::uint64_t h = 0; h < round; ++h) table.insert(5000 + h, object(5000 + h));
    for (std::uint64_t h = 0; h < round; ++h) table.remove(5000 + h);
  }
  stop.store(true, std::memory_order_relaxed);
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong.load(std::memory_order_relaxed), 0);
}

}  // namespace
}  // namespace larklane::mpi
