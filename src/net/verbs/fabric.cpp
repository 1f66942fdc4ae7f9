#include "net/verbs/fabric.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.hpp"
#include "net/immediate.hpp"
#include "net/verbs/endpoint.hpp"
#include "net/verbs/link.hpp"
#include "net/verbs/memory.hpp"
#include "net/verbs/registration.hpp"

namespace larklane::verbs {
namespace {

class Nobody final : public net::Receiver {
 public:
  void on_immediate(std::uint32_t) override {}
};

Status probe(Device& device, ibv_pd* domain, std::string* reason) {
  Nobody nobody;
  auto endpoint = Endpoint::create(device, domain, nobody, reason);
  if (!endpoint) return endpoint.error();
  auto link = Link::create(**endpoint, reason);
  if (!link) return link.error();
  device.receives_max = (*endpoint)->receives_max();  // no more could be had
  device.choices += "; " + (*endpoint)->offers();
  if (device.channel_queues != 0)
    device.choices += "; " + std::to_string(device.channel_queues) +
                      " queue pairs for writes and one for reads for each channel, whose immediates"
                      " are first partition and count";
  return {};
}

/// Both sides of a link have the same link layer, as many queue pairs, and the same immediates.
std::string network_name(const Device& device) {
  const std::string name = device.is_ethernet ? "verbs/roce" : "verbs/ib";
  if (device.channel_queues == 0) return name;
  return name + "/" + std::to_string(device.channel_queues) + "-a-channel";
}

}  // namespace

Fabric::Fabric(Device device, ProtectionDomain domain)
    : device_(std::move(device)),
      domain_(std::move(domain)),
      limits_{
          .write_bytes_max = device_.port.max_msg_sz,
          .read_bytes_max = device_.port.max_msg_sz,
          .small_bytes_max = kSmallBytesMax,
          .immediates_max = device_.receives_max,
          .is_progress_manual = false,
          .provider = "verbs " + device_.name + " port " + std::to_string(device_.port_number),
          .are_words_whole = !is_software(device_),
          .network = network_name(device_),
          .choices = device_.choices,
          .unanswered_ns = kUnansweredNs,
          .channel_partitions_max = device_.channel_queues != 0 ? net::paper::kPartitionsMax : 0} {}

Result<std::unique_ptr<net::Fabric>> Fabric::open(const net::FabricOptions& options,
                                                  std::string* reason) {
  std::string detail;
  auto device = open_device(options, &detail);
  if (!device) {
    *reason = "verbs: " + detail;
    return device.error();
  }
  ProtectionDomain domain(ibv_alloc_pd(device->context.get()));
  if (!domain) {
    *reason = "verbs: " + device->name + ": no protection domain: " + std::strerror(errno);
    return Status(Errc::kSystem, errno);
  }
  if (const Status status = probe(*device, domain.get(), &detail); !status.ok()) {
    *reason = "verbs: " + device->name + ": " + detail;
    return status;
  }
  const int events = device->context->async_fd;  // look() must not wait
  static_cast<void>(::fcntl(events, F_SETFL, ::fcntl(events, F_GETFL) | O_NONBLOCK));
  return std::unique_ptr<net::Fabric>(new Fabric(std::move(*device), std::move(domain)));
}

Result<std::unique_ptr<net::Memory>> Fabric::register_memory(void* start, std::uint64_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(start);
  if (bytes == 0) return std::unique_ptr<net::Memory>(new Memory(address, nullptr));
  constexpr int kReadOnly = IBV_ACCESS_REMOTE_READ;
  constexpr int kAll = kReadOnly | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  Registration registration = register_range(domain_.get(), start, bytes, kAll);
  if (!registration && (errno == EFAULT || errno == EACCES || errno == EPERM)) {
    // A send buffer may be constant.
    registration = register_range(domain_.get(), start, bytes, kReadOnly);
  }
  if (!registration) {
    const int error = errno;
    log_warn_once("verbs: register",
                  "verbs: %llu bytes can't be registered: %s (locked memory: %s, `ulimit -l`)",
                  static_cast<unsigned long long>(bytes), std::strerror(error),
                  locked_memory_limit().c_str());
    const bool no_memory = error == ENOMEM || error == EAGAIN;
    return Status(no_memory ? Errc::kNoMemory : Errc::kSystem, error);
  }
  return std::unique_ptr<net::Memory>(new Memory(address, std::move(registration)));
}

Result<std::unique_ptr<net::Endpoint>> Fabric::open_endpoint(net::Receiver& receiver) {
  std::string reason;
  auto endpoint = Endpoint::create(device_, domain_.get(), receiver, &reason);
  if (!endpoint) {
    log_warn("verbs: no further endpoint: %s", reason.c_str());
    return endpoint.error();
  }
  return std::unique_ptr<net::Endpoint>(std::move(*endpoint));
}

std::string Fabric::explain(Status error) const {
  if (error == net::kUnlikeLinks)
    return "one side has other queue pairs: set LARKLANE_VERBS_CHANNEL_QUEUES alike on all";
  const bool is_completion = error.code() == Errc::kPeerDown || error.code() == Errc::kTransfer;
  const bool is_known = error.detail() > 0 && error.detail() <= IBV_WC_TM_RNDV_INCOMPLETE;
  if (!is_completion || !is_known) return {};  // a peer may have said it
  if (error.detail() == IBV_WC_RETRY_EXC_ERR || error.detail() == IBV_WC_RESP_TIMEOUT_ERR)
    return "its host does not answer, or there is no way to it any more";
  return ibv_wc_status_str(static_cast<ibv_wc_status>(error.detail()));
}

void Fabric::look() {
  const auto lose = [&](const char* why) {
    // relaxed: see Device.
    if (!device_.is_lost->exchange(true, std::memory_order_relaxed))
      log_error("%s is lost: %s; see the kernel's log", limits_.provider.c_str(), why);
  };
  ibv_async_event event;
  while (ibv_get_async_event(device_.context.get(), &event) == 0) {
    const ibv_event_type type = event.event_type;
    const int port = event.element.port_num;  // of events of ports
    ibv_ack_async_event(&event);
    if (type == IBV_EVENT_DEVICE_FATAL)
      lose("it has failed");
    else if (type == IBV_EVENT_PORT_ERR && port == device_.port_number)
      log_warn("%s is down", limits_.provider.c_str());
    else if (type == IBV_EVENT_CQ_ERR || type == IBV_EVENT_SRQ_ERR)
      lose(ibv_event_type_str(type));  // completions and arrivals would be lost
    else if (type == IBV_EVENT_QP_FATAL)
      log_warn("%s says: %s", limits_.provider.c_str(), ibv_event_type_str(type));
  }
  if (errno == EIO) lose("the kernel has taken it away");
}

}  // namespace larklane::verbs

#ifdef __clang__
#pragma clang diagnostic ignored "-Wreturn-type-c-linkage"  // the caller is C++, the name is C
#endif
/// net::OpenFabric of this module.
extern "C" [[gnu::visibility("default")]] larklane::Result<std::unique_ptr<larklane::net::Fabric>>
larklane_open_verbs(const larklane::net::FabricOptions& options, std::string* reason) {
  return larklane::verbs::Fabric::open(options, reason);
}
