#pragma once
// A request of MPIPCL (github.com/mpi-advance/MPIPCL, version 1.5): partitioned calls in a library
// over the MPI's persistent messages. Option --mpipcl names its file; no header of it is needed.

#include <mpi.h>

#include <array>
#include <cstddef>

#include "measure/options.hpp"
#include "partitioned.hpp"

namespace larklane::bench {

/// Thread safety: several threads may call ready() and arrived(), each for its own partitions; all
/// else is single-owner.
class MpipclRequest {
 public:
  MpipclRequest(const PartitionedEnd& end, const Options& options)
      : calls_(options.mpipcl_calls),
        partitions_(static_cast<int>(end.partitions)),
        is_sent_(end.is_sent) {
    const auto init = call<Init>(is_sent_ ? kPsendInit : kPrecvInit);
    init(end.data, partitions_, static_cast<MPI_Count>(end.bytes / end.partitions), MPI_BYTE,
         end.peer, end.tag, end.comm, MPI_INFO_NULL, memory_.data());
  }
  ~MpipclRequest() { call<int (*)(void*)>(kFree)(memory_.data()); }
  MpipclRequest(const MpipclRequest&) = delete;
  MpipclRequest& operator=(const MpipclRequest&) = delete;

  void start() {
    is_over_ = false;
    call<int (*)(void*)>(kStart)(memory_.data());
  }
  void ready(std::uint32_t partition) {
    call<int (*)(int, void*)>(kPready)(static_cast<int>(partition), memory_.data());
  }
  bool arrived(std::uint32_t partition) {
    int flag = 0;
    call<int (*)(void*, int, int*)>(kParrived)(memory_.data(), static_cast<int>(partition), &flag);
    return flag != 0;
  }
  void wait() {
    if (!is_over_) call<int (*)(void*, MPI_Status*)>(kWait)(memory_.data(), MPI_STATUS_IGNORE);
    is_over_ = true;
  }
  /// MPIP_Test denies that an inactive request is complete.
  bool test() {
    if (is_over_) return true;
    int flag = 0;
    call<int (*)(void*, int*, MPI_Status*)>(kTest)(memory_.data(), &flag, MPI_STATUS_IGNORE);
    is_over_ = flag != 0;
    return is_over_;
  }
  /// A sender's request is not asked: MPIP_Test takes partitions that are not ready for sent.
  bool is_complete() {
    if (is_sent_) return false;
    for (std::uint32_t p = 0; p < static_cast<std::uint32_t>(partitions_); ++p)
      if (!arrived(p)) return false;
    return true;
  }

 private:
  using Init = int (*)(void*, int, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Info, void*);
  /// Places in kMpipclNames.
  enum Call { kPsendInit, kPrecvInit, kStart, kPready, kParrived, kTest, kWait, kFree };

  template <class Function>
  Function call(Call which) const {
    return reinterpret_cast<Function>(calls_[which]);
  }

  static constexpr std::size_t kRequestBytesMax = 4096;  // version 1.5 has 200
  const std::array<void*, kMpipclNames.size()>& calls_;
  const int partitions_;
  const bool is_sent_;
  bool is_over_ = true;
  alignas(64) std::array<std::byte, kRequestBytesMax> memory_{};
};

}  // namespace larklane::bench
