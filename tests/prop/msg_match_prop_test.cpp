// Matching engines against a plain list of the waiting entries: all short sequences, then long
// random ones. LARKLANE_SEED=N repeats one run; --gtest_filter selects the test.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "msg/match/match.hpp"
#include "net/loop/random.hpp"

namespace larklane::msg {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kShorter = 1;  ///< an instrumented run is that much slower
#else
constexpr std::size_t kShorter = 0;
#endif

using Kind = MatchingEngine::Kind;
using Policy = MatchPolicy;

constexpr bool has_rank(Policy policy) {
  return policy == Policy::rank_tag || policy == Policy::rank;
}
constexpr bool has_tag(Policy policy) {
  return policy == Policy::rank_tag || policy == Policy::tag;
}

struct Op {
  enum class What : std::uint8_t { receive, message, cancel, death, look, take };
  What what;
  std::uint32_t rank = 0;  ///< cancel: which of those that were inserted
  std::uint32_t tag = 0;
  Policy policy = Policy::rank_tag;

  std::string text() const {
    const std::string rank_text = has_rank(policy) ? std::to_string(rank) : "*";
    const std::string key =
        "(" + rank_text + "," + (has_tag(policy) ? std::to_string(tag) : "*") + ")";
    switch (what) {
      case What::receive:
        return "receive" + key;
      case What::message:
        return "message" + key;
      case What::cancel:
        return "cancel #" + std::to_string(rank);
      case What::death:
        return "death of " + std::to_string(rank);
      case What::look:
        return "look" + key;
      case What::take:
        return "take" + key;
    }
    return "";
  }
};

/// An engine and, beside it, the waiting entries in the order in which they came.
class Run {
 public:
  Run(Kind kind, std::uint32_t bucket_count, std::size_t capacity)
      : kind_(kind),
        engine_(std::move(
            MatchingEngine::create({.kind = kind, .bucket_count = bucket_count}).value())) {
    receives_.reserve(capacity);
    messages_.reserve(capacity);
  }

  /// @return engine and list agree
  bool step(const Op& op) {
    switch (op.what) {
      case Op::What::receive:
        return receive(op);
      case Op::What::message:
        return message(op);
      case Op::What::cancel:
        return op.rank >= receives_.size() || cancel(op.rank);
      case Op::What::death:
        return death(op.rank);
      case Op::What::look:
      case Op::What::take:
        return probe(op);
    }
    return false;
  }
  /// The waiting entries are known, and leave.
  bool finish() {
    if (engine_->counts().waiting != posted_.size() + unexpected_.size()) return false;
    for (std::size_t i = 0; i < receives_.size(); ++i)
      if (!cancel(i)) return false;
    while (!unexpected_.empty()) {
      const MatchMessage& first = messages_[unexpected_.front()];
      const Policy policy = kind_ == Kind::exact ? first.policy : Policy::none;
      if (!receive_one(last_, {Op::What::receive, first.rank, first.tag, policy})) return false;
    }
    const MatchCounts counts = engine_->counts();
    return counts.waiting == 0 && counts.matched == matched_ && posted_.empty();
  }
  std::size_t receive_count() const { return receives_.size(); }
  std::size_t waiting() const { return std::max(posted_.size(), unexpected_.size()); }

 private:
  bool fits(const MatchReceive& receive, const MatchMessage& message) const {
    if (kind_ == Kind::exact && receive.policy != message.policy) return false;
    return (!has_rank(receive.policy) || receive.rank == message.rank) &&
           (!has_tag(receive.policy) || receive.tag == message.tag);
  }
  template <class Node>
  static void set(Node& node, const Op& op) {
    node.rank = op.rank;
    node.tag = op.tag;
    node.policy = op.policy;
  }

  bool receive(const Op& op) {
    receives_.emplace_back();
    return receive_one(receives_.back(), op);
  }
  bool receive_one(MatchReceive& receive, const Op& op) {
    set(receive, op);
    MatchMessage* const got = engine_->insert_receive(receive);
    return is_first_of(&unexpected_, messages_, got, &posted_, receives_.size() - 1,
                       [&](const MatchMessage& message) { return fits(receive, message); });
  }
  bool message(const Op& op) {
    MatchMessage& message = messages_.emplace_back();
    set(message, op);
    if (kind_ == Kind::lazy) message.policy = Policy::rank_tag;
    message.arrival = messages_.size();
    message.bytes = messages_.size();
    MatchReceive* const got = engine_->insert_message(message);
    return is_first_of(&posted_, receives_, got, &unexpected_, messages_.size() - 1,
                       [&](const MatchReceive& receive) { return fits(receive, message); });
  }
  /// A receive with the same key would get the message that a probe shows or takes.
  bool probe(const Op& op) {
    MatchReceive receive;
    set(receive, op);
    const auto first = std::find_if(unexpected_.begin(), unexpected_.end(),
                                    [&](std::size_t i) { return fits(receive, messages_[i]); });
    const MatchKey key{op.rank, op.tag, op.policy};
    if (op.what == Op::What::look) {
      const auto seen = engine_->look(key);
      if (first == unexpected_.end()) return !seen;
      const MatchMessage& wanted = messages_[*first];
      return seen && seen->rank == wanted.rank && seen->tag == wanted.tag &&
             seen->bytes == wanted.bytes;
    }
    const MatchMessage* const wanted = first == unexpected_.end() ? nullptr : &messages_[*first];
    if (wanted != nullptr) {
      unexpected_.erase(first);
      ++matched_;
    }
    return engine_->take(key) == wanted;
  }
  /// Whether `got` is the first of `waiting` that fits, which it leaves. There is none: the new
  /// node `index` joins `own`.
  template <class Indices, class Nodes, class Node, class Fits>
  bool is_first_of(Indices* waiting, const Nodes& nodes, const Node* got, Indices* own,
                   std::size_t index, Fits fits) {
    const auto first = std::find_if(waiting->begin(), waiting->end(),
                                    [&](std::size_t i) { return fits(nodes[i]); });
    if (first == waiting->end()) {
      own->push_back(index);
      return got == nullptr;
    }
    const Node* const wanted = &nodes[*first];
    waiting->erase(first);
    ++matched_;
    return got == wanted;
  }
  bool cancel(std::size_t index) {
    const auto found = std::find(posted_.begin(), posted_.end(), index);
    const bool waits = found != posted_.end();
    if (waits) posted_.erase(found);
    return engine_->cancel(receives_[index]) == waits;
  }
  /// Of those of one key the first is the first that is handed back.
  bool death(std::uint32_t rank) {
    MatchingEngine::Sweep sweep;
    while (MatchReceive* const got = engine_->take_receive_of(rank, sweep)) {
      const auto first = std::find_if(posted_.begin(), posted_.end(), [&](std::size_t i) {
        const MatchReceive& one = receives_[i];
        return has_rank(one.policy) && one.rank == rank && one.policy == got->policy &&
               (!has_tag(one.policy) || one.tag == got->tag);
      });
      if (first == posted_.end() || &receives_[*first] != got) return false;
      posted_.erase(first);
    }
    return std::none_of(posted_.begin(), posted_.end(), [&](std::size_t i) {
      return has_rank(receives_[i].policy) && receives_[i].rank == rank;
    });
  }

  const Kind kind_;
  std::unique_ptr<MatchingEngine> engine_;
  std::vector<MatchReceive> receives_;  // with addresses that stay
  std::vector<MatchMessage> messages_;
  std::vector<std::size_t> posted_, unexpected_;
  std::uint64_t matched_ = 0;
  MatchReceive last_;
};

std::string text_of(const std::vector<Op>& ops) {
  std::string text;
  for (const Op& op : ops) text += op.text() + "; ";
  return text;
}

/// All sequences of `length` operations, but for those that differ from another one only in the
/// names of the two ranks or tags: the first that is named is 0.
class AllSequences {
 public:
  AllSequences(Kind kind, std::uint32_t bucket_count, std::vector<Op> alphabet)
      : kind_(kind), bucket_count_(bucket_count), alphabet_(std::move(alphabet)) {}

  /// @return how many there are; 0: one has failed
  std::size_t check(std::size_t length) {
    count_ = 0;
    return add(length, false, false) ? count_ : 0;
  }

 private:
  bool add(std::size_t length, bool is_rank_named, bool is_tag_named) {
    if (length == 0) return check_one();
    for (const Op& op : alphabet_) {
      const bool names_rank = op.what != Op::What::cancel && has_rank(op.policy);
      const bool names_tag =
          op.what != Op::What::cancel && op.what != Op::What::death && has_tag(op.policy);
      if (!is_rank_named && names_rank && op.rank != 0) continue;
      if (!is_tag_named && names_tag && op.tag != 0) continue;
      ops_.push_back(op);
      if (!add(length - 1, is_rank_named || names_rank, is_tag_named || names_tag)) return false;
      ops_.pop_back();
    }
    return true;
  }
  bool check_one() {
    ++count_;
    Run run(kind_, bucket_count_, ops_.size());
    const bool agrees =
        std::all_of(ops_.begin(), ops_.end(), [&](const Op& op) { return run.step(op); });
    if (agrees && run.finish()) return true;
    ADD_FAILURE() << text_of(ops_);
    return false;
  }

  const Kind kind_;
  const std::uint32_t bucket_count_;
  const std::vector<Op> alphabet_;
  std::vector<Op> ops_;
  std::size_t count_ = 0;
};

/// Two ranks, two tags, and in their place a wildcard if the policy allows it.
std::vector<Op> inserts(Op::What what, std::initializer_list<Policy> policies) {
  std::vector<Op> ops;
  for (const Policy policy : policies)
    for (std::uint32_t rank = 0; rank < (has_rank(policy) ? 2 : 1); ++rank)
      for (std::uint32_t tag = 0; tag < (has_tag(policy) ? 2 : 1); ++tag)
        ops.push_back({what, rank, tag, policy});
  return ops;
}
std::vector<Op> both(std::vector<Op> a, const std::vector<Op>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

constexpr std::initializer_list<Policy> kAll = {Policy::rank_tag, Policy::rank, Policy::tag,
                                                Policy::none};
const std::vector<Op> kRemovals = {{Op::What::cancel, 0},
                                   {Op::What::cancel, 1},
                                   {Op::What::cancel, 2},
                                   {Op::What::death, 0},
                                   {Op::What::death, 1}};

TEST(MatchProp, EveryShortSequenceInOrder) {
  const std::vector<Op> alphabet =
      both(inserts(Op::What::receive, kAll), inserts(Op::What::message, {Policy::rank_tag}));
  EXPECT_GT(AllSequences(Kind::ordered, 1, alphabet).check(6 - kShorter), 100'000 >> 4 * kShorter);
  EXPECT_GT(AllSequences(Kind::ordered, 2, both(alphabet, kRemovals)).check(5 - kShorter), 10'000);
}

TEST(MatchProp, EveryShortSequenceByExactKey) {
  const std::vector<Op> alphabet =
      both(inserts(Op::What::receive, kAll), inserts(Op::What::message, kAll));
  EXPECT_GT(AllSequences(Kind::exact, 1, alphabet).check(5 - kShorter), 10'000);
  EXPECT_GT(AllSequences(Kind::exact, 1, both(alphabet, kRemovals)).check(5 - kShorter), 10'000);
  const std::vector<Op> few =
      both(inserts(Op::What::receive, {Policy::tag}), inserts(Op::What::message, {Policy::tag}));
  EXPECT_GT(AllSequences(Kind::exact, 1, both(few, kRemovals)).check(6), 10'000);
}

TEST(MatchProp, EveryShortSequenceThatMayBecomeOrdered) {
  const std::vector<Op> alphabet =
      both(inserts(Op::What::receive, kAll), inserts(Op::What::message, {Policy::rank_tag}));
  const std::vector<Op> probes = both(inserts(Op::What::look, kAll), inserts(Op::What::take, kAll));
  EXPECT_GT(AllSequences(Kind::lazy, 1, alphabet).check(6 - kShorter), 100'000 >> 4 * kShorter);
  EXPECT_GT(AllSequences(Kind::lazy, 4, both(alphabet, kRemovals)).check(5 - kShorter), 10'000);
  EXPECT_GT(AllSequences(Kind::lazy, 4, both(alphabet, probes)).check(5 - kShorter), 10'000);
}

/// Thousands of operations: for a while receives outweigh, then messages.
bool random_run(Kind kind, std::uint64_t seed, std::size_t* longest) {
  loop::Random random(seed * 7919);
  constexpr std::size_t kOps = 3000;
  const std::uint32_t bucket_counts[] = {1, 4, 64, 1024};
  Run run(kind, bucket_counts[seed % 4], kOps);
  const std::uint64_t ranks = 1 + random.below(8),
                      tags = 1 + random.below(kind == Kind::lazy ? 500 : 8);
  // A lazy engine stays exact for most of some runs
  const std::uint64_t wild_one_in =
      kind == Kind::lazy ? 1 + random.below(2 * kOps) : 1 + random.below(20);
  std::uint64_t receives_of_16 = 8;
  for (std::size_t i = 0; i < kOps; ++i) {
    if (random.one_in(300)) receives_of_16 = 1 + random.below(15);
    Op op{random.below(16) < receives_of_16 ? Op::What::receive : Op::What::message,
          static_cast<std::uint32_t>(random.below(ranks)),
          static_cast<std::uint32_t>(random.below(tags))};
    if (random.one_in(wild_one_in)) op.policy = static_cast<Policy>(random.below(4));
    if (random.one_in(20) && run.receive_count() != 0)
      op = {Op::What::cancel, static_cast<std::uint32_t>(random.below(run.receive_count()))};
    if (random.one_in(400)) op.what = Op::What::death;
    if (random.one_in(10)) op.what = random.one_in(2) ? Op::What::look : Op::What::take;
    if (!run.step(op)) {
      ADD_FAILURE() << "operation " << i << ", " << op.text();
      return false;
    }
    *longest = std::max(*longest, run.waiting());
  }
  return run.finish();
}

void random_runs(Kind kind) {
  std::uint64_t first = 1, last = 200 >> 2 * kShorter;
  if (const char* text = std::getenv("LARKLANE_SEED"))
    first = last = std::strtoull(text, nullptr, 10);
  std::size_t longest = 0;
  for (std::uint64_t seed = first; seed <= last; ++seed)
    ASSERT_TRUE(random_run(kind, seed, &longest)) << "LARKLANE_SEED=" << seed;
  if (first != last) {
    EXPECT_GT(longest, 100u);
  }
}

TEST(MatchProp, LongRandomSequencesInOrder) { random_runs(Kind::ordered); }
TEST(MatchProp, LongRandomSequencesByExactKey) { random_runs(Kind::exact); }
TEST(MatchProp, LongRandomSequencesThatMayBecomeOrdered) { random_runs(Kind::lazy); }

}  // namespace
}  // namespace larklane::msg
