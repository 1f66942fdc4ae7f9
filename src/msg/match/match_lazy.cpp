// A lazy matching engine becomes ordered, and grows; an engine hands over its entries.

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "msg/match/match.hpp"
#include "msg/match/match_table.hpp"

namespace larklane::msg {

namespace {

/// The first `count` links of a list, sorted. Needs no memory.
/// @param number  (MatchLink&): by which they are sorted
template <class Number>
MatchLink* sorted_by(MatchLink* list, std::size_t count, Number number) noexcept {
  if (count == 0) return nullptr;
  if (count == 1) {
    list->next = nullptr;
    return list;
  }
  MatchLink* middle = list;
  for (std::size_t i = 0; i < count / 2; ++i) middle = middle->next;
  MatchLink* first = sorted_by(list, count / 2, number);
  MatchLink* second = sorted_by(middle, count - count / 2, number);
  MatchLink* merged = nullptr;
  for (MatchLink** end = &merged; first != nullptr || second != nullptr; end = &(*end)->next) {
    const bool takes_second =
        first == nullptr || (second != nullptr && number(*second) < number(*first));
    MatchLink*& from = takes_second ? second : first;
    *end = std::exchange(from, from->next);
  }
  return merged;
}
std::uint64_t arrival_of(MatchLink& link) noexcept { return message_of(link).arrival; }
std::uint64_t sequence_of(MatchLink& link) noexcept { return receive_of(link).sequence; }

}  // namespace

/// Takes out the queue of any key; null: none is left.
MatchLink* MatchingEngine::take_queue(Bucket& bucket) noexcept {
  MatchLink** const place = bucket.find_if([](std::uint64_t) { return true; }).place;
  if (place == nullptr) return nullptr;
  MatchLink* const first = *place;
  *place = std::exchange(first->next_key, nullptr);
  return first;
}

void MatchingEngine::become_ordered_slow() noexcept {
  with_all_locks([this] {
    // relaxed: written with all locks held
    if (!is_ordered_.load(std::memory_order_relaxed)) become_ordered_locked();
  });
}

void MatchingEngine::become_ordered_locked() noexcept {
  MatchLink *receives = nullptr, *messages = nullptr;
  MatchLink** receives_end = &receives;
  std::size_t message_count = 0;
  const Table table = table_.load(std::memory_order_relaxed);
  for (Bucket& bucket : std::span(buckets_.get(), bucket_count_of(table)))
    while (MatchLink* const first = take_queue(bucket)) {
      MatchLink* link = first;
      do {
        MatchLink* const next = link->next;
        if (is_message(link->word)) {
          link->next = messages;
          messages = link;
          ++message_count;
        } else {
          *receives_end = link;
          receives_end = &link->next;
        }
        link = next;
      } while (link != first);
    }
  *receives_end = nullptr;
  while (receives != nullptr) {
    MatchReceive& receive = receive_of(*std::exchange(receives, receives->next));
    Bucket& bucket = bucket_of(receive.word);
    push_locked(bucket, bucket.find(receive.word), receive, receive.word);
    receive.sequence = sequence_++;
    ++posted_[policy_of(receive.word)];
  }
  messages = sorted_by(messages, message_count, arrival_of);
  while (messages != nullptr) wait_ordered(message_of(*std::exchange(messages, messages->next)));
  is_ordered_.store(true, std::memory_order_release);  // pairs with is_ordered()
}

MatchMessage& MatchingEngine::message_with(MatchLink& link) noexcept { return message_of(link); }

MatchingEngine::Lists MatchingEngine::take_lists() noexcept {
  Lists all{};
  with_all_locks([&] { all = take_lists_locked(); });
  return all;
}

MatchingEngine::Lists MatchingEngine::take_lists_locked() noexcept {
  MatchLink *receives = nullptr, *messages = nullptr;
  MatchLink** receives_end = &receives;
  std::size_t receive_count = 0, message_count = 0;
  const Table table = table_.load(std::memory_order_relaxed);
  for (Bucket& bucket : std::span(buckets_.get(), bucket_count_of(table)))
    while (MatchLink** const place = bucket.find_if([](std::uint64_t) { return true; }).place) {
      MatchLink& link = **place;
      if (is_message(link.word)) {
        MatchMessage& message = message_of(link);
        take_message_locked(bucket, place);
        MatchLink& own = message.links[static_cast<std::size_t>(message.policy)];
        own.next = messages;
        messages = &own;
        ++message_count;
      } else {
        take_locked(bucket, place, receive_of(link));
        *receives_end = &link;
        receives_end = &link.next;
        ++receive_count;
      }
    }
  *receives_end = nullptr;
  // relaxed: statistics
  orphaned_.fetch_add(receive_count + message_count, std::memory_order_relaxed);
  // An exact engine's receives keep their order for each key, and messages of one key fit no other.
  // relaxed, both: all locks are held
  if (is_ordered_.load(std::memory_order_relaxed))
    receives = sorted_by(receives, receive_count, sequence_of);
  return {receives, sorted_by(messages, message_count, arrival_of)};
}

std::uint32_t MatchingEngine::waiting_with(MatchPolicy policy) noexcept {
  std::uint32_t waiting = 0;
  with_all_locks([&] { waiting = posted_[static_cast<std::size_t>(policy)]; });
  return waiting;
}

void MatchingEngine::grow_slow() noexcept {
  with_all_locks([this] {
    is_crowded_.store(false, std::memory_order_relaxed);  // a hint
    const Table table = table_.load(std::memory_order_relaxed);
    const std::uint32_t count = bucket_count_of(table);
    const std::span old(buckets_.get(), count);
    std::uint64_t keys = 0;
    for (Bucket& bucket : old) keys += bucket.find_if([](std::uint64_t) { return false; }).keys;
    const std::uint32_t more = count * kGrowth;
    Buckets made = keys > count && more <= kBucketCountMax ? make_buckets(more) : nullptr;
    std::unique_ptr<Outgrown> outgrown(made == nullptr ? nullptr : new (std::nothrow) Outgrown);
    if (outgrown == nullptr) {  // the next attempt is later
      crowded_chain_.store(2 * crowded_chain_.load(std::memory_order_relaxed),
                           std::memory_order_relaxed);
      return;
    }
    const Table grown = table_of(made.get(), static_cast<std::uint32_t>(std::countr_zero(more)));
    for (std::uint32_t i = 0; i < count; ++i) {
      Bucket& counts = made[std::size_t{i} * kGrowth];
      counts.waiting = old[i].waiting;
      counts.posted = old[i].posted;
      counts.unexpected = old[i].unexpected;
      while (MatchLink* const first = take_queue(old[i]))
        bucket_of(grown, first->word).put_queue(*first);
    }
    outgrown->buckets = std::exchange(buckets_, std::move(made));
    outgrown->older = std::exchange(outgrown_, nullptr);
    outgrown_ = std::move(outgrown);
    crowded_chain_.store(kCrowdedChain, std::memory_order_relaxed);
    table_.store(grown, std::memory_order_release);  // pairs with table()
  });
}

}  // namespace larklane::msg
