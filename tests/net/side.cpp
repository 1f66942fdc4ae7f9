// One of the two processes of a case.

#include "side.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/clock.hpp"
#include "net/registry.hpp"

namespace larklane::provider_test {

void fail(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "%s:%d: process %d: %s\n", file, line, static_cast<int>(::getpid()),
               what.c_str());
  std::fflush(nullptr);
  ::_exit(1);
}

std::string text(const char* expression, Status status) {
  return std::string(expression) + ": " + errc_name(status.code()) + ", " +
         std::to_string(status.detail());
}

std::unique_ptr<net::Fabric> open_wanted(const Wanted& wanted) {
  std::string reason;
  auto fabric = net::open_fabric(wanted.provider, wanted.options, &reason, wanted.folder);
  if (fabric) return std::move(fabric).value();
  std::fprintf(stderr, "skipped: %s\n", reason.c_str());
  ::_exit(77);
}

Side::Side(int rank_, int socket, const Wanted& wanted)
    : rank(rank_), fabric(open_wanted(wanted)), socket_(socket) {}

void Side::say_bytes(std::span<const std::byte> bytes) {
  CHECK(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
        static_cast<ssize_t>(bytes.size()));
}

void Side::hear_bytes(std::span<std::byte> bytes, bool do_poll) {
  wait("the other side to say something", [&] {
    if (!do_poll) {
      pollfd look{socket_, POLLIN, 0};
      CHECK(::poll(&look, 1, static_cast<int>(kLimitNs / 1'000'000)) == 1);
    }
    const ssize_t count = ::recv(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count < 0 && errno == EAGAIN) return false;
    CHECK(count == static_cast<ssize_t>(bytes.size()));
    return true;
  });
}

Node& Side::open_node(bool does_sleep) {
  all_nodes_.push_back(std::make_unique<Node>(*fabric, does_sleep));
  nodes_.push_back(all_nodes_.back().get());
  return *nodes_.back();
}

std::unique_ptr<net::Link> Side::open_link(Node& node) {
  struct Offer {
    std::size_t length;
    std::array<std::byte, net::kOfferBytesMax> bytes;
  };
  auto link = TAKE(node.endpoint->open_link());
  Offer own{};
  own.length = link->offer().size();
  CHECK(own.length > 0 && own.length <= net::kOfferBytesMax);
  std::memcpy(own.bytes.data(), link->offer().data(), own.length);
  const Offer other = swap(own);
  CHECK_OK(link->connect(std::span(other.bytes).first(other.length)));
  meet();  // the other side has connected, too
  return link;
}

std::unique_ptr<net::Memory> Side::share(std::span<std::byte> bytes) {
  return TAKE(fabric->register_memory(bytes.data(), bytes.size()));
}

void Side::poll_all() {
  for (Node* node : nodes_) node->poll();
}

void Side::wait(const char* what, const std::function<bool()>& is_true) {
  const std::uint64_t start = now_ns();
  while (!is_true()) {
    if (now_ns() - start > kLimitNs) fail(__FILE__, __LINE__, std::string("no end of: ") + what);
    poll_all();
  }
}

Status Side::outcome(const PostOnce& post) {
  Note note;
  Status error;
  bool is_posted = false;
  wait("a post", [&] {
    auto result = post(note);
    if (!result) {
      error = result.error();
      return true;
    }
    if (*result == net::Post::done) note.ends = 1;
    is_posted = *result != net::Post::retry;
    return is_posted;
  });
  if (!is_posted) return error;
  wait("an operation", [&] { return note.ends > 0; });
  CHECK(note.ends == 1);
  return note.status;
}

void Side::complete(const PostOnce& post) { CHECK_OK(outcome(post)); }

namespace {
std::byte expected(std::size_t place, std::uint32_t seed) {
  return static_cast<std::byte>((place + 1) * 2654435761U >> 24 ^ place ^ seed * 97);
}
}  // namespace

void fill(std::span<std::byte> bytes, std::uint32_t seed) {
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = expected(i, seed);
}

std::int64_t first_wrong(std::span<const std::byte> bytes, std::uint32_t seed) {
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] != expected(i, seed)) return static_cast<std::int64_t>(i);
  return -1;
}

}  // namespace larklane::provider_test
