#pragma once
// The wire format between a process and the card server. Both prove that they know the job's
// secret, then records follow. All hosts of a job have one byte order: the magic detects another.
//
//   server   Challenge  ->
//                       <-  Hello     process
//   server   Welcome    ->
//                       <-> records
//
// The proofs: base/handshake.hpp.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/handshake.hpp"
#include "bootstrap/board.hpp"

namespace larklane::boot {

inline constexpr std::uint32_t kMagic = 0x4c4c4231;
inline constexpr std::uint32_t kVersion = 2;

/// Every version starts with magic and version.
struct Challenge {
  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  Nonce nonce{};
};
static_assert(sizeof(Challenge) == 24);

/// Every version starts with magic and version.
struct Hello {
  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  Nonce nonce{};
  std::uint64_t proof = 0;
};
static_assert(sizeof(Hello) == 40);

enum class Verdict : std::uint32_t { welcome, other_size, rank_taken };

struct Welcome {
  std::uint32_t magic = kMagic;
  Verdict verdict = Verdict::welcome;
  std::uint64_t proof = 0;
};
static_assert(sizeof(Welcome) == 16);

enum class Kind : std::uint32_t {
  publish,  ///< bytes: the card of the process
  ask,      ///< requests the card of `rank`
  card,     ///< answers `ask`: the card of `rank`
  gone,     ///< answers `ask` and `fence`: `rank` has ended before
  fence,    ///< the process is at the fence
  passed,   ///< all processes are at the fence
  who,      ///< requests the ranks that are not at the fence
  absent,   ///< answers `who`: a text for the user
  kCount,
};

struct Record {
  Kind kind = Kind::publish;
  std::uint32_t rank = 0;
  std::vector<std::byte> bytes;
};

std::string packed(Kind kind, std::uint32_t rank, std::span<const std::byte> bytes = {});

/// Splits a stream into records. Thread safety: single-owner.
// Invariant: keeps less than two records and the bytes of one add().
class RecordStream {
 public:
  void add(std::span<const std::byte> bytes);
  /// The next record; nothing: it is not complete, or is_broken().
  std::optional<Record> take();
  /// The stream holds an invalid record. The stream ignores all later bytes.
  bool is_broken() const noexcept { return is_broken_; }

 private:
  std::vector<std::byte> bytes_;
  bool is_broken_ = false;
};

}  // namespace larklane::boot
