// The one entry: opens the best provider that works.

#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "net/ofi/demands.hpp"
#include "net/ofi/domain.hpp"
#include "net/ofi/endpoint.hpp"
#include "net/ofi/memory.hpp"
#include "net/provider.hpp"

namespace larklane::ofi {
namespace {

std::string name_of(const fi_info& info) {
  const std::string provider = info.fabric_attr->prov_name;
  const std::string domain = info.domain_attr->name;
  return domain == provider ? provider : provider + "@" + domain;
}

net::Limits limits_of(const Candidate& choice) {
  const fi_info& info = *choice.info;
  constexpr std::size_t kSmallBytesMax = std::numeric_limits<std::uint32_t>::max();
  net::Limits limits{};
  limits.write_bytes_max = info.ep_attr->max_msg_size;
  limits.read_bytes_max = info.ep_attr->max_msg_size;
  limits.small_bytes_max =
      static_cast<std::uint32_t>(std::min(info.tx_attr->inject_size, kSmallBytesMax));
  limits.immediates_max = 0;
  limits.is_progress_manual = info.domain_attr->data_progress == FI_PROGRESS_MANUAL;
  limits.provider = "ofi " + name_of(info);
  limits.are_words_whole = false;  // libfabric promises nothing of the kind
  limits.is_connected_by_use = limits.is_post_system_call = is_over_sockets(info);
  limits.has_wide_immediates = info.domain_attr->cq_data_size == sizeof(std::uint64_t);
  limits.first_word_last_bytes_max =  // Link::write_out() sees to that
      are_parts_seen_in_order(info) ? limits.write_bytes_max : 0;
  limits.network = std::string("ofi/") + info.fabric_attr->prov_name;
  return limits;
}

/// Thread safety: thread-safe.
class Fabric final : public net::Fabric {
 public:
  explicit Fabric(Domain domain)
      : domain_(std::move(domain)),
        limits_(limits_of(domain_.choice)),
        registrar_(*domain_.domain, *domain_.info().domain_attr) {}

  const net::Limits& limits() const noexcept override { return limits_; }
  Result<std::unique_ptr<net::Memory>> register_memory(void* start, std::uint64_t bytes) override {
    return registrar_.add(start, bytes);
  }
  Result<std::unique_ptr<net::Endpoint>> open_endpoint(net::Receiver& receiver) override {
    return Endpoint::open(domain_, receiver);
  }

 private:
  const Domain domain_;
  const net::Limits limits_;
  Registrar registrar_;
};

class Nobody final : public net::Receiver {
 public:
  void on_immediate(std::uint32_t) override {}
};

std::string complaint(const fi_info& info, const char* call, int error) {
  const bool is_too_large =
      error == EINVAL && std::strcmp(info.fabric_attr->prov_name, "verbs;ofi_rxm") == 0;
  return name_of(info) + ": " + call + ": " + ::fi_strerror(error) +
         (is_too_large
              ? " (its queues are for FI_UNIVERSE_SIZE processes, 256 where that is not "
                "set, which may be more than the device has: set it lower, in all processes)"
              : "");
}

/// With an endpoint, as a trial: providers find out only then that the machine lacks something.
Result<std::unique_ptr<net::Fabric>> try_open(Candidate candidate, std::string* complaints) {
  Domain domain{std::move(candidate), nullptr, nullptr};
  const auto refuse = [&](const char* call, int error) {
    *complaints += (complaints->empty() ? "" : "; ") + complaint(domain.info(), call, error);
    return Status(Errc::kUnreachable, error);
  };
  fid_fabric* fabric = nullptr;
  int error = ::fi_fabric(domain.info().fabric_attr, &fabric, nullptr);
  if (error != 0) return refuse("fi_fabric", -error);
  domain.fabric.reset(fabric);
  fid_domain* opened = nullptr;
  error = ::fi_domain(fabric, domain.choice.info.get(), &opened, nullptr);
  if (error != 0) return refuse("fi_domain", -error);
  domain.domain.reset(opened);
  Nobody nobody;
  auto endpoint = Endpoint::open(domain, nobody);
  if (!endpoint) return refuse("an endpoint", endpoint.error().detail());
  endpoint->reset();
  return std::unique_ptr<net::Fabric>(std::make_unique<Fabric>(std::move(domain)));
}

Result<std::unique_ptr<net::Fabric>> open(const net::FabricOptions& options, std::string* reason) {
  const Device device(options.device);
  auto found = candidates(device);
  std::string complaints;
  for (Candidate& candidate : found) {
    auto fabric = try_open(std::move(candidate), &complaints);
    if (fabric) return fabric;
  }
  *reason = "provider ofi: " + (found.empty() ? why_none(device) : "nothing opens: " + complaints);
  return Status(Errc::kUnreachable, ENODEV);
}

}  // namespace
}  // namespace larklane::ofi

// C linkage for the name only: both sides are C++ and of one build.
#ifdef __clang__
#pragma clang diagnostic ignored "-Wreturn-type-c-linkage"
#endif
extern "C" [[gnu::visibility("default")]] larklane::Result<std::unique_ptr<larklane::net::Fabric>>
larklane_open_ofi(const larklane::net::FabricOptions& options, std::string* reason) {
  return larklane::ofi::open(options, reason);
}
