#pragma once
// Objects that a fabric, its endpoints and their links share. Thread safety: immutable.

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include "net/ofi/demands.hpp"
#include "net/ofi/handles.hpp"

namespace larklane::ofi {

struct Domain {
  Candidate choice;
  Fid<fid_fabric> fabric;
  Fid<fid_domain> domain;

  const fi_info& info() const noexcept { return *choice.info; }
  /// Each link has a connection of its own: see connections.hpp.
  bool has_connections() const noexcept { return info().ep_attr->type == FI_EP_MSG; }
};

}  // namespace larklane::ofi
