#pragma once
// One of the two processes of a case: a fabric of its own, a socket to the other one. Thread
// safety: single-owner.

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "net/provider.hpp"

namespace larklane::provider_test {

/// Print the place and end this process: the case has failed.
[[noreturn]] void fail(const char* file, int line, const std::string& what);
#define CHECK(condition) \
  ((condition) ? void() : ::larklane::provider_test::fail(__FILE__, __LINE__, #condition))
#define CHECK_OK(status)                                                                   \
  do {                                                                                     \
    const ::larklane::Status checked_ = (status);                                          \
    if (!checked_.ok())                                                                    \
      ::larklane::provider_test::fail(__FILE__, __LINE__,                                  \
                                      ::larklane::provider_test::text(#status, checked_)); \
  } while (false)
std::string text(const char* expression, Status status);
template <class T>
T take(Result<T> result, const char* what, int line) {
  if (!result) fail("side.hpp", line, text(what, result.error()));
  return std::move(result).value();
}
#define TAKE(result) ::larklane::provider_test::take((result), #result, __LINE__)

/// Nothing in a case takes longer, killed peers included.
inline constexpr std::uint64_t kLimitNs = 120'000'000'000;

struct Wanted {
  std::string provider;
  std::string folder;
  net::FabricOptions options;
};
/// Ends the process with 77 where there is no such provider here.
std::unique_ptr<net::Fabric> open_wanted(const Wanted& wanted);

/// Counts ends. Thread safety: single-owner.
struct Note : net::Operation {
  explicit Note(int ends_ = 0, Status end = Status()) : ends(ends_), status(end) {
    complete = [](net::Operation& operation, Status result) {
      auto& note = static_cast<Note&>(operation);
      ++note.ends;
      note.status = result;
    };
  }
  int ends;
  Status status;
};

/// An endpoint and the immediates that it has received. Thread safety: single-owner.
class Node final : public net::Receiver {
 public:
  explicit Node(net::Fabric& fabric, bool does_sleep = true) {
    sleeps = does_sleep;
    endpoint = TAKE(fabric.open_endpoint(*this));
    CHECK_OK(endpoint->reserve_immediates(kReserved));
  }
  ~Node() override { endpoint->release_immediates(kReserved); }
  void on_immediate(std::uint32_t immediate) override { heard.push_back(immediate); }
  void on_wide_immediate(std::uint64_t immediate) override { heard_wide.push_back(immediate); }
  std::uint32_t poll() { return TAKE(endpoint->poll(64)); }

  static constexpr std::uint32_t kReserved = 64;
  std::vector<std::uint32_t> heard;
  std::vector<std::uint64_t> heard_wide;
  std::unique_ptr<net::Endpoint> endpoint;
};

class Side {
 public:
  Side(int rank, int socket, const Wanted& wanted);
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  /// Send and receive a value; while waiting, `nodes` are polled.
  template <class T>
  void say(const T& value) {
    say_bytes(std::as_bytes(std::span(&value, 1)));
  }
  template <class T>
  T hear() {
    T value{};
    hear_bytes(std::as_writable_bytes(std::span(&value, 1)), true);
    return value;
  }
  /// Without polling.
  template <class T>
  T hear_idle() {
    T value{};
    hear_bytes(std::as_writable_bytes(std::span(&value, 1)), false);
    return value;
  }
  template <class T>
  T swap(const T& value) {
    say(value);
    return hear<T>();
  }
  void meet() { swap(std::uint8_t{1}); }

  Node& open_node(bool does_sleep = true);
  /// The node stays, but is not polled any more.
  void poll_only(Node& node) { nodes_ = {&node}; }
  /// Links of both sides to each other, made at the same time.
  std::unique_ptr<net::Link> open_link(Node& node);
  std::unique_ptr<net::Memory> share(std::span<std::byte> bytes);
  /// Poll until it is true. Fails after kLimitNs.
  void wait(const char* what, const std::function<bool()>& is_true);
  void poll_all();
  /// Post until it is taken, then poll until it is complete.
  using PostOnce = std::function<Result<net::Post>(net::Operation&)>;
  void complete(const PostOnce& post);
  /// As complete(). @return the error that the post or the operation ends with, or ok
  Status outcome(const PostOnce& post);

  const int rank;
  const std::unique_ptr<net::Fabric> fabric;

 private:
  void say_bytes(std::span<const std::byte> bytes);
  void hear_bytes(std::span<std::byte> bytes, bool do_poll);

  int socket_;
  std::vector<std::unique_ptr<Node>> all_nodes_;
  std::vector<Node*> nodes_;
};

/// Bytes that differ by place and by `seed`.
void fill(std::span<std::byte> bytes, std::uint32_t seed);
/// @return the place of the first wrong byte, or -1
std::int64_t first_wrong(std::span<const std::byte> bytes, std::uint32_t seed);

}  // namespace larklane::provider_test
