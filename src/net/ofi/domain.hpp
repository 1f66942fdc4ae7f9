#pragma once
// What a fabric, its endpoints and their links share. Thread safety: immutable.

#include <rdma/fi_domain.h>

#include "net/ofi/demands.hpp"
#include "net/ofi/handles.hpp"

namespace larklane::ofi {

struct Domain {
  Candidate choice;
  Fid<fid_fabric> fabric;
  Fid<fid_domain> domain;

  const fi_info& info() const noexcept { return *choice.info; }
};

}  // namespace larklane::ofi
