#pragma once
// Cross-section data in bands, each spread over all ranks, as in distributed neutron transport
// (Zambre et al., ICS'20, 6.2). Band by band, every worker fetches its block from another rank and
// reads all of it. The threads of a process meet before the next band.

#include <array>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "application.hpp"
#include "suite/buffer.hpp"

namespace larklane::bench {

/// Thread safety: single-owner, but all threads call work().
class Ebms {
 public:
  static constexpr std::array kParts{"fetch_ns", "get_ns", "flush_ns"};
  static constexpr const char* kWhole = "round_ns";
  static constexpr double kSteps = 1;

  /// @param bytes  size of a block
  Ebms(const Options& options, std::uint64_t bytes, const Crew& crew);

  std::span<std::byte> open() const noexcept { return open_.span(); }
  std::span<std::byte> local() const noexcept { return local_.span(); }
  static std::uint32_t streams() noexcept { return 0; }

  void begin_round(std::uint64_t round);

  template <class Port>
  void work(Port& port, std::uint32_t thread, std::array<Part, kParts.size()>& parts) {
    std::byte* const block = local_.data() + thread * bytes_;
    wrong_[thread] = {};
    for (std::uint32_t band = 0; band < bands_; ++band) {
      const int owner = owner_of(band);
      parts[kFetch].time([&] {
        parts[kGet].time([&] { port.get(owner, place(band, thread), block, bytes_); });
        parts[kFlush].time([&] { port.wait(); });
      });
      check(thread, band, owner);
      meeting_.arrive_and_wait();
    }
  }

  /// Wrong 8-byte words.
  std::uint64_t wrong() const;

 private:
  enum { kFetch, kGet, kFlush };
  struct alignas(64) OfThread {
    std::uint64_t wrong = 0;
  };

  /// The rank that owns the blocks this rank fetches from a band: the other ranks in turn.
  int owner_of(std::uint32_t band) const noexcept;
  std::uint64_t place(std::uint32_t band, std::uint32_t thread) const noexcept {
    return (std::uint64_t{band} * crew_.threads + thread) * bytes_;
  }
  /// Unique for each block of each round.
  std::uint64_t key(int owner, std::uint32_t band, std::uint32_t thread) const noexcept;
  void check(std::uint32_t thread, std::uint32_t band, int owner);

  const std::uint64_t bytes_;
  const std::uint32_t bands_;
  const Crew crew_;
  Buffer open_, local_;
  std::vector<OfThread> wrong_;
  std::barrier<> meeting_;
  std::uint64_t round_ = 0;
};

}  // namespace larklane::bench
