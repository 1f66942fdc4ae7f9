#pragma once
// Handles of libibverbs' objects, with one owner each. Thread safety: single-owner.

#include <infiniband/verbs.h>

#include <memory>

namespace larklane::verbs {

/// Releases an object by libibverbs' own call. Its result is not looked at: it could only fail for
/// an object that others still use, and members are destroyed in the reverse of that order.
template <auto release>
struct Release {
  template <class T>
  void operator()(T* object) const noexcept {
    release(object);
  }
};

/// One lane's lock keeps the objects made in it from being used by two threads at once.
struct EndThreadDomain {
  void operator()(ibv_td* domain) const noexcept { ibv_dealloc_td(domain); }
};
using ThreadDomain = std::unique_ptr<ibv_td, EndThreadDomain>;

using Context = std::unique_ptr<ibv_context, Release<&ibv_close_device>>;
using ProtectionDomain = std::unique_ptr<ibv_pd, Release<&ibv_dealloc_pd>>;
using CompletionChannel = std::unique_ptr<ibv_comp_channel, Release<&ibv_destroy_comp_channel>>;
using CompletionQueue = std::unique_ptr<ibv_cq, Release<&ibv_destroy_cq>>;
using SharedReceiveQueue = std::unique_ptr<ibv_srq, Release<&ibv_destroy_srq>>;
using QueuePair = std::unique_ptr<ibv_qp, Release<&ibv_destroy_qp>>;
using Registration = std::unique_ptr<ibv_mr, Release<&ibv_dereg_mr>>;

}  // namespace larklane::verbs
