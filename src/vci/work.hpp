#pragma once
// Works: operations that are posted on a lane.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "net/provider.hpp"

namespace larklane::vci {

/// A post, with all that it takes: the poster's memory from Vci::post() to Operation::complete,
/// which may post it again, or free it.
/// Thread safety: single-owner.
struct Work : net::Operation {
  enum class Kind : std::uint8_t {
    write,
    write_immediate,
    small,
    small_immediate,
    small_wide,
    read,
    probe,
    settle,
  };
  static constexpr std::size_t kKindCount = 8;
  static constexpr std::size_t kSmallBytesMax = 16;
  /// As small_bytes: they are those that `transfer` names, of any memory that stays.
  static constexpr std::uint8_t kSmallOfTransfer = 0xff;

  Kind kind = Kind::write;
  std::uint8_t small_bytes = 0;  ///< in `small`; no more than Limits::small_bytes_max
  std::uint32_t immediate = 0;
  net::Link* link = nullptr;
  net::PostPrepared post_prepared = nullptr;  ///< its link's, of a write_immediate; null: it is not
  net::Transfer transfer{};  ///< of any length; of small ones in `small`: `remote` only
  std::byte small[kSmallBytesMax] = {};

  /// Of a small_wide, which has no bytes in `small`: the upper half of its immediate is there.
  void set_wide_immediate(std::uint32_t upper, std::uint32_t lower) noexcept {
    std::memcpy(small, &upper, sizeof upper);
    immediate = lower;
  }
  std::uint64_t wide_immediate() const noexcept {
    std::uint32_t upper = 0;
    std::memcpy(&upper, small, sizeof upper);
    return std::uint64_t{upper} << 32 | immediate;
  }

  // The lane's, from post() to Operation::complete.
  Work* next = nullptr;  ///< while it waits
  /// How far a transfer is that is longer than one operation may be.
  struct Cut {
    std::uint64_t bytes = 0;      ///< posted
    std::uint32_t under_way = 0;  ///< chunks
    bool is_out = false;          ///< no chunk is left to be posted before the others are complete
    Status failure{};             ///< the first
  } cut;
};

/// Works that wait for room on their links, in order for each link; through Work::next and
/// net::Link::lane_space. Thread safety: single-owner.
class WaitingWorks {
 public:
  bool empty() const noexcept { return links_ == nullptr; }
  bool has_some_of(const net::Link& link) const noexcept { return link.lane_space[kFirst]; }

  void push_back(Work& work) noexcept {
    Row row(*work.link);
    if (row.empty()) add(*work.link);
    row.push_back(work);
  }
  void push_front(Work& work) noexcept {
    Row row(*work.link);
    if (row.empty()) add(*work.link);
    row.push_front(work);
  }
  /// For each link, as long as send(work) says that the work need not wait any more. A callback of
  /// it adds no link.
  template <class Send>
  void send_each(Send&& send) noexcept {
    void** at = &links_;
    while (*at != nullptr) {
      net::Link& link = *static_cast<net::Link*>(*at);
      Row row(link);
      bool has_room = true;
      while (has_room && !row.empty()) {
        Work& work = row.pop_front();
        has_room = send(work);
        if (!has_room) row.push_front(work);
      }
      if (has_room)
        *at = link.lane_space[kNextLink];
      else
        at = &link.lane_space[kNextLink];
    }
  }

 private:
  enum : std::size_t { kFirst, kLast, kNextLink };

  /// Of one link.
  class Row {
   public:
    explicit Row(net::Link& link) noexcept : space_(link.lane_space) {}
    bool empty() const noexcept { return space_[kFirst] == nullptr; }
    void push_back(Work& work) noexcept {
      work.next = nullptr;
      if (empty())
        space_[kFirst] = &work;
      else
        static_cast<Work*>(space_[kLast])->next = &work;
      space_[kLast] = &work;
    }
    void push_front(Work& work) noexcept {
      work.next = static_cast<Work*>(space_[kFirst]);
      if (empty()) space_[kLast] = &work;
      space_[kFirst] = &work;
    }
    /// @pre not empty
    Work& pop_front() noexcept {
      Work& work = *static_cast<Work*>(space_[kFirst]);
      space_[kFirst] = work.next;
      return work;
    }

   private:
    void** space_;
  };
  void add(net::Link& link) noexcept {
    void** at = &links_;
    while (*at != nullptr) at = &static_cast<net::Link*>(*at)->lane_space[kNextLink];
    link.lane_space[kNextLink] = nullptr;
    *at = &link;
  }

  void* links_ = nullptr;  // links with waiting works, the first
};

}  // namespace larklane::vci
