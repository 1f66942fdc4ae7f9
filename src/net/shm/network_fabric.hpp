#pragma once
// Provider `shm`: processes of one host and one user as a network. Bytes that they write often lie
// in memory that they map of each other (allocate_memory, queues of immediates); everything else
// goes by cross-memory attach. (docs/design/protocols/shm_network.md)

#include <memory>
#include <string>

#include "base/status.hpp"
#include "net/provider.hpp"

namespace larklane::shm {

/// A net::OpenFabric. @errors kUnreachable: no /proc, or no shared memory
Result<std::unique_ptr<net::Fabric>> open_network(const net::FabricOptions& options,
                                                  std::string* reason);

}  // namespace larklane::shm
