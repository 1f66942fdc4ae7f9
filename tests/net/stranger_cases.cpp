// A process without a link's offer can't read, write, or deliver an immediate over it.

#include <algorithm>
#include <cstdio>

#include "cases.hpp"
#include "stranger.hpp"

namespace larklane::provider_test {
namespace {

/// The work of both sides during the attack: writes with immediates, each received once, in order.
class Rounds {
 public:
  Rounds(Side& side, Node& node, net::Link& link)
      : side_(side), node_(node), link_(link), memory_(side.share(target_)) {
    source_memory_ = side.share(source_);
    remote_ = side.swap(memory_->remote());
  }
  void run() {
    const auto seed = static_cast<std::uint32_t>(++count_);
    fill(source_, seed);
    side_.complete([&](net::Operation& operation) {
      return link_.write_immediate({source_.data(), source_memory_.get(), remote_, kBytes}, seed,
                                   operation);
    });
    side_.wait("an immediate", [&] { return node_.heard.size() >= count_; });
    CHECK(node_.heard.size() == count_ && node_.heard.back() == seed);
    CHECK(node_.heard_wide.empty());
    CHECK(first_wrong(target_, seed) == -1);
    side_.meet();  // the target may be written again
  }
  /// Until both sides agree.
  template <class IsOver>
  void run_until(IsOver&& is_over) {
    for (bool is_going_on = true; is_going_on;) {
      run();
      const bool is_mine_over = is_over();
      const bool is_others_over = side_.swap(is_mine_over);
      is_going_on = !is_mine_over || !is_others_over;
    }
  }
  std::size_t count() const noexcept { return count_; }

 private:
  static constexpr std::size_t kBytes = 4096;
  Side& side_;
  Node& node_;
  net::Link& link_;
  std::vector<std::byte> source_ = std::vector<std::byte>(kBytes);
  std::vector<std::byte> target_ = std::vector<std::byte>(kBytes);
  std::unique_ptr<net::Memory> memory_, source_memory_;
  net::RemoteMemory remote_{};
  std::size_t count_ = 0;
};

/// While a link is at work, to each port that the process has. No link awaits its peer, so no port
/// listens.
void stranger(Side& side) {
  Node& node = side.open_node();
  const auto link = side.open_link(node);
  Rounds rounds(side, node, *link);
  rounds.run();
  side.wait("the listener's end", [] { return !is_listening(); });
  const auto ports = own_ports();
  Stranger stranger(ports, 2000);
  rounds.run_until([&] { return stranger.has_tried_all(); });
  CHECK(stranger.intrusion() == Intrusion::kNone);
  std::printf("  %zu ports tried in %zu rounds\n", ports.size(), rounds.count());
  side.meet();
}

/// While a link awaits its peer it has to listen: the peer gets through, and no other process does.
void stranger_in_between(Side& side) {
  struct Offer {
    std::size_t length;
    std::array<std::byte, net::kOfferBytesMax> bytes;
  };
  Node& node = side.open_node();
  auto link = TAKE(node.endpoint->open_link());
  Offer own{};
  own.length = link->offer().size();
  std::memcpy(own.bytes.data(), link->offer().data(), own.length);
  Stranger stranger(own_ports(), 500);
  side.wait("a stranger", [&] { return stranger.has_tried_all(); });
  CHECK(stranger.intrusion() == Intrusion::kNone);
  const Offer other = side.swap(own);
  CHECK_OK(link->connect(std::span(other.bytes).first(other.length)));
  side.meet();
  Rounds rounds(side, node, *link);
  for (int i = 0; i < 100; ++i) rounds.run();
}

constexpr Case kCases[] = {
    {"stranger", stranger},
    {"stranger_in_between", stranger_in_between},
};

}  // namespace

std::span<const Case> stranger_cases() { return kCases; }

}  // namespace larklane::provider_test
