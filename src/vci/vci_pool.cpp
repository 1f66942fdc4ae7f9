#include "vci/vci_pool.hpp"

#include <sched.h>

#include <utility>

namespace larklane::vci {
namespace {

/// Cores that this process may use; 1 if that can't be told.
std::uint32_t core_count() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<std::uint32_t>(CPU_COUNT(&set));
}

/// How many threads have asked before the calling one did.
std::uint64_t thread_ordinal() noexcept {
  static constinit std::atomic<std::uint64_t> asked{0};
  // relaxed: numbers, nothing hangs on them.
  thread_local const std::uint64_t mine = asked.fetch_add(1, std::memory_order_relaxed);
  return mine;
}

}  // namespace

Result<VciPool::Options> VciPool::Options::of(const Config& config) {
  Result<Mapping> mapping = parse_mapping(config.vci_mapping);
  if (!mapping) return mapping.error();
  return Options{lane_count(config.vci_count_max, core_count()), *mapping, config.vci_misses_max};
}

VciPool::VciPool(net::Fabric& fabric, net::Receiver& receiver, Options options) noexcept
    : fabric_(fabric), receiver_(receiver), options_(options) {}

Result<Vci*> VciPool::for_channel() {
  // relaxed: numbers, nothing hangs on them.
  const std::uint64_t channel = channels_.fetch_add(1, std::memory_order_relaxed);
  // Only where it is asked for: a thread has one number in all pools.
  const std::uint64_t thread = options_.mapping == Mapping::thread ? thread_ordinal() : 0;
  return at(lane_of(options_.mapping, channel, thread, options_.count_max));
}

Result<Vci*> VciPool::at(std::uint32_t index) {
  // acquire: pairs with the release below.
  if (Vci* const made = made_[index].load(std::memory_order_acquire)) return made;
  const std::scoped_lock lock(mutex_);
  if (owned_[index] != nullptr) return owned_[index].get();
  auto vci = Vci::create(fabric_, receiver_);
  if (!vci) return vci.error();
  owned_[index] = std::move(vci).value();
  // release: of a lane that is ready; pairs with the acquires of who finds it.
  made_[index].store(owned_[index].get(), std::memory_order_release);
  return owned_[index].get();
}

std::uint32_t VciPool::progress(Vci& own) noexcept {
  thread_local constinit MissedTurns missed;
  const std::uint32_t found = own.progress();
  if (!missed.add(found != 0, options_.misses_max)) return found;
  return found + progress_others(&own);
}

std::uint32_t VciPool::progress_others(const Vci* own) noexcept {
  std::uint32_t found = 0;
  for_each([&](Vci& vci) {
    if (&vci != own) found += vci.progress();
  });
  return found;
}

}  // namespace larklane::vci
