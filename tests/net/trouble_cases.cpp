// Full queues, writes that are not allowed, dead peers.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <string>

#include "base/clock.hpp"
#include "cases.hpp"

namespace larklane::provider_test {
namespace {

/// Posts without a poll until the queue is full; the other side does not poll either.
void full_queue(Side& side) {
  constexpr std::size_t kBytes = 4096;
  constexpr std::size_t kMost = 200000;
  Node& node = side.open_node();
  const auto link = side.open_link(node);
  std::vector<std::byte> bytes(kBytes);
  const auto memory = side.share(bytes);
  const auto remote = side.swap(memory->remote());
  side.complete([&](net::Operation& operation) {  // connected
    return link->write({bytes.data(), memory.get(), remote, kBytes}, operation);
  });
  side.meet();
  if (side.rank == 1) {
    side.hear_idle<std::uint8_t>();
    side.meet();
    return;
  }
  std::vector<std::unique_ptr<Note>> notes;
  bool is_done_at_once = false;
  const auto post = [&] {
    notes.push_back(std::make_unique<Note>());
    auto result = link->write({bytes.data(), memory.get(), remote, kBytes}, *notes.back());
    CHECK(bool(result));
    if (*result == net::Post::done) notes.back()->ends = 1;
    is_done_at_once = *result == net::Post::done;
    if (*result == net::Post::retry) notes.pop_back();
    return *result != net::Post::retry;
  };
  while (post() && !is_done_at_once) CHECK(notes.size() < kMost);
  if (is_done_at_once) {
    std::printf("  writes have no queue\n");
    side.say(std::uint8_t{1});
    side.meet();
    return;
  }
  const std::size_t full = notes.size();
  for (int i = 0; i < 10; ++i) CHECK(!post());  // nothing has happened
  side.say(std::uint8_t{1});
  side.wait("a place in the queue", post);
  for (std::size_t i = 0; i < 4 * full; ++i) side.wait("a place in the queue", post);
  side.wait("all completions", [&] {
    return std::ranges::all_of(notes, [](const auto& note) { return note->ends > 0; });
  });
  for (const auto& note : notes) CHECK(note->ends == 1 && note->status.ok());
  std::printf("  full after %zu writes\n", full);
  side.meet();
}

/// Three parts; the middle one is registered.
class Fenced {
 public:
  static constexpr std::size_t kPart = std::size_t{1} << 20;
  Fenced() {
    void* place =
        ::mmap(nullptr, 3 * kPart, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(place != MAP_FAILED);
    base_ = static_cast<std::byte*>(place);
  }
  ~Fenced() { ::munmap(base_, 3 * kPart); }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;
  std::span<std::byte> all() { return {base_, 3 * kPart}; }
  std::span<std::byte> middle() { return all().subspan(kPart, kPart); }
  bool is_outside_zero() {
    const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
    return std::ranges::all_of(all().first(kPart), is_zero) &&
           std::ranges::all_of(all().last(kPart), is_zero);
  }

 private:
  std::byte* base_;
};

struct Attack {
  const char* what;
  std::uint64_t offset;  ///< from the first byte that is registered
  std::size_t bytes;
  std::uint64_t key_change;
};
constexpr std::size_t kLarge = std::size_t{1} << 19;  // more than is copied at once
constexpr Attack kAttacks[] = {
    {"behind", Fenced::kPart, kLarge, 0},
    {"half behind", Fenced::kPart - kLarge / 2, kLarge, 0},
    {"before", std::uint64_t{0} - kLarge, kLarge, 0},
    {"with another key", 0, kLarge, 0x5a5a5a},
    {"small behind", Fenced::kPart, 64, 0},
    {"small half behind", Fenced::kPart - 32, 64, 0},
    {"small before", std::uint64_t{0} - 64, 64, 0},
    {"small with another key", 0, 64, 0x5a5a5a},
};

/// Try a forbidden access, then an allowed one. A completion may mean only that the bytes have
/// gone: then the refusal comes with the next operation.
void attempt(Side& side, net::Link& link, const Attack& attack, const net::Transfer& allowed,
             Note& note) {
  net::Transfer wrong = allowed;
  wrong.remote.address += attack.offset;
  wrong.remote.key ^= attack.key_change;
  wrong.bytes = attack.bytes;
  side.wait("a post", [&] {
    auto post = link.write(wrong, note);
    if (!post) note = Note(1, post.error());
    if (post && *post == net::Post::done) note = Note(1);
    return !post || *post != net::Post::retry;
  });
  side.wait("an answer", [&] { return note.ends > 0; });
  std::printf("  %s: %s, %d\n", attack.what, errc_name(note.status.code()), note.status.detail());
  if (!note.status.ok()) return;
  const Status next =
      side.outcome([&](net::Operation& operation) { return link.read(allowed, operation); });
  std::printf("    the read after it: %s, %d\n", errc_name(next.code()), next.detail());
  CHECK(!next.ok());
}

/// Each on an endpoint of its own: it may not survive.
void bounds(Side& side) {
  for (const Attack& attack : kAttacks) {
    Fenced fenced;
    std::vector<std::byte> source(Fenced::kPart);
    const auto memory = side.share(fenced.middle());
    const auto source_memory = side.share(source);
    const auto remote = side.swap(memory->remote());
    Node& node = side.open_node();
    side.poll_only(node);
    Note note;  // outlives the link, which ends it at last
    auto link = side.open_link(node);
    std::ranges::fill(source, std::byte{0xff});
    if (side.rank == 0) {
      const net::Transfer allowed{source.data(), source_memory.get(), remote, Fenced::kPart};
      side.complete([&](net::Operation& operation) { return link->write(allowed, operation); });
      attempt(side, *link, attack, allowed, note);
    }
    side.meet();
    CHECK(fenced.is_outside_zero());
    link.reset();
    CHECK(side.rank == 1 || note.ends == 1);
    side.meet();
  }
}

/// `bytes` on both sides, linked; process 1 kills itself when process 0 sends a byte.
struct Victim {
  Victim(Side& side, std::size_t length)
      : node(side.open_node()),
        link(side.open_link(node)),
        bytes(length),
        memory(side.share(bytes)),
        remote(side.swap(memory->remote())) {
    side.complete([&](net::Operation& operation) {
      return link->write_small_immediate({}, remote, 1, operation);
    });
    side.wait("an immediate", [&] { return !node.heard.empty(); });
    side.meet();
    if (side.rank != 1) return;
    side.hear_idle<std::uint8_t>();
    ::kill(::getpid(), SIGKILL);
  }
  Node& node;
  const std::unique_ptr<net::Link> link;
  std::vector<std::byte> bytes;
  const std::unique_ptr<net::Memory> memory;
  const net::RemoteMemory remote;
};

/// All operations of process 0 that are posted when process 1 dies end, even if the death comes
/// first. Later posts end with an error.
void killed_peer(Side& side) {
  const net::Limits& limits = side.fabric->limits();
  const auto bytes_most = std::min(limits.read_bytes_max, limits.write_bytes_max);
  const auto most_bytes = static_cast<std::size_t>(std::min(bytes_most, std::uint64_t{32} << 20));
  Victim victim(side, most_bytes);
  auto& link = victim.link;
  auto& bytes = victim.bytes;
  const net::RemoteMemory remote = victim.remote;
  std::vector<Note> notes(12);  // more than a slow device has done before the other side is dead
  const net::Transfer transfer{bytes.data(), victim.memory.get(), remote, most_bytes};
  std::vector<Note*> under_way;
  const auto take_up = [&](Note& note, Result<net::Post> post) {
    CHECK(bool(post));
    if (*post == net::Post::posted) under_way.push_back(&note);
  };
  const std::uint64_t start = now_ns();
  for (std::size_t i = 0; i < notes.size(); ++i)
    take_up(notes[i],
            i % 4 == 3 ? link->write(transfer, notes[i]) : link->read(transfer, notes[i]));
  CHECK(under_way.empty() || under_way[0] == &notes[0]);  // empty: writes have no queue
  side.say(std::uint8_t{1});
  side.wait("what the dead have not answered", [&] {
    return std::ranges::all_of(under_way, [](const Note* note) { return note->ends == 1; });
  });
  const Status last = under_way.empty() ? Status() : under_way.back()->status;
  std::printf("  %td of %zu under way failed, the last one: %s, %d after %.2f s\n",
              std::ranges::count_if(under_way, [](const Note* note) { return !note->status.ok(); }),
              under_way.size(), errc_name(last.code()), last.detail(),
              static_cast<double>(now_ns() - start) * 1e-9);
  // Later posts: one that still goes out into nothing may be followed by others, not for ever.
  Status status;
  side.wait("a post to the dead", [&] {
    status = side.outcome([&](net::Operation& operation) {
      return link->write_small({bytes.data(), 8}, remote, operation);
    });
    return !status.ok();
  });
  std::printf("  later posts: %s, %d after %.2f s\n", errc_name(status.code()), status.detail(),
              static_cast<double>(now_ns() - start) * 1e-9);
}

/// No operation is posted when process 1 dies: the next posts detect it, all of them.
void killed_idle_peer(Side& side) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  Victim victim(side, kBytes);
  auto& link = victim.link;
  auto& bytes = victim.bytes;
  const net::RemoteMemory remote = victim.remote;
  side.say(std::uint8_t{1});
  for (int i = 0; i < 1000; ++i) side.poll_all();
  const std::uint64_t start = now_ns();
  Note notes[3];
  const net::Transfer transfer{bytes.data(), victim.memory.get(), remote, kBytes};
  const auto take_up = [](Note& note, const auto& post) {
    note.ends = 0;
    auto posted = post(note);
    if (posted && *posted == net::Post::posted) return;
    note.ends = 1;
    note.status = posted ? Status() : posted.error();
  };
  side.wait("an error", [&] {
    take_up(notes[0], [&](Note& note) {
      return link->write_small({bytes.data(), 8}, remote, note);
    });
    take_up(notes[1], [&](Note& note) { return link->write(transfer, note); });
    take_up(notes[2], [&](Note& note) { return link->read(transfer, note); });
    side.wait("what goes to the dead", [&] {
      return std::ranges::all_of(notes, [](const Note& note) { return note.ends == 1; });
    });
    return std::ranges::all_of(notes, [](const Note& note) { return !note.status.ok(); });
  });
  for (const Note& note : notes)
    std::printf("  %s, %d after %.2f s\n", errc_name(note.status.code()), note.status.detail(),
                static_cast<double>(now_ns() - start) * 1e-9);
}

/// Over tcp@ of libfabric the side of the greater offer connects. It ends before the other side
/// gets its offer.
void gone_before_connect(Side& side) {
  constexpr std::uint64_t kHeardNs = 200'000'000;
  if (side.fabric->limits().provider.find("tcp") == std::string::npos) return side.meet();
  Node& node = side.open_node();
  std::vector<std::byte> bytes(4096);
  const auto memory = side.share(bytes);
  const auto remote = side.swap(memory->remote());
  auto link = TAKE(node.endpoint->open_link());
  const std::string own(reinterpret_cast<const char*>(link->offer().data()), link->offer().size());
  std::array<char, net::kOfferBytesMax> sent{};
  std::ranges::copy(own, sent.begin());
  const auto length = side.swap(own.size());
  const auto heard = side.swap(sent);
  const std::string other(heard.data(), length);
  const auto other_bytes = std::as_bytes(std::span(other));
  if (own > other) {
    CHECK_OK(link->connect(other_bytes));
    side.complete([&](net::Operation& operation) {
      return link->write_small_immediate({}, remote, 1, operation);
    });
    side.meet();
    link.reset();
    side.meet();
  } else {
    side.wait("an immediate", [&] { return !node.heard.empty(); });
    side.meet();
    side.meet();
    const std::uint64_t start = now_ns();
    side.wait("the end of the connection", [&] { return now_ns() - start > kHeardNs; });
    Status status = link->connect(other_bytes);
    std::printf("  connect: %s, %d\n", errc_name(status.code()), status.detail());
    if (status.ok())
      status = side.outcome([&](net::Operation& operation) {
        return link->write_small({bytes.data(), 8}, remote, operation);
      });
    std::printf("  a post: %s, %d\n", errc_name(status.code()), status.detail());
  }
  side.meet();
}

constexpr Case kCases[] = {
    {"full_queue", full_queue},
    {"gone_before_connect", gone_before_connect},
    {"bounds", bounds},
    {"killed_peer", killed_peer, true},
    {"killed_idle_peer", killed_idle_peer, true},
};

}  // namespace

std::span<const Case> trouble_cases() { return kCases; }

}  // namespace larklane::provider_test
