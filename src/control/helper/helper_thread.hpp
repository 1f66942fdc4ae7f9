#pragma once
// Starts the helper thread.

#include <pthread.h>

#include "base/status.hpp"

namespace larklane::control {

/// A thread named "larklane" with all signals blocked. It may run on every CPU of the process.
/// @param body  runs on the new thread
/// @errors kNoThread
Result<pthread_t> start_helper_thread(void* (*body)(void*), void* argument);

}  // namespace larklane::control
