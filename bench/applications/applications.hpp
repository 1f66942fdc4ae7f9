#pragma once
// The applications, by name.

#include "application.hpp"
#include "bspmm.hpp"
#include "ebms.hpp"
#include "stencil.hpp"

namespace larklane::bench {

/// Measures one size. Collective.
/// @return complete on rank 0
template <class Transport>
Point measure_application(const Options& options, std::uint64_t size,
                          typename Transport::World& world, double timer_ns, double budget_ns,
                          const Watcher& watcher) {
  const auto measure = [&]<class App>() {
    return Application<Transport, App>(options, size, world, timer_ns, watcher).run(budget_ns);
  };
  if (options.benchmark == "ebms") return measure.template operator()<Ebms>();
  if (options.benchmark == "stencil") return measure.template operator()<Stencil>();
  return measure.template operator()<Bspmm>();
}

}  // namespace larklane::bench
