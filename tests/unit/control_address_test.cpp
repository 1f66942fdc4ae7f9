// SipHash, names of secrets, addresses of other hosts and their listeners.

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstdio>

#include "base/address.hpp"
#include "base/secret.hpp"
#include "base/siphash.hpp"
#include "control/plane/plane.hpp"

namespace larklane::control {
namespace {

TEST(Siphash, VectorsOfItsAuthors) {
  // From vectors.h of the reference code: key 00 .. 0f, texts of 0, 1, 8 and 15 bytes 00 01 ...
  Secret key;
  std::array<std::byte, 15> text;
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(i);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::byte>(i);
  EXPECT_EQ(siphash(key, {}), 0x726fdb47dd0e0e31U);
  EXPECT_EQ(siphash(key, std::span(text).first(1)), 0x74f839c593dc67fdU);
  EXPECT_EQ(siphash(key, std::span(text).first(8)), 0x93f5f5799a932462U);
  EXPECT_EQ(siphash(key, text), 0xa129ca6149be45e5U);
}

std::string hex_128(const Secret& key, std::span<const std::byte> text) {
  std::string digits;
  for (const std::byte byte : siphash_128(key, text)) {
    std::array<char, 3> pair{};
    std::snprintf(pair.data(), pair.size(), "%02x", std::to_integer<unsigned>(byte));
    digits += pair.data();
  }
  return digits;
}

TEST(Siphash, VectorsOf128Bits) {
  // from vectors.h, too; `openssl mac -macopt size:16 SipHash` gives the same
  Secret key;
  std::array<std::byte, 63> text;
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(i);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::byte>(i);
  EXPECT_EQ(hex_128(key, {}), "a3817f04ba25a8e66df67214c7550293");
  EXPECT_EQ(hex_128(key, std::span(text).first(1)), "da87c1d86b99af44347659119b22fc45");
  EXPECT_EQ(hex_128(key, std::span(text).first(8)), "3b62a9ba6258f5610f83e264f31497b4");
  EXPECT_EQ(hex_128(key, std::span(text).first(15)), "5493e99933b0a8117e08ec0f97cfc3d9");
  EXPECT_EQ(hex_128(key, text), "5150d1772f50834a503e069a973fbd7c");
}

TEST(Secret, PublicNamesDifferByTextAndLabel) {
  const std::string name = public_name("secret", "one use");
  EXPECT_EQ(name.size(), 32U);
  EXPECT_EQ(name.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(public_name("secret", "one use"), name);
  EXPECT_NE(public_name("secret", "another"), name);
  EXPECT_NE(public_name("secreu", "one use"), name);
  EXPECT_NE(key_of("secret"), key_of("secreu"));
}

TEST(RemoteAddress, PartsAndText) {
  const Address text = "tcp://10.0.0.1,[fd00::2],192.168.7.9:41234/larklane.0.1/x";
  const auto parsed = RemoteAddress::parse(text);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->hosts, (std::vector<std::string>{"10.0.0.1", "fd00::2", "192.168.7.9"}));
  EXPECT_EQ(parsed->port, 41234);
  EXPECT_EQ(parsed->name, "larklane.0.1/x");
  EXPECT_EQ(parsed->text(), text);
  EXPECT_EQ(host_text(parsed->endpoint(1).get()), "fd00::2");
}

TEST(RemoteAddress, TextsOfNoAddressAreRefused) {
  for (const char* text : {"",
                           "name",
                           "tcp://",
                           "tcp://10.0.0.1",
                           "tcp://10.0.0.1:1",
                           "tcp://10.0.0.1:1/",
                           "tcp://10.0.0.1:0/x",
                           "tcp://10.0.0.1:65536/x",
                           "tcp://10.0.0.1:-1/x",
                           "tcp://:1/x",
                           "tcp://10.0.0.1,:1/x",
                           "tcp://host:1/x",
                           "tcp://[10.0.0.1]:1/x",
                           "tcp://fd00::2:1/x",
                           "tcp://[fd00::2:1/x",
                           "tcp://10.0.0.1:01/x",
                           "tcp://10.0.0.1:1/a b",
                           "tcp://10.0.0.01:1/x",
                           "tcp://10.0.0.1:1/tcp://10.0.0.1:1/x",
                           "tcp://[FD00::2]:1/x2 "}) {
    EXPECT_FALSE(RemoteAddress::parse(text)) << text;
  }
  Address many = "tcp://10.0.0.1";
  for (std::size_t i = 1; i < kHostsMax; ++i) many += ",10.0.0.1";
  EXPECT_TRUE(RemoteAddress::parse(many + ":1/x"));
  EXPECT_FALSE(RemoteAddress::parse(many + ",10.0.0.1:1/x"));
  EXPECT_FALSE(RemoteAddress::parse("tcp://10.0.0.1:1/" + std::string(kAddressBytes, 'x')));
}

TEST(RemoteAddress, NoLocalAddressLooksLikeOne) {
  EXPECT_TRUE(is_local_address("larklane.0.1"));
  EXPECT_FALSE(is_local_address("tcp://10.0.0.1:1/x"));
  EXPECT_FALSE(is_local_address("tcp://"));
  EXPECT_EQ(Listener::bind("tcp://10.0.0.1:1/x").error(), Status(Errc::kInvalidArgument));
}

TEST(RemoteListener, EveryInterface) {
  std::string problem;
  Result<RemoteListener> listener = RemoteListener::bind("name", "", &problem);
  ASSERT_TRUE(listener) << problem;
  const auto parsed = RemoteAddress::parse(listener->address);
  ASSERT_TRUE(parsed) << listener->address;
  EXPECT_EQ(parsed->hosts, listener->hosts);
  EXPECT_EQ(parsed->name, "name");
  const bool has_loopback = std::any_of(
      listener->hosts.begin(), listener->hosts.end(),
      [](const std::string& host) { return host.starts_with("127.") || host == "::1"; });
  EXPECT_EQ(has_loopback, listener->hosts.front().starts_with("127."));  // alone or not at all
}

TEST(RemoteListener, OneInterface) {
  std::string problem;
  for (const char* name : {"lo", "127.0.0.1"}) {
    Result<RemoteListener> listener = RemoteListener::bind("name", name, &problem);
    ASSERT_TRUE(listener) << problem;
    EXPECT_EQ(listener->hosts, std::vector<std::string>{"127.0.0.1"});
  }
  Result<RemoteListener> none = RemoteListener::bind("name", "nosuch0", &problem);
  EXPECT_EQ(none.error(), Status(Errc::kInvalidArgument));
  EXPECT_NE(problem.find("nosuch0"), std::string::npos);
  none = RemoteListener::bind("name", "203.0.113.77", &problem);
  EXPECT_EQ(none.error(), Status(Errc::kSystem, EADDRNOTAVAIL));
  EXPECT_NE(problem.find("203.0.113.77"), std::string::npos);
}

}  // namespace
}  // namespace larklane::control
