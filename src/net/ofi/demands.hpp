#pragma once
// Demands on a libfabric provider, in one table: they are the hints of fi_getinfo, and, one row
// after the other, the reasons why it finds nothing. Thread safety: thread-safe.

#include <string>
#include <string_view>
#include <vector>

#include "net/ofi/handles.hpp"

namespace larklane::ofi {

/// Old enough for every libfabric since 2020, new enough for the calls that we use.
inline constexpr std::uint32_t kApiVersion = FI_VERSION(1, 11);
/// Pending operations on one endpoint.
inline constexpr std::size_t kQueueDepth = 256;

/// The reason why, after the completion of a write, a later post takes effect after it.
enum class Finish : std::uint8_t {
  ordered,    ///< the provider keeps writes after writes and reads after writes
  delivered,  ///< a write completes when its bytes are in the peer's memory
};

/// `tcp@eth0`: provider tcp, domain eth0. Empty parts: any.
struct Device {
  explicit Device(std::string_view name);
  std::string provider;
  std::string domain;
};

struct Candidate {
  Info info;  ///< of one
  Finish finish;
};

/// All that meet every demand, those to be tried first in front. None stays within one host: there
/// our own shared memory serves. FI_EP_MSG: see connections.hpp.
std::vector<Candidate> candidates(const Device& device);
/// Why there are none: the provider that is missing, or the demand that is not met; and the remedy.
std::string why_none(const Device& device);

/// One that takes the parts of a write from one stream for each peer, in the order in which the
/// writer names them.
bool is_over_tcp(const fi_info& info) noexcept;
/// A reader of memory in which is_over_tcp() puts them finds them in that order: our polls put them
/// there. Since 1.18 those of other lanes do, too: then it is the order of the processor's stores.
bool are_parts_seen_in_order(const fi_info& info) noexcept;

/// One that receives from sockets of the kernel, piece by piece.
bool is_over_sockets(const fi_info& info) noexcept;

}  // namespace larklane::ofi
