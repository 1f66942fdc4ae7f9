// The errors of unavailable providers, and the demands of options on them.

#include <gtest/gtest.h>

#include <string>

#include "net/registry.hpp"

namespace larklane::net {
namespace {

TEST(Registry, AnUnknownNameIsReportedWithTheKnownOnes) {
  std::string reason;
  EXPECT_EQ(open_fabric("ucx", {}, &reason).error().code(), Errc::kBadOption);
  EXPECT_NE(reason.find("no provider is called ucx"), std::string::npos) << reason;
  EXPECT_NE(reason.find(provider_names()), std::string::npos) << reason;
}

TEST(Registry, AMissingModuleIsReportedWithItsPathAndNeeds) {
  std::string reason;
  EXPECT_EQ(open_fabric("verbs", {}, &reason, "/nonexistent").error().code(), Errc::kUnreachable);
  EXPECT_NE(reason.find("/nonexistent/liblarklane_verbs"), std::string::npos) << reason;
  EXPECT_NE(reason.find("libibverbs"), std::string::npos) << reason;
}

TEST(Registry, OptionsOfVerbsAreHandedOn) {
  Config config;
  const FabricOptions chosen = fabric_options(config, "mlx5_0:1");
  EXPECT_EQ(chosen.device, "mlx5_0:1");
  EXPECT_EQ(chosen.gid_index, -1);
  EXPECT_EQ(chosen.service_level, 0);
  EXPECT_EQ(chosen.mtu_bytes, 0u);
  EXPECT_EQ(chosen.receives_max, FabricOptions().receives_max);
  std::string problem;
  ASSERT_TRUE(config.set("verbs_gid_index", "3", &problem).ok()) << problem;
  ASSERT_TRUE(config.set("verbs_service_level", "5", &problem).ok()) << problem;
  ASSERT_TRUE(config.set("verbs_mtu", "1K", &problem).ok()) << problem;
  ASSERT_TRUE(config.set("verbs_receives_max", "65536", &problem).ok()) << problem;
  const FabricOptions asked = fabric_options(config, "");
  EXPECT_EQ(asked.gid_index, 3);
  EXPECT_EQ(asked.service_level, 5);
  EXPECT_EQ(asked.mtu_bytes, 1024u);
  EXPECT_EQ(asked.receives_max, 65536u);
  EXPECT_FALSE(config.set("verbs_service_level", "16", &problem).ok());
}

}  // namespace
}  // namespace larklane::net
