#pragma once
// Expectations of calls of the C API.

#include <gtest/gtest.h>

#include <string>

#include "larklane/larklane.h"

/// Expects that `call` was refused with `error`, and with that name.
inline void expect_refused(int status, int error, const std::string& text) {
  EXPECT_EQ(status, error) << larklane_error_name(status);
  EXPECT_NE(std::string(larklane_last_error()).find(text), std::string::npos)
      << larklane_last_error() << "\nwanted: " << text;
}
inline void expect_ok(int status) { EXPECT_EQ(status, 0) << larklane_last_error(); }
