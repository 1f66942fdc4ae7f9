#pragma once
// Matching of sends with receives (rule I2): by key, first come first served on either side. A
// freed half keeps its place, so that later pairs still match in order.

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "part/request.hpp"

namespace larklane::part {

struct MatchKey {
  ContextId context;
  std::int32_t source;
  std::int32_t tag;
  /// The process of the source: sends of another process under its rank match no receive of this
  /// one.
  const control::Peer* peer;
  friend bool operator==(const MatchKey&, const MatchKey&) = default;

  /// The context is a hash already; tags often follow each other.
  struct Hash {
    std::size_t operator()(const MatchKey& key) const noexcept {
      const std::uint64_t source_tag = std::uint64_t{static_cast<std::uint32_t>(key.source)} << 32 |
                                       static_cast<std::uint32_t>(key.tag);
      return (key.context.low ^ source_tag ^ reinterpret_cast<std::uintptr_t>(key.peer)) *
             0x9e3779b97f4a7c15u;
    }
  };
};

/// A channel, as the receiver's process identifies it.
struct ChannelKey {
  const control::Peer* sender;
  std::uint64_t number;  ///< the sender's
  friend bool operator==(const ChannelKey&, const ChannelKey&) = default;
  struct Hash {
    std::size_t operator()(const ChannelKey& key) const noexcept {
      return reinterpret_cast<std::uintptr_t>(key.sender) ^ key.number * 0x9e3779b97f4a7c15u;
    }
  };
};

/// Requests of one key in their order of creation, each under an ascending number. A freed one
/// keeps its place; adjacent places of freed ones are one entry.
/// @tparam Pointer  owns a request; null: it is freed
/// Thread safety: as a container.
template <class Pointer>
class Places {
 public:
  bool empty() const noexcept { return places_.empty(); }
  void push(std::uint64_t number, Pointer request) {
    places_.insert_or_assign(places_.end(), number, Place{std::move(request)});
  }
  /// @pre not empty
  std::uint64_t first_number() const { return places_.begin()->first; }
  /// @pre not empty
  Pointer take_first() {
    const auto first = places_.begin();
    Pointer request = std::move(first->second.request);
    if (--first->second.count == 0) places_.erase(first);
    return request;
  }
  /// Null: no request has this number, or it is freed.
  const Pointer* find(std::uint64_t number) const {
    const auto at = places_.find(number);
    return at == places_.end() || !at->second.request ? nullptr : &at->second.request;
  }
  void bury(std::uint64_t number) {
    const auto at = places_.find(number);
    if (at == places_.end() || !at->second.request) return;
    at->second.request.reset();
    if (const auto after = std::next(at); after != places_.end()) join(at, after);
    if (at != places_.begin()) join(std::prev(at), at);
  }

 private:
  struct Place {
    Pointer request;
    std::uint64_t count = 1;  ///< of requests; one, unless they are freed
  };
  using At = typename std::map<std::uint64_t, Place>::iterator;

  void join(At one, At next) {
    if (one->second.request || next->second.request) return;
    one->second.count += next->second.count;
    places_.erase(next);
  }

  std::map<std::uint64_t, Place> places_;
};

/// Receives without a send, and sends (their INITs) without a receive.
/// Thread safety: as a container.
template <class Receive, class Incoming>
class Matching {
 public:
  bool has_incoming(const MatchKey& key) const { return unexpected_.contains(key); }
  /// The send for `key`'s next receive, null if it has been freed; nullopt: there is none yet.
  std::optional<std::unique_ptr<Incoming>> take_incoming(const MatchKey& key) {
    const auto found = unexpected_.find(key);
    if (found == unexpected_.end()) return std::nullopt;
    key_of_.erase({key.peer, found->second.first_number()});
    std::unique_ptr<Incoming> incoming = found->second.take_first();
    if (found->second.empty()) unexpected_.erase(found);
    return incoming;
  }
  /// @param number  the channel's, from its sender: it ascends
  void keep(const MatchKey& key, std::uint64_t number, Incoming incoming) {
    unexpected_[key].push(number, std::make_unique<Incoming>(std::move(incoming)));
    key_of_.insert_or_assign({key.peer, number}, key);
  }
  /// The unmatched send of this channel; null: none.
  Incoming* incoming(const ChannelKey& channel) const {
    const auto key = key_of_.find(channel);
    if (key == key_of_.end()) return nullptr;
    const auto found = unexpected_.find(key->second);
    if (found == unexpected_.end()) return nullptr;
    const auto* const place = found->second.find(channel.number);
    return place == nullptr ? nullptr : place->get();
  }
  /// The send is freed before its match. @pre incoming(channel)
  void bury_incoming(const ChannelKey& channel) {
    const auto key = key_of_.find(channel);
    unexpected_.at(key->second).bury(channel.number);
    key_of_.erase(key);
  }

  /// @return the receive's place, for bury()
  std::uint64_t post(const MatchKey& key, std::shared_ptr<Receive> receive) {
    posted_[key].push(++last_posted_, std::move(receive));
    return last_posted_;
  }
  /// The receive for `key`'s next send, null if it has been freed; nullopt: there is none yet.
  std::optional<std::shared_ptr<Receive>> take_posted(const MatchKey& key) {
    const auto found = posted_.find(key);
    if (found == posted_.end()) return std::nullopt;
    std::shared_ptr<Receive> receive = found->second.take_first();
    if (found->second.empty()) posted_.erase(found);
    return receive;
  }
  /// The receive is freed before its match.
  void bury(const MatchKey& key, std::uint64_t place) {
    if (const auto found = posted_.find(key); found != posted_.end()) found->second.bury(place);
  }

 private:
  std::uint64_t last_posted_ = 0;
  std::unordered_map<MatchKey, Places<std::shared_ptr<Receive>>, MatchKey::Hash> posted_;
  std::unordered_map<MatchKey, Places<std::unique_ptr<Incoming>>, MatchKey::Hash> unexpected_;
  /// The key of each send in unexpected_ that is not freed.
  std::unordered_map<ChannelKey, MatchKey, ChannelKey::Hash> key_of_;
};

}  // namespace larklane::part
