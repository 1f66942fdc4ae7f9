#pragma once
// A completion object, as the engine sees it: its place in the domain, and its delivery function.

#include <atomic>
#include <cstdint>

#include "larklane/completion.hpp"
#include "msg/completion/node.hpp"

namespace larklane {

/// Thread safety: thread-safe; the domain's mutex guards `domain` and the members after it.
struct CompletionObject::Inside {
  /// @return true: the node is still the caller's
  using Deliver = bool (*)(Inside& object, msg::Node& node) noexcept;

  explicit Inside(Deliver deliver_, bool runs_user_code_ = false) noexcept
      : runs_user_code(runs_user_code_), deliver(deliver_) {}
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  virtual ~Inside() = default;

  const bool runs_user_code;     ///< during delivery, which so runs with no lock held
  std::atomic<Deliver> deliver;  ///< changes once: when the object is destroyed while in use
  CompletionDomain* domain = nullptr;
  std::uint32_t index = 0;      ///< in the domain, and in the ledgers
  RemoteCompletion number = 0;  ///< 0: none
  Inside* next_closing = nullptr;
};

namespace msg {
using Object = CompletionObject::Inside;
}

}  // namespace larklane
