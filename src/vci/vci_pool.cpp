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
  return Options{lane_count(*mapping, config.vci_count_max, core_count()), *mapping,
                 config.vci_misses_max};
}

VciPool::VciPool(net::Fabric& fabric, Receivers& receivers, Options options) noexcept
    : fabric_(fabric), receivers_(receivers), options_(options) {}

VciPool::~VciPool() {
  VciPool* before = next_;
  while (before->next_ != this) before = before->next_;
  before->next_ = next_;
}

std::uint32_t VciPool::choose(std::uint32_t from, std::uint64_t communicator) const noexcept {
  constexpr std::uint32_t kDead = ~0u;
  std::array<std::uint32_t, kCountMax> channels;
  for (std::uint32_t index = 0; index < options_.count_max; ++index) {
    const Vci* const vci = made(index);
    // relaxed: numbers. Two threads that choose at the same time may choose the same.
    channels[index] =
        vci != nullptr && vci->is_dead() ? kDead : channels_[index].load(std::memory_order_relaxed);
  }
  const std::span used(channels.data(), options_.count_max);
  std::uint32_t chosen = from;
  if (options_.mapping == Mapping::thread)
    chosen = static_cast<std::uint32_t>(thread_ordinal() % options_.count_max);
  else if (options_.mapping == Mapping::communicator)
    chosen = static_cast<std::uint32_t>(communicator % options_.count_max);
  else
    return least_used(used, from);
  return used[chosen] == kDead ? least_used(used, from) : chosen;
}

Result<Vci*> VciPool::at(std::uint32_t index) {
  if (Vci* const vci = made(index)) return vci;
  const std::scoped_lock lock(mutex_);
  if (owned_[index] != nullptr) return owned_[index].get();
  auto vci = Vci::create(fabric_, receivers_.of_lane(index));
  if (!vci) return vci.error();
  owned_[index] = std::move(vci).value();
  // release: of a lane that is ready; pairs with made()'s acquire.
  made_[index].store(owned_[index].get(), std::memory_order_release);
  return owned_[index].get();
}

std::uint32_t VciPool::progress(Vci& own) noexcept {
  thread_local constinit MissedTurns missed;
  const std::uint32_t found = own.progress();
  if (!missed.add(found != 0, options_.misses_max)) return found;
  return found + progress_elsewhere(own);
}

[[gnu::noinline]] std::uint32_t VciPool::progress_elsewhere(const Vci& own) noexcept {
  std::uint32_t found = progress_others(&own);
  for (VciPool* pool = next_; pool != this; pool = pool->next_) found += pool->progress_all();
  return found;
}

std::uint32_t VciPool::progress_others(const Vci* own) noexcept {
  std::uint32_t found = 0;
  for_each([&](Vci& vci) {
    if (&vci != own) found += vci.progress();
  });
  return found;
}

}  // namespace larklane::vci
