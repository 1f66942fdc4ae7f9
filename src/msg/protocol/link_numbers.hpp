#pragma once
// Numbers by which the records of one link name communicators: those that this side has given, and
// those that the peer has. (docs/design/protocols/ordinary_messages.md, "Communicators")

#include <cstdint>
#include <vector>

#include "base/spin_lock.hpp"
#include "base/thread_safety.hpp"

namespace larklane::msg {

class Communicator;

/// Numbers of communicators that this side sends to. Thread safety: thread-safe.
// Invariant: a number is free, in use, or closing: from the close mark to the peer's `retired`.
class OwnNumbers {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  /// kNone: all are in use, or memory ran out.
  std::uint32_t take() noexcept;
  void close(std::uint32_t number) noexcept;
  /// The peer has retired it. @param number  as a peer sent it: any value
  /// @return false: it is not closing
  bool give_back(std::uint32_t number) noexcept;

 private:
  enum class State : std::uint8_t { free, used, closing };

  SpinLock lock_;
  std::vector<State> states_ LARKLANE_GUARDED_BY(lock_);
  std::vector<std::uint32_t> free_ LARKLANE_GUARDED_BY(lock_);  // has room for all
};

/// Meanings of the peer's numbers. Thread safety: vci-serial.
class PeerNumbers {
 public:
  struct Named {
    Communicator* communicator = nullptr;  ///< null: its messages are dropped
    std::uint32_t source = 0;              ///< the peer's rank there
    bool is_named = false;
    bool is_by_tag = false;  ///< on lanes by tag
  };

  /// @param number  here and below: as a peer sent it, any value
  /// @return null: it names nothing
  const Named* find(std::uint32_t number) const noexcept {
    if (number >= named_.size() || !named_[number].is_named) return nullptr;
    return &named_[number];
  }
  /// Makes room for a meaning. False: memory ran out. @pre number < OrdinaryWord::kNumbersMax
  bool make_room(std::uint32_t number) noexcept;
  /// @pre make_room(); find() is null
  void name(std::uint32_t number, Communicator* communicator, std::uint32_t source,
            bool is_by_tag) noexcept {
    named_[number] = {communicator, source, true, is_by_tag};
  }
  /// @pre find() is not null @return its communicator, or null
  Communicator* retire(std::uint32_t number) noexcept {
    Communicator* const communicator = named_[number].communicator;
    named_[number] = {};
    return communicator;
  }
  /// Calls visit(Communicator&) for each meaning that has one.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const Named& named : named_)
      if (named.communicator != nullptr) visit(*named.communicator);
  }

 private:
  std::vector<Named> named_;
};

}  // namespace larklane::msg
