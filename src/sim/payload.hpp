#pragma once
// The bytes of a simulated message. They say which partition of which round they are, so that a
// wrong, an early or a missing one is seen.
// Thread safety: single-owner.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "part/protocol/layout.hpp"
#include "sim/scenario.hpp"

namespace larklane::sim {

class Payload {
 public:
  Payload(std::uint32_t partitions, std::uint64_t partition_bytes)
      : partition_bytes_(partition_bytes),
        bytes_(std::min(partition_bytes, kPayloadBytesMax)),
        send_(partitions * bytes_),
        receive_(send_.size()),
        ready_(partitions) {}

  /// Nothing of the round is ready, nothing has arrived.
  void clear() {
    std::ranges::fill(send_, kGarbage);
    std::ranges::fill(receive_, kPoison);
    ready_.assign(ready_.size(), false);
  }
  void fill(std::uint64_t round, std::uint32_t partition) {
    for (std::uint64_t i = partition * bytes_; i < (partition + 1) * bytes_; ++i)
      send_[i] = byte_of(round, i);
    ready_[partition] = true;
  }
  /// A NIC may read them from now on.
  bool are_ready(part::Run run) const {
    const auto first = ready_.begin() + static_cast<std::ptrdiff_t>(run.first);
    return std::all_of(first, first + static_cast<std::ptrdiff_t>(run.count), std::identity());
  }
  void move(part::Run run) {
    std::copy_n(send_.begin() + offset(run.first), run.count * bytes_,
                receive_.begin() + offset(run.first));
  }
  /// Of the message's bytes [offset, offset + length) those that exist, as one mover of several.
  /// @return false: one of them was not ready
  bool move_bytes(std::uint64_t offset, std::uint64_t length) {
    const std::uint64_t end = offset + length;
    bool were_ready = true;
    for (std::uint64_t p = offset / partition_bytes_; p * partition_bytes_ < end; ++p) {
      const std::uint64_t begin = p * partition_bytes_;
      were_ready = were_ready && ready_[p];
      for (std::uint64_t i = 0; i < bytes_; ++i)
        if (begin + i >= offset && begin + i < end)
          receive_[p * bytes_ + i] = send_[p * bytes_ + i];
    }
    return were_ready;
  }
  bool has_arrived(std::uint64_t round) const {
    for (std::uint64_t i = 0; i < receive_.size(); ++i)
      if (receive_[i] != byte_of(round, i)) return false;
    return true;
  }

 private:
  static constexpr std::byte kGarbage{0xc3}, kPoison{0xa5};

  static std::byte byte_of(std::uint64_t round, std::uint64_t index) {
    return std::byte(1 + (index * 7 + round * 41) % 127);
  }
  std::ptrdiff_t offset(std::uint32_t partition) const {
    return static_cast<std::ptrdiff_t>(partition * bytes_);
  }

  const std::uint64_t partition_bytes_;
  const std::uint64_t bytes_;  // of a partition, those that exist
  std::vector<std::byte> send_, receive_;
  std::vector<bool> ready_;  // by partition
};

}  // namespace larklane::sim
