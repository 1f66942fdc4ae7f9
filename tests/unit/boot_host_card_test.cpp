// The card of a rank: its text, the choice of a network, names of ranks.

#include <gtest/gtest.h>

#include "base/ranks_text.hpp"
#include "bootstrap/host_card.hpp"

namespace larklane::boot {
namespace {

HostCard card(std::vector<std::string> networks, std::uint64_t host = 0x1234) {
  HostCard made;
  made.host = host;
  made.secret[0] = std::byte{7};
  made.secret[15] = std::byte{0xfe};
  made.address = "tcp://10.0.0.1,[fd00::1]:4711/larklane.0.1.0.0.job.3";
  made.networks = std::move(networks);
  return made;
}

TEST(HostCard, TextIsOneWordAndComesBack) {
  HostCard own = card({"verbs", "ofi/verbs;ofi_rxm"});
  own.uses_them_here = true;
  own.user = 65534;
  own.local = "larklane-native-0-00ff";
  const std::string text = own.text();
  EXPECT_EQ(text.find_first_of(" \n\t"), std::string::npos);
  const auto read = HostCard::of_text(text);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->host, own.host);
  EXPECT_EQ(read->user, own.user);
  EXPECT_EQ(read->secret, own.secret);
  EXPECT_EQ(read->address, own.address);
  EXPECT_EQ(read->local, own.local);
  EXPECT_EQ(read->networks, own.networks);
  EXPECT_TRUE(read->uses_them_here);
  EXPECT_FALSE(HostCard::of_text(card({"verbs"}).text())->uses_them_here);
}

TEST(HostCard, ADeclinedNetworkIsInTheCard) {
  HostCard own = card({});
  EXPECT_FALSE(HostCard::of_text(own.text())->declines);
  own.declines = true;
  EXPECT_TRUE(HostCard::of_text(own.text())->declines);
}

TEST(HostCard, AnUnreachableRankHasNoAddressAndPerhapsNetworks) {
  for (const std::vector<std::string>& networks : {std::vector<std::string>{}, {"ofi/tcp"}}) {
    HostCard own = card(networks);
    own.address.clear();
    const auto read = HostCard::of_text(own.text());
    ASSERT_TRUE(read.has_value());
    EXPECT_TRUE(read->address.empty());
    EXPECT_EQ(read->networks, networks);
  }
}

TEST(HostCard, NothingElseIsACard) {
  const std::string text = card({"verbs"}).text();
  EXPECT_FALSE(HostCard::of_text(""));
  EXPECT_FALSE(HostCard::of_text("0.0.0" + text.substr(text.find('|'))));
  EXPECT_FALSE(HostCard::of_text(text + "|"));
  EXPECT_FALSE(HostCard::of_text(text + "two words"));
  for (std::size_t bytes = 0; bytes < text.find("tcp"); ++bytes) {
    if (text[bytes] != '|') continue;
    EXPECT_FALSE(HostCard::of_text(text.substr(0, bytes))) << bytes;
    if (bytes > text.find("verbs")) continue;
    EXPECT_FALSE(HostCard::of_text(text.substr(0, bytes) + "x" + text.substr(bytes))) << bytes;
  }
  std::string nowhere = text;
  nowhere.replace(nowhere.find("|away|"), 6, "|afar|");
  EXPECT_FALSE(HostCard::of_text(nowhere));
  std::string without_port = text;
  without_port.erase(without_port.find(":4711"), 5);
  EXPECT_FALSE(HostCard::of_text(without_port));
}

TEST(HostCard, APairGoesByTheLowerRanksFirstThatTheHigherOneHasToo) {
  const auto between = [](std::vector<std::string> lower, std::vector<std::string> higher) {
    return network_between(card(std::move(lower), 1), card(std::move(higher), 2));
  };
  EXPECT_EQ(between({"verbs", "ofi/tcp"}, {"ofi/tcp", "verbs"}), "verbs");
  EXPECT_EQ(between({"ofi/tcp", "verbs"}, {"verbs", "ofi/tcp"}), "ofi/tcp");
  EXPECT_EQ(between({"verbs", "ofi/tcp"}, {"ofi/tcp"}), "ofi/tcp");
  EXPECT_EQ(between({"ofi/tcp"}, {"ofi/efa"}), "");
  EXPECT_EQ(between({}, {"ofi/efa"}), "");
}

TEST(HostCard, OnOneHostBothHaveToWantANetwork) {
  HostCard lower = card({"verbs", "ofi/tcp"}), higher = card({"ofi/tcp"});
  EXPECT_EQ(network_between(lower, higher), "");
  lower.uses_them_here = true;
  EXPECT_EQ(network_between(lower, higher), "");
  EXPECT_EQ(network_between(higher, lower), "");
  higher.uses_them_here = true;
  EXPECT_EQ(network_between(lower, higher), "ofi/tcp");
}

TEST(HostCard, RanksAreNamedInRanges) {
  EXPECT_EQ(ranks_text({2}), "2");
  EXPECT_EQ(ranks_text({0, 1, 2, 5, 7, 8}), "0-2, 5, 7-8");
}

}  // namespace
}  // namespace larklane::boot
