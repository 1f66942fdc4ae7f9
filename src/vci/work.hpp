#pragma once
// What is posted on a lane.

#include <cstddef>
#include <cstdint>

#include "net/provider.hpp"

namespace larklane::vci {

/// A post, with all that it takes: the poster's memory from Vci::post() to Operation::complete,
/// which may post it again, or free it.
/// Thread safety: single-owner.
struct Work : net::Operation {
  enum class Kind : std::uint8_t { write, write_immediate, small, small_immediate, read };
  static constexpr std::size_t kSmallBytesMax = 16;

  Kind kind = Kind::write;
  std::uint8_t small_bytes = 0;  ///< no more than Limits::small_bytes_max
  std::uint32_t immediate = 0;
  net::Link* link = nullptr;
  net::Transfer transfer{};  ///< of any length; of small ones: `remote` only
  std::byte small[kSmallBytesMax] = {};

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

/// Works in a row, through Work::next. Thread safety: single-owner.
class WorkRow {
 public:
  bool empty() const noexcept { return first_ == nullptr; }
  void push_back(Work& work) noexcept {
    work.next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = &work;
    last_ = &work;
  }
  void push_front(Work& work) noexcept {
    work.next = first_;
    if (first_ == nullptr) last_ = &work;
    first_ = &work;
  }
  /// @pre not empty
  Work& pop_front() noexcept {
    Work& work = *first_;
    first_ = work.next;
    return work;
  }

 private:
  Work* first_ = nullptr;
  Work* last_ = nullptr;  // of an empty row: whatever
};

}  // namespace larklane::vci
