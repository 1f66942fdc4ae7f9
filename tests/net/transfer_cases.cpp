// Bytes and immediates: all there, each once, in any order.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <thread>

#include "base/clock.hpp"
#include "cases.hpp"

namespace larklane::provider_test {
namespace {

constexpr std::size_t kSizes[] = {
    0, 1, 8, 4096, 4097, 8192, 8193, std::size_t{1} << 20, std::size_t{32} << 20};
/// The layer above cuts longer transfers.
std::size_t as_allowed(std::size_t bytes, std::uint64_t most) {
  return static_cast<std::size_t>(std::min<std::uint64_t>(bytes, most));
}
constexpr std::size_t kGuardBytes = 64;
constexpr std::size_t kSpaceBytes = kSizes[std::size(kSizes) - 1] + 2 * kGuardBytes;
constexpr std::uint32_t kGuardSeed = 0xdead;

/// A link, memory to send from and memory that the other side writes to and reads from.
struct Pair {
  explicit Pair(Side& side_)
      : side(side_),
        node(side.open_node()),
        link(side.open_link(node)),
        source(kSpaceBytes),
        target(kSpaceBytes),
        source_memory(side.share(source)),
        target_memory(side.share(target)),
        remote_target(side.swap(target_memory->remote())),
        remote_source(side.swap(source_memory->remote())) {
    side.meet();
  }
  /// Into the other side's target, behind the guard.
  net::Transfer out(std::size_t bytes) {
    return {source.data(), source_memory.get(), to(kGuardBytes), bytes};
  }
  net::RemoteMemory to(std::size_t place) const {
    return {remote_target.address + place, remote_target.key};
  }
  /// An immediate without bytes: all earlier completed writes are there when it arrives.
  void ring(std::uint32_t immediate) {
    side.complete([&](net::Operation& operation) {
      return link->write_small_immediate({}, to(0), immediate, operation);
    });
  }
  void await_immediate(std::uint32_t immediate) {
    side.wait("an immediate", [&] { return !node.heard.empty(); });
    CHECK(node.heard.size() == 1 && node.heard[0] == immediate);
    node.heard.clear();
  }
  void expect_target(std::size_t bytes, std::uint32_t seed) const {
    const auto all = std::span<const std::byte>(target);
    CHECK(first_wrong(all.subspan(kGuardBytes, bytes), seed) == -1);
    CHECK(first_wrong(all.first(kGuardBytes), kGuardSeed) == -1);
    CHECK(first_wrong(all.subspan(kGuardBytes + bytes, kGuardBytes), kGuardSeed) == -1);
  }
  void prepare(std::size_t bytes, std::uint32_t seed) {
    fill(std::span(source).first(bytes), seed + static_cast<std::uint32_t>(side.rank));
    fill(std::span(target).first(kGuardBytes), kGuardSeed);
    fill(std::span(target).subspan(kGuardBytes + bytes, kGuardBytes), kGuardSeed);
    std::ranges::fill(std::span(target).subspan(kGuardBytes, bytes), std::byte{0});
    side.meet();
  }
  std::uint32_t other_seed(std::uint32_t seed) const {
    return seed + static_cast<std::uint32_t>(1 - side.rank);
  }

  Side& side;
  Node& node;
  std::unique_ptr<net::Link> link;
  std::vector<std::byte> source, target;
  std::unique_ptr<net::Memory> source_memory, target_memory;
  net::RemoteMemory remote_target, remote_source;
};

/// Each size that `most` allows. @param go  moves the bytes of one size
template <class Go>
void each_size(Side& side, std::uint64_t most, Go go) {
  Pair pair(side);
  for (std::uint32_t i = 0; i < std::size(kSizes); ++i) {
    const std::size_t bytes = as_allowed(kSizes[i], most);
    pair.prepare(bytes, i);
    go(pair, bytes, i);
    pair.expect_target(bytes, pair.other_seed(i));
    side.meet();
  }
}

void write(Side& side) {
  each_size(side, side.fabric->limits().write_bytes_max,
            [&](Pair& pair, std::size_t bytes, std::uint32_t i) {
              side.complete([&](net::Operation& operation) {
                return pair.link->write(pair.out(bytes), operation);
              });
              std::ranges::fill(std::span(pair.source).first(bytes), std::byte{0});  // ours again
              pair.ring(i);
              pair.await_immediate(i);
            });
}

void write_immediate(Side& side) {
  each_size(side, side.fabric->limits().write_bytes_max,
            [&](Pair& pair, std::size_t bytes, std::uint32_t i) {
              const std::uint32_t immediate = 0xffffffffU - i;
              side.complete([&](net::Operation& operation) {
                return pair.link->write_immediate(pair.out(bytes), immediate, operation);
              });
              pair.await_immediate(immediate);
            });
}

void write_small(Side& side) {
  Pair pair(side);
  const std::size_t most = std::min<std::size_t>(side.fabric->limits().small_bytes_max, 65536);
  CHECK(most >= 8);
  std::uint32_t seed = 0;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{8}, most / 2, most}) {
    for (const bool is_with_immediate : {false, true}) {
      pair.prepare(bytes, ++seed);
      std::vector<std::byte> elsewhere(pair.source.begin(),
                                       pair.source.begin() + static_cast<std::ptrdiff_t>(bytes));
      side.complete([&](net::Operation& operation) {
        auto post =
            is_with_immediate
                ? pair.link->write_small_immediate(elsewhere, pair.to(kGuardBytes), seed, operation)
                : pair.link->write_small(elsewhere, pair.to(kGuardBytes), operation);
        if (post && *post != net::Post::retry) std::ranges::fill(elsewhere, std::byte{0});
        return post;
      });
      if (!is_with_immediate) pair.ring(seed);
      pair.await_immediate(seed);
      pair.expect_target(bytes, pair.other_seed(seed));
      side.meet();
    }
  }
}

void read(Side& side) {
  each_size(
      side, side.fabric->limits().read_bytes_max,
      [&](Pair& pair, std::size_t bytes, std::uint32_t) {
        const net::Transfer in{pair.target.data() + kGuardBytes, pair.target_memory.get(),
                               pair.remote_source, bytes};
        side.complete([&](net::Operation& operation) { return pair.link->read(in, operation); });
      });
}

/// An operation posted after a completion takes effect after it: a read sees the written bytes.
void completion_orders(Side& side) {
  Pair pair(side);
  std::vector<std::byte> back(kSizes[4]);
  const auto back_memory = side.share(back);
  for (std::uint32_t i = 0; i < 2000; ++i) {
    const std::size_t bytes = i % 100 == 99 ? back.size() : 8;
    fill(std::span(pair.source).first(bytes), i);
    side.complete([&](net::Operation& operation) {
      return bytes == 8 && i % 2 == 0
                 ? pair.link->write_small(std::span(pair.source).first(8), pair.to(0), operation)
                 : pair.link->write(
                       {pair.source.data(), pair.source_memory.get(), pair.to(0), bytes},
                       operation);
    });
    side.complete([&](net::Operation& operation) {
      return pair.link->read({back.data(), back_memory.get(), pair.to(0), bytes}, operation);
    });
    CHECK(first_wrong(std::span(back).first(bytes), i) == -1);
  }
  side.meet();
}

/// Odd multiplier: 2^32 values, each once.
std::uint32_t scrambled(std::uint32_t i) { return i * 2654435761U + 12345; }

void immediates_each_once(Side& side) {
  constexpr std::uint32_t kCount = 20000;
  constexpr std::uint32_t kAtOnce = 32;  // no more than are reserved: Node::kReserved
  Pair pair(side);
  std::vector<Note> notes(kCount);
  for (std::uint32_t i = 0; i < kCount; ++i) {
    side.wait("a place in the queue", [&] {
      auto post = i % 3 == 0 ? pair.link->write_immediate(pair.out(i % 512), scrambled(i), notes[i])
                             : pair.link->write_small_immediate(std::span(pair.source).first(i % 8),
                                                                pair.to(0), scrambled(i), notes[i]);
      CHECK(bool(post));
      if (*post == net::Post::done) notes[i].ends = 1;
      return *post != net::Post::retry;
    });
    if ((i + 1) % kAtOnce == 0)
      side.wait("the other side's immediates", [&] { return pair.node.heard.size() > i; });
    if ((i + 1) % kAtOnce == 0) side.meet();
  }
  side.wait("all completions", [&] {
    return std::ranges::all_of(notes, [](const Note& note) { return note.ends > 0; });
  });
  side.wait("all immediates", [&] { return pair.node.heard.size() >= kCount; });
  side.meet();
  CHECK(pair.node.heard.size() == kCount);
  for (const Note& note : notes) CHECK(note.ends == 1 && note.status.ok());
  std::vector<std::uint32_t> wanted(kCount);
  for (std::uint32_t i = 0; i < kCount; ++i) wanted[i] = scrambled(i);
  std::ranges::sort(wanted);
  std::ranges::sort(pair.node.heard);
  CHECK(wanted == pair.node.heard);
}

/// Where limits() states so, 8 bytes arrive as a whole. A thread that polls all the time never sees
/// a half, although the stream that carries them is cut anywhere.
void words_are_whole(Side& side) {
  constexpr std::uint32_t kCount = 20000;
  constexpr std::size_t kStreamBytes = 1021;
  Pair pair(side);
  if (side.rank == 1) {
    std::atomic<bool> is_over{false};
    std::atomic<std::uint64_t> torn{0};
    auto* word = reinterpret_cast<std::uint64_t*>(pair.target.data() + kGuardBytes);
    *word = 0;
    std::thread reader([&] {
      // relaxed: the word is the only thing that is shared
      while (!is_over.load(std::memory_order_relaxed)) {
        const std::uint64_t seen =
            std::atomic_ref<std::uint64_t>(*word).load(std::memory_order_relaxed);
        if (seen != 0 && seen != ~std::uint64_t{0}) torn.store(seen, std::memory_order_relaxed);
      }
    });
    side.meet();
    side.wait("the last word", [&] { return !pair.node.heard.empty(); });
    is_over.store(true, std::memory_order_relaxed);
    reader.join();
    const std::uint64_t seen = torn.load(std::memory_order_relaxed);
    if (seen != 0)
      std::fprintf(stderr, "a torn word: %#llx\n", static_cast<unsigned long long>(seen));
    CHECK(seen == 0 || !side.fabric->limits().are_words_whole);
    side.meet();
    return;
  }
  side.meet();
  std::vector<Note> notes(2 * kCount);
  for (std::uint32_t i = 0; i < kCount; ++i) {
    const std::uint64_t word = i % 2 == 0 ? ~std::uint64_t{0} : 0;
    const auto post_all = [&](Note& note, const auto& post) {
      side.wait("a place in the queue", [&] {
        auto result = post(note);
        CHECK(bool(result));
        if (*result == net::Post::done) note.ends = 1;
        return *result != net::Post::retry;
      });
    };
    post_all(notes[2 * i], [&](Note& note) {
      return pair.link->write_small(std::as_bytes(std::span(&word, 1)), pair.to(kGuardBytes), note);
    });
    post_all(notes[2 * i + 1], [&](Note& note) {
      return pair.link->write(
          {pair.source.data(), pair.source_memory.get(), pair.to(4096), kStreamBytes + i % 64},
          note);
    });
  }
  side.wait("all completions", [&] {
    return std::ranges::all_of(notes, [](const Note& note) { return note.ends == 1; });
  });
  pair.ring(1);
  side.meet();
}

/// Where limits() states so, immediates of 64 bits, beside the others.
void wide_immediates(Side& side) {
  if (!side.fabric->limits().has_wide_immediates) return;
  Pair pair(side);
  const std::size_t most = std::min<std::size_t>(side.fabric->limits().small_bytes_max, 65536);
  std::vector<std::uint64_t> wanted;
  for (const std::uint64_t immediate :
       {std::uint64_t{1} << 32, ~std::uint64_t{0}, std::uint64_t{0x8000'0001'0002'0003}}) {
    const auto seed = static_cast<std::uint32_t>(wanted.size());
    pair.prepare(most, seed);
    side.complete([&](net::Operation& operation) {
      return pair.link->write_small_wide(std::span(pair.source).first(most), pair.to(kGuardBytes),
                                         immediate, operation);
    });
    wanted.push_back(immediate);
    side.wait("a wide immediate", [&] { return pair.node.heard_wide.size() == wanted.size(); });
    pair.expect_target(most, pair.other_seed(seed));
    pair.ring(seed);
    pair.await_immediate(seed);
    side.meet();
  }
  CHECK(pair.node.heard_wide == wanted);
}

/// Where limits() states so, a thread that sees the beginning of a write has the rest, too. Any
/// thread may move the bytes.
void first_word_last(Side& side) {
  constexpr std::uint32_t kRounds = 500;
  constexpr std::uint64_t kBytesMax = 16384, kEachByte = 0x0101'0101'0101'0101;
  const net::Limits& limits = side.fabric->limits();
  const std::uint64_t most =
      std::min({limits.first_word_last_bytes_max, limits.write_bytes_max, kBytesMax});
  if (most == 0) return;
  Pair pair(side);
  const auto target = TAKE(side.fabric->allocate_memory(most));
  const net::RemoteMemory remote = side.swap(target->remote());
  std::vector<std::uint64_t> words(most / 8);
  const auto words_memory = side.share(std::as_writable_bytes(std::span(words)));
  auto* const seen = reinterpret_cast<std::uint64_t*>(target->start());
  std::uint64_t number = 0;
  for (const std::uint64_t bytes :
       {std::uint64_t{8}, std::uint64_t{24}, std::uint64_t{64}, most / 2, most / 2 + 24, most}) {
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      ++number;
      if (side.rank == 0) {
        std::ranges::fill(words, number * kEachByte);
        const net::Transfer out{reinterpret_cast<std::byte*>(words.data()), words_memory.get(),
                                remote, bytes};
        side.complete([&](net::Operation& operation) {
          operation.is_looked_for = true;
          return round % 2 == 0 ? pair.link->write(out, operation)
                                : pair.link->write_immediate(out, 1, operation);
        });
        side.wait("an answer", [&] { return pair.node.heard.size() == number; });
      } else {
        // The immediate comes before or after; it carries no further information.
        const std::uint64_t word = number * kEachByte;
        side.wait("the beginning", [&] {
          const std::uint64_t first = std::atomic_ref(seen[0]).load(std::memory_order_acquire);
          return std::memcmp(&first, &word, 4) == 0;
        });
        CHECK(
            std::all_of(seen, seen + bytes / 8, [&](std::uint64_t each) { return each == word; }));
        pair.ring(1);
      }
    }
  }
  side.meet();
}

constexpr Case kCases[] = {
    {"write", write},
    {"write_immediate", write_immediate},
    {"write_small", write_small},
    {"read", read},
    {"completion_orders", completion_orders},
    {"immediates_each_once", immediates_each_once},
    {"words_are_whole", words_are_whole},
    {"wide_immediates", wide_immediates},
    {"first_word_last", first_word_last},
};

}  // namespace

std::span<const Case> transfer_cases() { return kCases; }

void print_latency(Side& side) {
  constexpr std::size_t kWarmUp = 200;
  constexpr std::size_t kRounds = 1000;
  Pair pair(side);
  std::vector<std::uint64_t> half_ns;
  const std::uint64_t word = 1;
  std::vector<Note> notes(kWarmUp + kRounds);
  for (std::uint32_t i = 0; i < kWarmUp + kRounds; ++i) {
    const std::uint64_t start = now_ns();
    if (side.rank == 1) side.wait("ping", [&] { return pair.node.heard.size() > i; });
    side.wait("a place in the queue", [&] {
      auto post = pair.link->write_small_immediate(std::as_bytes(std::span(&word, 1)), pair.to(0),
                                                   i, notes[i]);
      CHECK(bool(post));
      if (*post == net::Post::done) notes[i].ends = 1;
      return *post != net::Post::retry;
    });
    if (side.rank == 0) side.wait("pong", [&] { return pair.node.heard.size() > i; });
    if (i >= kWarmUp) half_ns.push_back((now_ns() - start) / 2);
  }
  side.wait("all completions", [&] {
    return std::ranges::all_of(notes, [](const Note& note) { return note.ends == 1; });
  });
  side.meet();
  if (side.rank != 0) return;
  std::ranges::sort(half_ns);
  std::printf("%s: half round trip of 8 bytes: median %llu ns, least %llu ns, 99 %% %llu ns\n",
              side.fabric->limits().provider.c_str(),
              static_cast<unsigned long long>(half_ns[kRounds / 2]),
              static_cast<unsigned long long>(half_ns[0]),
              static_cast<unsigned long long>(half_ns[kRounds * 99 / 100]));
  std::fflush(stdout);
}

}  // namespace larklane::provider_test
