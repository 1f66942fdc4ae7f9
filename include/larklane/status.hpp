#pragma once
// Operating errors as values. Thread safety: immutable.

#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "larklane/export.h"

/// The C++ API.
namespace larklane {

/// Kinds of errors, grouped by the largest thing that each kills.
enum class Errc : std::int32_t {
  kOk = 0,  ///< no error
  // one call: nothing changed
  kInvalidArgument,    ///< partition count, index or range
  kNotActive,          ///< the call needs an active request
  kAlreadyActive,      ///< Start on, or free of, an active request
  kAlreadyReady,       ///< a partition marked twice in one round
  kWrongKind,          ///< Pready on a receive, Parrived on a send
  kUnsupportedBuffer,  ///< device memory
  // one request
  kSizeMismatch,  ///< the two sides' buffers differ in size
  kTransfer,      ///< bytes could not be moved; detail is the errno
  kVersion,       ///< the peer runs another version of Larklane
  kPeerFreed,     ///< the other side has freed its request: the round can't complete
  // one peer
  kPeerDown,     ///< the peer's process is gone
  kUnreachable,  ///< no process listens at the peer's address; detail is the errno
  kForeignUser,  ///< the peer belongs to another user
  kProtocol,     ///< the peer sent a malformed or impossible record
  // the process
  kNoMemory,   ///< memory for shared segments refused
  kNoThread,   ///< the helper thread could not be created
  kSystem,     ///< a system call failed; detail is the errno
  kBadOption,  ///< an option's value is malformed or out of range
};

/// Stable lower-case name of a code, for messages and tests.
LARKLANE_API const char* errc_name(Errc code) noexcept;

/// An error code and the native errno behind it (0 where there is none). Eight bytes, no heap.
/// Thread safety: immutable.
class [[nodiscard]] Status {
 public:
  constexpr Status() noexcept = default;  ///< success
  /// An error, and its errno, 0 for none.
  // NOLINTNEXTLINE(google-explicit-constructor): functions return an Errc.
  constexpr Status(Errc code, std::int32_t detail = 0) noexcept : code_(code), detail_(detail) {}

  constexpr bool ok() const noexcept { return code_ == Errc::kOk; }   ///< no error?
  constexpr Errc code() const noexcept { return code_; }              ///< the kind
  constexpr std::int32_t detail() const noexcept { return detail_; }  ///< the native errno
  /// Equal code and detail.
  friend constexpr bool operator==(const Status&, const Status&) noexcept = default;

 private:
  Errc code_ = Errc::kOk;
  std::int32_t detail_ = 0;
};
static_assert(sizeof(Status) == 8);

/// A value or the error in its place; member names of std::expected. Thread safety: immutable.
template <class T>
class [[nodiscard]] Result {
 public:
  // NOLINTBEGIN(google-explicit-constructor): functions return a value or an error.
  Result(T value) : value_(std::move(value)) {}  ///< a value
  /// @pre an error
  Result(Status error) : error_(error) {}
  Result(Errc code) : error_(code) {}  ///< an error without an errno
  // NOLINTEND(google-explicit-constructor)

  bool has_value() const noexcept { return error_.ok(); }          ///< is there a value?
  explicit operator bool() const noexcept { return has_value(); }  ///< is there a value?
  /// The value. @pre has_value()
  /// @{
  T& value() & noexcept { return get(); }
  T&& value() && noexcept { return std::move(get()); }
  T& operator*() & noexcept { return get(); }
  T&& operator*() && noexcept { return std::move(get()); }
  T* operator->() noexcept { return &get(); }
  /// @}
  Status error() const noexcept { return error_; }  ///< success, if there is a value

 private:
  // A trivially constructible type needs no second flag: a number and its Status are returned in
  // registers.
  static constexpr bool kIsPlain =
      std::is_trivially_copyable_v<T> && std::is_trivially_default_constructible_v<T>;

  T& get() noexcept {
    if constexpr (kIsPlain)
      return value_;
    else
      return *value_;
  }

  std::conditional_t<kIsPlain, T, std::optional<T>> value_{};
  alignas(8) Status error_;  // a register of its own
};

}  // namespace larklane
