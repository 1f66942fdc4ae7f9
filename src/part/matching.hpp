#pragma once
// Which send belongs to which receive (rule I2): by key, first come first served on either side. A
// freed half keeps its place, so that later pairs still match in order.

#include <algorithm>
#include <compare>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "part/engine.hpp"

namespace larklane::part {

struct MatchKey {
  ContextId context;
  std::int32_t source;
  std::int32_t tag;
  /// The process of the source: what another one sends under its rank is for no receive of it.
  const control::Peer* peer;
  friend auto operator<=>(const MatchKey&, const MatchKey&) = default;
};

/// Receives that nothing has been sent for, and sends that nobody has asked for.
/// Thread safety: as a container.
template <class Receive, class Incoming>
class Matching {
 public:
  /// The send that `key`'s next receive gets; nothing: there is none yet.
  std::optional<Incoming> take_incoming(const MatchKey& key) {
    auto found = unexpected_.find(key);
    if (found == unexpected_.end()) return std::nullopt;
    Incoming incoming = std::move(found->second.front());
    found->second.pop_front();
    if (found->second.empty()) unexpected_.erase(found);
    return incoming;
  }
  void post(const MatchKey& key, std::shared_ptr<Receive> receive) {
    posted_[key].push_back({std::move(receive)});
  }

  /// The receive that `key`'s next send gets, null if it has been freed; nothing: there is none
  /// yet.
  std::optional<std::shared_ptr<Receive>> take_posted(const MatchKey& key) {
    auto found = posted_.find(key);
    if (found == posted_.end()) return std::nullopt;
    Place& first = found->second.front();
    std::shared_ptr<Receive> receive = std::move(first.receive);
    if (--first.receives == 0) found->second.pop_front();
    if (found->second.empty()) posted_.erase(found);
    return receive;
  }
  void keep(const MatchKey& key, Incoming incoming) {
    unexpected_[key].push_back(std::move(incoming));
  }

  /// A tombstone takes the place of a receive that is freed before its match. Neighbours are one:
  /// a program that makes and frees receives takes no more memory with each.
  void bury(const MatchKey& key, const Receive& receive) {
    const auto found = posted_.find(key);
    if (found == posted_.end()) return;
    std::deque<Place>& places = found->second;
    const auto at = std::find_if(places.rbegin(), places.rend(), [&](const Place& place) {
      return place.receive.get() == &receive;
    });
    if (at == places.rend()) return;
    at->receive.reset();
    join(places, std::prev(at.base()));
  }

  /// The first of the sends that nobody has asked for for which is(incoming); null: none.
  template <class Is>
  Incoming* find_incoming(Is&& is) {
    for (auto& [key, queue] : unexpected_)
      for (Incoming& incoming : queue)
        if (is(incoming)) return &incoming;
    return nullptr;
  }

 private:
  /// Of one receive, or of several that have been freed.
  struct Place {
    std::shared_ptr<Receive> receive;  ///< null: tombstone
    std::uint64_t receives = 1;
  };

  /// The tombstone at `at` takes those beside it.
  static void join(std::deque<Place>& places, typename std::deque<Place>::iterator at) {
    if (const auto after = std::next(at); after != places.end() && !after->receive) {
      after->receives += at->receives;
      at = places.erase(at);
    }
    if (at == places.begin() || std::prev(at)->receive) return;
    std::prev(at)->receives += at->receives;
    places.erase(at);
  }

  std::map<MatchKey, std::deque<Place>> posted_;
  std::map<MatchKey, std::deque<Incoming>> unexpected_;
};

}  // namespace larklane::part
