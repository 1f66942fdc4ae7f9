#pragma once
// The lanes of one fabric: made when the first channel wants them, up to a limit.
// (Zambre et al., ICS'20, sections 4 and 5.)

#include <array>
#include <atomic>
#include <cassert>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "base/config.hpp"
#include "base/status.hpp"
#include "net/provider.hpp"
#include "vci/mapping.hpp"
#include "vci/vci.hpp"

namespace larklane::vci {

// Thread safety: thread-safe.
// Invariants:
// 1. A lane that was made lives as long as the pool; a place on it is free again when its channel
//    gives it back.
// 2. A thread that calls progress() again and again polls every lane again and again, of the pools
//    that wait together with this one, too.
class VciPool {
 public:
  static constexpr std::uint32_t kCountMax = 64;  ///< range of option vci_count_max
  struct Options {
    std::uint32_t count_max = 1;  ///< 1..kCountMax
    Mapping mapping = Mapping::spread;
    std::uint32_t misses_max = 256;
    /// @errors kBadOption
    static Result<Options> of(const Config& config);
  };

  /// The receivers of a lane's arrivals.
  class Receivers {
   public:
    virtual ~Receivers() = default;
    /// Before the lane is made; the answer outlives the pool.
    virtual net::Receiver& of_lane(std::uint32_t index) = 0;
  };
  /// A channel's place on a lane, until it is destroyed. Thread safety: single-owner.
  class Place {
   public:
    Place() noexcept = default;
    explicit Place(std::atomic<std::uint32_t>& count) noexcept : count_(&count) {
      count.fetch_add(1, std::memory_order_relaxed);  // relaxed: numbers, as in choose()
    }
    Place(Place&& other) noexcept : count_(std::exchange(other.count_, nullptr)) {}
    Place& operator=(Place&& other) noexcept {
      std::swap(count_, other.count_);
      return *this;
    }
    ~Place() {
      if (count_ != nullptr) count_->fetch_sub(1, std::memory_order_relaxed);
    }

   private:
    std::atomic<std::uint32_t>* count_ = nullptr;
  };

  VciPool(net::Fabric& fabric, Receivers& receivers, Options options) noexcept;
  ~VciPool();
  VciPool(const VciPool&) = delete;
  VciPool& operator=(const VciPool&) = delete;
  const net::Fabric& fabric() const noexcept { return fabric_; }

  std::uint32_t count_max() const noexcept { return options_.count_max; }
  /// The lane of a new channel that the calling thread makes; a dead one only if all are.
  /// @param from  below count_max: the first of those that are as good
  /// @param communicator  any number of it
  std::uint32_t choose(std::uint32_t from, std::uint64_t communicator) const noexcept;
  /// @param index  below count_max
  Place take_place(std::uint32_t index) noexcept { return Place(channels_[index]); }
  /// @param index  below count_max; made if it is not there @errors those of Vci::create
  Result<Vci*> at(std::uint32_t index);

  /// A thread that waits for a lane of one pool polls those of the other, too: its operation may
  /// depend on a peer that waits for this process on another network. Call it before any lane is
  /// polled; when one pool is destroyed, no thread waits. @param other  waits together with none
  /// yet
  void wait_together(VciPool& other) noexcept {
    assert(other.next_ == &other);
    std::swap(next_, other.next_);
  }

  /// For a thread that waits for a post on `own`: one turn there. When too many of its turns have
  /// found nothing, one of every other lane, too. @return as Vci::progress()
  std::uint32_t progress(Vci& own) noexcept;
  /// One turn of every lane, for a thread that waits for none of them: the helper.
  std::uint32_t progress_all() noexcept { return progress_others(nullptr); }

  /// visit(Vci&), for every lane that was made.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (std::uint32_t index = 0; index < options_.count_max; ++index)
      if (Vci* const vci = made(index)) visit(*vci);
  }

 private:
  std::uint32_t progress_others(const Vci* own) noexcept;
  std::uint32_t progress_elsewhere(const Vci& own) noexcept;
  /// Null: not yet. acquire: pairs with at()'s release.
  Vci* made(std::uint32_t index) const noexcept {
    return made_[index].load(std::memory_order_acquire);
  }

  net::Fabric& fabric_;
  Receivers& receivers_;
  const Options options_;
  VciPool* next_ = this;  ///< a ring: those that wait together
  std::array<std::atomic<std::uint32_t>, kCountMax> channels_{};
  std::array<std::atomic<Vci*>, kCountMax> made_{};
  std::mutex mutex_;                                   // of the thread that makes a lane
  std::array<std::unique_ptr<Vci>, kCountMax> owned_;  // guarded by mutex_
};

}  // namespace larklane::vci
