#include "msg/completion/ledger.hpp"

#include <new>

#include "msg/completion/completion_domain.hpp"

namespace larklane::msg {

Status Counts::cover(std::uint32_t index) noexcept {
  std::unique_ptr<Page>& page = pages_[index / kPageEntries];
  if (page == nullptr) page.reset(new (std::nothrow) Page);
  return page == nullptr ? Errc::kNoMemory : Errc::kOk;
}

Status Counts::cover_all(const Counts& other) noexcept {
  for (std::uint32_t page = 0; page < pages_.size(); ++page)
    if (other.pages_[page] != nullptr) LARKLANE_TRY(cover(page * kPageEntries));
  return {};
}

void Counts::absorb(const Counts& other) noexcept {
  for (std::uint32_t index = 0; index < kObjectsMax; ++index) {
    if (other.pages_[index / kPageEntries] == nullptr) continue;
    at(index).posted.fetch_add(other.posted(index), std::memory_order_relaxed);  // under the mutex
    add_over(index, other.over(index));
  }
}

Result<std::unique_ptr<Ledger>> Ledger::create(CompletionDomain& domain) noexcept {
  std::unique_ptr<Ledger> ledger(new (std::nothrow) Ledger(domain));
  if (ledger == nullptr) return Errc::kNoMemory;
  LARKLANE_TRY(domain.attach(*ledger));
  return Result<std::unique_ptr<Ledger>>(std::move(ledger));
}

Ledger::~Ledger() {
  if (is_attached_) domain_.detach(*this);
}

}  // namespace larklane::msg
