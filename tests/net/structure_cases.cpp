// Several links and endpoints, memory, offers, and the limits that a fabric states.

#include <algorithm>
#include <cstdio>
#include <random>

#include "cases.hpp"

namespace larklane::provider_test {
namespace {

void limits(Side& side) {
  const net::Limits& limits = side.fabric->limits();
  CHECK(limits.small_bytes_max >= 8);
  CHECK(limits.write_bytes_max >= 1 << 20 && limits.read_bytes_max >= 1 << 20);
  CHECK(!limits.provider.empty());
  if (side.rank == 0)
    std::printf(
        "  %s: writes to %llu, reads to %llu, small to %u bytes, %u immediates, %s progress, %s\n",
        limits.provider.c_str(), static_cast<unsigned long long>(limits.write_bytes_max),
        static_cast<unsigned long long>(limits.read_bytes_max), limits.small_bytes_max,
        limits.immediates_max, limits.is_progress_manual ? "manual" : "automatic",
        side.open_node().endpoint->wait_fd() >= 0 ? "can be slept on" : "no descriptor");
  side.meet();
}

/// Two endpoints on each side, one of them without a sleeping thread; five links, two of them
/// between the same two endpoints.
void links_and_endpoints(Side& side) {
  struct Way {
    int own, other;
  };
  constexpr Way kWays[] = {{0, 0}, {0, 0}, {1, 1}, {0, 1}, {1, 0}};
  constexpr std::size_t kBytes = 10000;
  Node* nodes[] = {&side.open_node(), &side.open_node(false)};
  if (nodes[1]->endpoint->wait_fd() < 0) CHECK(!nodes[1]->endpoint->arm(net::Wake::all));
  std::vector<std::unique_ptr<net::Link>> links;
  for (const Way& way : kWays)
    links.push_back(side.open_link(*nodes[side.rank == 0 ? way.own : way.other]));
  std::vector<std::byte> source(kBytes), target(kBytes * std::size(kWays));
  const auto source_memory = side.share(source);
  const auto target_memory = side.share(target);
  const auto remote = side.swap(target_memory->remote());
  std::vector<std::uint32_t> wanted[2];
  for (std::uint32_t i = 0; i < std::size(kWays); ++i) {
    const Way& way = kWays[i];
    fill(source, i);
    side.complete([&](net::Operation& operation) {
      return links[i]->write_immediate(
          {source.data(), source_memory.get(), {remote.address + i * kBytes, remote.key}, kBytes},
          i, operation);
    });
    wanted[side.rank == 0 ? way.own : way.other].push_back(i);
  }
  for (int i = 0; i < 2; ++i) {
    side.wait("immediates", [&] { return nodes[i]->heard.size() == wanted[i].size(); });
    std::ranges::sort(nodes[i]->heard);
    CHECK(nodes[i]->heard == wanted[i]);
  }
  for (std::uint32_t i = 0; i < std::size(kWays); ++i)
    CHECK(first_wrong(std::span(target).subspan(i * kBytes, kBytes), i) == -1);
  side.meet();
  links.erase(links.begin());  // the other link between the same two stays of use
  side.meet();
  side.complete([&](net::Operation& operation) {
    return links[0]->write_small_immediate({}, remote, 77, operation);
  });
  side.wait("an immediate", [&] { return nodes[0]->heard.back() == 77; });
  side.meet();
}

void memory(Side& side) {
  std::vector<std::byte> bytes(1 << 16);
  { const auto nothing = side.share({}); }
  const auto nothing_at = side.share(std::span(bytes).first(0));
  std::vector<std::unique_ptr<net::Memory>> many;
  for (std::size_t i = 0; i < 1000; ++i)
    many.push_back(side.share(std::span(bytes).subspan(i, 100)));
  const auto twice = side.share(std::span(bytes).first(100));
  CHECK(side.fabric->register_memory(nullptr, 0).has_value());
  many.clear();
  many.push_back(side.share(bytes));
  side.meet();
}

/// @return whether it was refused; a link is used once
bool is_refused(Node& node, std::span<const std::byte> offer) {
  auto link = TAKE(node.endpoint->open_link());
  return !link->connect(offer).ok();
}

void broken_offers(Side& side) {
  Node& node = side.open_node();
  std::vector<std::byte> good;
  {
    auto link = TAKE(node.endpoint->open_link());
    good.assign(link->offer().begin(), link->offer().end());
  }
  for (std::size_t length = 0; length < good.size(); ++length)
    CHECK(is_refused(node, std::span(good).first(length)));
  auto longer = good;
  while (longer.size() < 2 * net::kOfferBytesMax) {
    longer.push_back(std::byte{0});
    CHECK(is_refused(node, longer));
  }
  std::mt19937 random(static_cast<unsigned>(side.rank) + 1);
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::byte> noise(random() % (net::kOfferBytesMax + 1));
    for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
    CHECK(is_refused(node, noise));
  }
  // A wrong bit in an address may look like another address: then it is taken, and nothing breaks.
  std::size_t refused = 0;
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    auto wrong = good;
    wrong[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    refused += is_refused(node, wrong);
  }
  CHECK(refused > 0);
  if (side.rank == 0)
    std::printf("  %zu of %zu offers with one wrong bit were refused\n", refused, 8 * good.size());
  const auto link = side.open_link(node);
  side.meet();
}

constexpr Case kCases[] = {
    {"limits", limits},
    {"links_and_endpoints", links_and_endpoints},
    {"memory", memory},
    {"broken_offers", broken_offers},
};

}  // namespace

std::span<const Case> structure_cases() { return kCases; }

}  // namespace larklane::provider_test
