#pragma once
// Shared parts of the tests of the control plane: a handler that collects, a log that must stay
// silent, a peer made by hand.

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/unique_fd.hpp"
#include "control/local/socket.hpp"
#include "control/plane/plane.hpp"
#include "control/plane/wire.hpp"

namespace larklane::control {

/// Far more than a busy machine takes: a wait that exceeds it is a fault.
inline constexpr std::chrono::seconds kPatience{120};
inline constexpr int kPatienceMs = 120'000;

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

/// A name that no other test and no other run has.
inline Address fresh_address() {
  static int count = 0;
  return "larklane-test-" + std::to_string(::getpid()) + "-" + std::to_string(count++);
}

inline std::vector<Listener> listeners(const std::vector<Address>& addresses) {
  std::vector<Listener> all;
  for (const Address& address : addresses) {
    Result<Listener> listener = Listener::bind(address);
    if (listener) {
      all.push_back(std::move(*listener));
    } else {
      ADD_FAILURE() << address << ": " << errc_name(listener.error().code());
    }
  }
  return all;
}

/// Where peers are: on this host, or on another one, for which this one's loopback stands.
enum class Net : std::uint8_t { local, remote };

inline Secret test_secret() { return Secret{std::byte{1}, std::byte{2}, std::byte{3}}; }

/// Where a plane will be, with the address by which its peers know it.
struct Place {
  Address address;
  std::vector<Listener> own;
  std::optional<Remote> remote;
};

inline Place fresh_place(Net net) {
  Place place;
  place.address = fresh_address();
  place.own = listeners({place.address});
  if (net == Net::local) return place;
  std::string problem;
  Result<RemoteListener> listener = RemoteListener::bind(place.address, "lo", &problem);
  if (!listener) {
    ADD_FAILURE() << problem;
    return place;
  }
  place.address = listener->address;
  place.remote = Remote{std::move(*listener), test_secret()};
  return place;
}

/// Collects the records that arrive. Thread safety: thread-safe.
class Inbox : public Handler {
 public:
  struct Arrived {
    Peer* from;
    std::uint16_t kind;
    std::string payload;
    std::vector<UniqueFd> fds;
  };

  void on_record(Peer& from, const Record& record) override {
    std::unique_lock lock(mutex_);
    ++entered_;
    changed_.notify_all();
    gate_.wait(lock, [this] { return is_open_; });
    std::string payload(reinterpret_cast<const char*>(record.payload.data()),
                        record.payload.size());
    std::vector<UniqueFd> fds;
    for (UniqueFd& fd : record.fds) fds.push_back(std::move(fd));
    arrived_.push_back({&from, record.kind, std::move(payload), std::move(fds)});
    changed_.notify_all();
    lock.unlock();
    if (react) react(from, record);
  }
  void on_peer_down(Peer& peer) override {
    const std::lock_guard lock(mutex_);
    down_.emplace_back(&peer, arrived_.size());
    changed_.notify_all();
  }

  /// While closed, the helper stands still in on_record.
  void set_gate(bool open) {
    const std::lock_guard lock(mutex_);
    is_open_ = open;
    gate_.notify_all();
  }
  /// Returns when the helper has been at the gate `count` times.
  bool wait_at_gate(std::size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return entered_ >= count; });
  }
  bool wait_for_records(std::size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return arrived_.size() >= count; });
  }
  bool wait_for_down(std::size_t count = 1) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return down_.size() >= count; });
  }
  std::vector<Arrived> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(arrived_, {});
  }
  /// (peer, records that had arrived before)
  std::vector<std::pair<Peer*, std::size_t>> down() {
    const std::lock_guard lock(mutex_);
    return down_;
  }

  std::function<void(Peer&, const Record&)> react;  ///< on the helper; set before there is one

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable gate_;
  bool is_open_ = true;
  std::size_t entered_ = 0;
  std::vector<Arrived> arrived_;
  std::vector<std::pair<Peer*, std::size_t>> down_;
};

/// Fails on every warning that the test has not taken.
class ControlTest : public testing::Test {
 protected:
  void SetUp() override {
    set_log_sink([this](LogLevel, std::string_view message) {
      const std::lock_guard lock(mutex_);
      messages_.emplace_back(message);
      changed_.notify_all();
    });
  }
  void TearDown() override {
    set_log_sink({});
    for (const std::string& message : messages_) {
      if (allowed_.empty() || message.find(allowed_) == std::string::npos) {
        ADD_FAILURE() << "unexpected: " << message;
      }
    }
  }
  /// A warning that comes once in the life of the process, in the first test that causes it.
  void allow_warning(std::string part) { allowed_ = std::move(part); }
  /// Waits for one warning; it must contain all parts.
  void expect_warning(const std::vector<std::string>& parts) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, kPatience, [&] { return !messages_.empty(); }));
    for (const std::string& part : parts) {
      EXPECT_NE(messages_.front().find(part), std::string::npos) << messages_.front();
    }
    messages_.erase(messages_.begin());
  }
  static std::unique_ptr<Plane> make_plane(std::vector<Listener> own, Handler& handler) {
    Result<std::unique_ptr<Plane>> plane = Plane::create(std::move(own), handler);
    EXPECT_TRUE(plane) << errc_name(plane.error().code()) << " " << plane.error().detail();
    return plane ? std::move(*plane) : nullptr;
  }
  static std::unique_ptr<Plane> make_plane(Place place, Handler& handler) {
    Result<std::unique_ptr<Plane>> plane =
        Plane::create(std::move(place.own), handler, std::move(place.remote));
    EXPECT_TRUE(plane) << errc_name(plane.error().code()) << " " << plane.error().detail();
    return plane ? std::move(*plane) : nullptr;
  }
  static Peer* must_connect(Plane& plane, const Address& address) {
    Result<Peer*> peer = plane.connect(address);
    EXPECT_TRUE(peer) << errc_name(peer.error().code()) << " " << peer.error().detail();
    return peer ? *peer : nullptr;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> messages_;
  std::string allowed_;
};

/// A process that speaks the protocol by hand, rightly or wrongly.
class RawPeer {
 public:
  explicit RawPeer(const Address& address) {
    hello.nonce = 4711;
    hello.pid = ::getpid();
    hello.address_count = 1;
    std::memcpy(hello.addresses[0].data(), address.data(), address.size());
  }
  /// Opens the connection on which this one sends.
  bool connect(const Address& address) {
    fd.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path + 1, address.data(), address.size());
    const auto length =
        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + address.size());
    return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), length) == 0;
  }
  bool send(std::span<const std::byte> bytes, std::span<const int> fds = {}) {
    alignas(cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))] = {};
    iovec vector{const_cast<std::byte*>(bytes.data()), bytes.size()};
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    if (!fds.empty()) attach_fds(message, control, fds);
    return ::sendmsg(fd.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  /// Waits until the other side has closed the connection.
  bool is_cut_off() const {
    pollfd closed{fd.get(), POLLIN, 0};
    char byte = 0;
    return ::poll(&closed, 1, kPatienceMs) == 1 && ::read(fd.get(), &byte, 1) <= 0;
  }
  bool send_hello() { return send(std::as_bytes(std::span(&hello, 1))); }
  static std::string record(RecordHeader header, std::string_view payload) {
    std::string bytes(record_bytes(payload.size()), '\0');
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + sizeof header, payload.data(), payload.size());
    return bytes;
  }
  static std::string record(std::uint16_t kind, std::string_view payload) {
    RecordHeader header;
    header.kind = kind;
    header.payload_bytes = static_cast<std::uint32_t>(payload.size());
    return record(header, payload);
  }

  Hello hello;
  UniqueFd fd;
};

/// A peer's end is reported once, behind its records; at least `sent` of these have come in order.
/// @return these
inline auto take_all_then_down_once(Inbox& in, std::uint64_t sent) {
  EXPECT_TRUE(in.wait_for_down());
  auto records = in.take();
  EXPECT_GE(records.size(), sent);
  for (std::size_t i = 0; i < records.size(); ++i) EXPECT_EQ(records[i].kind, i);
  EXPECT_EQ(in.down().size(), 1U);
  for (const auto& [peer, count] : in.down()) {
    EXPECT_EQ(count, records.size());
    EXPECT_TRUE(peer->is_down());
    EXPECT_EQ(peer->send(0, {}), Status(Errc::kPeerDown));
  }
  return records;
}

}  // namespace larklane::control
