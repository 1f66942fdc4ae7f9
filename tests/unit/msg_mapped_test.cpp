// Regions that the library allocates: over shm peers map them, so a put is a store and a get a
// load. Two processes in one, each with a fabric of its own.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/config.hpp"
#include "net/registry.hpp"
#include "unit/msg_job.hpp"

namespace larklane::msg {
namespace {

Job::Options over_shm() {
  Job::Options options;
  options.decorate = [](std::unique_ptr<net::Fabric>, int) {
    std::string reason;
    auto fabric = net::open_fabric_named(Config(), "shm", &reason);
    EXPECT_TRUE(fabric) << reason;
    return std::move(fabric).value();
  };
  return options;
}

class MappedRegion : public JobTest {
 protected:
  explicit MappedRegion(Job::Options options = over_shm()) : JobTest(std::move(options)) {}
  Region allocate(std::uint64_t bytes) {
    return Region(*job_.at(1).engine->allocate_region(bytes).value());
  }
  static std::span<std::byte> bytes_of(const Region& region) {
    return {static_cast<std::byte*>(region.start()), region.bytes()};
  }
  PostOptions quiet() { return {.completion = &mine_}; }
  std::uint64_t works(int rank) { return vci(rank).inside().vci().posts(); }

  CompletionQueue mine_ = queue(0), theirs_ = queue(1);
};

TEST_F(MappedRegion, APutIsAStoreAndAGetALoadOfAnyBytes) {
  Region region = allocate(10'000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(region.start()) % 64, 0u);
  EXPECT_TRUE(std::ranges::all_of(bytes_of(region), [](std::byte b) { return b == std::byte{0}; }));
  std::vector<std::byte> expected(10'000);
  const std::uint64_t before = works(0);
  std::uint64_t seed = 0;
  for (const std::size_t bytes : {0u, 1u, 7u, 8u, 9u, 16u, 33u, 64u, 65u, 4096u, 9000u})
    for (const std::size_t offset : {0u, 1u, 8u, 100u, 1000u}) {
      const auto from = random_bytes(bytes, ++seed);
      ASSERT_EQ(*post_put(vci(0), region.remote(), offset, from.data(), bytes, quiet()),
                Post::done);
      std::ranges::copy(from, expected.begin() + static_cast<std::ptrdiff_t>(offset));
      ASSERT_TRUE(std::ranges::equal(bytes_of(region), expected)) << bytes << " at " << offset;
      std::vector<std::byte> into(bytes + 1, std::byte{77});
      ASSERT_EQ(*post_get(vci(0), region.remote(), offset, into.data(), bytes, quiet()),
                Post::done);
      EXPECT_TRUE(std::equal(from.begin(), from.end(), into.begin()));
      EXPECT_EQ(into.back(), std::byte{77});
    }
  EXPECT_EQ(works(0), before);  // no record, no operation
  EXPECT_FALSE(mine_.pop());
}

TEST_F(MappedRegion, AWantedCompletionComes) {
  Region region = allocate(64);
  const std::uint64_t word = 77;
  PostOptions queued = quiet();
  queued.queues = true;
  for (const PostOptions& options : {telling(mine_), queued}) {
    expect_posted(post_put(vci(0), region.remote(), 8, &word, 8, options));
    EXPECT_TRUE(next(mine_).status.ok());
    std::uint64_t got = 0;
    expect_posted(post_get(vci(0), region.remote(), 8, &got, 8, options));
    EXPECT_TRUE(next(mine_).status.ok());
    EXPECT_EQ(got, word);
  }
}

// Short ones travel in a record, long ones are stored first.
TEST_F(MappedRegion, ASignalFollowsTheBytes) {
  Region region = allocate(100'000);
  const RemoteCompletion number = theirs_.register_remote().value();
  for (const std::size_t bytes : {8u, 100'000u}) {
    const auto from = random_bytes(bytes, bytes);
    auto put = post_put(vci(0), region.remote(), 0, from.data(), bytes, quiet(), number, 5);
    ASSERT_TRUE(put);
    const Completion told = next(theirs_);
    EXPECT_EQ(told.tag, 5u);
    EXPECT_EQ(told.bytes, bytes);
    EXPECT_TRUE(std::ranges::equal(bytes_of(region).first(bytes), from));
    EXPECT_TRUE(*put == Post::done || next(mine_).status.ok());
  }
}

// The table of a connection is smaller than this.
TEST_F(MappedRegion, EachOfManyRegionsGetsItsOwnBytes) {
  constexpr std::uint64_t kRegions = 20;
  std::vector<Region> regions;
  for (std::uint64_t i = 0; i < kRegions; ++i) regions.push_back(allocate(16));
  for (std::uint64_t round = 0; round < 3; ++round)
    for (std::uint64_t i = 0; i < kRegions; ++i) {
      const std::uint64_t word = round << 32 | i;
      ASSERT_EQ(*post_put(vci(0), regions[i].remote(), 8, &word, 8, quiet()), Post::done);
    }
  for (std::uint64_t i = 0; i < kRegions; ++i) {
    std::uint64_t words[2];
    ASSERT_EQ(*post_get(vci(0), regions[i].remote(), 0, words, 16, quiet()), Post::done);
    EXPECT_EQ(words[0], 0u);
    EXPECT_EQ(words[1], 2ull << 32 | i);
  }
}

TEST_F(MappedRegion, AFreedRegionIsRefusedAndItsMemoryIsAnotherOnes) {
  std::uint64_t word = 77;
  RemoteRegion gone;
  {
    Region region = allocate(4096);
    gone = region.remote();
    ASSERT_EQ(*post_put(vci(0), gone, 0, &word, 8, quiet()), Post::done);
  }
  Region next_one = allocate(4096);  // in the same place
  ASSERT_EQ(next_one.remote().address, gone.address);
  expect_posted(post_put(vci(0), gone, 0, &word, 8, quiet()));
  EXPECT_EQ(next(mine_).status, Status(Errc::kTransfer, EACCES));
  expect_posted(post_get(vci(0), gone, 0, &word, 8, quiet()));
  EXPECT_EQ(next(mine_).status, Status(Errc::kTransfer, EACCES));
  EXPECT_EQ(word, 77u);
  EXPECT_TRUE(
      std::ranges::all_of(bytes_of(next_one), [](std::byte b) { return b == std::byte{0}; }));
  ASSERT_EQ(*post_put(vci(0), next_one.remote(), 0, &word, 8, quiet()), Post::done);
}

// A name that has been tampered with. The network refuses it, and so does the owner.
TEST_F(MappedRegion, NoByteOutsideOfTheRegionIsTouched) {
  Region region = allocate(4096), neighbour = allocate(4096);
  const std::uint64_t word = 77;
  RemoteRegion longer = region.remote(), earlier = region.remote();
  longer.bytes = 1u << 20;
  earlier.address -= 8;
  earlier.number = 0;
  ASSERT_EQ(*post_put(vci(0), region.remote(), 0, &word, 8, quiet()), Post::done);
  for (const auto& [name, offset] : {std::pair{longer, 4096u}, {longer, 4089u}, {earlier, 0u}}) {
    expect_posted(post_put(vci(0), name, offset, &word, 8, quiet()));
    EXPECT_FALSE(next(mine_).status.ok());
  }
  EXPECT_TRUE(
      std::ranges::all_of(bytes_of(neighbour), [](std::byte b) { return b == std::byte{0}; }));
  expect_refused(post_put(vci(0), region.remote(), 4089, &word, 8, quiet()));
}

TEST_F(MappedRegion, AFailedLinkRefusesThem) {
  Region region = allocate(64);
  const std::uint64_t word = 77;
  ASSERT_EQ(*post_put(vci(0), region.remote(), 0, &word, 8, quiet()), Post::done);
  for (auto& link : job_.at(0).links) link->end(Errc::kPeerDown);
  EXPECT_EQ(post_put(vci(0), region.remote(), 8, &word, 8, quiet()).error(), Errc::kPeerDown);
  EXPECT_EQ(static_cast<std::uint64_t*>(region.start())[1], 0u);
}

// Their memory is not shared: the network carries them out.
TEST_F(MappedRegion, ARegisteredOneIsNotMapped) {
  std::uint64_t memory[2] = {};
  Region region = job_.at(1).add_region(memory, sizeof memory);
  const std::uint64_t word = 77;
  expect_posted(post_put(vci(0), region.remote(), 8, &word, 8, quiet()));
  EXPECT_TRUE(next(mine_).status.ok());
  EXPECT_EQ(memory[1], word);
}

TEST_F(MappedRegion, ItIsTheLocalSideOfMessagesToo) {
  constexpr std::size_t kBytes = 1u << 20;
  Region out(*job_.at(0).engine->allocate_region(kBytes).value()), in = allocate(kBytes);
  std::ranges::copy(random_bytes(kBytes, 3), bytes_of(out).begin());
  PostOptions sending = telling(mine_), receiving = telling(theirs_);
  sending.region = &out;
  receiving.region = &in;
  expect_posted(post_recv(vci(1), 0, 7, in.start(), kBytes, receiving));
  expect_posted(post_send(vci(0), 1, 7, out.start(), kBytes, sending));
  EXPECT_TRUE(next(theirs_).status.ok());
  EXPECT_TRUE(next(mine_).status.ok());
  EXPECT_TRUE(std::ranges::equal(bytes_of(in), bytes_of(out)));
}

class AllocatedRegion : public MappedRegion {
 protected:
  AllocatedRegion() : MappedRegion(Job::Options{}) {}
};

TEST_F(AllocatedRegion, OtherNetworksCarryOutPutsAndGets) {
  Region region = allocate(4096);
  const auto from = random_bytes(300, 1);
  expect_posted(post_put(vci(0), region.remote(), 8, from.data(), from.size(), quiet()));
  EXPECT_TRUE(next(mine_).status.ok());
  std::vector<std::byte> into(300);
  expect_posted(post_get(vci(0), region.remote(), 8, into.data(), into.size(), quiet()));
  EXPECT_TRUE(next(mine_).status.ok());
  EXPECT_EQ(from, into);
  EXPECT_EQ(bytes_of(region)[0], std::byte{0});
}

TEST_F(AllocatedRegion, TooManyBytesAreNoMemory) {
  for (const std::uint64_t bytes : {std::uint64_t{1} << 62, UINT64_MAX})
    EXPECT_EQ(job_.at(1).engine->allocate_region(bytes).error().code(), Errc::kNoMemory);
}
TEST_F(MappedRegion, TooManyBytesAreNoMemory) {
  for (const std::uint64_t bytes : {std::uint64_t{1} << 62, UINT64_MAX})
    EXPECT_EQ(job_.at(1).engine->allocate_region(bytes).error().code(), Errc::kNoMemory);
  EXPECT_EQ(allocate(0).bytes(), 0u);
}

}  // namespace
}  // namespace larklane::msg
