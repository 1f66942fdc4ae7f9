// Choices of the program, or its user: which messages are copied, and which side moves the others.
// And why posts were refused.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "unit/msg_job.hpp"

namespace larklane::msg {
namespace {

PostOptions completing(const CompletionObject& object) {
  PostOptions options;
  options.completion = &object;
  return options;
}

/// Two processes, a message at a time.
class Pair {
 public:
  explicit Pair(Job::Options options) : job_(std::move(options)) { job_.connect_all(); }

  /// @return the answer of the send
  Post send_one(std::span<const Buffer> pieces) {
    std::vector<std::byte> wanted;
    for (const Buffer& piece : pieces) {
      const auto* const start = static_cast<const std::byte*>(piece.start);
      wanted.insert(wanted.end(), start, start + piece.bytes);
    }
    std::vector<std::byte> into(wanted.size());
    EXPECT_TRUE(post_recv(*job_.at(1).vci, 0, 7, into.data(), into.size(), completing(heard_)));
    const Post answer = post_send(*job_.at(0).vci, 1, 7, pieces, completing(sent_)).value();
    job_.settle();
    EXPECT_EQ(sent_.pop().has_value(), answer == Post::posted);
    const auto heard = heard_.pop();
    EXPECT_TRUE(heard && heard->status.ok());
    EXPECT_EQ(into, wanted);
    return answer;
  }
  Post send_one(std::uint64_t bytes) {
    const auto from = random_bytes(bytes, bytes);
    const Buffer piece{from.data(), bytes};
    return send_one(std::span(&piece, 1));
  }
  std::uint64_t reads() {
    return job_.at(1).vci->inside().vci().counts().operations_of(vci::Work::Kind::read);
  }
  Job& job() { return job_; }

 private:
  Job job_;
  CompletionQueue sent_ = CompletionQueue::create(job_.at(0).domain).value();
  CompletionQueue heard_ = CompletionQueue::create(job_.at(1).domain).value();
};

TEST(EngineOptions, LongerMessagesThanTheLimitAreNotCopied) {
  for (const std::uint32_t most : {0u, 40u, 100u}) {
    SCOPED_TRACE(most);
    Job::Options options;
    options.eager_bytes_max = most;
    Pair pair(options);
    EXPECT_EQ(pair.job().at(0).vci->eager_bytes_max(), most);
    EXPECT_EQ(pair.send_one(most), Post::done);
    EXPECT_EQ(pair.reads(), 0u);
    EXPECT_EQ(pair.send_one(most + 1), Post::posted);
    EXPECT_EQ(pair.reads(), 1u);
  }
}

TEST(EngineOptions, NoMoreIsCopiedThanARecordHolds) {
  Pair pair({});
  const std::uint32_t record = pair.job().at(0).engine->record_bytes_max();
  EXPECT_EQ(pair.job().at(0).vci->eager_bytes_max(), record);
  EXPECT_EQ(pair.send_one(record), Post::done);
  EXPECT_EQ(pair.send_one(record + 1), Post::posted);
}

TEST(EngineOptions, AnAccumulateHasItsMost) {
  Job::Options options;
  options.lane.packets.record_cells = PacketLane::Options().record_cells;
  options.cells = 256;
  Pair pair(options);
  std::vector<double> sums(kAccumulateMax + 1, 1.0);
  const std::vector<double> values(sums.size(), 0.25);
  const Region region = pair.job().at(1).add_region(sums.data(), sums.size() * sizeof(double));
  const auto add = [&](std::uint32_t count) {
    return post_accumulate(*pair.job().at(0).vci, region.remote(), 0, values.data(), count, {});
  };
  EXPECT_EQ(add(kAccumulateMax + 1).error().code(), Errc::kInvalidArgument);
  EXPECT_EQ(add(kAccumulateMax).value(), Post::posted);
  pair.job().settle();
  EXPECT_EQ(sums[kAccumulateMax - 1], 1.25);
  EXPECT_EQ(sums[kAccumulateMax], 1.0);
}

// The list of the pieces' places is longer than the largest message that may be copied.
TEST(EngineOptions, ManyPiecesAreReadAllTheSame) {
  Job::Options options;
  options.eager_bytes_max = 0;
  Pair pair(options);
  const auto from = random_bytes(80, 1);
  std::vector<Buffer> pieces;
  for (std::size_t i = 0; i < kBuffersMax; ++i) pieces.push_back({&from[10 * i], 10});
  EXPECT_EQ(pair.send_one(pieces), Post::posted);
  EXPECT_EQ(pair.reads(), kBuffersMax);
}

TEST(EngineOptions, AnAccumulateIsNoMessage) {
  Job::Options options;
  options.eager_bytes_max = 0;
  Pair pair(options);
  std::vector<double> sums(20, 1.0);
  const std::vector<double> values(20, 0.5);
  const Region region = pair.job().at(1).add_region(sums.data(), 20 * sizeof(double));
  EXPECT_TRUE(post_accumulate(*pair.job().at(0).vci, region.remote(), 0, values.data(), 20, {}));
  pair.job().settle();
  EXPECT_EQ(sums, std::vector<double>(20, 1.5));
}

TEST(EngineOptions, TheMoverOfALongMessageCanBeChosen) {
  using Rendezvous = Engine::Rendezvous;
  struct Case {
    bool is_progress_manual;
    Rendezvous rendezvous;
    bool reads;
  };
  for (const Case& one :
       {Case{true, Rendezvous::chosen, false}, Case{true, Rendezvous::read, true},
        Case{true, Rendezvous::write, false}, Case{false, Rendezvous::chosen, true},
        Case{false, Rendezvous::read, true}, Case{false, Rendezvous::write, false}}) {
    Job::Options options;
    options.network.limits.is_progress_manual = one.is_progress_manual;
    options.network.limits.immediates_max = 0;
    options.rendezvous = one.rendezvous;
    Pair pair(options);
    EXPECT_EQ(pair.send_one(5000), Post::posted);
    EXPECT_EQ(pair.reads() != 0, one.reads)
        << one.is_progress_manual << static_cast<int>(one.rendezvous);
  }
}

TEST(EngineOptions, APutWithASignalIsCopiedAsAMessage) {
  Job::Options options;
  options.eager_bytes_max = 64;
  Pair pair(options);
  CompletionQueue told = CompletionQueue::create(pair.job().at(1).domain).value();
  const RemoteCompletion number = told.register_remote().value();
  std::uint64_t seed = 0;
  for (const std::uint64_t bytes : {64u, 65u}) {
    const auto from = random_bytes(bytes, ++seed);
    std::vector<std::byte> there(bytes);
    const Region region = pair.job().at(1).add_region(there.data(), bytes);
    EXPECT_EQ(
        post_put(*pair.job().at(0).vci, region.remote(), 0, from.data(), bytes, {}, number).value(),
        bytes == 64 ? Post::done : Post::posted);
    pair.job().settle();
    EXPECT_TRUE(told.pop());
    EXPECT_EQ(there, from);
  }
}

TEST(EngineOptions, APacketHoldsAsMuchAsARecord) {
  Job::Options options;
  options.eager_bytes_max = 0;
  Pair pair(options);
  Vci& vci = *pair.job().at(0).vci;
  const std::uint64_t most = vci.packet_bytes_max();
  EXPECT_EQ(most, pair.job().at(0).engine->record_bytes_max());
  larklane::Packet packet = take_packet(vci);
  const auto from = random_bytes(most, 1);
  std::memcpy(packet.start(), from.data(), most);
  EXPECT_EQ(post_send(vci, 1, 7, packet, most + 1).error().code(), Errc::kInvalidArgument);
  EXPECT_EQ(post_send(vci, 1, 7, packet, most).value(), Post::done);
  std::vector<std::byte> into(most);
  CompletionQueue told = CompletionQueue::create(pair.job().at(1).domain).value();
  EXPECT_EQ(post_recv(*pair.job().at(1).vci, 0, 7, into.data(), most, completing(told)).value(),
            Post::posted);
  pair.job().settle();
  EXPECT_EQ(into, from);
}

/// As many operations wait for an answer as may: those that ask, and have no operation of the
/// poster's.
TEST(EngineRetryCounts, APostWithoutAPlaceToWaitIsCountedSo) {
  Job::Options options;
  options.network.limits.is_progress_manual = true;
  options.network.limits.immediates_max = 0;
  options.lane.operations = 4;
  Job job(options);
  job.connect_all();
  CompletionQueue mail = CompletionQueue::create(job.at(1).domain).value();
  CompletionQueue told = CompletionQueue::create(job.at(1).domain).value();
  const RemoteCompletion number = mail.register_remote().value();
  const auto from = random_bytes(3000, 1);
  for (std::uint32_t i = 0; i < options.lane.operations; ++i)
    EXPECT_EQ(post_am(*job.at(0).vci, 1, number, i, from.data(), from.size(), {}).value(),
              Post::posted);
  Vci& vci = *job.at(1).vci;
  for (int turn = 0; turn < 20; ++turn) {
    job.wire.settle();
    (void)vci.progress();
  }
  ASSERT_EQ(vci.inside().awaited().count(), options.lane.operations);
  const std::uint64_t before = vci.retry_counts().no_operation;
  EXPECT_EQ(post_send(vci, 0, 1, from.data(), from.size(), completing(told)).value(), Post::retry);
  EXPECT_EQ(vci.retry_counts().no_operation, before + 1);
  job.settle();
  while (const auto completion = mail.pop()) free_buffer(completion->buffer);
}

TEST(EngineRetryCounts, OthersThatWaitAreAReason) {
  Job job({});
  job.connect_all();
  Vci& vci = *job.at(0).vci;
  CompletionQueue told = CompletionQueue::create(job.at(0).domain).value();
  PostOptions queued = completing(told);
  queued.queues = true;
  while (post_send(vci, 1, 1, "abc", 3).value() == Post::done) {
  }
  EXPECT_EQ(post_send(vci, 1, 1, "abc", 3, queued).value(), Post::posted);
  const std::uint64_t before = vci.retry_counts().behind;
  EXPECT_EQ(post_send(vci, 1, 1, "abc", 3, completing(told)).value(), Post::retry);
  EXPECT_EQ(vci.retry_counts().behind, before + 1);
  EXPECT_EQ(vci.retry_counts().no_memory, 0u);
}

TEST(EngineRetryCounts, EachRefusalHasItsReason) {
  constexpr int kEach = 3;
  Job::Options options;
  options.lane.operations = 8;
  Job job(options);
  Vci& vci = *job.at(0).vci;
  const auto post = [&](bool may_be_done) {
    PostOptions post_options;
    post_options.signals_always = !may_be_done;
    return post_send(vci, 1, 1, "abc", 3, post_options).value();
  };
  for (int i = 0; i < kEach; ++i) EXPECT_EQ(post(true), Post::retry);
  EXPECT_EQ(vci.retry_counts().not_connected, 3u);

  job.connect_all();
  std::vector<larklane::Packet> packets;
  while (larklane::Packet packet = take_packet(vci)) packets.push_back(std::move(packet));
  EXPECT_EQ(vci.retry_counts().no_packet, 1u);
  packets.clear();

  std::uint64_t room = 0;
  CompletionQueue heard = CompletionQueue::create(job.at(0).domain).value();
  std::uint64_t refused = 0;
  for (int i = 0; i < 20; ++i)
    refused += post_recv(vci, 1, 9, &room, sizeof room, completing(heard)).value() == Post::retry;
  EXPECT_GT(refused, 0u);
  EXPECT_EQ(vci.retry_counts().no_operation, refused);

  // Rank 1 makes no progress.
  refused = 0;
  for (int i = 0; i < 1000; ++i) refused += post(true) == Post::retry;
  const RetryCounts counts = vci.retry_counts();
  EXPECT_GT(refused, 0u);
  EXPECT_EQ(counts.no_room + counts.no_packet - 1, refused);
  EXPECT_EQ(counts.not_connected, 3u);
  EXPECT_EQ(counts.behind + counts.no_memory, 0u);
}

}  // namespace
}  // namespace larklane::msg
