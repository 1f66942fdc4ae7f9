// The C API: regions that the library allocates.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "capi_checks.hpp"
#include "larklane/larklane.h"

namespace {

/// A process that is alone, and one lane.
class CapiRegion : public testing::Test {
 protected:
  CapiRegion() {
    larklane_peers peers = LARKLANE_PEERS_INIT;
    peers.all_gather = [](const void* own, std::size_t bytes, void* all, void*) {
      std::memcpy(all, own, bytes);
      return 0;
    };
    expect_ok(larklane_context_create_with_peers(&peers, &context_));
    expect_ok(larklane_vci_create(context_, &vci_));
    expect_ok(larklane_queue_create(context_, &queue_));
  }
  ~CapiRegion() override {
    expect_ok(larklane_completion_object_free(queue_));
    expect_ok(larklane_vci_destroy(vci_));
    expect_ok(larklane_context_destroy(context_));
  }
  /// Posts until it is done at once: while the helper holds the lane, the network carries it out.
  larklane_post posted(const std::function<int(larklane_post*)>& post) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    larklane_post answer = LARKLANE_RETRY;
    while (answer != LARKLANE_DONE && std::chrono::steady_clock::now() < until) {
      const int status = post(&answer);
      expect_ok(status);
      if (status != 0) break;
      expect_ok(larklane_vci_progress(vci_, nullptr));
      std::this_thread::yield();
    }
    return answer;
  }

  larklane_context* context_ = nullptr;
  larklane_vci* vci_ = nullptr;
  larklane_completion_object* queue_ = nullptr;
};

TEST_F(CapiRegion, PutsAndGetsOfAllocatedMemoryAreDone) {
  constexpr std::uint64_t kWords = 512;
  larklane_region* region = nullptr;
  larklane_remote_region remote = LARKLANE_REMOTE_REGION_INIT;
  void* start = nullptr;
  const int refused = LARKLANE_ERR_INVALID_ARGUMENT;
  expect_refused(larklane_region_allocate(context_, 8, nullptr), refused, "region_p is null");
  expect_refused(larklane_region_allocate(nullptr, 8, &region), refused, "context is null");
  expect_refused(larklane_region_start(nullptr, &start), refused, "region is null");
  EXPECT_EQ(region, nullptr);
  EXPECT_EQ(start, nullptr);
  expect_ok(larklane_region_allocate(context_, kWords * 8, &region));
  expect_refused(larklane_region_start(region, nullptr), refused, "start_p is null");
  expect_ok(larklane_region_start(region, &start));
  expect_ok(larklane_region_remote(region, &remote));
  EXPECT_EQ(remote.bytes, kWords * 8);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(start) % 64, 0u);
  const auto* const words = static_cast<const std::uint64_t*>(start);
  for (std::uint64_t i = 0; i < kWords; ++i) ASSERT_EQ(words[i], 0u) << i;

  larklane_post_options options = LARKLANE_POST_OPTIONS_INIT;
  options.completion = queue_;
  std::vector<std::uint64_t> put(kWords), got(kWords);
  std::iota(put.begin(), put.end(), std::uint64_t{1});
  for (const std::uint64_t count : {std::uint64_t{1}, kWords - 1}) {
    EXPECT_EQ(posted([&](larklane_post* post) {
                return larklane_post_put(vci_, &remote, 8, put.data(), count * 8, 0, 0, nullptr,
                                         post);
              }),
              LARKLANE_DONE);
    EXPECT_EQ(words[0], 0u);
    for (std::uint64_t i = 0; i < count; ++i) ASSERT_EQ(words[1 + i], put[i]) << i;
    EXPECT_EQ(posted([&](larklane_post* post) {
                return larklane_post_get(vci_, &remote, 8, got.data(), count * 8, 0, 0, &options,
                                         post);
              }),
              LARKLANE_DONE);
    for (std::uint64_t i = 0; i < count; ++i) ASSERT_EQ(got[i], put[i]) << i;
  }
  expect_ok(larklane_region_free(region));
  larklane_region* none = nullptr;
  expect_ok(larklane_region_allocate(context_, 0, &none));
  expect_ok(larklane_region_free(none));
  expect_refused(larklane_region_allocate(context_, UINT64_MAX, &none), LARKLANE_ERR_NO_MEMORY,
                 "larklane_region_allocate: no memory");
}

}  // namespace
