#include "control/helper/watches.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/log.hpp"
#include "control/helper/bell.hpp"

namespace larklane::control {

namespace {

/// The first rest, and the longest. A rest after which the application's threads are still active
/// doubles the next one. Only their activity in the last kRestNsMin of a rest counts.
constexpr std::uint64_t kRestNsMin = 100'000, kRestNsMax = 1'600'000;

}  // namespace

void Watched::turn_on() noexcept {
  // acq_rel: the helper, which reads the word with acquire, sees all that the caller has prepared
  const std::uint32_t before = state_.fetch_add(kUse, std::memory_order_acq_rel);
  if (before == 0 && bell_ != nullptr) bell_->ring();
}

void Watched::look_again() noexcept {
  if (bell_ != nullptr) bell_->ring();
}

void Watched::take_over() noexcept {
  // relaxed: a hint; an old value costs a ring
  if (is_slept_on_.exchange(false, std::memory_order_relaxed)) bell_->ring();
}

void Watched::turn_off() noexcept {
  // release: pairs with the helper's acquire, so the helper may drop data that the caller has
  // finished
  state_.fetch_sub(kUse, std::memory_order_release);
}

void Watches::add(Watched& watched, const Bell& bell) {
  watched.bell_ = &bell;
  const std::lock_guard lock(mutex_);
  added_.push_back(&watched);
}

void Watches::take_added() {
  const std::lock_guard lock(mutex_);
  for (Watched* const watched : added_) {
    entries_.push_back(std::make_unique<Entry>(Entry{watched}));
    entries_.back()->source.object = entries_.back().get();
  }
  added_.clear();
}

void Watches::remove(Watched& watched) {
  take_added();
  const auto at = std::find_if(entries_.begin(), entries_.end(),
                               [&](const auto& entry) { return entry->watched == &watched; });
  if (at == entries_.end()) return;
  Entry& entry = **at;
  disarm(entry);
  // relaxed: nothing is published through kArmed, and only the helper changes it
  watched.state_.fetch_and(~Watched::kArmed, std::memory_order_relaxed);
  watched.bell_ = nullptr;
  entry.watched = nullptr;  // before_sleep() erases it, outside of its loop
}

bool Watches::arm(Entry& entry) {
  Watched& watched = *entry.watched;
  // acquire: pairs with turn_on() acq_rel
  if (watched.state_.load(std::memory_order_acquire) == 0) return false;
  const Status added = control::watch(epoll_, watched.fd(), EPOLLIN, &entry.source);
  if (!added.ok()) {
    log_warn_once("control watched", "control: descriptor %d can't be slept on: %s; polled",
                  watched.fd(), std::strerror(added.detail()));
    must_poll_ = true;
    watched.serve();
    return false;
  }
  entry.is_armed = true;
  // acq_rel: as in turn_on(), whose later calls find kArmed
  watched.state_.fetch_or(Watched::kArmed, std::memory_order_acq_rel);
  return true;
}

void Watches::disarm(Entry& entry) {
  if (entry.is_armed) control::unwatch(epoll_, entry.watched->fd());
  entry.is_armed = entry.is_resting = false;
  entry.watched->is_slept_on_.store(false, std::memory_order_relaxed);  // relaxed: a hint
}

bool Watches::rests(Entry& entry) {
  Watched& watched = *entry.watched;
  const bool was_resting = std::exchange(entry.is_resting, false);
  // acquire: pairs with turn_on() acq_rel
  if (watched.state_.load(std::memory_order_acquire) == 0) return false;
  if (!watched.is_served_by_others() || !is_on(entry)) return false;
  if (was_resting) {
    entry.is_counting = !entry.is_counting && entry.rest_ns != kRestNsMin;
    if (!entry.is_counting) entry.rest_ns = std::min(2 * entry.rest_ns, kRestNsMax);
    return entry.is_resting = true;
  }
  disarm(entry);
  entry.rest_ns = kRestNsMin;
  entry.is_counting = false;
  // acq_rel: as in arm()
  watched.state_.fetch_or(Watched::kArmed, std::memory_order_acq_rel);
  return entry.is_resting = true;
}

bool Watches::is_on(Entry& entry) {
  std::uint32_t off = Watched::kArmed;
  // acquire in any case: pairs with turn_on() acq_rel and turn_off() release
  if (!entry.watched->state_.compare_exchange_strong(off, 0, std::memory_order_acq_rel,
                                                     std::memory_order_acquire))
    return true;
  disarm(entry);
  return false;
}

std::uint64_t Watches::next_time_ns() const noexcept {
  std::uint64_t next = Watched::kNever;
  for (const auto& entry : entries_)
    if (entry->watched != nullptr && (entry->is_armed || entry->is_resting))
      next = std::min(next, entry->watched->next_time_ns());
  return next;
}

void Watches::on_time(std::uint64_t now_ns) {
  // by index: on_time() may add and remove
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = *entries_[i];
    if (entry.watched == nullptr || !(entry.is_armed || entry.is_resting)) continue;
    if (entry.watched->next_time_ns() <= now_ns && is_on(entry)) entry.watched->on_time(now_ns);
  }
}

bool Watches::before_sleep() {
  take_added();
  bool may_sleep = true;
  must_poll_ = false;
  rest_ns_ = 0;
  // by index: serve() may add and remove
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = *entries_[i];
    if (entry.watched == nullptr) continue;
    if (rests(entry)) {
      const std::uint64_t rest_ns = entry.is_counting ? kRestNsMin : entry.rest_ns;
      rest_ns_ = rest_ns_ == 0 ? rest_ns : std::min(rest_ns_, rest_ns);
      continue;
    }
    if (!entry.is_armed && !arm(entry)) continue;
    if (entry.watched->before_sleep()) {
      entry.watched->is_slept_on_.store(true, std::memory_order_relaxed);  // relaxed: a hint
      continue;
    }
    if (entry.watched != nullptr) serve(entry);
    may_sleep = false;
  }
  const auto gone = std::stable_partition(entries_.begin(), entries_.end(), [](const auto& entry) {
    return entry->watched != nullptr;
  });
  std::move(gone, entries_.end(), std::back_inserter(removed_));
  entries_.erase(gone, entries_.end());
  return may_sleep;
}

void Watches::on_event(void* object) {
  Entry& entry = *static_cast<Entry*>(object);
  if (entry.watched != nullptr && entry.is_armed) serve(entry);
}

}  // namespace larklane::control
