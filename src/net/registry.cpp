#include "net/registry.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "net/shm/network_fabric.hpp"

namespace larklane::net {
namespace {

struct Provider {
  std::string_view name;
  std::string_view package;  ///< that brings the module's libraries
  const char* symbol;        ///< an OpenFabric
};
constexpr Provider kProviders[] = {
    {"ofi", "libfabric", "larklane_open_ofi"},
    {"verbs", "libibverbs", "larklane_open_verbs"},
};

/// Needs no library of others: it is part of ours.
constexpr std::string_view kShm = "shm";

/// With the last slash. Empty: not known, the loader's own paths are searched.
std::string own_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr)
    return {};
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/') + 1);
}

std::string module_path(const Provider& provider, const std::string& folder) {
  std::string path = folder.empty() ? own_folder() : folder;
  if (!path.empty() && path.back() != '/') path += '/';
  return path + "liblarklane_" + std::string(provider.name) + LARKLANE_LIBRARY_SUFFIX;
}

bool has_rdma_device() {
  std::error_code error;  // no such folder: the kernel has no such devices
  const std::filesystem::directory_iterator first("/sys/class/infiniband", error);
  return !error && first != std::filesystem::directory_iterator();
}

/// Of a module that could not be opened.
std::string why_not(const Provider& provider, const std::string& path, const std::string& error) {
  const std::string name(provider.name);
  if (path.find('/') != std::string::npos && ::access(path.c_str(), R_OK) != 0)
    return "provider " + name + ": " + path + " can't be read: Larklane was built without it (" +
           std::string(provider.package) + " was not found), or not installed whole";
  return "provider " + name + ": " + error + ": install " + std::string(provider.package);
}

/// A function of a module.
struct Opener {
  OpenFabric open;
};

Result<Opener> find_provider(const Provider& provider, const std::string& folder,
                             std::string* reason) {
  const std::string path = module_path(provider, folder);
  void* module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    const char* error = ::dlerror();
    *reason = why_not(provider, path, error != nullptr ? error : "unknown error");
    return Status(Errc::kUnreachable, ENOENT);
  }
  void* symbol = ::dlsym(module, provider.symbol);
  if (symbol == nullptr) {
    *reason = "provider " + std::string(provider.name) + ": " + path + " has no " +
              provider.symbol + ": it belongs to another version of Larklane";
    return Errc::kVersion;
  }
  return Opener{reinterpret_cast<OpenFabric>(symbol)};
}

}  // namespace

std::string provider_names() {
  std::string names(kShm);
  for (const Provider& provider : kProviders) names += ", " + std::string(provider.name);
  return names;
}

FabricOptions fabric_options(const Config& config, std::string_view device) {
  constexpr std::uint32_t kChosen = 256;
  FabricOptions options;
  options.device = device;
  if (config.verbs_gid_index != kChosen)
    options.gid_index = static_cast<std::int32_t>(config.verbs_gid_index);
  options.service_level = static_cast<std::int32_t>(config.verbs_service_level);
  options.mtu_bytes = static_cast<std::uint32_t>(config.verbs_mtu);
  options.receives_max = config.verbs_receives_max;
  options.channel_queues = config.verbs_channel_queues;
  options.is_attach_allowed = config.shm_attach != "off";
  return options;
}

Result<std::unique_ptr<Fabric>> open_fabric(std::string_view name, const FabricOptions& options,
                                            std::string* reason, const std::string& folder) {
  if (name == kShm) return shm::open_network(options, reason);
  for (const Provider& provider : kProviders) {
    if (provider.name != name) continue;
    auto opener = find_provider(provider, folder, reason);
    if (!opener) return opener.error();
    return opener->open(options, reason);
  }
  *reason = "no provider is called " + std::string(name) + ": there are " + provider_names();
  return Errc::kBadOption;
}

Result<std::unique_ptr<Fabric>> open_fabric_named(const Config& config, const std::string& option,
                                                  std::string* reason, const std::string& folder) {
  const std::size_t colon = option.find(':');
  const std::string device = colon == std::string::npos ? std::string() : option.substr(colon + 1);
  return open_fabric(option.substr(0, colon), fabric_options(config, device), reason, folder);
}

std::string provider_title(const std::string& option, const Fabric& fabric) {
  const bool names_device = option.find(':') != std::string::npos;
  return names_device ? option : option + " (" + fabric.limits().provider + ")";
}

std::vector<std::string> wanted_providers(const std::string& option) {
  std::vector<std::string> wanted;
  if (option == "auto") {
    if (has_rdma_device()) wanted.push_back("verbs");
    wanted.insert(wanted.end(), {"ofi", "ofi:tcp"});
    return wanted;
  }
  for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = option.find(',', begin);
    wanted.push_back(option.substr(begin, end - begin));
  }
  return wanted;
}

}  // namespace larklane::net
