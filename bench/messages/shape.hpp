#pragma once
// One process's part in messages between threads: memory, threads, lanes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "measure/options.hpp"

namespace larklane::bench {

/// Number of a way's lanes in a process; thread t uses lane t modulo this number.
inline std::uint32_t lanes_of(const std::string& way, const Options& o) {
  const std::uint32_t threads = o.threads_of_process();
  if (way == "one-tag" || way == "hints") return 1;
  return way == "shared" || way == "nothing" ? std::min(o.lanes, threads) : threads;
}

/// One process's part, the same for all ways of a size.
struct Shape {
  const Options* options;
  std::uint64_t bytes;   ///< bytes of a message
  std::uint64_t stride;  ///< bytes from one message to the next in memory
  std::uint32_t threads;
  int peer;
  bool is_first;                 ///< this side begins: it sends, or sends first
  std::span<std::byte> out, in;  ///< one window for each thread, in order

  std::uint64_t place(std::uint32_t thread, std::uint32_t slot) const noexcept {
    return (std::uint64_t{thread} * options->window + slot) * stride;
  }
  std::byte* out_of(std::uint32_t thread, std::uint32_t slot) const noexcept {
    return out.data() + place(thread, slot);
  }
  std::byte* in_of(std::uint32_t thread, std::uint32_t slot) const noexcept {
    return in.data() + place(thread, slot);
  }
  std::uint32_t lanes(const std::string& way) const { return lanes_of(way, *options); }
};

/// Memory of `bytes` bytes a message begins on a line of its own.
inline std::uint64_t stride_of(std::uint64_t bytes) {
  constexpr std::uint64_t kLineBytes = 64;
  return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}

/// Of a process among those of `world`: the first half of the ranks begins.
template <class World>
Shape shape_of(const Options& options, const World& world, std::uint64_t bytes,
               std::uint32_t threads, std::span<std::byte> out, std::span<std::byte> in) {
  const int pairs = world.size() / 2;
  const bool is_first = world.rank() < pairs;
  return {&options,
          bytes,
          stride_of(bytes),
          threads,
          is_first ? world.rank() + pairs : world.rank() - pairs,
          is_first,
          out,
          in};
}

}  // namespace larklane::bench
