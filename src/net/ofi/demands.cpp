#include "net/ofi/demands.hpp"

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <algorithm>
#include <cstring>
#include <set>

namespace larklane::ofi {
namespace {

constexpr std::uint64_t kCaps =
    FI_MSG | FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
/// FI_MR_ENDPOINT is not among them: a key has to hold for all endpoints of a fabric.
constexpr int kMrModes = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
constexpr int kAllMrModes =
    kMrModes | FI_MR_RAW | FI_MR_MMU_NOTIFY | FI_MR_RMA_EVENT | FI_MR_ENDPOINT | FI_MR_HMEM;
constexpr std::uint64_t kModes = FI_CONTEXT | FI_CONTEXT2;
constexpr std::uint64_t kAllModes = ~std::uint64_t{0};

struct Demand {
  const char* what;
  const char* remedy;
  void (*ask)(fi_info& hints);
};

// Sources: fi_getinfo(3), fi_endpoint(3), fi_domain(3), fi_mr(3), fi_cq(3).
constexpr Demand kDemands[] = {
    {"reliable datagram endpoints (FI_EP_RDM)", "put ofi_rxm over it (`PROVIDER;ofi_rxm`)",
     [](fi_info& hints) { hints.ep_attr->type = FI_EP_RDM; }},
    {"remote writes and reads (FI_RMA)", "choose another provider",
     [](fi_info& hints) { hints.caps = kCaps; }},
    {"4 bytes of data with a remote write (cq_data_size)", "choose another provider",
     [](fi_info& hints) { hints.domain_attr->cq_data_size = 4; }},
    {"immediates that take no posted receive (mode bits FI_CONTEXT and FI_CONTEXT2 only)",
     "choose another provider", [](fi_info& hints) { hints.mode = kModes; }},
    {"memory that is registered once for all endpoints, by keys of at most 8 bytes (no "
     "FI_MR_ENDPOINT, FI_MR_RAW, FI_MR_MMU_NOTIFY)",
     "choose another provider", [](fi_info& hints) { hints.domain_attr->mr_mode = kMrModes; }},
    {"endpoints that several threads may use (FI_THREAD_SAFE)", "choose another provider",
     [](fi_info& hints) { hints.domain_attr->threading = FI_THREAD_SAFE; }},
    {"completion queues that do not overrun (FI_RM_ENABLED)", "choose another provider",
     [](fi_info& hints) { hints.domain_attr->resource_mgmt = FI_RM_ENABLED; }},
    {"address vectors that are tables (FI_AV_TABLE)", "choose another provider",
     [](fi_info& hints) { hints.domain_attr->av_type = FI_AV_TABLE; }},
};
constexpr const char* kNoFinish =
    "neither order (FI_ORDER_RAW, FI_ORDER_WAW) nor completion at delivery (FI_DELIVERY_COMPLETE)";
/// inject_size; a larger demand would be all that the provider gives.
constexpr std::size_t kSmallBytesMin = 8;

/// A copy that asks for nothing and can do everything.
Info blank_hints(const Device& device) {
  Info hints(::fi_allocinfo());
  if (hints == nullptr) return hints;
  hints->mode = kAllModes;
  hints->domain_attr->mr_mode = kAllMrModes;
  if (!device.provider.empty()) hints->fabric_attr->prov_name = ::strdup(device.provider.c_str());
  return hints;
}

Info get_info(const fi_info* hints) {
  fi_info* list = nullptr;
  if (hints == nullptr || ::fi_getinfo(kApiVersion, nullptr, nullptr, 0, hints, &list) != 0)
    return nullptr;
  return Info(list);
}

void ask_finish(fi_info& hints, Finish finish) {
  constexpr std::uint64_t kOrder = FI_ORDER_RAW | FI_ORDER_WAW;
  hints.tx_attr->msg_order = finish == Finish::ordered ? kOrder : 0;
  hints.rx_attr->msg_order = hints.tx_attr->msg_order;
  hints.tx_attr->op_flags = finish == Finish::delivered ? FI_DELIVERY_COMPLETE : 0;
}

Info all_hints(const Device& device, Finish finish, fi_ep_type type = FI_EP_RDM) {
  Info hints = blank_hints(device);
  if (hints == nullptr) return hints;
  for (const Demand& demand : kDemands) demand.ask(*hints);
  hints->ep_attr->type = type;
  ask_finish(*hints, finish);
  // Not a demand: a provider that needs no polling may be asked to do without threads of its own,
  // too. Our receives are none, so their queues may be short.
  hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  hints->tx_attr->size = kQueueDepth;
  return hints;
}

bool names(const fi_info& info, const char* part) {
  return std::strstr(info.fabric_attr->prov_name, part) != nullptr;
}

/// Its endpoints reach processes of the same host only.
bool is_host_only(const fi_info& info) {
  // shm 1.17 leaves the capabilities out of its answer.
  const bool says_so = (info.domain_attr->caps & FI_LOCAL_COMM) != 0 &&
                       (info.domain_attr->caps & FI_REMOTE_COMM) == 0;
  return says_so || names(info, "shm") || names(info, "sm2");
}

/// Some are taken only when asked for by name: `verbs` is not `verbs;ofi_rxd`.
bool is_wanted(const fi_info& info, const Device& device) {
  if (is_host_only(info)) return false;
  bool is_slow = false;
  for (const char* slow : {"sockets", "udp", "ofi_rxd", "mrail", "lnx"}) {
    if (!names(info, slow)) continue;
    if (::strcasestr(device.provider.c_str(), slow) != nullptr) return true;
    is_slow = true;
  }
  return !is_slow;
}

/// Lower ones are tried first.
int rank(const fi_info& info) {
  if (std::strcmp(info.domain_attr->name, "lo") == 0) return 2;
  return is_over_sockets(info) ? 1 : 0;
}

std::string known_providers() {
  const Info list = get_info(blank_hints(Device("")).get());
  std::set<std::string> all;
  for (const fi_info* info = list.get(); info != nullptr; info = info->next)
    all.insert(info->fabric_attr->prov_name);
  std::string text;
  for (const std::string& name : all) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

std::string version() {
  const std::uint32_t version = ::fi_version();
  return "libfabric " + std::to_string(FI_MAJOR(version)) + "." + std::to_string(FI_MINOR(version));
}

bool has_domain(const fi_info* list, const std::string& domain) {
  while (list != nullptr && domain != list->domain_attr->name) list = list->next;
  return domain.empty() || list != nullptr;
}

/// The missing part, in words.
std::string why_nothing(const Device& device, const fi_info* list) {
  const std::string has = version() + " has ";
  if (list == nullptr && device.provider.empty())
    return has +
           "no provider at all: they may be separate files: set FI_PROVIDER_PATH to their folder";
  if (list == nullptr)
    return has + "no working provider " + device.provider + ", it has: " + known_providers();
  std::set<std::string> domains;
  for (; list != nullptr; list = list->next) domains.insert(list->domain_attr->name);
  std::string text = has + "no " + device.domain + " for this provider, it has:";
  for (const std::string& name : domains) text += " " + name;
  return text;
}

/// Over TCP each link has a connection of its own, whose peer proves its identity: a connection of
/// libfabric's own takes any process, under any name that it gives.
bool is_connected_as_wanted(const fi_info& info) {
  return (info.ep_attr->type == FI_EP_MSG) == is_over_tcp(info);
}

bool is_seen(const std::vector<Candidate>& found, const fi_info& info) {
  return std::ranges::any_of(found, [&](const Candidate& other) {
    return std::strcmp(other.info->fabric_attr->prov_name, info.fabric_attr->prov_name) == 0 &&
           std::strcmp(other.info->domain_attr->name, info.domain_attr->name) == 0;
  });
}

}  // namespace

Device::Device(std::string_view name) {
  const std::size_t at = name.find('@');
  provider = name.substr(0, at);
  // We connect by ourselves.
  for (const std::string_view over : {"tcp;ofi_rxm", "net;ofi_rxm"})
    if (provider == over) provider = over.substr(0, over.find(';'));
  if (at != std::string_view::npos) domain = name.substr(at + 1);
}

bool is_over_tcp(const fi_info& info) noexcept {
  // net: the provider that became tcp in version 1.18, still unfinished in 1.17.
  return names(info, "tcp") || std::strncmp(info.fabric_attr->prov_name, "net", 3) == 0;
}

bool are_parts_seen_in_order(const fi_info& info) noexcept {
#ifdef __x86_64__
  constexpr bool kAreStoresOrdered = true;
#else
  constexpr bool kAreStoresOrdered = false;
#endif
  return kAreStoresOrdered && is_over_tcp(info) &&
         info.domain_attr->data_progress == FI_PROGRESS_MANUAL;
}

bool is_over_sockets(const fi_info& info) noexcept {
  return is_over_tcp(info) || names(info, "sockets") || names(info, "udp");
}

std::vector<Candidate> candidates(const Device& device) {
  std::vector<Candidate> found;
  const auto add_all = [&](Finish finish, fi_ep_type type) {
    const Info list = get_info(all_hints(device, finish, type).get());
    for (const fi_info* info = list.get(); info != nullptr; info = info->next) {
      if (info->tx_attr->inject_size < kSmallBytesMin || is_seen(found, *info)) continue;
      if (!is_wanted(*info, device) || !is_connected_as_wanted(*info)) continue;
      // 1.17 does not look at the hint for it.
      if (!device.domain.empty() && device.domain != info->domain_attr->name) continue;
      found.push_back({Info(::fi_dupinfo(info)), finish});
    }
  };
  for (const fi_ep_type type : {FI_EP_MSG, FI_EP_RDM})
    for (const Finish finish : {Finish::ordered, Finish::delivered}) add_all(finish, type);
  std::ranges::stable_sort(found, {}, [](const Candidate& each) { return rank(*each.info); });
  return found;
}

std::string why_none(const Device& device) {
  const Info list = get_info(blank_hints(device).get());
  if (list == nullptr || !has_domain(list.get(), device.domain))
    return why_nothing(device, list.get());
  if (!device.provider.empty() && is_host_only(*list))
    return "libfabric's " + device.provider +
           " stays within one host, where Larklane has a faster way of its own: set provider=auto, "
           "in native programs message_provider=shm";
  const std::string who = device.provider.empty() ? "each provider" : "provider " + device.provider;
  const std::string lacks = who + " of " + version() + " lacks ";
  for (const Demand& demand : kDemands) {
    const Info hints = blank_hints(device);
    if (hints == nullptr) return "out of memory";
    demand.ask(*hints);
    if (get_info(hints.get()) == nullptr) return lacks + demand.what + ": " + demand.remedy;
  }
  bool has_finish = false;
  for (const Finish finish : {Finish::ordered, Finish::delivered}) {
    if (get_info(all_hints(device, finish).get()) != nullptr)
      return lacks + "copies of 8 bytes (inject_size): choose another provider";
    const Info hints = blank_hints(device);
    if (hints == nullptr) return "out of memory";
    ask_finish(*hints, finish);
    has_finish |= get_info(hints.get()) != nullptr;
  }
  if (!has_finish)
    return who + " of " + version() + " has " + kNoFinish + ": choose another provider";
  return who + " of " + version() +
         " meets each demand, and not all together: choose another provider";
}

}  // namespace larklane::ofi
