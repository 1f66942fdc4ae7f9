#include "net/verbs/device.hpp"

#include <arpa/inet.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "base/parse.hpp"

namespace larklane::verbs {
namespace {

struct Wish {
  std::string device;
  std::uint8_t port = 0;  // 0: the first active one
};

Result<Wish> parse_wish(const std::string& text, std::string* reason) {
  Wish wish;
  const std::size_t colon = text.find(':');
  wish.device = text.substr(0, colon);
  if (colon == std::string::npos) return wish;
  wish.port = number_of<std::uint8_t>(text.substr(colon + 1)).value_or(0);
  if (wish.port == 0 || wish.device.empty()) {
    *reason = "device \"" + text + "\": written is DEVICE or DEVICE:PORT, as in mlx5_0:1";
    return Errc::kBadOption;
  }
  return wish;
}

/// The device list, given back at the end.
class Devices {
 public:
  Devices() : list_(ibv_get_device_list(&count_)) {}
  ~Devices() {
    if (list_ != nullptr) ibv_free_device_list(list_);
  }
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;
  std::span<ibv_device* const> all() const {
    return {list_, list_ == nullptr ? 0 : static_cast<std::size_t>(count_)};
  }

 private:
  int count_ = 0;
  ibv_device** list_;
};

const char* state_name(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_DOWN:
      return "down";
    case IBV_PORT_INIT:
      return "initializing: no subnet manager has configured it";
    case IBV_PORT_ARMED:
      return "armed, not active";
    default:
      return "not active";
  }
}

/// Take the wished or the first active port. Problems are added to `reason`.
bool choose_port(Device& device, std::uint8_t wished, std::string* reason) {
  const std::uint8_t first = wished != 0 ? wished : 1;
  const std::uint8_t last = wished != 0 ? wished : device.attributes.phys_port_cnt;
  if (last > device.attributes.phys_port_cnt) {
    *reason += device.name + " has " + std::to_string(device.attributes.phys_port_cnt) +
               " ports, no port " + std::to_string(wished) + "; ";
    return false;
  }
  for (unsigned number = first; number <= last; ++number) {
    device.port_number = static_cast<std::uint8_t>(number);
    device.port = {};
    if (ibv_query_port(device.context.get(), device.port_number, &device.port) == 0 &&
        device.port.state == IBV_PORT_ACTIVE) {
      device.is_ethernet = device.port.link_layer == IBV_LINK_LAYER_ETHERNET;
      return true;
    }
    *reason += device.name + " port " + std::to_string(number) + " is " +
               state_name(device.port.state) + "; ";
  }
  return false;
}

/// ::ffff:a.b.c.d
bool is_ipv4(const ibv_gid& gid) {
  static constexpr std::uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, kPrefix, sizeof kPrefix) == 0;
}

/// How well an entry of the table reaches peers: RoCE v2 is routed, and clusters use IPv4.
int worth(const ibv_gid_entry& entry) {
  return (entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 2 : 0) + (is_ipv4(entry.gid) ? 1 : 0);
}

const char* type_name(const ibv_gid_entry& entry) {
  switch (entry.gid_type) {
    case IBV_GID_TYPE_ROCE_V2:
      return "RoCE v2";
    case IBV_GID_TYPE_ROCE_V1:
      return "RoCE v1";
    default:
      return "InfiniBand";
  }
}

/// "1 (RoCE v2, ::ffff:10.0.2.15)"
std::string gid_text(const ibv_gid_entry& entry) {
  std::array<char, INET6_ADDRSTRLEN> address{};
  static_cast<void>(::inet_ntop(AF_INET6, entry.gid.raw, address.data(), address.size()));
  return std::to_string(entry.gid_index) + " (" + type_name(entry) + ", " + address.data() + ")";
}

Status choose_gid(Device& device, std::int32_t wished, std::string* reason) {
  ibv_gid_entry best{};
  bool found = false;
  const int first = wished >= 0 ? wished : 0;
  const int end = wished >= 0          ? wished + 1
                  : device.is_ethernet ? std::min(device.port.gid_tbl_len, 256)
                                       : 1;
  for (int index = first; index < end && index < 256; ++index) {
    ibv_gid_entry entry{};
    if (ibv_query_gid_ex(device.context.get(), device.port_number,
                         static_cast<std::uint32_t>(index), &entry, 0) != 0) {
      continue;  // an empty place of the table
    }
    if (found && worth(entry) <= worth(best)) continue;
    best = entry;
    found = true;
  }
  if (!found) {
    *reason =
        device.name + " port " + std::to_string(device.port_number) + " has no GID " +
        (wished >= 0 ? "at index " + std::to_string(wished) : std::string("at all")) +
        " (its table has " + std::to_string(device.port.gid_tbl_len) + " places): " +
        (wished >= 0 ? "unset LARKLANE_VERBS_GID_INDEX, or take one that `ibv_devinfo -v` shows"
                     : "give its network interface an address");
    return Errc::kBadOption;
  }
  device.gid_index = static_cast<std::uint8_t>(best.gid_index);
  device.choices =
      "GID " + gid_text(best) +
      (wished >= 0 ? " as asked for" : ", of those that there are the one that reaches furthest");
  std::memcpy(device.gid.data(), best.gid.raw, device.gid.size());
  return {};
}

Status choose_path(Device& device, const net::FabricOptions& options, std::string* reason) {
  if (options.service_level > 15) {
    *reason = "service level " + std::to_string(options.service_level) + ": 0 to 15 exist";
    return Errc::kBadOption;
  }
  device.service_level = static_cast<std::uint8_t>(std::max(options.service_level, 0));
  device.mtu_code = static_cast<std::uint8_t>(device.port.active_mtu);
  device.choices += "; service level " + std::to_string(device.service_level);
  if (options.mtu_bytes == 0) {
    device.choices +=
        "; MTU " + std::to_string(128u << device.mtu_code) + ", the port's active one";
    return {};
  }
  std::uint8_t code = 0;
  for (std::uint8_t known = 1; known <= 5; ++known) {
    if (options.mtu_bytes == 128u << known) code = known;
  }
  if (code == 0 || code > device.mtu_code) {
    *reason = "MTU of " + std::to_string(options.mtu_bytes) +
              " bytes: a power of two from 256 to the port's active one, " +
              std::to_string(128u << device.mtu_code);
    return Errc::kBadOption;
  }
  device.mtu_code = code;
  device.choices += "; MTU " + std::to_string(options.mtu_bytes) + " as asked for";
  return {};
}

/// Problems are added to `reason`.
bool open_one(Device& device, ibv_device* listed, std::uint8_t port, std::string* reason) {
  device.name = ibv_get_device_name(listed);
  device.context.reset(ibv_open_device(listed));
  if (!device.context) {
    const int error = errno;
    *reason +=
        device.name + " can't be opened: " + std::strerror(error) +
        (error == EACCES || error == EPERM ? " (rights on /dev/infiniband/uverbs*?); " : "; ");
    return false;
  }
  if (ibv_query_device(device.context.get(), &device.attributes) != 0) {
    *reason += device.name + " does not tell its limits; ";
    return false;
  }
  return choose_port(device, port, reason);
}

}  // namespace

Result<Device> open_device(const net::FabricOptions& options, std::string* reason) {
  const auto wish = parse_wish(options.device, reason);
  if (!wish) return wish.error();
  const Devices devices;
  if (devices.all().empty()) {
    *reason =
        "no RDMA device: none is listed by `ibv_devices` (adapter, its driver and rdma-core's"
        " provider library, in Debian ibverbs-providers, are needed)";
    return Status(Errc::kUnreachable, ENODEV);
  }
  std::string tried;
  std::string names;
  for (ibv_device* listed : devices.all()) {
    const std::string name = ibv_get_device_name(listed);
    names += (names.empty() ? "" : ", ") + name;
    Wish wanted;
    if (auto copy = wish; copy) wanted = *copy;
    if (!wanted.device.empty() && name != wanted.device) continue;
    Device device{};
    if (!open_one(device, listed, wanted.port, &tried)) continue;
    LARKLANE_TRY(choose_gid(device, options.gid_index, reason));
    LARKLANE_TRY(choose_path(device, options, reason));
    device.receives_max =
        std::min(options.receives_max,
                 static_cast<std::uint32_t>(std::max(device.attributes.max_srq_wr, 0)));
    device.channel_queues = std::min(options.channel_queues, kWriteQueuesMax);
    return device;
  }
  if (tried.empty()) {
    *reason = "no RDMA device " + options.device + ": there are " + names;
  } else {
    *reason = "no usable port: " + tried + "see `ibv_devinfo`";
  }
  return Status(Errc::kUnreachable, ENODEV);
}

bool is_software(const Device& device) noexcept {
  constexpr std::uint32_t kSoftRoce = 0xffffff, kSoftIwarp = 0x626d74;
  return device.attributes.vendor_id == kSoftRoce || device.attributes.vendor_id == kSoftIwarp;
}

bool is_locked_memory_limited() noexcept {
  rlimit limit{};
  return ::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

std::string locked_memory_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return "unlimited";
  }
  return std::to_string(limit.rlim_cur / 1024) + " KiB";
}

}  // namespace larklane::verbs
