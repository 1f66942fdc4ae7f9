#include "msg/completion/completion_domain.hpp"

#include <bit>

namespace larklane {

using msg::Object;

namespace {

bool discard(Object&, msg::Node&) noexcept { return true; }

}  // namespace

CompletionDomain::~CompletionDomain() {
  while (closing_ != nullptr) delete std::exchange(closing_, closing_->next_closing);
}

Result<std::uint32_t> CompletionDomain::take_index_locked() noexcept {
  for (std::uint32_t word = 0; word < taken_.size(); ++word) {
    const auto bit = static_cast<std::uint32_t>(std::countr_one(taken_[word]));
    if (bit == kWordBits) continue;
    const std::uint32_t index = word * kWordBits + bit;
    LARKLANE_TRY(gone_.cover(index));
    for (msg::Ledger* ledger = ledgers_; ledger != nullptr; ledger = ledger->next_)
      LARKLANE_TRY(ledger->counts_.cover(index));
    taken_[word] |= std::uint64_t{1} << bit;
    return index;
  }
  return Errc::kNoMemory;
}

Status CompletionDomain::adopt(std::unique_ptr<Object> object) noexcept {
  const std::scoped_lock lock(mutex_);
  delete_closing_locked();
  Result<std::uint32_t> index = take_index_locked();
  if (!index) return index.error();
  object->domain = this;
  object->index = *index;
  (void)object.release();
  return {};
}

std::uint32_t CompletionDomain::in_flight_locked(std::uint32_t index) const noexcept {
  std::uint32_t over = gone_.over(index), posted = gone_.posted(index);
  for (const msg::Ledger* ledger = ledgers_; ledger != nullptr; ledger = ledger->next_)
    over += ledger->counts_.over(index);
  for (const msg::Ledger* ledger = ledgers_; ledger != nullptr; ledger = ledger->next_)
    posted += ledger->counts_.posted(index);
  return posted - over;
}

bool CompletionDomain::delete_if_unused_locked(Object& object) noexcept {
  const std::uint32_t index = object.index;
  if (in_flight_locked(index) != 0) return false;
  delete &object;
  taken_[index / kWordBits] &= ~(std::uint64_t{1} << index % kWordBits);
  return true;
}

void CompletionDomain::delete_closing_locked() noexcept {
  Object** at = &closing_;
  while (*at != nullptr) {
    Object& object = **at;
    Object* const next = object.next_closing;
    if (delete_if_unused_locked(object))
      *at = next;
    else
      at = &object.next_closing;
  }
}

void CompletionDomain::withdraw_locked(Object& object) noexcept {
  if (object.number != 0) registry_.remove(std::exchange(object.number, 0));
}

Status CompletionDomain::free(Object& object) noexcept {
  if (!maker_.is_this_process()) return {};
  const std::scoped_lock lock(mutex_);
  delete_closing_locked();
  withdraw_locked(object);
  return delete_if_unused_locked(object) ? Errc::kOk : Errc::kAlreadyActive;
}

void CompletionDomain::destroy(Object& object) noexcept {
  if (!maker_.is_this_process()) return;
  const std::scoped_lock lock(mutex_);
  withdraw_locked(object);
  // relaxed: a function pointer. A signal that loads the old one reaches an object that still
  // exists.
  object.deliver.store(discard, std::memory_order_relaxed);
  object.next_closing = std::exchange(closing_, &object);
  delete_closing_locked();
}

Result<RemoteCompletion> CompletionDomain::register_remote(Object& object) noexcept {
  const std::scoped_lock lock(mutex_);
  if (object.number == 0) {
    Result<RemoteCompletion> number = registry_.add(object);
    if (!number) return number;
    object.number = *number;
  }
  return object.number;
}

void CompletionDomain::deregister_remote(Object& object) noexcept {
  const std::scoped_lock lock(mutex_);
  withdraw_locked(object);
}

Status CompletionDomain::attach(msg::Ledger& ledger) noexcept {
  const std::scoped_lock lock(mutex_);
  LARKLANE_TRY(ledger.counts_.cover_all(gone_));
  ledger.next_ = std::exchange(ledgers_, &ledger);
  ledger.is_attached_ = true;
  return {};
}

void CompletionDomain::detach(msg::Ledger& ledger) noexcept {
  const std::scoped_lock lock(mutex_);
  msg::Ledger** at = &ledgers_;
  while (*at != &ledger) at = &(*at)->next_;
  *at = ledger.next_;
  gone_.absorb(ledger.counts_);
}

}  // namespace larklane
