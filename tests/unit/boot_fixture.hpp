#pragma once
// Shared parts of the tests of `boot`: a job's options, a server in a thread, a process made by
// hand.

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/secret.hpp"
#include "base/tcp.hpp"
#include "bootstrap/card_server.hpp"
#include "bootstrap/wire.hpp"

namespace larklane::boot {

inline constexpr const char* kJob = "test-job";

using Settings = std::vector<std::pair<const char*, std::string>>;

inline Config config_of(const Settings& settings) {
  Config config;
  for (const auto& [name, value] : settings) {
    std::string problem;
    EXPECT_TRUE(config.set(name, value, &problem).ok()) << problem;
  }
  return config;
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}
inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline Endpoint loopback(std::uint16_t port) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  in.sin_port = htons(port);
  Endpoint name;
  std::memcpy(&name.name, &in, sizeof in);
  name.length = sizeof in;
  return name;
}

/// The warnings of one test; a warning that the test does not take fails it.
class Warnings {
 public:
  Warnings() {
    set_log_sink([this](LogLevel, std::string_view text) { texts_.emplace_back(text); });
  }
  ~Warnings() {
    set_log_sink({});
    for (const std::string& text : texts_) ADD_FAILURE() << text;
  }
  /// The sink's lock is the log's. @return none, or the only one
  std::string take() {
    set_log_sink({});
    EXPECT_LE(texts_.size(), 1U);
    const std::string text = texts_.empty() ? "" : texts_[0];
    texts_.clear();
    set_log_sink([this](LogLevel, std::string_view more) { texts_.emplace_back(more); });
    return text;
  }

 private:
  std::vector<std::string> texts_;
};

/// Serves in a thread, as the launcher would.
class ServerThread {
 public:
  explicit ServerThread(int size) {
    auto listener = listen_at({loopback(0)});
    EXPECT_TRUE(listener);
    port_ = port_of(listener->get());
    auto server = CardServer::create(std::move(listener).value(), kJob, size);
    EXPECT_TRUE(server);
    server_ = std::move(server).value();
    EXPECT_EQ(::pipe(stop_), 0);
    thread_ = std::thread([this] {
      for (;;) {
        pollfd polled[] = {{stop_[0], POLLIN, 0}, {server_->wait_fd(), POLLIN, 0}};
        ::poll(polled, 2, server_->wait_ms());
        if (polled[0].revents != 0) return;
        server_->serve();
      }
    });
  }
  ~ServerThread() { stop(); }
  void stop() {
    if (!thread_.joinable()) return;
    ::close(stop_[1]);
    thread_.join();
    ::close(stop_[0]);
    server_.reset();
  }
  std::uint16_t port() const { return port_; }
  std::string place() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  std::unique_ptr<CardServer> server_;
  std::uint16_t port_ = 0;
  int stop_[2] = {-1, -1};
  std::thread thread_;
};

/// A process that speaks the protocol by hand, rightly or wrongly.
class RawProcess {
 public:
  explicit RawProcess(std::uint16_t port) {
    const Endpoint name = loopback(port);
    fd.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    timeval patience{20, 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    EXPECT_EQ(::connect(fd.get(), name.get(), name.length), 0);
    EXPECT_TRUE(receive(&challenge));
  }
  /// Introduced.
  RawProcess(std::uint16_t port, std::uint32_t rank, std::uint32_t size) : RawProcess(port) {
    EXPECT_TRUE(introduce(rank, size));
  }
  template <class Message>
  bool receive(Message* message) {
    return ::recv(fd.get(), message, sizeof *message, MSG_WAITALL) == ssize_t{sizeof *message};
  }
  void send(std::string_view bytes) const {
    ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);  // the other end may be gone
  }
  Hello hello_of(std::uint32_t rank, std::uint32_t size, const char* job = kJob) const {
    Hello hello;
    hello.rank = rank;
    hello.size = size;
    hello.nonce = {1, 2};
    hello.proof = proof_of(key_of(job), challenge, hello);
    return hello;
  }
  void send_hello(const Hello& hello) const {
    send({reinterpret_cast<const char*>(&hello), sizeof hello});
  }
  /// @return whether it was let in
  bool introduce(std::uint32_t rank, std::uint32_t size) {
    const Hello hello = hello_of(rank, size);
    send_hello(hello);
    if (!receive(&welcome)) return false;
    EXPECT_EQ(welcome.proof, answer_to(key_of(kJob), challenge, hello, welcome.verdict));
    return welcome.verdict == Verdict::welcome;
  }
  std::optional<Record> next() {
    for (;;) {
      if (auto record = stream.take()) return record;
      std::byte space[4096];
      const ssize_t got = ::recv(fd.get(), space, sizeof space, 0);
      if (got <= 0) return std::nullopt;
      stream.add({space, static_cast<std::size_t>(got)});
    }
  }
  bool is_cut_off() {
    char byte = 0;
    return ::recv(fd.get(), &byte, 1, 0) <= 0 && errno != EAGAIN;
  }

  UniqueFd fd;
  Challenge challenge;
  Welcome welcome;
  RecordStream stream;
};

}  // namespace larklane::boot
