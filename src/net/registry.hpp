#pragma once
// The only place that knows providers by name. Each that needs libraries of others is a module of
// its own beside ours, opened on demand: our own libraries need libc and threads alone.
// Thread safety: thread-safe.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.hpp"
#include "net/provider.hpp"

namespace larklane::net {

/// "shm, ofi, verbs": for messages about a name that is not one of them.
std::string provider_names();

/// Settings of providers in `config`. @param device  as in option provider
FabricOptions fabric_options(const Config& config, std::string_view device);

/// Open provider `name`. Its module stays loaded until the process ends.
/// @param folder  where the modules are; empty: the folder of our own library
/// @param[out] reason  why there is none, for people
/// @errors kBadOption: no such provider; kUnreachable: no module, or a library that it needs is
/// missing; else the provider's
Result<std::unique_ptr<Fabric>> open_fabric(std::string_view name, const FabricOptions& options,
                                            std::string* reason, const std::string& folder = {});

/// The same, as option `provider` names one: NAME[:DEVICE].
Result<std::unique_ptr<Fabric>> open_fabric_named(const Config& config, const std::string& option,
                                                  std::string* reason,
                                                  const std::string& folder = {});

/// An entry of option `provider` for people: with the chosen device where it names none.
std::string provider_title(const std::string& option, const Fabric& fabric);

/// The providers that option `provider` asks for, the preferred first, each for
/// open_fabric_named(). `auto`: those that may connect hosts, the fastest first, without those that
/// need a device which this host lacks; libfabric's tcp at last, as hosts of any kind have it.
std::vector<std::string> wanted_providers(const std::string& option);

}  // namespace larklane::net
