// Messages that lie in several buffers, on a network inside one process.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unit/msg_job.hpp"

namespace larklane::msg {
namespace {

/// Bytes, and the buffers that they lie in, apart from each other.
struct Cut {
  Cut(std::vector<std::uint64_t> lengths, std::uint64_t seed) {
    std::uint64_t place = 0;
    for (const std::uint64_t bytes : lengths) place += bytes + 3;
    memory = random_bytes(place, seed);
    place = 0;
    for (const std::uint64_t bytes : lengths) {
      const std::byte* const start = memory.data() + place;
      buffers.push_back({bytes == 0 ? nullptr : start, bytes});
      whole.insert(whole.end(), start, start + bytes);
      place += bytes + 3;
    }
  }
  std::vector<std::byte> memory, whole;
  std::vector<Buffer> buffers;
};

const std::vector<std::vector<std::uint64_t>> kCuts = {
    {},
    {0},
    {7},
    {3, 5},
    {0, 20, 0, 19, 0},
    {1, 1, 1, 1, 1, 1, 1, 1},
    {100, 1, 200},
    {kEager - 1, 1},
    {kEager, 1},
    {0, kEager + 1, 0},
    {1, 3000, 0, 70, 2000, 5},
    {600, 600, 600, 600, 600, 600, 600, 600},
};

class PiecesTest : public JobTest {
 protected:
  PiecesTest() : sent_(queue(0)), heard_(queue(1)) {}

  /// Any receive of `bytes` bytes, and that it brings `wanted`.
  void expect_receives(const std::vector<std::byte>& wanted) {
    std::vector<std::byte> into(wanted.size());
    expect_posted(post_recv(vci(1), 0, 7, into.data(), into.size(), telling(heard_)));
    const Completion there = next(heard_);
    EXPECT_TRUE(there.status.ok());
    EXPECT_EQ(there.bytes, wanted.size());
    EXPECT_EQ(into, wanted);
  }

  CompletionQueue sent_, heard_;
};

TEST_F(PiecesTest, AMessageOfSeveralBuffersIsOneToItsReceive) {
  std::uint64_t seed = 1;
  for (const auto& lengths : kCuts)
    for (const bool is_expected : {true, false}) {
      SCOPED_TRACE(testing::PrintToString(lengths) + (is_expected ? " expected" : " unexpected"));
      const Cut cut(lengths, ++seed);
      std::vector<std::byte> into(cut.whole.size());
      const auto receive = [&] {
        expect_posted(post_recv(vci(1), 0, 7, into.data(), into.size(), telling(heard_)));
      };
      if (is_expected) receive();
      expect_posted(post_send(vci(0), 1, 7, cut.buffers, telling(sent_)));
      if (!is_expected) {
        job_.settle();
        receive();
      }
      const Completion there = next(heard_), here = next(sent_);
      EXPECT_TRUE(there.status.ok());
      EXPECT_EQ(there.bytes, into.size());
      EXPECT_EQ(into, cut.whole);
      EXPECT_TRUE(here.status.ok());
      EXPECT_EQ(here.bytes, into.size());
      EXPECT_EQ(here.rank, 1);
    }
}

TEST_F(PiecesTest, AnActiveMessageOfSeveralBuffersIsOneToItsObject) {
  const RemoteCompletion number = heard_.register_remote().value();
  std::uint64_t seed = 100;
  for (const auto& lengths : kCuts) {
    SCOPED_TRACE(testing::PrintToString(lengths));
    const Cut cut(lengths, ++seed);
    expect_posted(post_am(vci(0), 1, number, 5, cut.buffers, telling(sent_)));
    const Completion there = next(heard_);
    ASSERT_EQ(there.bytes, cut.whole.size());
    EXPECT_EQ(there.tag, 5u);
    EXPECT_TRUE(there.bytes == 0 ||
                std::memcmp(there.buffer, cut.whole.data(), cut.whole.size()) == 0);
    free_buffer(there.buffer);
    EXPECT_TRUE(next(sent_).status.ok());
  }
}

TEST_F(PiecesTest, AShortOneIsDone) {
  const Cut cut({20, 30}, 3);
  auto answer = post_send(vci(0), 1, 7, cut.buffers);
  ASSERT_TRUE(answer);
  EXPECT_EQ(*answer, Post::done);
  expect_receives(cut.whole);
}

TEST_F(PiecesTest, TheListIsTheCallersAgainAlsoOfOneThatWaits) {
  for (const auto& lengths : {std::vector<std::uint64_t>{40, 1, 50}, {400, 2000, 30}}) {
    Job job{{}};  // nothing is connected yet
    CompletionQueue sent = std::move(CompletionQueue::create(job.at(0).domain).value());
    CompletionQueue heard = std::move(CompletionQueue::create(job.at(1).domain).value());
    const Cut cut(lengths, lengths[0]);
    std::vector<Buffer> list = cut.buffers;
    PostOptions options = telling(sent);
    options.queues = true;
    expect_posted(post_send(*job.at(0).vci, 1, 7, list, options));
    std::ranges::fill(list, Buffer{});
    std::vector<std::byte> into(cut.whole.size());
    expect_posted(post_recv(*job.at(1).vci, 0, 7, into.data(), into.size(), telling(heard)));
    job.settle();
    ASSERT_TRUE(heard.pop());
    EXPECT_EQ(into, cut.whole);
    EXPECT_TRUE(sent.pop());
  }
}

TEST_F(PiecesTest, APieceInARegionIsFetchedFromThere) {
  Cut cut({700, 0, 900, 11}, 9);
  const Region region = job_.at(0).add_region(cut.memory.data(), cut.memory.size());
  PostOptions options = telling(sent_);
  options.region = &region;
  expect_posted(post_send(vci(0), 1, 7, cut.buffers, options));
  EXPECT_FALSE(job_.at(0).engine->has_registered());
  expect_receives(cut.whole);
  EXPECT_TRUE(next(sent_).status.ok());
  std::byte outside{};
  cut.buffers[1] = {&outside, 1};
  expect_refused(post_send(vci(0), 1, 7, cut.buffers, options));
  expect_refused(post_am(vci(0), 1, 1, 7, cut.buffers, options));
}

TEST_F(PiecesTest, ATooShortReceiveReportsTheLengthOfAll) {
  for (const auto& lengths : {std::vector<std::uint64_t>{30, 30}, {kEager, 30}}) {
    const Cut cut(lengths, 4);
    std::vector<std::byte> into(cut.whole.size() - 1);
    expect_posted(post_recv(vci(1), 0, 7, into.data(), into.size(), telling(heard_)));
    expect_posted(post_send(vci(0), 1, 7, cut.buffers, telling(sent_)));
    const Completion there = next(heard_);
    EXPECT_EQ(there.status.code(), Errc::kSizeMismatch);
    EXPECT_EQ(there.bytes, cut.whole.size());
    EXPECT_TRUE(next(sent_).status.ok());
  }
}

TEST_F(PiecesTest, MalformedPiecesAreRefused) {
  const std::byte byte{};
  const std::vector<Buffer> many(kBuffersMax + 1, Buffer{&byte, 1});
  const Buffer none[] = {{&byte, 1}, {nullptr, 1}};
  const Buffer endless[] = {{&byte, UINT64_MAX}, {&byte, 1}};
  for (const std::span<const Buffer> wrong : {std::span<const Buffer>(many), {none}, {endless}}) {
    expect_refused(post_send(vci(0), 1, 7, wrong));
    expect_refused(post_am(vci(0), 1, 1, 7, wrong));
  }
  const Buffer legal[] = {{&byte, 1}, {&byte, 1}};
  expect_refused(post_send(vci(0), 2, 7, legal));
  expect_refused(post_send(vci(0), 1, 7, legal, {}, {}, {8, false}));
  expect_refused(post_am(vci(0), 1, 0, 7, legal));
}

TEST(PiecesLimits, AnOfferOfNoSenseEndsTheLink) {
  const std::vector<Offered> many(kBuffersMax + 1, Offered{1, {}}), none{},
      endless{{UINT64_MAX, {}}, {1, {}}};
  for (const auto kind : {RecordKind::send_offer, RecordKind::am_offer})
    for (const auto& pieces : {many, none, endless})
      for (const std::size_t more : {0u, 1u}) {
        Job job{{}};
        job.connect_all();
        const auto bytes = std::as_bytes(std::span(pieces));
        std::vector<std::byte> payload(bytes.size() + more);
        std::ranges::copy(bytes, payload.begin());
        ASSERT_EQ(*job.at(0).links.back()->post({first_word(kind, 1), 0, 5}, payload),
                  net::Post::done);
        job.settle();
        EXPECT_EQ(job.at(1).links.front()->failure(), Status(Errc::kProtocol))
            << pieces.size() << " pieces and " << more << " bytes";
      }
}

/// The receiver never reads the places of empty pieces.
TEST(PiecesLimits, EmptyPiecesOfAPeerAreRead) {
  const std::vector<std::byte> from = random_bytes(64, 3);
  for (const std::uint64_t bytes : {64u, 0u}) {
    Job job{{}};
    job.connect_all();
    auto heard = std::move(CompletionQueue::create(job.at(1).domain).value());
    std::vector<std::byte> memory = from, into(bytes);
    const Region region = job.at(0).add_region(memory.data(), memory.size());
    std::vector<Offered> pieces(kBuffersMax, Offered{0, {12345, 999}});
    pieces[3] = {bytes, {region.remote().address, region.remote().key}};
    PostOptions told;
    told.completion = &heard;
    ASSERT_TRUE(post_recv(*job.at(1).vci, 0, 0, into.data(), bytes, told));
    ASSERT_EQ(*job.at(0).links.back()->post({first_word(RecordKind::send_offer, 0), 0, 77},
                                            std::as_bytes(std::span(pieces))),
              net::Post::done);
    job.settle();
    const auto completion = heard.pop();
    ASSERT_TRUE(completion);
    EXPECT_TRUE(completion->status.ok());
    EXPECT_EQ(completion->bytes, bytes);
    EXPECT_TRUE(std::ranges::equal(into, std::span(from).first(bytes)));
  }
}

TEST(PiecesLimits, ASenderThatDiesBetweenReadsEndsTheReceiveOnce) {
  const std::vector<std::byte> from = random_bytes(8000, 3);
  std::vector<Buffer> buffers;
  for (std::size_t at = 0; at < from.size(); at += 1000) buffers.push_back({&from[at], 1000});
  int whole = 0, cut = 0;
  for (int turns = 0; turns < 400; turns += 4) {
    Job::Options options;
    options.network.turns_per_poll = 0;  // the turns below alone
    Job job(options);
    job.connect_all();
    auto heard = std::move(CompletionQueue::create(job.at(1).domain).value());
    std::vector<std::byte> into(from.size());
    PostOptions receiving;
    receiving.completion = &heard;
    ASSERT_TRUE(post_recv(*job.at(1).vci, 0, 0, into.data(), into.size(), receiving));
    ASSERT_EQ(*post_send(*job.at(0).vci, 1, 0, buffers), Post::posted);
    for (int i = 0; i < turns; ++i) {
      (void)job.wire.turn(1);
      (void)job.at(1).engine->progress_all();
    }
    const bool had_begun =
        std::ranges::equal(std::span(into).first(1000), std::span(from).first(1000));
    job.wire.kill_process(1);  // rank 0
    for (auto& link : job.at(1).links) link->end(Errc::kPeerDown);
    job.settle();
    const auto there = heard.pop();
    ASSERT_TRUE(there) << turns;
    if (there->status.ok()) {
      EXPECT_EQ(into, from);
    }
    whole += there->status.ok();
    cut += had_begun && !there->status.ok();
    EXPECT_FALSE(heard.pop()) << turns;
    EXPECT_FALSE(job.at(1).engine->has_registered()) << turns;
  }
  EXPECT_GT(cut, 5);
  EXPECT_GT(whole, 5);
}

/// Records that are shorter than a list of kBuffersMax places.
TEST(PiecesLimits, AListThatDoesNotFitInARecordIsRefused) {
  Job::Options options;
  options.lane.packets.record_cells = 2;
  Job job(options);
  job.connect_all();
  const Cut fits({50, 50, 50, 50}, 1), does_not({50, 50, 50, 50, 50}, 1);
  PostOptions told;
  EXPECT_TRUE(post_send(*job.at(0).vci, 1, 7, fits.buffers, told));
  EXPECT_EQ(post_send(*job.at(0).vci, 1, 7, does_not.buffers, told).error(),
            Status(Errc::kInvalidArgument));
  auto heard = std::move(CompletionQueue::create(job.at(1).domain).value());
  told.completion = &heard;
  std::vector<std::byte> into(200);
  ASSERT_TRUE(post_recv(*job.at(1).vci, 0, 7, into.data(), into.size(), told));
  job.settle();
  EXPECT_EQ(into, fits.whole);
  EXPECT_FALSE(job.at(0).engine->has_registered());
}

}  // namespace
}  // namespace larklane::msg
