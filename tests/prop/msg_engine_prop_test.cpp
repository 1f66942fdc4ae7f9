// Random operations of all kinds between several processes, over a network that keeps no order,
// takes its time, has no room and fails, against a plain list of what was posted.

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
#include "prop/msg_seeds.hpp"
#include "unit/msg_job.hpp"

namespace larklane::msg {
namespace {

enum class Kind { send, receive, active, put, get, add };

/// Whatever was posted, and what it must come to.
struct Posted {
  Kind kind;
  int from, to;  // of a receive: rank, source
  std::uint32_t tag;
  std::vector<std::byte> bytes;
  bool is_over = false;   // its completion has come
  bool is_heard = false;  // of one that signals: the peer has heard of it
};

/// The sends and receives that match: first in, first out.
using Key = std::tuple<int, int, std::uint32_t, std::uint32_t>;  // from, to, match, tag compared

struct Rank {
  CompletionQueue told, heard;
  RemoteCompletion number = 0;
  std::vector<std::byte> memory;
  alignas(8) std::array<std::uint64_t, 2> words{};
  std::vector<Region> regions;
};

class Field {
 public:
  Field(std::uint64_t seed, const fault::Plan* plan)
      : random_(seed), job_(options(seed, plan)), size_(job_.options.size) {
    for (int rank = 0; rank < size_; ++rank) {
      CompletionDomain& domain = job_.at(rank).domain;
      auto made = std::make_unique<Rank>(Rank{std::move(CompletionQueue::create(domain).value()),
                                              std::move(CompletionQueue::create(domain).value()),
                                              0,
                                              {},
                                              {},
                                              {}});
      made->number = made->heard.register_remote().value();
      made->memory.resize(kMemory);
      made->regions.push_back(job_.at(rank).add_region(made->memory.data(), kMemory));
      made->regions.push_back(job_.at(rank).add_region(made->words.data(), 16));
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
    for (int i = 0; i < 100; ++i) {  // what a fault has held comes late
      job_.settle();
      for (int rank = 0; rank < size_; ++rank) hear(rank);
    }
  }
  /// For each send that waits a receive, and the reverse.
  void match_all() {
    for (auto& [key, sends] : sends_) {
      auto& receives = receives_[key];
      const auto [from, to, match, tag] = key;
      for (int tries = 0; sends.size() != receives.size() && tries < 5000; ++tries) {
        if (sends.size() > receives.size())
          receive(from, to, static_cast<Match>(match), tag);
        else
          send(from, to, static_cast<Match>(match), tag);
        job_.step();
        for (int rank = 0; rank < size_; ++rank) hear(rank);
      }
      ASSERT_EQ(sends.size(), receives.size());
    }
    for (auto& [key, receives] : receives_) {
      const auto [from, to, match, tag] = key;
      for (int tries = 0; sends_[key].size() < receives.size() && tries < 5000; ++tries) {
        send(from, to, static_cast<Match>(match), tag);
        job_.step();
        for (int rank = 0; rank < size_; ++rank) hear(rank);
      }
    }
  }
  void expect_all_over(bool is_heard) {
    for (std::size_t id = 0; id < posted_.size(); ++id) {
      const Posted& one = posted_[id];
      ASSERT_TRUE(one.is_over) << id << " of kind " << static_cast<int>(one.kind);
      ASSERT_TRUE(!is_heard || one.kind != Kind::active || one.is_heard) << id;
    }
  }
  void expect_sums() {
    for (int rank = 0; rank < size_; ++rank) EXPECT_EQ(ranks_at(rank).words[0], sums_[rank]);
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
  static constexpr std::ptrdiff_t kExcess = 2;
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
    made.network.limits.write_bytes_max = kWrite[random_.below(3)];
    made.network.limits.read_bytes_max = kWrite[random_.below(3)];
    made.network.queue_depth = static_cast<std::uint32_t>(1 + random_.below(20));
    made.network.done_percent = random_.one_in(3) ? 50 : 0;
    made.lane.packets = {static_cast<std::uint32_t>(2 + random_.below(12)),
                         static_cast<std::uint32_t>(2 + random_.below(6))};
    made.lane.operations = random_.one_in(3) ? 60 : 1000;
    made.lane.buffers = random_.one_in(3) ? 40 : 200;
    made.cells = 16u << random_.below(3);
    if (plan != nullptr)
      made.decorate = [plan = *plan, seed](std::unique_ptr<net::Fabric> fabric, int rank) mutable {
        plan.seed = seed + static_cast<std::uint64_t>(rank);
        return std::make_unique<fault::Fabric>(std::move(fabric), plan);
      };
    return made;
  }
  int any_rank() { return static_cast<int>(random_.below(static_cast<std::uint64_t>(size_))); }
  Rank& ranks_at(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  Vci& vci(int rank) { return *job_.at(rank).vci; }
  /// Of the posted's own number, so that no two are alike.
  std::vector<std::byte> some_bytes() {
    const std::uint64_t eager = job_.at(0).engine->eager_bytes_max();
    const std::uint64_t most = random_.one_in(4) ? 3 * eager : eager + 2;
    return random_bytes(random_.below(most + 1), posted_.size() + 1000);
  }
  /// As one buffer, or at random places in several, of which some are empty.
  std::vector<Buffer> some_buffers(const std::vector<std::byte>& bytes) {
    // Where records are shorter than the list of a long one, fewer.
    const std::uint64_t most = std::min<std::uint64_t>(
        kBuffersMax, job_.at(0).engine->eager_bytes_max() / sizeof(Offered));
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
  PostOptions telling() {
    PostOptions options;
    options.signals_always = true;
    options.queues = random_.one_in(2);
    options.user_context = reinterpret_cast<void*>(posted_.size() + 1);
    return options;
  }
  /// @return it has been posted
  template <class Call>
  bool post_one(Posted one, Call&& call) {
    posted_.push_back(std::move(one));  // before: it may be heard at once
    Posted& posted = posted_.back();
    PostOptions options = telling();
    options.user_context = reinterpret_cast<void*>(posted_.size());
    CompletionQueue& told = ranks_at(posted.kind == Kind::receive ? posted.to : posted.from).told;
    options.completion = &told;
    Result<Post> answer = call(posted, options);
    if (answer && *answer == Post::posted) return true;
    if (!answer)
      ++failures_;
    else
      EXPECT_EQ(*answer, Post::retry);
    posted_.pop_back();
    return false;
  }
  void post() {
    const int from = any_rank(), to = any_rank();
    const auto tag = static_cast<std::uint32_t>(random_.below(3));
    const auto match = static_cast<Match>(random_.below(2));  // those that name the source
    switch (random_.below(7)) {
      // What waits for its other half holds memory: neither side may have all of it.
      case 0:
      case 1:
        if (excess(to) < kExcess) send(from, to, match, tag);
        return;
      case 2:
      case 3:
        if (excess(to) > -kExcess) receive(from, to, match, tag);
        return;
      case 4:
        post_one({Kind::active, from, to, tag, some_bytes()}, [&](Posted& one, auto& options) {
          const auto id = static_cast<std::uint32_t>(posted_.size());
          if (random_.one_in(2))
            return post_am(vci(from), to, ranks_at(to).number, id, some_buffers(one.bytes),
                           options);
          return post_am(vci(from), to, ranks_at(to).number, id, one.bytes.data(), one.bytes.size(),
                         options);
        });
        return;
      case 5:
        return transfer(from, to);
      default:
        const std::uint64_t value = random_.below(1000);
        if (post_one({Kind::add, from, to, 0, {}}, [&](Posted&, auto& options) {
              return post_fetch_add(vci(from), ranks_at(to).regions[1].remote(), 0, value, &before_,
                                    options);
            }))
          sums_[to] += value;
    }
  }
  /// Of sends to a process over its receives, for the key of which that is farthest from none.
  std::ptrdiff_t excess(int rank) {
    std::ptrdiff_t found = 0;
    for (const auto& [key, sends] : sends_) {
      if (std::get<1>(key) != rank) continue;
      const auto of_key = static_cast<std::ptrdiff_t>(sends.size()) -
                          static_cast<std::ptrdiff_t>(receives_[key].size());
      if (std::abs(of_key) > std::abs(found)) found = of_key;
    }
    return found;
  }
  static Key key_of(int from, int to, Match match, std::uint32_t tag) {
    return {from, to, static_cast<std::uint32_t>(match), match == Match::rank_tag ? tag : 0};
  }
  void send(int from, int to, Match match, std::uint32_t tag) {
    if (post_one({Kind::send, from, to, tag, some_bytes()}, [&](Posted& one, auto& options) {
          const bool fits = one.bytes.size() <= job_.at(from).engine->eager_bytes_max();
          if (fits && random_.one_in(3)) {
            larklane::Packet packet = take_packet(vci(from));
            if (!packet) return Result<Post>(Post::retry);
            if (!one.bytes.empty()) std::memcpy(packet.start(), one.bytes.data(), one.bytes.size());
            return post_send(vci(from), to, tag, packet, one.bytes.size(), options, match);
          }
          if (random_.one_in(2))
            return post_send(vci(from), to, tag, some_buffers(one.bytes), options, match);
          return post_send(vci(from), to, tag, one.bytes.data(), one.bytes.size(), options, match);
        }))
      sends_[key_of(from, to, match, tag)].push_back(posted_.size() - 1);
  }
  void receive(int from, int to, Match match, std::uint32_t tag) {
    std::vector<std::byte> room(3 * job_.at(0).engine->eager_bytes_max() + 8);
    if (post_one({Kind::receive, from, to, tag, std::move(room)}, [&](Posted& one, auto& options) {
          return post_recv(vci(to), from, tag, one.bytes.data(), one.bytes.size(), options, nullptr,
                           match);
        })) {
      const Key key = key_of(from, to, match, tag);
      place_[posted_.size() - 1] = {key, receives_[key].size()};
      receives_[key].push_back(posted_.size() - 1);
    }
  }
  /// To, or from, bytes that no other transfer uses.
  void transfer(int from, int to) {
    auto bytes = some_bytes();
    if (next_place_ + bytes.size() > kMemory) return;
    const std::uint64_t place = next_place_;
    next_place_ += bytes.size();
    const RemoteRegion region = ranks_at(to).regions[0].remote();
    const RemoteCompletion there = random_.one_in(2) ? ranks_at(to).number : 0;
    if (random_.one_in(2)) {
      puts_[posted_.size()] = place;
      post_one({Kind::put, from, to, 0, std::move(bytes)}, [&](Posted& one, auto& options) {
        return post_put(vci(from), region, place, one.bytes.data(), one.bytes.size(), options,
                        there, static_cast<std::uint32_t>(posted_.size()));
      });
      return;
    }
    if (!bytes.empty()) std::memcpy(ranks_at(to).memory.data() + place, bytes.data(), bytes.size());
    std::vector<std::byte> room(bytes.size());
    if (post_one({Kind::get, from, to, 0, std::move(room)}, [&](Posted& one, auto& options) {
          return post_get(vci(from), region, place, one.bytes.data(), one.bytes.size(), options,
                          there, static_cast<std::uint32_t>(posted_.size()));
        }))
      wanted_[posted_.size() - 1] = std::move(bytes);
  }

  void hear(int rank) {
    while (auto completion = ranks_at(rank).told.pop()) {
      const std::size_t id = reinterpret_cast<std::uintptr_t>(completion->user_context) - 1;
      ASSERT_LT(id, posted_.size());
      Posted& one = posted_[id];
      ASSERT_EQ(rank, one.kind == Kind::receive ? one.to : one.from);
      ASSERT_FALSE(one.is_over) << "twice: " << id;
      one.is_over = true;
      if (!completion->status.ok()) {
        ++failures_;
        continue;
      }
      if (one.kind == Kind::receive) expect_received(id, *completion);
      ASSERT_TRUE(one.kind != Kind::get || one.bytes == wanted_[id]) << id;
    }
    while (auto completion = ranks_at(rank).heard.pop()) {
      if (!completion->status.ok()) {
        ++failures_;
        free_buffer(completion->buffer);
        continue;
      }
      ASSERT_LT(completion->tag - 1, posted_.size());
      Posted& one = posted_[completion->tag - 1];
      ASSERT_FALSE(one.is_heard) << "twice: " << completion->tag - 1;
      one.is_heard = true;
      ASSERT_EQ(one.to, rank);
      ASSERT_EQ(one.from, completion->rank);
      ASSERT_EQ(one.bytes.size(), completion->bytes);
      if (one.kind == Kind::active) {
        ASSERT_TRUE(one.bytes.empty() ||
                    std::memcmp(completion->buffer, one.bytes.data(), one.bytes.size()) == 0);
        free_buffer(completion->buffer);
      }
      if (one.kind == Kind::put) expect_put(completion->tag - 1);
    }
  }
  void expect_received(std::size_t id, const Completion& completion) {
    const auto [key, place] = place_[id];
    const auto is_of = [&](std::size_t of) {
      const Posted& send = posted_[of];
      return completion.rank == send.from && completion.tag == send.tag &&
             completion.bytes == send.bytes.size() &&
             std::equal(send.bytes.begin(), send.bytes.end(), posted_[id].bytes.begin());
    };
    // Where receives have failed, others have their messages.
    if (failures_ != 0)
      ASSERT_TRUE(std::ranges::any_of(sends_[key], is_of)) << id;
    else
      ASSERT_TRUE(place < sends_[key].size() && is_of(sends_[key][place])) << id;
  }
  void expect_put(std::size_t id) {
    const std::vector<std::byte>& bytes = posted_[id].bytes;
    const std::byte* const there = ranks_at(posted_[id].to).memory.data() + puts_[id];
    ASSERT_TRUE(std::equal(bytes.begin(), bytes.end(), there)) << id;
  }

  loop::Random random_;
  bool are_words_whole_ = true;  // before job_, which asks for it
  Job job_;
  const int size_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::deque<Posted> posted_;
  std::map<Key, std::vector<std::size_t>> sends_, receives_;
  std::map<std::size_t, std::pair<Key, std::size_t>> place_;
  std::map<std::size_t, std::vector<std::byte>> wanted_;
  std::map<std::size_t, std::uint64_t> puts_;
  std::map<int, std::uint64_t> sums_;
  std::uint64_t next_place_ = 0, before_ = 0;
  std::size_t failures_ = 0;
};

constexpr int kSteps = 3000;

void everything_once(std::uint64_t seed, const fault::Plan* plan) {
  Field field(seed, plan);
  for (int i = 0; i < kSteps && !testing::Test::HasFailure(); ++i) field.step();
  field.match_all();
  field.settle();
  field.expect_all_over(true);
  field.expect_sums();
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
    // What is offered is taken back from a peer of which only one side knows that it is lost.
    for (const loop::Violation& violation : field.job().wire.take_violations())
      EXPECT_TRUE(violation.offence == loop::Offence::memory_busy ||
                  violation.offence == loop::Offence::outside_memory)
          << loop::offence_name(violation.offence) << ": " << violation.detail;
  });
}

}  // namespace
}  // namespace larklane::msg
