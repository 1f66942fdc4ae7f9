#pragma once
// Which device, which port of it, and under which address we are known there.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "net/provider.hpp"
#include "net/verbs/handles.hpp"
#include "net/verbs/offer.hpp"

namespace larklane::verbs {

/// An open device and one active port. Thread safety: immutable, but for `is_lost`.
struct Device {
  Context context;
  std::string name;
  std::uint8_t port_number;
  ibv_device_attr attributes;
  ibv_port_attr port;
  bool is_ethernet;
  std::uint8_t gid_index;
  Gid gid;
  std::uint8_t service_level;
  std::uint8_t mtu_code;         ///< enum ibv_mtu
  std::uint32_t receives_max;    ///< of one endpoint
  std::uint32_t channel_queues;  ///< for writes, of each channel; 0: channels share a link
  std::string choices;           ///< of these, for people
  /// The kernel or the device has said so: nothing completes any more. relaxed: nothing depends on
  /// it but that waiting threads end.
  std::shared_ptr<std::atomic<bool>> is_lost = std::make_shared<std::atomic<bool>>(false);
};

/// Soft-RoCE and Soft-iWARP: the kernel copies bytes, in no particular pieces.
bool is_software(const Device& device) noexcept;

/// @param[out] reason  of an error: the cause, and the remedy
/// @errors kUnreachable: no such device or port, or it is down; kBadOption; kSystem
Result<Device> open_device(const net::FabricOptions& options, std::string* reason);

/// "64 KiB", or "unlimited": the part of RLIMIT_MEMLOCK that a message has to name.
std::string locked_memory_limit();
/// Whether locked memory is limited at all for this process.
bool is_locked_memory_limited() noexcept;

}  // namespace larklane::verbs
