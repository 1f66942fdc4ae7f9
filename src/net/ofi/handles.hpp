#pragma once
// Handles of libfabric's objects, with one owner. Thread safety: single-owner.

#include <rdma/fabric.h>

#include <memory>

namespace larklane::ofi {

struct CloseFid {
  template <class T>
  void operator()(T* opened) const noexcept {
    ::fi_close(&opened->fid);
  }
};
/// Of fid_fabric, fid_domain, fid_ep, fid_pep, fid_cq, fid_eq, fid_av, fid_mr.
template <class T>
using Fid = std::unique_ptr<T, CloseFid>;

struct FreeInfo {
  void operator()(fi_info* list) const noexcept { ::fi_freeinfo(list); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

}  // namespace larklane::ofi
