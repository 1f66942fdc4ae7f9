#pragma once
// Mapped buffers: memory of the program that peers may map, so that both sides see it and a plain
// copy moves the data.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "shm/segment.hpp"

namespace larklane::shm {

/// Part of a region: where a buffer lies in it.
struct Mapped {
  std::shared_ptr<Segment> segment;
  std::uint32_t region_id;
  std::uint64_t offset;
};

/// The mapped memory of this process. Thread safety: thread-safe.
class Regions {
 public:
  /// @param bytes  > 0; rounded up to whole pages
  /// @errors kNoMemory
  Result<void*> allocate(std::uint64_t bytes);
  /// False: not one of ours.
  bool release(void* base);
  /// The region that holds all of [address, address + bytes), if one does.
  std::optional<Mapped> find(std::uintptr_t address, std::uint64_t bytes) const;

 private:
  struct Region {
    std::shared_ptr<Segment> segment;
    std::uint32_t id;
  };
  mutable std::mutex mutex_;
  std::map<std::uintptr_t, Region> regions_;  // by base address
  std::uint32_t last_id_ = 0;
};

}  // namespace larklane::shm
