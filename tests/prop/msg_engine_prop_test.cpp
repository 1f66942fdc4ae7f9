// Random operations of all kinds between several processes, over a network that keeps no order,
// delays, has no room and fails, against a plain list of the posts.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "net/fault/fault.hpp"
#include "prop/msg_posted.hpp"
#include "prop/msg_seeds.hpp"
#include "unit/msg_job.hpp"

namespace larklane::msg {
namespace {

/// Sends and receives that are to be as many: from, to, match (ordered: none), tag if it counts.
using Key = std::tuple<int, int, std::uint32_t, std::uint32_t>;

struct Rank {
  CompletionQueue told, heard;
  RemoteCompletion number = 0;
  std::vector<std::byte> memory{}, wanted{};  // the present contents, and those required at the end
  Words words{};
  std::vector<Region> regions{};
};

class Field {
 public:
  Field(std::uint64_t seed, const fault::Plan* plan)
      : random_(seed),
        job_(options(seed, plan)),
        size_(job_.options.size),
        space_(static_cast<std::uint8_t>(seed % 8)) {
    for (int rank = 0; rank < size_; ++rank) {
      CompletionDomain& domain = job_.at(rank).domain;
      auto made = std::make_unique<Rank>(Rank{std::move(CompletionQueue::create(domain).value()),
                                              std::move(CompletionQueue::create(domain).value())});
      made->number = made->heard.register_remote().value();
      made->memory.resize(kMemory);
      made->wanted.resize(kMemory);
      made->regions.push_back(job_.at(rank).add_region(made->memory.data(), kMemory));
      made->regions.push_back(job_.at(rank).add_region(&made->words, sizeof made->words));
      ranks_.push_back(std::move(made));
    }
    job_.connect_all();
  }

  void step() {
    if (random_.one_in(3)) {
      job_.at(any_rank()).engine->progress_all();
    } else {
      post();
    }
    if (random_.one_in(4)) hear(any_rank());
  }
  void settle() {
    for (int i = 0; i < 100; ++i) {  // operations that a fault has held come late
      job_.settle();
      for (int rank = 0; rank < size_; ++rank) hear(rank);
    }
  }
  /// For each waiting send a receive, and the reverse. A wildcard may get a message that was meant
  /// for another: then both still wait, and fewer wildcards remain.
  void match_all() {
    for (int round = 0; round < 100 && !testing::Test::HasFailure(); ++round) {
      turn(200);
      const auto sends = expect_matched(posted_, Order::any);
      for (const std::size_t id : sends) {
        Posted what = like(posted_[id]);
        if (what.space.is_ordered) what.match = Match::rank_tag;  // the sender's does not count
        until([&] { return receive(what); });
      }
      turn(200);
      std::vector<std::size_t> receives;
      for (std::size_t id = 0; id < posted_.size(); ++id)
        if (posted_[id].kind == Kind::receive && !posted_[id].is_over) receives.push_back(id);
      for (const std::size_t id : receives) until([&] { return send(like(posted_[id])); });
      if (failures_ != 0 || (sends.empty() && receives.empty())) return;
    }
    ADD_FAILURE() << "some always wait";
  }
  /// From each to each something that comes after all puts that are over.
  void follow_puts() {
    for (int from = 0; from < size_; ++from)
      for (int to = 0; to < size_; ++to) until([&] { return active(from, to); });
    until([&] { return std::ranges::all_of(posted_, &Posted::has_come_about); });
  }
  /// But for receives that any rank could match, when some are gone.
  void expect_all_over(bool is_heard) {
    for (std::size_t id = 0; id < posted_.size(); ++id) {
      const Posted& one = posted_[id];
      const bool may_stay = !is_heard && one.kind == Kind::receive && !one.names_rank();
      ASSERT_TRUE(one.is_over || may_stay) << id << " of kind " << static_cast<int>(one.kind);
      ASSERT_TRUE(!is_heard || one.has_come_about()) << id << " is not heard";
    }
  }
  void expect_each_its_own(Order order) {
    const auto nobodys = expect_matched(posted_, order);
    EXPECT_TRUE(order == Order::any || nobodys.empty());
  }
  void expect_memory() {
    for (int rank = 0; rank < size_; ++rank) {
      EXPECT_TRUE(ranks_at(rank).memory == ranks_at(rank).wanted) << rank;
      expect_words(posted_, rank, ranks_at(rank).words);
    }
  }
  void end_all() {
    for (auto& process : job_.processes)
      for (auto& link : process->links) link->end(Errc::kPeerDown);
  }
  std::size_t count() const { return posted_.size(); }
  std::size_t failures() const { return failures_; }
  bool are_words_whole() const { return are_words_whole_; }
  Job& job() { return job_; }

 private:
  static constexpr int kExcess = 2, kWaiting = 20;
  static constexpr std::size_t kMemory = 1u << 19;

  Job::Options options(std::uint64_t seed, const fault::Plan* plan) {
    Job::Options made;
    made.size = static_cast<int>(2 + random_.below(2));
    constexpr std::uint32_t kSmall[] = {8, 64, 300}, kWrite[] = {64, 1000, 1u << 20};
    made.network.seed = seed;
    made.network.limits.first_word_last_bytes_max = random_.one_in(2) ? UINT64_MAX : 0;
    made.network.limits.has_wide_immediates = seed % 2 == 0;
    if (random_.one_in(2)) {  // long messages are written by their sender
      made.network.limits.is_progress_manual = true;
      made.network.limits.are_words_whole = are_words_whole_ = random_.one_in(2);
      made.network.limits.immediates_max = 0;
    }
    made.network.limits.small_bytes_max = kSmall[random_.below(3)];
    made.network.limits.bounce_bytes_max = seed % 3 == 0 ? 0 : 1000 + random_.below(20'000);
    made.network.limits.write_bytes_max = kWrite[random_.below(3)];
    made.network.limits.read_bytes_max = kWrite[random_.below(3)];
    made.network.queue_depth = static_cast<std::uint32_t>(1 + random_.below(20));
    made.network.done_percent = random_.one_in(3) ? 50 : 0;
    made.lane.packets = {static_cast<std::uint32_t>(2 + random_.below(12)),
                         static_cast<std::uint32_t>(2 + random_.below(6))};
    made.lane.operations = random_.one_in(3) ? 60 : 1000;
    made.lane.buffers = random_.one_in(3) ? 40 : 200;
    made.cells = 16u << random_.below(3);
    if (seed % 3 == 0) made.eager_bytes_max = 40;
    constexpr Engine::Rendezvous kWays[] = {Engine::Rendezvous::chosen, Engine::Rendezvous::read,
                                            Engine::Rendezvous::write};
    made.rendezvous = kWays[seed % 5 % 3];
    made.is_of_first_alone = seed % 7 < 3;
    if (seed % 4 == 1) made.network.limits.immediates_max = 0;  // so that they may be written
    if (plan != nullptr)
      made.decorate = [plan = *plan, seed](std::unique_ptr<net::Fabric> fabric, int rank) mutable {
        plan.seed = seed + static_cast<std::uint64_t>(rank);
        return std::make_unique<fault::Fabric>(std::move(fabric), plan);
      };
    return made;
  }
  /// Not after a failure: the awaited operation may be lost.
  template <class Is>
  void until(Is&& is) {
    if (testing::Test::HasFailure()) return;
    for (int tries = 0; failures_ == 0 && !is(); ++tries) {
      ASSERT_LT(tries, 5000);
      turn(1);
    }
  }
  void turn(int count) {
    for (; count != 0; --count) {
      job_.step();
      for (int rank = 0; rank < size_; ++rank) hear(rank);
    }
  }
  int any_rank() { return static_cast<int>(random_.below(static_cast<std::uint64_t>(size_))); }
  Rank& ranks_at(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  Vci& vci(int rank) { return *job_.at(rank).vci; }
  std::uint64_t longest_eager() {
    return std::max(vci(0).eager_bytes_max(), vci(1).eager_bytes_max());
  }
  /// Of the posted's own number, so that no two are alike.
  std::vector<std::byte> some_bytes() {
    const std::uint64_t eager = longest_eager();
    const std::uint64_t most = random_.one_in(4) ? 3 * eager : eager + 2;
    return random_bytes(random_.below(most + 1), posted_.size() + 1000);
  }
  Posted carrying(Posted one) {
    one.bytes = some_bytes();
    one.lent = one.bytes;
    return one;
  }
  /// As one buffer, or at random places in several, some of them empty.
  std::vector<Buffer> some_buffers(const std::vector<std::byte>& bytes) {
    // Where records are shorter than the list of a long one, fewer.
    const std::uint64_t most = std::min<std::uint64_t>(
        kBuffersMax, job_.at(0).engine->record_bytes_max() / sizeof(Offered));
    std::vector<std::uint64_t> ends(random_.below(most));
    for (std::uint64_t& end : ends) end = random_.below(bytes.size() + 1);
    ends.push_back(bytes.size());
    std::ranges::sort(ends);
    std::vector<Buffer> buffers;
    std::uint64_t begin = 0;
    for (const std::uint64_t end : ends) {
      buffers.push_back({bytes.data() + begin, end - begin});
      begin = end;
    }
    return buffers;
  }
  PostOptions some_options(const Posted& one) {
    PostOptions options;
    options.completion = &ranks_at(one.poster()).told;
    options.user_context = reinterpret_cast<void*>(posted_.size());
    options.signals_always = random_.one_in(3);
    options.queues = random_.one_in(3);
    options.more_follow = random_.one_in(2);
    return options;
  }
  /// @return it has been posted, or is over
  template <class Call>
  bool post_one(Posted one, Call&& call) {
    one.puts_before = puts_over_[{one.from, one.to}].size();
    posted_.push_back(std::move(one));  // before: it may be heard at once
    Posted& posted = posted_.back();
    const PostOptions options = some_options(posted);
    Result<Post> answer = call(posted, options);
    if (answer && *answer == Post::posted) return true;
    if (answer && *answer == Post::done) {
      EXPECT_FALSE(options.signals_always);
      end(posted_.size() - 1);
      return true;
    }
    if (!answer) ++failures_;
    posted_.pop_back();
    return false;
  }
  void post() {
    const int from = any_rank(), to = any_rank();
    switch (random_.below(7)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return message(from, to);
      case 4:
        active(from, to);
        return;
      case 5:
        return transfer(from, to);
      default:
        return atomic(from, to);
    }
  }
  /// A send or a receive. An operation that waits for its other half holds memory: neither side may
  /// have all of it, of one key or of all.
  void message(int from, int to) {
    Posted one{.from = from, .to = to};
    one.tag = static_cast<std::uint32_t>(random_.below(3));
    one.match = static_cast<Match>(random_.below(4));
    one.space = {space_, random_.one_in(2)};
    const int excess = excess_[key_of(one)];
    const bool is_send = excess <= -kExcess || (excess < kExcess && random_.one_in(2));
    if (is_send && sends_waiting_[to] < kWaiting)
      send(one);
    else if (!is_send && receives_waiting_[to] < kWaiting)
      receive(one);
    else if (sends_waiting_[to] + receives_waiting_[to] == 2 * kWaiting && failures_ == 0)
      match_all();
  }
  static Key key_of(const Posted& one) {
    if (one.space.is_ordered) return {one.from, one.to, UINT32_MAX, one.tag};
    return {one.names_rank() ? one.from : -1, one.to, static_cast<std::uint32_t>(one.match),
            one.names_tag() ? one.tag : 0};
  }
  static Posted like(const Posted& one) {
    return {.from = one.from, .to = one.to, .tag = one.tag, .match = one.match, .space = one.space};
  }
  bool send(Posted what) {
    what.kind = Kind::send;
    if (!post_one(carrying(std::move(what)), [&](Posted& one, auto& options) {
          Vci& from = vci(one.from);
          if (larklane::Packet packet = some_packet(one))
            return post_send(from, one.to, one.tag, packet, one.bytes.size(), options, one.match,
                             one.space);
          if (random_.one_in(2))
            return post_send(from, one.to, one.tag, some_buffers(one.lent), options, one.match,
                             one.space);
          return post_send(from, one.to, one.tag, one.lent.data(), one.lent.size(), options,
                           one.match, one.space);
        }))
      return false;
    ++excess_[key_of(posted_.back())];
    ++sends_waiting_[posted_.back().to];
    return true;
  }
  /// The message in a packet of its lane's. Empty: it is to go in another way.
  larklane::Packet some_packet(const Posted& one) {
    if (one.bytes.size() > vci(one.from).packet_bytes_max() || !random_.one_in(3)) return {};
    larklane::Packet packet = take_packet(vci(one.from));
    if (packet && !one.bytes.empty())
      std::memcpy(packet.start(), one.bytes.data(), one.bytes.size());
    return packet;
  }
  bool receive(Posted what) {
    what.kind = Kind::receive;
    what.lent.resize(3 * longest_eager() + 8);
    Completion done;
    Completion* const may_be_done = random_.one_in(2) ? &done : nullptr;
    if (!post_one(std::move(what), [&](Posted& one, auto& options) {
          return post_recv(vci(one.to), one.from, one.tag, one.lent.data(), one.lent.size(),
                           options, may_be_done, one.match, one.space);
        }))
      return false;
    Posted& one = posted_.back();
    --excess_[key_of(one)];
    ++receives_waiting_[one.to];
    if (one.is_over) received(one, done);
    return true;
  }
  void received(Posted& one, const Completion& completion) {
    one.got = completion;
    --receives_waiting_[one.to];
    --sends_waiting_[one.to];
  }
  bool active(int from, int to) {
    return post_one(
        carrying({.kind = Kind::active, .from = from, .to = to}), [&](Posted& one, auto& options) {
          one.signals = true;
          const auto id = static_cast<std::uint32_t>(posted_.size());
          const RemoteCompletion there = ranks_at(to).number;
          if (larklane::Packet packet = some_packet(one))
            return post_am(vci(from), to, there, id, packet, one.bytes.size(), options);
          if (random_.one_in(2))
            return post_am(vci(from), to, there, id, some_buffers(one.lent), options);
          return post_am(vci(from), to, there, id, one.lent.data(), one.lent.size(), options);
        });
  }
  /// To, or from, bytes that no other transfer uses.
  void transfer(int from, int to) {
    const bool is_put = random_.one_in(2);
    Posted one = carrying({.kind = is_put ? Kind::put : Kind::get, .from = from, .to = to});
    if (next_place_ + one.bytes.size() > kMemory) return;
    const std::uint64_t place = one.place = next_place_;
    next_place_ += one.bytes.size();
    one.signals = random_.one_in(2);
    const RemoteRegion region = ranks_at(to).regions[0].remote();
    const RemoteCompletion there = one.signals ? ranks_at(to).number : 0;
    const auto at = [&](std::vector<std::byte>& memory) {
      return memory.begin() + static_cast<std::ptrdiff_t>(place);
    };
    if (!is_put) {
      std::ranges::copy(one.bytes, at(ranks_at(to).memory));
      std::ranges::copy(one.bytes, at(ranks_at(to).wanted));
      std::ranges::fill(one.lent, std::byte{});
    }
    if (post_one(std::move(one),
                 [&](Posted& posted, auto& options) {
                   const auto id = static_cast<std::uint32_t>(posted_.size());
                   std::vector<std::byte>& lent = posted.lent;
                   if (is_put)
                     return post_put(vci(from), region, place, lent.data(), lent.size(), options,
                                     there, id);
                   return post_get(vci(from), region, place, lent.data(), lent.size(), options,
                                   there, id);
                 }) &&
        is_put)
      std::ranges::copy(posted_.back().bytes, at(ranks_at(to).wanted));
  }
  void atomic(int from, int to) {
    const RemoteRegion words = ranks_at(to).regions[1].remote();
    const std::uint64_t value = posted_.size() + 1;  // no two swap in the same
    switch (random_.below(3)) {
      case 0:
        post_one({.kind = Kind::add, .from = from, .to = to, .value = value},
                 [&](Posted& one, auto& options) {
                   return post_fetch_add(vci(from), words, offsetof(Words, added), value,
                                         &one.before, options);
                 });
        return;
      case 1: {
        const std::uint64_t expected = last_swapped_[to];
        post_one({.kind = Kind::swap, .from = from, .to = to, .value = value, .expected = expected},
                 [&](Posted& one, auto& options) {
                   return post_compare_swap(vci(from), words, offsetof(Words, swapped), expected,
                                            value, &one.before, options);
                 });
        return;
      }
      default: {
        Posted one{.kind = Kind::sum, .from = from, .to = to};
        one.place = random_.below(kSums);
        std::vector<double> values(random_.below(kSums - one.place + 1));
        for (double& each : values) each = static_cast<double>(random_.below(1000));
        const auto bytes = std::as_bytes(std::span(values));
        one.bytes.assign(bytes.begin(), bytes.end());
        one.lent = one.bytes;
        post_one(std::move(one), [&](Posted& posted, auto& options) {
          return post_accumulate(
              vci(from), words, offsetof(Words, summed) + posted.place * sizeof(double),
              reinterpret_cast<const double*>(posted.lent.data()),
              static_cast<std::uint32_t>(posted.lent.size() / sizeof(double)), options);
        });
      }
    }
  }

  /// It is over, and the lent buffer is the program's again: a late reader would read other bytes.
  void end(std::size_t id) {
    Posted& one = posted_[id];
    ASSERT_FALSE(one.is_over) << "twice: " << id;
    one.is_over = true;
    if (one.is_outgoing()) std::ranges::fill(one.lent, std::byte{0xee});
  }
  void hear(int rank) {
    while (auto completion = ranks_at(rank).told.pop()) {
      const std::size_t id = reinterpret_cast<std::uintptr_t>(completion->user_context) - 1;
      ASSERT_LT(id, posted_.size());
      Posted& one = posted_[id];
      ASSERT_EQ(rank, one.poster());
      end(id);
      if (one.kind == Kind::receive) received(one, *completion);
      if (!completion->status.ok()) {
        ++failures_;
        continue;
      }
      if (one.kind == Kind::put) puts_over_[{one.from, one.to}].push_back(id);
      if (one.kind == Kind::swap)
        last_swapped_[one.to] = one.before == one.expected ? one.value : one.before;
      ASSERT_TRUE(one.kind != Kind::get || one.bytes == one.lent) << id;
    }
    while (auto completion = ranks_at(rank).heard.pop()) {
      if (!completion->status.ok()) {
        ++failures_;
        free_buffer(completion->buffer);
        continue;
      }
      const std::size_t id = completion->tag - 1;
      ASSERT_LT(id, posted_.size());
      Posted& one = posted_[id];
      ASSERT_FALSE(one.is_heard) << "twice: " << id;
      one.is_heard = true;
      ASSERT_TRUE(one.signals) << id;
      ASSERT_EQ(one.to, rank);
      ASSERT_EQ(one.from, completion->rank);
      ASSERT_EQ(one.bytes.size(), completion->bytes);
      if (one.kind == Kind::active) {
        ASSERT_TRUE(one.bytes.empty() ||
                    std::memcmp(completion->buffer, one.bytes.data(), one.bytes.size()) == 0);
        free_buffer(completion->buffer);
      }
      if (one.kind == Kind::put) expect_put(id);
      expect_puts_before(one);
    }
  }
  void expect_put(std::size_t id) {
    const Posted& put = posted_[id];
    const std::byte* const there = ranks_at(put.to).memory.data() + put.place;
    ASSERT_TRUE(std::equal(put.bytes.begin(), put.bytes.end(), there)) << id;
  }
  /// Puts that were over when an operation was posted are there when it is received.
  void expect_puts_before(const Posted& heard) {
    const std::vector<std::size_t>& puts = puts_over_[{heard.from, heard.to}];
    std::size_t& seen = puts_seen_[{heard.from, heard.to}];
    for (; seen < heard.puts_before; ++seen) expect_put(puts[seen]);
  }

  loop::Random random_;
  bool are_words_whole_ = true;  // before job_, which asks for it
  Job job_;
  const int size_;
  const std::uint8_t space_;  // each kind of space counts its own
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::deque<Posted> posted_;
  std::map<Key, int> excess_;                                          // of sends over receives
  std::map<int, int> sends_waiting_, receives_waiting_;                // at most, by target
  std::map<std::pair<int, int>, std::vector<std::size_t>> puts_over_;  // from, to
  std::map<std::pair<int, int>, std::size_t> puts_seen_;               // of those
  std::map<int, std::uint64_t> last_swapped_;
  std::uint64_t next_place_ = 0;
  std::size_t failures_ = 0;
};

constexpr int kSteps = 3000;

void everything_once(std::uint64_t seed, const fault::Plan* plan) {
  Field field(seed, plan);
  for (int i = 0; i < kSteps && !testing::Test::HasFailure(); ++i) field.step();
  field.match_all();
  field.settle();
  field.follow_puts();
  field.expect_all_over(true);
  field.expect_each_its_own(Order::posted);
  field.expect_memory();
  EXPECT_EQ(field.failures(), 0u);
  EXPECT_GT(field.count(), field.are_words_whole() ? 300u : 200u);
}

TEST(MessageLaws, EveryByteAndEveryCompletionOnce) {
  for_seeds(160, [](std::uint64_t seed) { everything_once(seed, nullptr); });
}

TEST(MessageLaws, TheSameUnderRetriesAndDelays) {
  fault::Plan plan;
  plan.faults = {{.call = fault::Call::post, .what = fault::What::retry, .one_in = 3}};
  plan.held_one_in = 4;
  plan.late_one_in = 4;
  for_seeds(120, [&](std::uint64_t seed) { everything_once(seed + 100, &plan); });
}

TEST(MessageLaws, AfterAFailureEveryCompletionOnce) {
  for_seeds(240, [](std::uint64_t seed) {
    loop::Random random(seed);
    constexpr fault::What kWhat[] = {fault::What::refuse, fault::What::fail, fault::What::kill};
    constexpr fault::Moved kMoved[] = {fault::Moved::nothing, fault::Moved::half,
                                       fault::Moved::all};
    fault::Fault fault{.call = fault::Call::post, .what = kWhat[random.below(3)]};
    fault.nth = 1 + random.below(60);
    fault.moved = kMoved[random.below(3)];
    fault::Plan plan;
    plan.faults = {fault};
    if (random.one_in(2)) plan.late_one_in = 4;
    Field field(seed + 200, &plan);
    for (int i = 0; i < kSteps && !testing::Test::HasFailure(); ++i) field.step();
    field.settle();
    EXPECT_GT(field.failures(), 0u);
    field.end_all();
    field.settle();
    field.expect_all_over(false);
    field.expect_each_its_own(Order::any);
    // An offer is withdrawn from a peer when only one side knows that the peer is lost.
    for (const loop::Violation& violation : field.job().wire.take_violations())
      EXPECT_TRUE(violation.offence == loop::Offence::memory_busy ||
                  violation.offence == loop::Offence::outside_memory)
          << loop::offence_name(violation.offence) << ": " << violation.detail;
  });
}

}  // namespace
}  // namespace larklane::msg
