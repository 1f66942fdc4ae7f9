#pragma once
// The words of a lane's offers, in memory that peers on this host map: one for each place in the
// table of awaited operations. (docs/design/protocols/ordinary_messages.md, "Cancel")

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "msg/match/match_offer.hpp"
#include "msg/protocol/awaited.hpp"
#include "net/provider.hpp"

namespace larklane::msg {

/// Thread safety: thread-safe.
// Invariant: a place, and so its word, is used again only after the peer's answer, or after its
// drop of the message.
class OfferWords {
 public:
  /// Offers with higher places can't be withdrawn.
  static constexpr std::uint32_t kWords = 4096;
  static constexpr std::uint64_t kBytes = kWords * sizeof(std::uint32_t);

  explicit OfferWords(net::Fabric& fabric) noexcept : fabric_(fabric) {}

  /// For an announcement, made on first use. Key 0: the network has no such memory, or none is
  /// left.
  net::RemoteMemory remote() noexcept;
  /// @param number  of an awaited operation
  MatchOffer of(std::uint32_t number) const noexcept {
    // acquire: pairs with remote()'s release.
    return at(words_.load(std::memory_order_acquire), number);
  }
  /// @param words  kWords of them; null: none @param number  as a peer sent it: any value
  static MatchOffer at(std::uint32_t* words, std::uint32_t number) noexcept {
    const std::uint32_t place = Awaited::place_of(number);
    if (words == nullptr || place >= kWords) return {};
    return {words + place, Awaited::use_of(number)};
  }

 private:
  net::Fabric& fabric_;
  std::mutex making_;  // guards the making of the words
  std::unique_ptr<net::AllocatedMemory> memory_;
  std::atomic<std::uint32_t*> words_{nullptr};
};

/// The peer's words behind an announcement. Null: there are none. With the lane's lock held.
/// @errors those of Link::map(); kProtocol
Result<std::uint32_t*> map_offer_words(net::Link& link, net::RemoteMemory words) noexcept;

}  // namespace larklane::msg
