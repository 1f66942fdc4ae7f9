// Contexts, lanes and memory.

#include <cerrno>
#include <string>

#include "capi/error.hpp"
#include "capi/handles.hpp"
#include "capi/names.hpp"
#include "msg/protocol/engine.hpp"

namespace {

/// The result of a call that creates a context.
int created(const char* call, Result<std::unique_ptr<Context>> context, const std::string& problem,
            larklane_context** context_p) {
  if (!context)
    return problem.empty() ? fail(call, context.error())
                           : fail(call, context.error(), "%s", problem.c_str());
  *context_p = new larklane_context(std::move(context).value());
  return 0;
}

int create_vci(const char* call, larklane_context& context, const VciOptions& options,
               larklane_vci** vci_p) {
  return guarded(call, [&] {
    Result<Vci> vci = context.inside->create_vci(options);
    if (!vci && vci.error() == Status(Errc::kNoMemory, EBUSY))
      return fail(call, vci.error(),
                  options.is_single_threaded
                      ? "no lane is left that nobody has; remedy: more, by LARKLANE_VCI_COUNT_MAX"
                      : "all lanes are single threads'; remedy: more, by LARKLANE_VCI_COUNT_MAX");
    if (!vci) return fail(call, vci.error());
    *vci_p = new larklane_vci(context, std::move(vci).value());
    return 0;
  });
}

}  // namespace

int larklane_context_create(larklane_context** context_p) {
  LARKLANE_CAPI_NEEDS(context_p);
  return guarded(__func__, [&, call = __func__] {
    std::string problem;
    return created(call, Context::create(&problem), problem, context_p);
  });
}

int larklane_context_create_with_peers(const larklane_peers* peers, larklane_context** context_p) {
  LARKLANE_CAPI_NEEDS_STRUCT(peers);
  LARKLANE_CAPI_NEEDS(peers->all_gather);
  LARKLANE_CAPI_NEEDS(context_p);
  if (peers->rank < 0 || peers->rank >= peers->size)
    return fail(__func__, Errc::kInvalidArgument, "rank %d of %d", peers->rank, peers->size);
  return guarded(__func__, [&, call = __func__] {
    std::string problem;
    auto all_gather = [gather = peers->all_gather, state = peers->state](
                          const void* own, std::size_t bytes, void* all) {
      return gather(own, bytes, all, state) == 0;
    };
    return created(call, Context::create({peers->rank, peers->size, all_gather}, &problem), problem,
                   context_p);
  });
}

int larklane_context_destroy(larklane_context* context) {
  if (context == nullptr) return 0;
  // acquire: pairs with ~Made()'s release.
  if (const std::uint32_t left = context->made.load(std::memory_order_acquire); left != 0)
    return fail(__func__, Errc::kAlreadyActive,
                "%u lanes, regions or completion objects of it are left", left);
  if (const std::uint32_t held = context->inside->inside().held_packet_count(); held != 0)
    return fail(__func__, Errc::kAlreadyActive, "%u packets of it are not given back", held);
  delete context;
  return 0;
}

int larklane_context_rank(const larklane_context* context, int* rank_p) {
  LARKLANE_CAPI_NEEDS(context);
  LARKLANE_CAPI_NEEDS(rank_p);
  *rank_p = context->inside->rank();
  return 0;
}

int larklane_context_size(const larklane_context* context, int* size_p) {
  LARKLANE_CAPI_NEEDS(context);
  LARKLANE_CAPI_NEEDS(size_p);
  *size_p = context->inside->size();
  return 0;
}

int larklane_context_fence(larklane_context* context) {
  LARKLANE_CAPI_NEEDS(context);
  return guarded(__func__, [&, call = __func__] {
    std::string problem;
    const Status status = context->inside->fence(&problem);
    if (status.ok()) return 0;
    return problem.empty() ? fail(call, status) : fail(call, status, "%s", problem.c_str());
  });
}

int larklane_vci_create(larklane_context* context, larklane_vci** vci_p) {
  LARKLANE_CAPI_NEEDS(context);
  LARKLANE_CAPI_NEEDS(vci_p);
  return create_vci(__func__, *context, {}, vci_p);
}

int larklane_vci_create_single_threaded(larklane_context* context, larklane_vci** vci_p) {
  LARKLANE_CAPI_NEEDS(context);
  LARKLANE_CAPI_NEEDS(vci_p);
  return create_vci(__func__, *context, {.is_single_threaded = true}, vci_p);
}

int larklane_vci_destroy(larklane_vci* vci) {
  if (vci == nullptr) return 0;
  LARKLANE_CAPI_NEEDS_LANE(vci);
  return guarded(__func__, [&] {
    larklane_context& context = vci->made->context();
    // In a forked child the lock may be for ever that of a thread which is not there.
    if (context.inside->inside().is_made_here()) {
      const std::scoped_lock lock(context.mutex);
      context.destroyed.emplace_back(vci);
    }
    { const Vci over(std::move(vci->vci)); }
    vci->made.reset();  // now the context may go, and the handle with it
    return 0;
  });
}

int larklane_vci_progress(larklane_vci* vci, uint32_t* served_p) {
  LARKLANE_CAPI_NEEDS_LANE(vci);
  const std::uint32_t served = vci->vci.progress();
  if (served_p != nullptr) *served_p = served;
  return 0;
}

int larklane_vci_retry_counts(const larklane_vci* vci, larklane_retry_counts* counts_p) {
  LARKLANE_CAPI_NEEDS_LANE(vci);
  LARKLANE_CAPI_NEEDS_STRUCT(counts_p);
  const larklane::RetryCounts counts = vci->vci.retry_counts();
  *counts_p = {sizeof *counts_p,    counts.not_connected, counts.no_room, counts.no_packet,
               counts.no_operation, counts.no_memory,     counts.behind};
  return 0;
}

int larklane_vci_eager_bytes_max(const larklane_vci* vci, uint64_t* bytes_p) {
  LARKLANE_CAPI_NEEDS_LANE(vci);
  LARKLANE_CAPI_NEEDS(bytes_p);
  *bytes_p = vci->vci.eager_bytes_max();
  return 0;
}

int larklane_region_register(larklane_context* context, void* start, uint64_t bytes,
                             larklane_region** region_p) {
  LARKLANE_CAPI_NEEDS(context);
  LARKLANE_CAPI_NEEDS(region_p);
  if (bytes != 0) LARKLANE_CAPI_NEEDS(start);
  return guarded(__func__, [&, call = __func__] {
    Result<Region> region = context->inside->register_region(start, bytes);
    if (!region) return fail(call, region.error());
    *region_p = new larklane_region(*context, std::move(region).value());
    return 0;
  });
}

int larklane_region_allocate(larklane_context* context, uint64_t bytes,
                             larklane_region** region_p) {
  LARKLANE_CAPI_NEEDS(context);
  LARKLANE_CAPI_NEEDS(region_p);
  return guarded(__func__, [&, call = __func__] {
    Result<Region> region = context->inside->allocate_region(bytes);
    if (!region) return fail(call, region.error());
    *region_p = new larklane_region(*context, std::move(region).value());
    return 0;
  });
}

int larklane_region_start(const larklane_region* region, void** start_p) {
  LARKLANE_CAPI_NEEDS(region);
  LARKLANE_CAPI_NEEDS(start_p);
  *start_p = region->region.start();
  return 0;
}

int larklane_region_remote(const larklane_region* region, larklane_remote_region* remote_p) {
  LARKLANE_CAPI_NEEDS(region);
  LARKLANE_CAPI_NEEDS_STRUCT(remote_p);
  const RemoteRegion remote = region->region.remote();
  *remote_p = {sizeof *remote_p, remote.bytes, remote.address,
               remote.key,       remote.rank,  remote.number};
  return 0;
}

int larklane_region_free(larklane_region* region) {
  delete region;
  return 0;
}
