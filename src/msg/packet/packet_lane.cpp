#include "msg/packet/packet_lane.hpp"

#include <algorithm>
#include <new>
#include <span>
#include <utility>

#include "base/clock.hpp"
#include "msg/packet/packet_link.hpp"

namespace larklane::msg {

Result<std::unique_ptr<PacketLane>> PacketLane::create(net::Fabric& fabric, Options options) {
  if (fabric.limits().channel_partitions_max != 0) return Errc::kBadOption;
  auto pool = PacketPool::create(fabric, options.packets, options.record_cells);
  if (!pool) return pool.error();
  std::unique_ptr<PacketPool> long_pool;
  if (fabric.limits().is_post_system_call) {
    auto made =
        PacketPool::create(fabric, kLongPackets, std::max(kLongPacketCells, options.record_cells));
    if (!made) return made.error();
    long_pool = std::move(made).value();
  }
  std::unique_ptr<PacketLane> lane(new (std::nothrow) PacketLane(
      fabric, options, std::move(pool).value(), std::move(long_pool)));
  if (lane == nullptr) return Errc::kNoMemory;
  return lane;
}

Result<std::uint16_t> PacketLane::take_slot(PacketLink& link) {
  constexpr std::uint32_t kSlots = 1u << 16;  // bits of an immediate
  Result<std::uint16_t> taken = Errc::kNoMemory;
  vci_->exclusively([&] {
    for (std::uint32_t i = 0; i < kSlots; ++i) {
      const std::uint32_t slot = (next_slot_ + i) % kSlots;
      if (slot >= slots_.size()) slots_.resize(slot + 1);
      if (slots_[slot] != nullptr) continue;
      slots_[slot] = &link;
      // release: pairs with shows_nothing(); the peer's first record comes later
      link_count_.store(link_count_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
      next_slot_ = slot + 1;
      taken = static_cast<std::uint16_t>(slot);
      return;
    }
  });
  return taken;
}

void PacketLane::clear_slot(std::uint16_t slot) {
  vci_->exclusively([&] {
    std::uint32_t count = watched_count_.load(std::memory_order_relaxed);
    const auto all = std::span(watched_).first(count);
    const auto at = std::find_if(all.begin(), all.end(), [&](const std::atomic<PacketLink*>& link) {
      return link.load(std::memory_order_relaxed) == slots_[slot];
    });
    if (at != all.end()) {
      at->store(all.back().load(std::memory_order_relaxed), std::memory_order_release);
      watched_count_.store(--count, std::memory_order_relaxed);
      has_watched = count != 0;
    }
    slots_[slot] = nullptr;
    // release: of the number of watched ones
    link_count_.store(link_count_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
  });
}

bool PacketLane::watch_locked(PacketLink& link) noexcept {
  const std::uint32_t count = watched_count_.load(std::memory_order_relaxed);
  if (count == kWatchedMax) return false;
  // release: of the link; pairs with looks_empty().
  watched_[count].store(&link, std::memory_order_release);
  watched_count_.store(count + 1, std::memory_order_relaxed);
  has_watched = true;
  return true;
}

[[gnu::flatten]] void PacketLane::on_immediate(std::uint32_t immediate) {
  PacketLink* const link = link_of(immediate);
  if (link == nullptr) [[unlikely]]
    return note_locked(strays_);
  link->arrive(immediate & 0xffff);
}

void PacketLane::on_wide_immediate(std::uint64_t immediate) {
  const auto lower = static_cast<std::uint32_t>(immediate);
  PacketLink* const link = link_of(lower);
  if (link == nullptr) return note_locked(strays_);
  link->arrive_headless(lower & 0xffff, static_cast<std::uint32_t>(immediate >> 32));
}

[[gnu::flatten]] std::uint32_t PacketLane::look(std::uint32_t most) {
  std::uint32_t seen = 0;
  const PacketLink* from = nullptr;
  const std::uint32_t watched = watched_count_.load(std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < watched; ++i) {
    PacketLink* const link = watched_[i].load(std::memory_order_relaxed);
    if (const std::uint32_t count = link->look_locked(most); count != 0) {
      seen += count;
      from = link;
    }
  }
  if (seen == 0) return 0;
  if (long_pool_) {  // where calls are system calls
    look_ahead_slow(*from, seen);
  } else if (seen < std::min(kFew, most)) {
    pause.store(Pause::little_came, std::memory_order_relaxed);
  }
  return seen;
}

/// A place that is read twice, or not at all, while a link leaves: the next call finds its ring.
/// @pre no link is destroyed meanwhile
bool PacketLane::looks_empty() const noexcept {
  // A place below the count has held a link. relaxed: the acquire is the place's
  const std::uint32_t watched = watched_count_.load(std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < watched; ++i) {
    const PacketLink* const link = watched_[i].load(std::memory_order_acquire);
    if (link == nullptr || !link->looks_empty()) return false;
  }
  return true;
}

bool PacketLane::shows_nothing() const noexcept {
  // acquire: pairs with take_slot(). A link that is counted and not watched shows more than these.
  const std::uint32_t links = link_count_.load(std::memory_order_acquire);
  return links == watched_count_.load(std::memory_order_relaxed) && looks_empty();
}

bool PacketLane::look_at_all_locked() noexcept {
  bool is_whole = true;
  for (PacketLink* const link : slots_)
    if (link != nullptr) is_whole &= link->look_whole_locked();
  return is_whole;
}

/// Estimates the calls that the peer makes before this side answers. In a row, the peer sends as
/// many records as in its last row; or, if it has sent more already, a quarter of those again. Each
/// call brings as many as this look has found. If these are many, polls are dear: the peers wait
/// for this side.
[[gnu::noinline]] void PacketLane::look_ahead_slow(const PacketLink& link,
                                                   std::uint32_t seen) noexcept {
  // relaxed: statistics and hints. Credit words answer nothing; a credit word of this turn is
  // counted before it is posted.
  const auto answers =
      static_cast<std::int64_t>(vci_->posts() - credit_words_.load(std::memory_order_relaxed));
  if (row_.link != &link || answers > row_.answers) {
    last_row_ = row_.link == &link ? row_.records : 0;
    row_ = {&link, std::max(answers, row_.answers), 0};
  }
  row_.records += seen;
  std::uint64_t ahead = row_.records / 4;
  if (last_row_ >= row_.records) ahead = last_row_ - row_.records;
  ahead_.store((ahead + seen - 1) / seen, std::memory_order_relaxed);
  looked_at_.store(now_ns(), std::memory_order_relaxed);
  const Pause why = seen >= kFewOfSystemCalls ? Pause::poll_is_dear
                    : ahead != 0              ? Pause::peer_sends_on
                                              : Pause::little_came;
  pause.store(why, std::memory_order_relaxed);
}

PacketCounts PacketLane::counts() const noexcept {
  const auto value = [](const std::atomic<std::uint64_t>& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  return {value(no_room_),      value(no_packet_), value(delivered_),
          value(credit_words_), value(coalesced_), value(strays_)};
}

}  // namespace larklane::msg
