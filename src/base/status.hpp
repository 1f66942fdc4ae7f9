#pragma once
// The operating errors that users see, and how we pass them on.

#include "larklane/status.hpp"

#define LARKLANE_TRY(expression)                                                       \
  do {                                                                                 \
    if (::larklane::Status try_status_ = (expression); !try_status_.ok()) [[unlikely]] \
      return try_status_;                                                              \
  } while (false)
