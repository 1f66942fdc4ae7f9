#pragma once
// Registered memory, by the provider's rules (fi_mr(3)).

#include <rdma/fabric.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/random.hpp"
#include "base/status.hpp"
#include "net/ofi/handles.hpp"
#include "net/provider.hpp"

namespace larklane::ofi {

/// Thread safety: immutable.
class Memory final : public net::Memory {
 public:
  /// @param start  counted from by peers, or nullptr if they count from 0
  Memory(Fid<fid_mr> region, std::unique_ptr<std::byte> nothing, const void* start) noexcept;
  net::RemoteMemory remote() const noexcept override { return remote_; }
  /// The descriptor for posts with local buffers in it.
  void* descriptor() const noexcept { return descriptor_; }

 private:
  std::unique_ptr<std::byte> nothing_;
  Fid<fid_mr> region_;
  net::RemoteMemory remote_;
  void* descriptor_;
};

/// Registers memory with one domain, by keys that can't be guessed where the provider takes ours.
/// Thread safety: thread-safe.
class Registrar {
 public:
  using FillRandom = Status (*)(std::span<std::byte> bytes);
  /// @param domain  outlives it
  Registrar(fid_domain& domain, const fi_domain_attr& attributes,
            FillRandom random = &fill_random) noexcept;
  /// @errors kNoMemory, kSystem
  Result<std::unique_ptr<net::Memory>> add(void* start, std::uint64_t bytes);

 private:
  Result<std::uint64_t> fresh_key() noexcept;

  fid_domain& domain_;
  const int mode_;
  const std::uint64_t key_mask_;
  const FillRandom random_;
};

}  // namespace larklane::ofi
