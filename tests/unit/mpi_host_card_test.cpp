#include <gtest/gtest.h>

#include "base/ranks_text.hpp"
#include "mpi/host_card.hpp"

namespace larklane::mpi {
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
  const HostCard own = card({"verbs", "ofi/verbs;ofi_rxm"});
  const std::string text = own.text();
  EXPECT_EQ(text.find_first_of(" \n\t"), std::string::npos);
  const auto read = HostCard::of_text(text);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->host, own.host);
  EXPECT_EQ(read->secret, own.secret);
  EXPECT_EQ(read->address, own.address);
  EXPECT_EQ(read->networks, own.networks);
}

TEST(HostCard, WhoCannotBeReachedHasNeitherAddressNorNetworks) {
  HostCard own = card({});
  own.address.clear();
  const auto read = HostCard::of_text(own.text());
  ASSERT_TRUE(read.has_value());
  EXPECT_TRUE(read->address.empty());
  EXPECT_TRUE(read->networks.empty());
}

TEST(HostCard, NothingElseIsACard) {
  const std::string text = card({"verbs"}).text();
  EXPECT_FALSE(HostCard::of_text(""));
  EXPECT_FALSE(HostCard::of_text("0.0.0" + text.substr(text.find('|'))));
  EXPECT_FALSE(HostCard::of_text(text + "|"));
  for (std::size_t bytes = 0; bytes < text.find("tcp"); ++bytes) {
    if (text[bytes] != '|') continue;
    EXPECT_FALSE(HostCard::of_text(text.substr(0, bytes))) << bytes;
    if (bytes > text.find("verbs")) continue;
    EXPECT_FALSE(HostCard::of_text(text.substr(0, bytes) + "x" + text.substr(bytes))) << bytes;
  }
  std::string without_port = text;
  without_port.erase(without_port.find(":4711"), 5);
  EXPECT_FALSE(HostCard::of_text(without_port));
}

TEST(HostCard, MostDecideByWhichNetworkAllGo) {
  const auto cards = [](std::vector<std::vector<std::string>> networks) {
    std::vector<std::optional<HostCard>> all(1);  // rank 0 runs without Larklane
    for (auto& of_one : networks) all.emplace_back(card(of_one));
    return all;
  };
  EXPECT_EQ(common_network(cards({})), "");
  EXPECT_EQ(common_network(cards({{"verbs", "ofi/tcp"}, {"ofi/tcp", "verbs"}})), "verbs");
  EXPECT_EQ(common_network(cards({{"verbs", "ofi/tcp"}, {"ofi/tcp"}})), "ofi/tcp");
  EXPECT_EQ(common_network(cards({{"ofi/tcp"}, {"ofi/efa"}})), "ofi/efa");
  EXPECT_EQ(common_network(cards({{"ofi/tcp"}, {"ofi/efa"}, {"ofi/tcp"}})), "ofi/tcp");
}

TEST(HostCard, RanksAreNamedInRanges) {
  EXPECT_EQ(ranks_text({2}), "2");
  EXPECT_EQ(ranks_text({0, 1, 2, 5, 7, 8}), "0-2, 5, 7-8");
}

}  // namespace
}  // namespace larklane::mpi
