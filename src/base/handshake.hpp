#pragma once
// The proofs by which two processes show each other that they know a job's secret. The side that
// has accepted a connection sends a challenge, the side that has connected a hello, and the first
// side an answer. The protocols define these messages; each has a random number in the challenge
// and in the hello, so a proof is of no use twice. Thread safety: pure functions.
//
// The proofs keep out all that reach the port and are not of the job: other jobs, other users, port
// scanners. Records that follow are neither encrypted nor signed.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/siphash.hpp"

namespace larklane {

using Nonce = std::array<std::uint64_t, 2>;

namespace handshake {

// The first word tells the purpose of a hash, so that none can be passed off as another.
inline constexpr std::uint64_t kForIdentity = 1, kForHello = 2, kForAnswer = 3;

template <class Challenge, class Hello>
std::uint64_t hash(const Secret& secret, std::uint64_t purpose, const Challenge& challenge,
                   Hello hello) noexcept {
  struct Text {
    std::uint64_t purpose;
    Challenge challenge;
    Hello hello;
  };
  static_assert(sizeof(Text) == 8 + sizeof(Challenge) + sizeof(Hello));  // no padding
  hello.proof = 0;
  const Text text{purpose, challenge, hello};
  return siphash(secret, std::as_bytes(std::span(&text, 1)));
}

}  // namespace handshake

/// A name that the side which accepts may show before the other one has proven anything.
inline std::uint64_t identity_of(const Secret& secret, std::string_view name) {
  std::string text(reinterpret_cast<const char*>(&handshake::kForIdentity),
                   sizeof handshake::kForIdentity);
  text += name;
  return siphash(secret, std::as_bytes(std::span(text)));
}

/// The hello's. @param hello  its own `proof` does not count
template <class Challenge, class Hello>
std::uint64_t proof_of(const Secret& secret, const Challenge& challenge,
                       const Hello& hello) noexcept {
  return handshake::hash(secret, handshake::kForHello, challenge, hello);
}

/// The answer's. @param hello  that it answers @param verdict  of 32 bits
template <class Challenge, class Hello, class Verdict = std::uint32_t>
std::uint64_t answer_to(const Secret& secret, const Challenge& challenge, const Hello& hello,
                        Verdict verdict = {}) noexcept {
  const std::uint64_t purpose = handshake::kForAnswer | static_cast<std::uint64_t>(verdict) << 32;
  return handshake::hash(secret, purpose, challenge, hello);
}

}  // namespace larklane
