#include "shm/region.hpp"

#include <unistd.h>

namespace larklane::shm {

Result<void*> Regions::allocate(std::uint64_t bytes) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  auto segment = Segment::create((bytes + page - 1) / page * page);
  if (!segment) return segment.error();
  std::byte* base = (*segment)->base();
  const std::scoped_lock lock(mutex_);
  regions_.emplace(reinterpret_cast<std::uintptr_t>(base),
                   Region{std::move(segment).value(), ++last_id_});
  return static_cast<void*>(base);
}

bool Regions::release(void* base) {
  const std::scoped_lock lock(mutex_);
  return regions_.erase(reinterpret_cast<std::uintptr_t>(base)) != 0;
}

std::optional<Mapped> Regions::find(std::uintptr_t address, std::uint64_t bytes) const {
  const std::scoped_lock lock(mutex_);
  auto after = regions_.upper_bound(address);
  if (after == regions_.begin()) return std::nullopt;
  const auto& [base, region] = *--after;
  const std::uint64_t offset = address - base;
  const std::uint64_t size = region.segment->bytes();
  if (offset > size || bytes > size - offset) return std::nullopt;
  return Mapped{region.segment, region.id, offset};
}

}  // namespace larklane::shm
