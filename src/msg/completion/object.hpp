#pragma once
// A completion object, as the engine sees it: where it stands, and how it is told.

#include <atomic>
#include <cstdint>

#include "larklane/completion.hpp"
#include "msg/completion/node.hpp"

namespace larklane {

/// Thread safety: thread-safe; `domain` and what follows are the domain's.
struct CompletionObject::Inside {
  /// @return is the node still the caller's?
  using Deliver = bool (*)(Inside& object, msg::Node& node) noexcept;

  explicit Inside(Deliver deliver_, bool runs_user_code_ = false) noexcept
      : runs_user_code(runs_user_code_), deliver(deliver_) {}
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  virtual ~Inside() = default;

  const bool runs_user_code;     ///< when it is told: so no lock is held then
  std::atomic<Deliver> deliver;  ///< changes once, when the object is destroyed while it is in use
  CompletionDomain* domain = nullptr;
  std::uint32_t index = 0;      ///< in the domain, and in the ledgers
  RemoteCompletion number = 0;  ///< 0: none
  Inside* next_closing = nullptr;
};

namespace msg {
using Object = CompletionObject::Inside;
}

}  // namespace larklane
