// The four completion objects.

#include <optional>
#include <span>

#include "capi/error.hpp"
#include "capi/handles.hpp"
#include "capi/names.hpp"

namespace larklane::capi {

larklane_completion completion_of(const Completion& completion) noexcept {
  return {sizeof(larklane_completion),
          code_of(completion.status),
          completion.status.detail(),
          completion.rank,
          completion.tag,
          completion.buffer,
          completion.bytes,
          completion.user_context};
}

}  // namespace larklane::capi

namespace {

/// The result of a call that makes a completion object.
template <class Kind>
int created(const char* call, larklane_context& context, Result<Kind> made,
            larklane_completion_object** object_p, std::unique_ptr<HandlerCall> function = {}) {
  if (!made) return fail(call, made.error());
  *object_p = new larklane_completion_object(context, std::move(made).value(), std::move(function));
  return 0;
}

void call_handler(const Completion& completion, void* state) {
  const auto& call = *static_cast<const HandlerCall*>(state);
  const larklane_completion told = completion_of(completion);
  call.function(&told, call.state);
}

/// Null: it is none.
template <class Kind>
const Kind* as(const larklane_completion_object* object) noexcept {
  return std::get_if<Kind>(&object->object);
}
template <class Kind>
Kind* as(larklane_completion_object* object) noexcept {
  return std::get_if<Kind>(&object->object);
}

}  // namespace

/// The caller's function fails if `object` is null or not a `Kind`; else it is `name`.
#define LARKLANE_CAPI_IS(Kind, name, object) \
  LARKLANE_CAPI_NEEDS(object);               \
  auto* const name = as<Kind>(object);       \
  if (name == nullptr) [[unlikely]]          \
  return fail(__func__, Errc::kWrongKind, "the completion object is not a " #name)

int larklane_completion_object_free(larklane_completion_object* object) {
  if (object == nullptr) return 0;
  if (const larklane::Status status = object->base().free(); !status.ok())
    return fail(__func__, status, "operations that name it are in flight");
  delete object;
  return 0;
}

int larklane_completion_object_destroy(larklane_completion_object* object) {
  if (object == nullptr) return 0;
  if (object->call == nullptr || object->base().free().ok()) {
    delete object;
    return 0;
  }
  return guarded(__func__, [&] {
    larklane_context& context = object->made.context();
    const std::lock_guard lock(context.mutex);
    context.left.push_back(std::move(object->call));
    delete object;
    return 0;
  });
}

int larklane_completion_object_register_remote(larklane_completion_object* object,
                                               larklane_remote_completion* number_p) {
  LARKLANE_CAPI_NEEDS(object);
  LARKLANE_CAPI_NEEDS(number_p);
  Result<RemoteCompletion> number = object->base().register_remote();
  if (!number) return fail(__func__, number.error());
  *number_p = *number;
  return 0;
}

int larklane_completion_object_deregister_remote(larklane_completion_object* object) {
  LARKLANE_CAPI_NEEDS(object);
  object->base().deregister_remote();
  return 0;
}

int larklane_synchronizer_create(larklane_context* context, uint32_t signals,
                                 larklane_completion_object** object_p) {
  LARKLANE_CAPI_NEEDS(context);
  LARKLANE_CAPI_NEEDS(object_p);
  return guarded(__func__, [&, call = __func__] {
    return created(call, *context, Synchronizer::create(context->inside->completions(), signals),
                   object_p);
  });
}

int larklane_synchronizer_test(const larklane_completion_object* object, int* is_ready_p) {
  LARKLANE_CAPI_IS(Synchronizer, synchronizer, object);
  LARKLANE_CAPI_NEEDS(is_ready_p);
  *is_ready_p = synchronizer->test() ? 1 : 0;
  return 0;
}

int larklane_synchronizer_completion(const larklane_completion_object* object, uint32_t index,
                                     larklane_completion* completion_p) {
  LARKLANE_CAPI_IS(Synchronizer, synchronizer, object);
  LARKLANE_CAPI_NEEDS_STRUCT(completion_p);
  const std::span<const Completion> completions = synchronizer->completions();
  if (completions.empty()) return fail(__func__, Errc::kNotActive, "it is not ready");
  if (index >= completions.size())
    return fail(__func__, Errc::kInvalidArgument, "completion %u of %zu", index,
                completions.size());
  *completion_p = completion_of(completions[index]);
  return 0;
}

int larklane_synchronizer_reset(larklane_completion_object* object) {
  LARKLANE_CAPI_IS(Synchronizer, synchronizer, object);
  return answer(__func__, synchronizer->reset());
}

int larklane_synchronizer_excess(const larklane_completion_object* object, uint64_t* excess_p) {
  LARKLANE_CAPI_IS(Synchronizer, synchronizer, object);
  LARKLANE_CAPI_NEEDS(excess_p);
  *excess_p = synchronizer->excess();
  return 0;
}

int larklane_queue_create(larklane_context* context, larklane_completion_object** object_p) {
  LARKLANE_CAPI_NEEDS(context);
  LARKLANE_CAPI_NEEDS(object_p);
  return guarded(__func__, [&, call = __func__] {
    return created(call, *context, CompletionQueue::create(context->inside->completions()),
                   object_p);
  });
}

int larklane_queue_pop(larklane_completion_object* object, larklane_completion* completion_p,
                       int* is_there_p) {
  LARKLANE_CAPI_IS(CompletionQueue, queue, object);
  LARKLANE_CAPI_NEEDS_STRUCT(completion_p);
  LARKLANE_CAPI_NEEDS(is_there_p);
  const std::optional<Completion> completion = queue->pop();
  if (completion) *completion_p = completion_of(*completion);
  *is_there_p = completion ? 1 : 0;
  return 0;
}

int larklane_counter_create(larklane_context* context, larklane_completion_object** object_p) {
  LARKLANE_CAPI_NEEDS(context);
  LARKLANE_CAPI_NEEDS(object_p);
  return guarded(__func__, [&, call = __func__] {
    return created(call, *context, Counter::create(context->inside->completions()), object_p);
  });
}

int larklane_counter_completed(const larklane_completion_object* object, uint64_t* completed_p) {
  LARKLANE_CAPI_IS(Counter, counter, object);
  LARKLANE_CAPI_NEEDS(completed_p);
  *completed_p = counter->completed();
  return 0;
}

int larklane_counter_failed(const larklane_completion_object* object, uint64_t* failed_p) {
  LARKLANE_CAPI_IS(Counter, counter, object);
  LARKLANE_CAPI_NEEDS(failed_p);
  *failed_p = counter->failed();
  return 0;
}

int larklane_handler_create(larklane_context* context, larklane_handler function, void* state,
                            larklane_completion_object** object_p) {
  LARKLANE_CAPI_NEEDS(context);
  LARKLANE_CAPI_NEEDS(function);
  LARKLANE_CAPI_NEEDS(object_p);
  return guarded(__func__, [&, name = __func__] {
    auto call = std::make_unique<HandlerCall>(HandlerCall{function, state});
    auto made = Handler::create(context->inside->completions(), call_handler, call.get());
    return created(name, *context, std::move(made), object_p, std::move(call));
  });
}
