#pragma once
// Which send belongs to which receive (rule I2): by key, first come first served on either side. A
// freed half keeps its place, so that later pairs still match in order.

#include <compare>
#include <cstdint>
#include <deque>
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
    posted_[key].push_back(std::move(receive));
  }

  /// The receive that `key`'s next send gets, null if it has been freed; nothing: there is none
  /// yet.
  std::optional<std::shared_ptr<Receive>> take_posted(const MatchKey& key) {
    auto found = posted_.find(key);
    if (found == posted_.end()) return std::nullopt;
    std::shared_ptr<Receive> receive = std::move(found->second.front());
    found->second.pop_front();
    if (found->second.empty()) posted_.erase(found);
    return receive;
  }
  void keep(const MatchKey& key, Incoming incoming) {
    unexpected_[key].push_back(std::move(incoming));
  }

  /// A tombstone takes the place of a receive that is freed before its match.
  void bury(const MatchKey& key, const Receive& receive) {
    for (auto& entry : posted_[key])
      if (entry.get() == &receive) entry.reset();
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
  std::map<MatchKey, std::deque<std::shared_ptr<Receive>>> posted_;  // null: tombstone
  std::map<MatchKey, std::deque<Incoming>> unexpected_;
};

}  // namespace larklane::part
