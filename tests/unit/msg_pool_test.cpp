// Pools of nodes and buffers.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "msg/memory/buffer.hpp"
#include "msg/memory/pool.hpp"

namespace {
// Allocations of stores and slabs, the only aligned ones. (The thread sanitizer has such operators
// of its own; msg_race_test is for it.)
int live_blocks = 0;
}  // namespace

void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  ++live_blocks;
  const auto line = static_cast<std::size_t>(alignment);
  return std::aligned_alloc(line, (bytes + line - 1) / line * line);
}
void operator delete(void* block, std::align_val_t) noexcept {
  --live_blocks;
  std::free(block);
}
void operator delete(void* block, std::size_t, std::align_val_t alignment) noexcept {
  operator delete(block, alignment);
}

namespace larklane::msg {
namespace {

template <class T = Node>
Pool<T> pool_of(std::uint32_t nodes_max) {
  return std::move(Pool<T>::create(nodes_max)).value();
}

struct Record : Node {
  std::uint64_t more[10] = {7};
};

TEST(MsgPool, GivesNoMoreThanItsLimitAndEachToOne) {
  for (const std::uint32_t nodes_max : {0u, 1u, 63u, 64u, 200u}) {
    Pool<Node> pool = pool_of(nodes_max);
    std::set<Node*> out;
    while (Node* const node = pool.get()) EXPECT_TRUE(out.insert(node).second);
    EXPECT_EQ(out.size(), nodes_max);
    if (out.empty()) continue;
    pool.put(**out.begin());
    EXPECT_EQ(pool.get(), *out.begin());
    EXPECT_EQ(pool.get(), nullptr);
    for (Node* const node : out) node->home->give_back(*node);
    std::set<Node*> again;
    while (Node* const node = pool.get()) again.insert(node);
    EXPECT_EQ(again, out);
    for (Node* const node : again) pool.put(*node);
  }
}

TEST(MsgPool, LargerRecordsAreWholeAndOnTheirOwnLines) {
  Pool<Record> pool = pool_of<Record>(100);
  std::vector<Record*> out;
  while (Record* const record = pool.get()) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(record) % kLineBytes, 0u);
    EXPECT_EQ(record->more[0], 7u);
    EXPECT_EQ(record->more[9], 0u);
    std::fill_n(record->more, 10, out.size());
    out.push_back(record);
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(out[i]->more[0], i);
    EXPECT_EQ(out[i]->more[9], i);
    pool.put(*out[i]);
  }
}

TEST(MsgPool, AnotherPoolsNodeGoesHome) {
  Pool<Node> one = pool_of(1), other = pool_of(1);
  Node* const node = one.get();
  other.put(*node);
  Node* const others = other.get();
  EXPECT_NE(others, node);
  EXPECT_EQ(other.get(), nullptr);
  other.put(*others);
  EXPECT_EQ(one.get(), node);
  one.put(*node);
}

TEST(MsgPool, NodesComeBackFromAnotherThread) {
  Pool<Node> pool = pool_of(2);
  Node* const node = pool.get();
  std::thread([node] {
    node->completion.tag = 5;
    node->home->give_back(*node);
  }).join();
  std::vector<Node*> out{pool.get(), pool.get()};
  EXPECT_NE(std::find(out.begin(), out.end(), node), out.end());
  EXPECT_EQ(node->completion.tag, 5u);
  for (Node* const each : out) pool.put(*each);
}

// A store and slabs of half a megabyte or a node; a buffer longer than all kept sizes comes from
// the heap.
TEST(MsgPool, LongBuffersAreKeptForTheNext) {
  const int before = live_blocks;
  {
    LongBufferPool pool = std::move(LongBufferPool::create()).value();
    for (const std::uint64_t bytes : {10'000u, 16'384u, 65'536u, 262'144u}) {
      std::byte* const first = pool.take(bytes);
      std::memset(first, 1, bytes);
      give_back_buffer(first);
      const int blocks = live_blocks;
      std::set<std::byte*> again;
      for (int i = 0; i < 1000; ++i) {
        std::byte* const buffer = pool.take(bytes);
        again.insert(buffer);
        give_back_buffer(buffer);
      }
      EXPECT_TRUE(again.contains(first)) << bytes;
      EXPECT_EQ(live_blocks, blocks) << bytes;
    }
    std::vector<std::byte*> out;
    const std::uint64_t kept = LongBufferPool::kKeptBytes / 65'536;
    for (std::uint64_t i = 0; i < kept; ++i) out.push_back(pool.take(65'536));
    const int blocks = live_blocks;
    out.push_back(pool.take(65'536));
    out.push_back(pool.take(1u << 20));
    EXPECT_EQ(live_blocks, blocks) << "beyond what is kept";
    for (std::byte* const buffer : out) std::memset(buffer, 2, 65'536);
    for (std::byte* const buffer : out) give_back_buffer(buffer);
    EXPECT_EQ(pool.take(UINT64_MAX), nullptr);
  }
  EXPECT_EQ(live_blocks, before);
}

TEST(MsgPool, NodesOutliveTheirPool) {
  for (const std::size_t back_before : {0u, 1u, 3u}) {
    std::vector<Node*> out;
    {
      Pool<Node> pool = pool_of(100);
      for (int i = 0; i < 3; ++i) out.push_back(pool.get());
      for (std::size_t i = 0; i < back_before; ++i) out[i]->home->give_back(*out[i]);
    }
    EXPECT_EQ(live_blocks, back_before == out.size() ? 0 : 2);
    for (std::size_t i = back_before; i < out.size(); ++i) out[i]->completion.tag = i;
    for (std::size_t i = back_before; i < out.size(); ++i) {
      EXPECT_EQ(out[i]->completion.tag, i);
      out[i]->home->give_back(*out[i]);
      EXPECT_EQ(live_blocks, i + 1 == out.size() ? 0 : 2);
    }
  }
}

}  // namespace
}  // namespace larklane::msg
