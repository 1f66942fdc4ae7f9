#include "sim/regime.hpp"

#include <algorithm>
#include <array>

namespace larklane::sim {
namespace {

// "Measured" means on one two-core virtual machine (Xeon, Linux 6, November 2026), as in
// net/loop/costs.hpp.

constexpr loop::NetworkCosts kEdr{.latency_ps = 600'000,
                                  .send_overhead_ps = 75'000,
                                  .recv_overhead_ps = 75'000,
                                  .gap_ps = 0,
                                  .byte_ps = 87};

constexpr TwoSidedCosts kUcx{.request_ps = 56'000,
                             .match_ps = 68'000,
                             .copy_byte_ps = 60,
                             .zero_copy_from_bytes = 1 << 10,
                             .rendezvous_from_bytes = 32 << 10};

constexpr std::array<Parameter, 15> kNiagara{{
    {"L", "600 ns", "cited: what UCX takes for EDR (src/uct/ib/base/ib_iface.c)"},
    {"o_s", "75 ns", "cited: what UCX takes for a verbs work request (src/uct/ib/rc/verbs)"},
    {"o_r", "75 ns", "cited: the same; UCX has one number for both sides"},
    {"g", "0", "not known: h is o_s"},
    {"G", "87 ps", "cited: 11.5 GB/s (Temucin et al., CLUSTER'23), in whole picoseconds"},
    {"queues", "1", "assumed"},
    {"line from another core", "50 ns", "measured between 2 cores; extrapolated to more"},
    {"read-modify-write", "3 ns", "measured"},
    {"load", "1 ns", "cited: L1 hit (Intel optimization manual, 2.1)"},
    {"poll", "47 ns", "cited: PAUSE (Intel optimization manual, 2.5.4)"},
    {"two-sided: request", "56 ns",
     "measured: MPI_Start of a send of 8 bytes, Open MPI 5.0.11 with UCX over shared memory"},
    {"two-sided: match", "68 ns", "measured: MPI_Waitall of receives of such sends, each"},
    {"two-sided: eager copy", "60 ps a byte", "measured: what 4 KiB add to either"},
    {"two-sided: zero copy from", "1 KiB", "cited: Temucin et al., CLUSTER'23, section V-B"},
    {"two-sided: rendezvous from", "32 KiB",
     "derived: UCX 1.12's formula (ucp_ep.c) with UCX's own constants gives 31.8 KB"},
}};

constexpr std::array<Regime, 1> kRegimes{{
    {"niagara", "EDR InfiniBand, as at SciNet's Niagara", kEdr, {}, kUcx, kNiagara},
}};

}  // namespace

std::span<const Regime> regimes() { return kRegimes; }

const Regime* regime_named(std::string_view name) {
  const auto* const found = std::ranges::find(kRegimes, name, &Regime::name);
  return found == kRegimes.end() ? nullptr : found;
}

}  // namespace larklane::sim
