// The C API in a process that is alone: its refusals, and that each call matches its C++ call.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "capi_checks.hpp"
#include "larklane/larklane.h"

namespace {

class CapiTest : public testing::Test {
 public:
  static void SetUpTestSuite() {
    ::setenv("LARKLANE_VCI_COUNT_MAX", "4", 0);
    larklane_peers peers = LARKLANE_PEERS_INIT;
    peers.all_gather = [](const void* own, std::size_t bytes, void* all, void* state) {
      ++*static_cast<int*>(state);
      std::memcpy(all, own, bytes);
      return 0;
    };
    peers.state = &gathered_;
    ASSERT_EQ(larklane_context_create_with_peers(&peers, &context_), 0) << larklane_last_error();
  }
  static void TearDownTestSuite() { expect_ok(larklane_context_destroy(context_)); }

 protected:
  CapiTest() {
    expect_ok(larklane_vci_create(context_, &vci_));
    expect_ok(larklane_queue_create(context_, &queue_));
    options_.completion = queue_;
    options_.user_context = this;
    options_.signals_always = 1;
  }
  ~CapiTest() override {
    expect_ok(larklane_completion_object_free(queue_));
    expect_ok(larklane_vci_destroy(vci_));
  }

  /// Makes progress until it is so.
  bool comes(const std::function<bool()>& is_so) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (!is_so()) {
      if (std::chrono::steady_clock::now() > until) return false;
      expect_ok(larklane_vci_progress(vci_, nullptr));
      std::this_thread::yield();
    }
    return true;
  }
  /// Posts until it is not a retry.
  larklane_post posted(const std::function<int(larklane_post*)>& post) {
    larklane_post answer = LARKLANE_RETRY;
    EXPECT_TRUE(comes([&] {
      expect_ok(post(&answer));
      return answer != LARKLANE_RETRY;
    }));
    return answer;
  }
  larklane_completion next() {
    larklane_completion completion = LARKLANE_COMPLETION_INIT;
    int is_there = 0;
    EXPECT_TRUE(comes([&] {
      expect_ok(larklane_queue_pop(queue_, &completion, &is_there));
      return is_there != 0;
    }));
    EXPECT_EQ(completion.status, 0) << larklane_error_name(completion.status);
    return completion;
  }

  static inline larklane_context* context_ = nullptr;
  static inline int gathered_ = 0;
  larklane_vci* vci_ = nullptr;
  larklane_completion_object* queue_ = nullptr;
  larklane_post_options options_ = LARKLANE_POST_OPTIONS_INIT;
};

TEST(Capi, EveryErrorHasAName) {
  EXPECT_STREQ(larklane_error_name(LARKLANE_OK), "ok");
  EXPECT_STREQ(larklane_error_name(LARKLANE_ERR_PEER_DOWN), "peer down");
  EXPECT_STREQ(larklane_error_name(LARKLANE_ERR_BAD_OPTION), "bad option");
  for (const int none : {1, LARKLANE_ERR_BAD_OPTION - 1, INT32_MIN, INT32_MAX})
    EXPECT_STREQ(larklane_error_name(none), "unknown error") << none;
}

TEST(Capi, NullHandlesAreRefusedByName) {
  int number = 7;
  std::uint64_t count = 7;
  larklane_vci* vci = nullptr;
  larklane_post post = LARKLANE_RETRY;
  larklane_completion completion = LARKLANE_COMPLETION_INIT;
  larklane_remote_region remote = LARKLANE_REMOTE_REGION_INIT;
  larklane_completion_object* object = nullptr;
  const int refused = LARKLANE_ERR_INVALID_ARGUMENT;
  expect_refused(larklane_context_create(nullptr), refused,
                 "larklane_context_create: invalid argument: context_p is null");
  expect_refused(larklane_context_rank(nullptr, &number), refused, "context is null");
  expect_refused(larklane_context_size(nullptr, &number), refused, "context is null");
  expect_refused(larklane_context_fence(nullptr), refused, "larklane_context_fence");
  expect_refused(larklane_vci_create(nullptr, &vci), refused, "context is null");
  expect_refused(larklane_vci_progress(nullptr, nullptr), refused, "vci is null");
  expect_refused(larklane_region_remote(nullptr, &remote), refused, "region is null");
  expect_refused(larklane_synchronizer_create(nullptr, 1, &object), refused, "context is null");
  expect_refused(larklane_queue_create(nullptr, &object), refused, "context is null");
  expect_refused(larklane_counter_create(nullptr, &object), refused, "context is null");
  expect_refused(larklane_queue_pop(nullptr, &completion, &number), refused, "object is null");
  expect_refused(larklane_synchronizer_test(nullptr, &number), refused, "object is null");
  expect_refused(larklane_synchronizer_reset(nullptr), refused, "object is null");
  expect_refused(larklane_counter_completed(nullptr, &count), refused, "object is null");
  expect_refused(larklane_completion_object_deregister_remote(nullptr), refused, "object is null");
  expect_refused(larklane_post_send(nullptr, 0, 0, nullptr, 0, nullptr, &post), refused,
                 "larklane_post_send: invalid argument: vci is null");
  expect_refused(larklane_post_am(nullptr, 0, 1, 0, nullptr, 0, nullptr, &post), refused,
                 "vci is null");
  expect_refused(larklane_post_fetch_add(nullptr, &remote, 0, 1, nullptr, nullptr, &post), refused,
                 "vci is null");
  EXPECT_EQ(number, 7);
  EXPECT_EQ(count, 7u);
  EXPECT_EQ(post, LARKLANE_RETRY);
  EXPECT_EQ(vci, nullptr);
  EXPECT_EQ(object, nullptr);
}

TEST(Capi, DestroyingNothingIsLegal) {
  expect_ok(larklane_context_destroy(nullptr));
  expect_ok(larklane_vci_destroy(nullptr));
  expect_ok(larklane_region_free(nullptr));
  expect_ok(larklane_completion_object_free(nullptr));
  expect_ok(larklane_completion_object_destroy(nullptr));
  larklane_free_buffer(nullptr);
}

TEST_F(CapiTest, ALaneThatWasDestroyedIsRefused) {
  larklane_vci* vci = nullptr;
  larklane_post post = LARKLANE_DONE;
  expect_ok(larklane_vci_create(context_, &vci));
  expect_ok(larklane_vci_destroy(vci));
  constexpr int kRefused = LARKLANE_ERR_INVALID_ARGUMENT;
  expect_refused(larklane_post_send(vci, 0, 1, "x", 1, nullptr, &post), kRefused,
                 "vci was destroyed");
  expect_refused(larklane_vci_destroy(vci), kRefused, "vci was destroyed");
}

TEST(Capi, PeersThatMakeNoSenseAreRefused) {
  larklane_context* context = nullptr;
  larklane_peers peers = LARKLANE_PEERS_INIT;
  expect_refused(larklane_context_create_with_peers(nullptr, &context),
                 LARKLANE_ERR_INVALID_ARGUMENT, "peers is null");
  expect_refused(larklane_context_create_with_peers(&peers, &context),
                 LARKLANE_ERR_INVALID_ARGUMENT, "all_gather is null");
  peers.all_gather = [](const void*, std::size_t, void*, void*) { return 1; };
  for (const auto& [rank, size] : {std::pair{-1, 1}, {1, 1}, {0, 0}, {0, -1}}) {
    peers.rank = rank;
    peers.size = size;
    expect_refused(larklane_context_create_with_peers(&peers, &context),
                   LARKLANE_ERR_INVALID_ARGUMENT,
                   "rank " + std::to_string(rank) + " of " + std::to_string(size));
  }
  peers.struct_size = 8;
  expect_refused(larklane_context_create_with_peers(&peers, &context),
                 LARKLANE_ERR_INVALID_ARGUMENT, "peers->struct_size is 8");
  EXPECT_EQ(context, nullptr);
}

TEST(Capi, TheLastErrorIsTheThreadsOwn) {
  expect_refused(larklane_vci_create(nullptr, nullptr), LARKLANE_ERR_INVALID_ARGUMENT, "context");
  std::thread([] {
    EXPECT_STREQ(larklane_last_error(), "");
    expect_refused(larklane_vci_progress(nullptr, nullptr), LARKLANE_ERR_INVALID_ARGUMENT, "vci");
  }).join();
  EXPECT_STREQ(larklane_last_error(), "larklane_vci_create: invalid argument: context is null");
  expect_ok(larklane_vci_destroy(nullptr));
  EXPECT_STRNE(larklane_last_error(), "");
}

TEST_F(CapiTest, AProcessThatIsAloneKnowsIt) {
  int rank = -1, size = -1;
  expect_ok(larklane_context_rank(context_, &rank));
  expect_ok(larklane_context_size(context_, &size));
  EXPECT_EQ(rank, 0);
  EXPECT_EQ(size, 1);
  const int before = gathered_;
  expect_ok(larklane_context_fence(context_));
  EXPECT_GT(gathered_, before);
}

TEST_F(CapiTest, StructsOfAnotherSizeAreRefused) {
  larklane_completion completion = LARKLANE_COMPLETION_INIT;
  completion.struct_size += 8;
  larklane_post post = LARKLANE_RETRY;
  int is_there = 7;
  const int refused = LARKLANE_ERR_INVALID_ARGUMENT;
  expect_refused(larklane_queue_pop(queue_, &completion, &is_there), refused,
                 "completion_p->struct_size");
  expect_refused(larklane_post_recv(vci_, 0, 0, nullptr, 0, &options_, &completion, &post), refused,
                 "done_p->struct_size");
  options_.struct_size = 0;
  expect_refused(larklane_post_send(vci_, 0, 0, nullptr, 0, &options_, &post), refused,
                 "options->struct_size is 0");
  larklane_remote_region remote = LARKLANE_REMOTE_REGION_INIT;
  remote.struct_size = 1;
  expect_refused(larklane_post_put(vci_, &remote, 0, nullptr, 0, 0, 0, nullptr, &post), refused,
                 "region->struct_size is 1");
  EXPECT_EQ(is_there, 7);
  EXPECT_EQ(post, LARKLANE_RETRY);
}

TEST_F(CapiTest, CallsOfAnotherKindAreRefused) {
  int number = 7;
  std::uint64_t count = 7;
  larklane_completion completion = LARKLANE_COMPLETION_INIT;
  larklane_completion_object* counter = nullptr;
  expect_ok(larklane_counter_create(context_, &counter));
  expect_refused(larklane_synchronizer_test(queue_, &number), LARKLANE_ERR_WRONG_KIND,
                 "not a synchronizer");
  expect_refused(larklane_synchronizer_completion(counter, 0, &completion), LARKLANE_ERR_WRONG_KIND,
                 "not a synchronizer");
  expect_refused(larklane_queue_pop(counter, &completion, &number), LARKLANE_ERR_WRONG_KIND,
                 "not a queue");
  expect_refused(larklane_counter_failed(queue_, &count), LARKLANE_ERR_WRONG_KIND, "not a counter");
  EXPECT_EQ(number, 7);
  EXPECT_EQ(count, 7u);
  expect_ok(larklane_completion_object_free(counter));
}

TEST_F(CapiTest, CallsThatCxxRefusesAreRefused) {
  larklane_post post = LARKLANE_RETRY;
  const int refused = LARKLANE_ERR_INVALID_ARGUMENT;
  expect_refused(larklane_post_send(vci_, 1, 0, nullptr, 0, nullptr, &post), refused,
                 "larklane_post_send: invalid argument");
  expect_refused(larklane_post_send(vci_, 0, 0, nullptr, 1, nullptr, &post), refused, "post_send");
  expect_refused(larklane_post_recv(vci_, 0, 0, nullptr, 0, nullptr, nullptr, &post), refused,
                 "post_recv");
  expect_refused(larklane_post_am(vci_, 0, 0, 0, nullptr, 0, nullptr, &post), refused, "post_am");
  for (const int wrong : {-1, 8, 256, 1 << 20}) {
    options_.space = wrong;
    expect_refused(larklane_post_send(vci_, 0, 0, nullptr, 0, &options_, &post), refused,
                   "post_send");
  }
  options_.space = 0;
  for (const int wrong : {-1, 4, 256}) {
    options_.match = wrong;
    expect_refused(larklane_post_send(vci_, 0, 0, nullptr, 0, &options_, &post), refused,
                   "post_send");
  }
  larklane_completion_object* none = nullptr;
  expect_refused(larklane_synchronizer_create(context_, 0, &none), refused, "synchronizer_create");
  expect_refused(larklane_handler_create(context_, nullptr, nullptr, &none), refused,
                 "function is null");
  EXPECT_EQ(post, LARKLANE_RETRY);
  EXPECT_EQ(none, nullptr);
}

TEST_F(CapiTest, ACompletionHasRankTagBytesAndBuffer) {
  for (const std::size_t bytes : {0u, 100u, 100'000u}) {
    std::vector<char> from(bytes, 'x'), into(bytes);
    options_.match = LARKLANE_MATCH_TAG;
    options_.space = 3;
    options_.is_ordered = 1;
    EXPECT_EQ(posted([&](larklane_post* post) {
                return larklane_post_recv(vci_, 0, 7, into.data(), bytes, &options_, nullptr, post);
              }),
              LARKLANE_POSTED);
    larklane_post_options quiet = LARKLANE_POST_OPTIONS_INIT;
    quiet.space = 3;
    quiet.is_ordered = 1;  // so that a receive need not name the rank
    (void)posted([&](larklane_post* post) {
      return larklane_post_send(vci_, 0, 7, from.data(), bytes, &quiet, post);
    });
    const larklane_completion told = next();
    EXPECT_EQ(told.struct_size, sizeof told);
    EXPECT_EQ(told.rank, 0);
    EXPECT_EQ(told.tag, 7u);
    EXPECT_EQ(told.bytes, bytes);
    EXPECT_EQ(told.buffer, into.data());
    EXPECT_EQ(told.user_context, this);
    EXPECT_EQ(into, from);
  }
}

TEST_F(CapiTest, AReceiveThatIsDoneCompletesAtOnce) {
  const int sent = 42;
  int got = 0;
  (void)posted([&](larklane_post* post) {
    return larklane_post_send(vci_, 0, 1, &sent, sizeof sent, nullptr, post);
  });
  options_.signals_always = 0;
  larklane_completion done = LARKLANE_COMPLETION_INIT;
  // It has arrived when a second message that was sent after it has.
  (void)posted([&](larklane_post* post) {
    return larklane_post_send(vci_, 0, 2, nullptr, 0, nullptr, post);
  });
  if (posted([&](larklane_post* post) {
        return larklane_post_recv(vci_, 0, 2, nullptr, 0, &options_, &done, post);
      }) == LARKLANE_POSTED)
    (void)next();
  EXPECT_EQ(posted([&](larklane_post* post) {
              return larklane_post_recv(vci_, 0, 1, &got, sizeof got, &options_, &done, post);
            }),
            LARKLANE_DONE);
  EXPECT_EQ(got, sent);
  EXPECT_EQ(done.bytes, sizeof sent);
  EXPECT_EQ(done.tag, 1u);
  EXPECT_EQ(done.user_context, this);
}

TEST_F(CapiTest, AnActiveMessageBringsItsBytes) {
  larklane_remote_completion there = 0;
  expect_ok(larklane_completion_object_register_remote(queue_, &there));
  ASSERT_NE(there, 0u);
  (void)posted([&](larklane_post* post) {
    return larklane_post_am(vci_, 0, there, 9, "hello", 6, nullptr, post);
  });
  const larklane_completion told = next();
  EXPECT_EQ(told.tag, 9u);
  ASSERT_EQ(told.bytes, 6u);
  EXPECT_STREQ(static_cast<const char*>(told.buffer), "hello");
  larklane_free_buffer(told.buffer);
  expect_ok(larklane_completion_object_deregister_remote(queue_));
}

TEST_F(CapiTest, MemoryOfAPeerIsWrittenReadAndCounted) {
  std::uint64_t words[4] = {};
  double reals[2] = {1.5, 2.5};
  larklane_region *region = nullptr, *real_region = nullptr;
  larklane_remote_region remote = LARKLANE_REMOTE_REGION_INIT, real = LARKLANE_REMOTE_REGION_INIT;
  expect_ok(larklane_region_register(context_, words, sizeof words, &region));
  expect_ok(larklane_region_register(context_, reals, sizeof reals, &real_region));
  expect_ok(larklane_region_remote(region, &remote));
  expect_ok(larklane_region_remote(real_region, &real));
  EXPECT_EQ(remote.bytes, sizeof words);
  EXPECT_EQ(remote.rank, 0);

  const std::uint64_t put = 5;
  std::uint64_t got = 0, before = 99;
  const auto over = [&](const std::function<int(larklane_post*)>& post) {
    EXPECT_EQ(posted(post), LARKLANE_POSTED);
    EXPECT_EQ(next().rank, 0);
  };
  over([&](larklane_post* post) {
    return larklane_post_put(vci_, &remote, 8, &put, 8, 0, 0, &options_, post);
  });
  EXPECT_EQ(words[1], 5u);
  over([&](larklane_post* post) {
    return larklane_post_get(vci_, &remote, 8, &got, 8, 0, 0, &options_, post);
  });
  EXPECT_EQ(got, 5u);
  over([&](larklane_post* post) {
    return larklane_post_fetch_add(vci_, &remote, 8, 3, &options_, &before, post);
  });
  EXPECT_EQ(before, 5u);
  over([&](larklane_post* post) {
    return larklane_post_compare_swap(vci_, &remote, 8, 8, 1, &options_, &before, post);
  });
  EXPECT_EQ(before, 8u);
  EXPECT_EQ(words[1], 1u);
  const double more[] = {1, 10};
  over([&](larklane_post* post) {
    return larklane_post_accumulate(vci_, &real, 0, more, 2, &options_, post);
  });
  EXPECT_EQ(reals[0], 2.5);
  EXPECT_EQ(reals[1], 12.5);
  EXPECT_EQ(words[0] + words[2] + words[3], 0u);
  expect_ok(larklane_region_free(region));
  expect_ok(larklane_region_free(real_region));
}

TEST_F(CapiTest, ASynchronizerKeepsItsCompletions) {
  larklane_completion_object* both = nullptr;
  expect_ok(larklane_synchronizer_create(context_, 2, &both));
  options_.completion = both;
  int is_ready = 7;
  larklane_completion told = LARKLANE_COMPLETION_INIT;
  expect_ok(larklane_synchronizer_test(both, &is_ready));
  EXPECT_EQ(is_ready, 0);
  expect_refused(larklane_synchronizer_completion(both, 0, &told), LARKLANE_ERR_NOT_ACTIVE,
                 "not ready");
  expect_refused(larklane_synchronizer_reset(both), LARKLANE_ERR_NOT_ACTIVE, "reset");
  for (std::uint32_t tag : {0u, 1u}) {
    (void)posted([&](larklane_post* post) {
      return larklane_post_recv(vci_, 0, tag, nullptr, 0, &options_, nullptr, post);
    });
    (void)posted([&](larklane_post* post) {
      return larklane_post_send(vci_, 0, tag, nullptr, 0, nullptr, post);
    });
  }
  EXPECT_TRUE(comes([&] {
    expect_ok(larklane_synchronizer_test(both, &is_ready));
    return is_ready == 1;
  }));
  for (std::uint32_t tag : {0u, 1u}) {
    expect_ok(larklane_synchronizer_completion(both, tag, &told));
    EXPECT_EQ(told.tag, tag);
  }
  expect_refused(larklane_synchronizer_completion(both, 2, &told), LARKLANE_ERR_INVALID_ARGUMENT,
                 "completion 2 of 2");
  expect_ok(larklane_synchronizer_reset(both));
  std::uint64_t excess = 7;
  expect_ok(larklane_synchronizer_excess(both, &excess));
  EXPECT_EQ(excess, 0u);
  expect_ok(larklane_completion_object_free(both));
}

TEST_F(CapiTest, AHandlerIsCalledWithItsState) {
  std::vector<std::uint64_t> tags;
  larklane_completion_object *handler = nullptr, *counter = nullptr;
  expect_ok(larklane_counter_create(context_, &counter));
  expect_ok(larklane_handler_create(
      context_,
      [](const larklane_completion* completion, void* state) {
        EXPECT_EQ(completion->struct_size, sizeof *completion);
        static_cast<std::vector<std::uint64_t>*>(state)->push_back(completion->tag);
      },
      &tags, &handler));
  larklane_remote_completion to_handler = 0, to_counter = 0;
  expect_ok(larklane_completion_object_register_remote(handler, &to_handler));
  expect_ok(larklane_completion_object_register_remote(counter, &to_counter));
  for (const larklane_remote_completion there : {to_handler, to_counter})
    (void)posted([&](larklane_post* post) {
      return larklane_post_am(vci_, 0, there, 5, nullptr, 0, nullptr, post);
    });
  std::uint64_t completed = 0, failed = 7;
  EXPECT_TRUE(comes([&] {
    expect_ok(larklane_counter_completed(counter, &completed));
    return completed == 1 && tags.size() == 1;
  }));
  expect_ok(larklane_counter_failed(counter, &failed));
  EXPECT_EQ(failed, 0u);
  EXPECT_EQ(tags, std::vector<std::uint64_t>{5});
  EXPECT_TRUE(comes([&] { return larklane_completion_object_free(handler) == 0; }));
  EXPECT_TRUE(comes([&] { return larklane_completion_object_free(counter) == 0; }));
}

TEST_F(CapiTest, AHandlerThatIsDestroyedInUseDoesNoHarm) {
  static int calls = 0;
  larklane_completion_object* handler = nullptr;
  expect_ok(larklane_handler_create(
      context_, [](const larklane_completion*, void* state) { ++*static_cast<int*>(state); },
      &calls, &handler));
  options_.completion = handler;
  (void)posted([&](larklane_post* post) {
    return larklane_post_recv(vci_, 0, 11, nullptr, 0, &options_, nullptr, post);
  });
  expect_refused(larklane_completion_object_free(handler), LARKLANE_ERR_ALREADY_ACTIVE,
                 "in flight");
  expect_ok(larklane_completion_object_destroy(handler));
  options_.completion = queue_;
  (void)posted([&](larklane_post* post) {
    return larklane_post_send(vci_, 0, 11, nullptr, 0, &options_, post);
  });
  (void)next();
  for (int i = 0; i < 100; ++i) expect_ok(larklane_vci_progress(vci_, nullptr));
  EXPECT_LE(calls, 1);
}

TEST_F(CapiTest, AMessageOfSeveralBuffersIsOne) {
  larklane_remote_completion there = 0;
  expect_ok(larklane_completion_object_register_remote(queue_, &there));
  for (const std::size_t bytes : {3u, 100'000u}) {
    const std::vector<char> first(bytes, 'x'), second(bytes, 'y');
    const larklane_buffer buffers[] = {{first.data(), bytes}, {nullptr, 0}, {second.data(), bytes}};
    std::string wanted(bytes, 'x'), into(2 * bytes, 'z');
    wanted.append(bytes, 'y');
    EXPECT_EQ(posted([&](larklane_post* post) {
                return larklane_post_recv(vci_, 0, 7, into.data(), 2 * bytes, &options_, nullptr,
                                          post);
              }),
              LARKLANE_POSTED);
    (void)posted([&](larklane_post* post) {
      return larklane_post_send_buffers(vci_, 0, 7, buffers, 3, nullptr, post);
    });
    EXPECT_EQ(next().bytes, 2 * bytes);
    EXPECT_EQ(into, wanted);
    (void)posted([&](larklane_post* post) {
      return larklane_post_am_buffers(vci_, 0, there, 9, buffers, 3, nullptr, post);
    });
    const larklane_completion told = next();
    ASSERT_EQ(told.bytes, 2 * bytes);
    EXPECT_EQ(std::memcmp(told.buffer, wanted.data(), wanted.size()), 0);
    larklane_free_buffer(told.buffer);
  }
  const std::vector<larklane_buffer> many(LARKLANE_BUFFERS_MAX + 1);
  larklane_post post = LARKLANE_RETRY;
  const int refused = LARKLANE_ERR_INVALID_ARGUMENT;
  for (const std::size_t count : {many.size(), std::size_t{1} << 40})
    expect_refused(larklane_post_send_buffers(vci_, 0, 7, many.data(), count, nullptr, &post),
                   refused, "larklane_post_send_buffers");
  expect_refused(larklane_post_am_buffers(vci_, 0, there, 7, nullptr, 1, nullptr, &post), refused,
                 "buffers is null");
}

TEST_F(CapiTest, APacketIsPostedOnceOrGivenBack) {
  larklane_packet packet = LARKLANE_PACKET_INIT;
  larklane_post post = LARKLANE_RETRY;
  const int refused = LARKLANE_ERR_INVALID_ARGUMENT;
  expect_refused(larklane_post_send_packet(vci_, 0, 7, &packet, 0, nullptr, &post), refused,
                 "larklane_post_send_packet");
  expect_ok(larklane_packet_give_back(&packet));
  expect_ok(larklane_packet_take(vci_, &packet));
  ASSERT_NE(packet.buffer, nullptr);
  std::memcpy(packet.buffer, "hello", 6);
  expect_refused(
      larklane_post_send_packet(vci_, 0, 7, &packet, packet.bytes_max + 1, nullptr, &post), refused,
      "larklane_post_send_packet");
  larklane_packet copy = packet;
  char into[6] = "";
  (void)posted([&](larklane_post* answer) {
    return larklane_post_recv(vci_, 0, 7, into, 6, &options_, nullptr, answer);
  });
  (void)posted([&](larklane_post* answer) {
    return larklane_post_send_packet(vci_, 0, 7, &packet, 6, nullptr, answer);
  });
  EXPECT_EQ(packet.buffer, nullptr);
  EXPECT_EQ(next().bytes, 6u);
  EXPECT_STREQ(into, "hello");
  expect_refused(larklane_post_send_packet(vci_, 0, 7, &copy, 6, nullptr, &post), refused,
                 "larklane_post_send_packet");
  expect_refused(larklane_packet_give_back(&copy), refused, "it was posted or given back");

  larklane_remote_completion there = 0;
  expect_ok(larklane_completion_object_register_remote(queue_, &there));
  expect_ok(larklane_packet_take(vci_, &packet));
  std::memcpy(packet.buffer, "again", 6);
  (void)posted([&](larklane_post* answer) {
    return larklane_post_am_packet(vci_, 0, there, 9, &packet, 6, nullptr, answer);
  });
  const larklane_completion told = next();
  EXPECT_STREQ(static_cast<const char*>(told.buffer), "again");
  larklane_free_buffer(told.buffer);
  expect_ok(larklane_packet_take(vci_, &packet));
  expect_ok(larklane_packet_give_back(&packet));
  EXPECT_EQ(packet.buffer, nullptr);
}

TEST_F(CapiTest, ALaneReportsWhyPostsWereRefused) {
  larklane_retry_counts counts = LARKLANE_RETRY_COUNTS_INIT;
  expect_ok(larklane_vci_retry_counts(vci_, &counts));
  const std::uint64_t before = counts.no_packet;
  std::vector<larklane_packet> packets;
  for (larklane_packet packet = LARKLANE_PACKET_INIT;; packets.push_back(packet)) {
    expect_ok(larklane_packet_take(vci_, &packet));
    if (packet.buffer == nullptr) break;
  }
  EXPECT_EQ(packets.size(), 224u);
  expect_ok(larklane_vci_retry_counts(vci_, &counts));
  EXPECT_EQ(counts.no_packet, before + 1);
  for (larklane_packet& packet : packets) expect_ok(larklane_packet_give_back(&packet));
  counts.struct_size = 3;
  expect_refused(larklane_vci_retry_counts(vci_, &counts), LARKLANE_ERR_INVALID_ARGUMENT,
                 "counts_p->struct_size is 3");

  std::uint64_t bytes = 0;
  expect_ok(larklane_vci_eager_bytes_max(vci_, &bytes));
  EXPECT_EQ(bytes, 8168u);
}

TEST_F(CapiTest, ALaneOfASingleThreadIsMadeAndSaysWhenThereIsNone) {
  std::vector<larklane_vci*> made;
  int status = 0;
  for (larklane_vci* vci = nullptr; status == 0 && made.size() < 64;) {
    status = larklane_vci_create_single_threaded(context_, &vci);
    if (status == 0) made.push_back(vci);
  }
  expect_refused(status, LARKLANE_ERR_NO_MEMORY, "LARKLANE_VCI_COUNT_MAX");
  ASSERT_FALSE(made.empty());
  std::swap(vci_, made.front());
  int from = 5, into = 0;
  larklane_post post = LARKLANE_RETRY;
  expect_ok(larklane_post_recv(vci_, 0, 7, &into, sizeof into, &options_, nullptr, &post));
  (void)posted([&](larklane_post* answer) {
    return larklane_post_send(vci_, 0, 7, &from, sizeof from, nullptr, answer);
  });
  (void)next();
  EXPECT_EQ(into, from);
  std::swap(vci_, made.front());
  for (larklane_vci* vci : made) expect_ok(larklane_vci_destroy(vci));
}

TEST_F(CapiTest, AContextIsNotDestroyedUnderItsObjects) {
  expect_refused(larklane_context_destroy(context_), LARKLANE_ERR_ALREADY_ACTIVE,
                 "2 lanes, regions or completion objects");
  int size = 0;
  expect_ok(larklane_context_size(context_, &size));
}

}  // namespace
