#pragma once
// Which send belongs to which receive (rule I2): by key, first come first served on either side. A
// freed half keeps its place, so that later pairs still match in order.

#include <compare>
#include <cstdint>
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

/// Requests of one key in the order in which they were made, each under a number that ascends. A
/// freed one keeps its place; places of freed ones that follow each other are one entry.
/// Thread safety: as a container.
template <class Request>
class Places {
 public:
  bool empty() const noexcept { return places_.empty(); }
  void push(std::uint64_t number, Request request) {
    places_.insert_or_assign(places_.end(), number, Place{std::move(request)});
  }
  /// @pre not empty
  std::uint64_t first_number() const { return places_.begin()->first; }
  /// @pre not empty. @return the first; of a freed one, what bury() left
  Request take_first() {
    const auto first = places_.begin();
    Place& place = first->second;
    if (--place.count != 0) return place.request;
    Request request = std::move(place.request);
    places_.erase(first);
    return request;
  }
  /// Null: no request has this number, or it is freed.
  Request* find(std::uint64_t number) {
    const auto at = places_.find(number);
    return at == places_.end() || at->second.is_freed ? nullptr : &at->second.request;
  }
  /// @param left  what take_first() answers from now on
  void bury(std::uint64_t number, Request left) {
    const auto at = places_.find(number);
    if (at == places_.end() || at->second.is_freed) return;
    at->second.request = std::move(left);
    at->second.is_freed = true;
    if (const auto after = std::next(at); after != places_.end()) join(at, after);
    if (at != places_.begin()) join(std::prev(at), at);
  }
  template <class Is>
  const Request* find_if(Is&& is) const {
    for (const auto& [number, place] : places_)
      if (is(place.request)) return &place.request;
    return nullptr;
  }

 private:
  struct Place {
    Request request;
    std::uint64_t count = 1;  ///< of requests; one, unless they are freed
    bool is_freed = false;
  };
  using At = typename std::map<std::uint64_t, Place>::iterator;

  void join(At one, At next) {
    if (!one->second.is_freed || !next->second.is_freed) return;
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
  /// The send that `key`'s next receive gets, or what bury_incoming() left of it; nothing: there is
  /// none yet.
  std::optional<Incoming> take_incoming(const MatchKey& key) {
    const auto found = unexpected_.find(key);
    if (found == unexpected_.end()) return std::nullopt;
    key_of_.erase({key.peer, found->second.first_number()});
    Incoming incoming = found->second.take_first();
    if (found->second.empty()) unexpected_.erase(found);
    return incoming;
  }
  /// @param number  the sender's, of the channel: it ascends
  void keep(const MatchKey& key, std::uint64_t number, Incoming incoming) {
    unexpected_[key].push(number, std::move(incoming));
    key_of_.insert_or_assign({key.peer, number}, key);
  }
  /// The unmatched send of `from` with this number; null: none.
  Incoming* incoming(const control::Peer& from, std::uint64_t number) {
    const auto key = key_of_.find({&from, number});
    if (key == key_of_.end()) return nullptr;
    const auto found = unexpected_.find(key->second);
    return found == unexpected_.end() ? nullptr : found->second.find(number);
  }
  /// The send is freed before its match, and `left` takes its place.
  /// @pre incoming(from, number)
  void bury_incoming(const control::Peer& from, std::uint64_t number, Incoming left) {
    const auto key = key_of_.find({&from, number});
    unexpected_.at(key->second).bury(number, std::move(left));
    key_of_.erase(key);
  }
  /// The first unmatched send, freed or not, for which is(incoming); null: none.
  template <class Is>
  const Incoming* find_incoming(Is&& is) const {
    for (const auto& [key, places] : unexpected_)
      if (const Incoming* const found = places.find_if(is)) return found;
    return nullptr;
  }

  /// @return the receive's place, for bury()
  std::uint64_t post(const MatchKey& key, std::shared_ptr<Receive> receive) {
    posted_[key].push(++last_posted_, std::move(receive));
    return last_posted_;
  }
  /// The receive that `key`'s next send gets, null if it has been freed; nothing: there is none
  /// yet.
  std::optional<std::shared_ptr<Receive>> take_posted(const MatchKey& key) {
    const auto found = posted_.find(key);
    if (found == posted_.end()) return std::nullopt;
    std::shared_ptr<Receive> receive = found->second.take_first();
    if (found->second.empty()) posted_.erase(found);
    return receive;
  }
  /// The receive is freed before its match.
  void bury(const MatchKey& key, std::uint64_t place) {
    if (const auto found = posted_.find(key); found != posted_.end())
      found->second.bury(place, nullptr);
  }

 private:
  std::uint64_t last_posted_ = 0;
  std::map<MatchKey, Places<std::shared_ptr<Receive>>> posted_;
  std::map<MatchKey, Places<Incoming>> unexpected_;
  /// Of each send in unexpected_ that is not freed.
  std::map<std::pair<const control::Peer*, std::uint64_t>, MatchKey> key_of_;
};

}  // namespace larklane::part
