#pragma once
// The lanes of one fabric: made when the first channel wants them, up to a limit.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/config.hpp"
#include "base/status.hpp"
#include "net/provider.hpp"
#include "vci/mapping.hpp"
#include "vci/vci.hpp"

namespace larklane::vci {

// Thread safety: thread-safe.
// Invariants:
// 1. A lane that was made lives as long as the pool.
// 2. A thread that calls progress() again and again polls every lane again and again.
class VciPool {
 public:
  static constexpr std::uint32_t kCountMax = 64;  ///< range of option vci_count_max
  struct Options {
    std::uint32_t count_max = 1;  ///< 1..kCountMax
    Mapping mapping = Mapping::round_robin;
    std::uint32_t misses_max = 256;
    /// @errors kBadOption
    static Result<Options> of(const Config& config);
  };

  /// @param receiver  outlives the pool; several lanes may call it at the same time
  VciPool(net::Fabric& fabric, net::Receiver& receiver, Options options) noexcept;

  /// The lane of a new channel that the calling thread makes. @errors those of Vci::create
  Result<Vci*> for_channel();
  /// @param index  below count_max; made if it is not there @errors those of Vci::create
  Result<Vci*> at(std::uint32_t index);

  /// For a thread that waits for what was posted on `own`: one turn there; when too many of its
  /// turns have found nothing, one of every other lane, too. @return as Vci::progress()
  std::uint32_t progress(Vci& own) noexcept;
  /// One turn of every lane, for who waits for none of them: the helper.
  std::uint32_t progress_all() noexcept { return progress_others(nullptr); }

  /// visit(Vci&), for every lane that was made.
  template <class Visit>
  void for_each(Visit&& visit) {
    for (std::atomic<Vci*>& place : made_) {
      // acquire: pairs with at()'s release.
      if (Vci* const vci = place.load(std::memory_order_acquire)) visit(*vci);
    }
  }

 private:
  std::uint32_t progress_others(const Vci* own) noexcept;

  net::Fabric& fabric_;
  net::Receiver& receiver_;
  const Options options_;
  std::atomic<std::uint64_t> channels_{0};
  std::array<std::atomic<Vci*>, kCountMax> made_{};
  std::mutex mutex_;                                   // of who makes one
  std::array<std::unique_ptr<Vci>, kCountMax> owned_;  // guarded by mutex_
};

}  // namespace larklane::vci
