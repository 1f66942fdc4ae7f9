// Errc, Status and Result.

#include <gtest/gtest.h>

#include <cctype>
#include <set>
#include <string>

#include "base/status.hpp"

namespace larklane {
namespace {

constexpr auto kLast = static_cast<std::int32_t>(Errc::kBadOption);

TEST(Errc, EveryCodeHasALowerCaseNameOfItsOwn) {
  std::set<std::string> names;
  for (std::int32_t code = 0; code <= kLast; ++code) {
    const std::string name = errc_name(static_cast<Errc>(code));
    EXPECT_NE(name, "unknown error") << code;
    EXPECT_TRUE(names.insert(name).second) << name;
    for (const char letter : name) EXPECT_FALSE(std::isupper(static_cast<unsigned char>(letter)));
  }
  EXPECT_STREQ(errc_name(static_cast<Errc>(kLast + 1)), "unknown error");
}

Status fails_with(Status status, bool* went_on) {
  LARKLANE_TRY(status);
  *went_on = true;
  return {};
}

TEST(Status, TryPropagatesErrorsOnly) {
  bool went_on = false;
  EXPECT_EQ(fails_with({Errc::kTransfer, 5}, &went_on), Status(Errc::kTransfer, 5));
  EXPECT_FALSE(went_on);
  EXPECT_TRUE(fails_with({}, &went_on).ok());
  EXPECT_TRUE(went_on);
}

TEST(Result, HoldsAValueOrAnError) {
  Result<std::string> value = std::string("x");
  ASSERT_TRUE(value);
  EXPECT_EQ(*value, "x");
  const Result<std::string> error = Status(Errc::kSystem, 12);
  EXPECT_FALSE(error);
  EXPECT_EQ(error.error(), Status(Errc::kSystem, 12));
}

}  // namespace
}  // namespace larklane
