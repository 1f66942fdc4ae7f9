#pragma once
// A plain list of posts between processes, and their required outcome.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <tuple>
#include <vector>

#include "larklane/completion.hpp"
#include "larklane/message.hpp"

namespace larklane::msg {

enum class Kind { send, receive, active, put, get, add, swap, sum };

/// Any post, and its required outcome.
struct Posted {
  Kind kind{};
  int from = 0, to = 0;  // of a receive: source, rank
  std::uint32_t tag = 0;
  Match match{};
  MatchSpace space{};
  Completion got{};                       // the completion of a receive
  std::vector<std::byte> bytes{};         // that go, or of a get have to come
  std::vector<std::byte> lent{};          // the buffer that the library reads, or writes
  std::uint64_t place = 0;                // of a transfer or sum, in the target's memory
  std::uint64_t value = 0, expected = 0;  // of an add or swap
  std::uint64_t before = 0;               // its answer
  std::size_t puts_before = 0;            // over when this was posted, between the same two
  bool signals = false;                   // the peer has to get a notification
  bool is_over = false;                   // it was done, or its completion has come
  bool is_heard = false;                  // by the peer

  int poster() const { return kind == Kind::receive ? to : from; }
  bool has_come_about() const { return is_over && is_heard == signals; }
  bool names_rank() const { return match == Match::rank_tag || match == Match::rank; }
  bool names_tag() const { return match == Match::rank_tag || match == Match::tag; }
  bool is_outgoing() const { return kind != Kind::receive && kind != Kind::get; }
};

/// May it have that message?
inline bool fits(const Posted& receive, const Posted& send) {
  if (!receive.space.is_ordered && receive.match != send.match) return false;
  return (!receive.names_rank() || receive.from == send.from) &&
         (!receive.names_tag() || receive.tag == send.tag);
}
/// Is its completion that of that message?
inline bool has(const Posted& receive, const Posted& send) {
  return receive.got.rank == send.from && receive.got.tag == send.tag &&
         receive.got.bytes == send.bytes.size() &&
         std::equal(send.bytes.begin(), send.bytes.end(), receive.lent.begin());
}
enum class Order : bool {
  any,     // of those that fit: some were lost, or are still posted
  posted,  // of all, since all is over
};

/// Each receive that is over has a message of its own that fits, and of those of one source the
/// first that no earlier receive has. A later receive can't have a message that this one had to
/// pass. Between sources there is no order. @return  the sends that no receive has
inline std::vector<std::size_t> expect_matched(const std::deque<Posted>& posted, Order order) {
  std::map<std::tuple<int, int, bool, std::uint8_t>, std::vector<std::size_t>> left;
  const auto of = [&](int from, const Posted& one) -> std::vector<std::size_t>& {
    return left[{from, one.to, one.space.is_ordered, one.space.number}];
  };
  for (std::size_t id = 0; id < posted.size(); ++id)
    if (posted[id].kind == Kind::send) of(posted[id].from, posted[id]).push_back(id);
  for (std::size_t id = 0; id < posted.size(); ++id) {
    const Posted& receive = posted[id];
    if (receive.kind != Kind::receive || !receive.is_over || !receive.got.status.ok()) continue;
    std::vector<std::size_t>& sends = of(receive.got.rank, receive);
    const auto found = std::ranges::find_if(sends, [&](std::size_t send) {
      return fits(receive, posted[send]) && (order == Order::posted || has(receive, posted[send]));
    });
    if (found == sends.end() || !has(receive, posted[*found])) {
      ADD_FAILURE() << "receive " << id << " has not the message that it should";
      return {};
    }
    sends.erase(found);
  }
  std::vector<std::size_t> nobodys;
  for (const auto& [key, sends] : left) nobodys.insert(nobodys.end(), sends.begin(), sends.end());
  return nobodys;
}

inline constexpr std::size_t kSums = 4;

/// The required values of the words that the atomics of all processes change at one process.
struct Words {
  std::uint64_t added = 0, swapped = 0;
  std::array<double, kSums> summed{};
};

/// The adds have happened one after the other, each process's own in their order: each has found
/// the sum of those before.
inline void expect_adds(const std::deque<Posted>& posted, int rank, std::uint64_t sum) {
  std::map<std::uint64_t, std::uint64_t> values;  // by the value found
  std::map<int, std::uint64_t> last;              // of a poster
  for (const Posted& one : posted) {
    if (one.kind != Kind::add || one.to != rank) continue;
    ASSERT_TRUE(values.emplace(one.before, one.value).second) << "twice: " << one.before;
    ASSERT_TRUE(last.count(one.from) == 0 || last[one.from] < one.before) << one.before;
    last[one.from] = one.before;
  }
  std::uint64_t there = 0;
  for (const auto& [before, value] : values) {
    ASSERT_EQ(before, there);
    there += value;
  }
  EXPECT_EQ(sum, there);
}

/// The swaps that have found the expected value are one chain from 0 to the final value, and the
/// others have found a link of it.
inline void expect_swaps(const std::deque<Posted>& posted, int rank, std::uint64_t there) {
  std::map<std::uint64_t, std::uint64_t> next;
  for (const Posted& one : posted)
    if (one.kind == Kind::swap && one.to == rank && one.before == one.expected) {
      ASSERT_TRUE(next.emplace(one.expected, one.value).second) << "twice: " << one.expected;
    }
  std::uint64_t last = 0;
  std::size_t length = 0;
  for (auto found = next.find(0); found != next.end(); found = next.find(last), ++length)
    last = found->second;
  EXPECT_EQ(length, next.size());
  EXPECT_EQ(there, last);
  for (const Posted& one : posted)
    if (one.kind == Kind::swap && one.to == rank) {
      ASSERT_TRUE(one.before == last || next.count(one.before) == 1) << one.before;
    }
}

/// @param words  of `rank`, when all is over
inline void expect_words(const std::deque<Posted>& posted, int rank, const Words& words) {
  expect_adds(posted, rank, words.added);
  expect_swaps(posted, rank, words.swapped);
  std::array<double, kSums> sums{};  // of small whole numbers: exact
  for (const Posted& one : posted) {
    if (one.kind != Kind::sum || one.to != rank) continue;
    for (std::size_t i = 0; i < one.bytes.size() / sizeof(double); ++i) {
      double value = 0;
      std::memcpy(&value, one.bytes.data() + i * sizeof value, sizeof value);
      sums[one.place + i] += value;
    }
  }
  EXPECT_EQ(words.summed, sums);
}

}  // namespace larklane::msg
