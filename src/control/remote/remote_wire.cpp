#include "control/remote/remote_wire.hpp"

#include <span>
#include <string_view>

namespace larklane::control {
namespace {

// The first word tells what a hash is for, so that none can be passed off as another.
constexpr std::uint64_t kForIdentity = 1;
constexpr std::uint64_t kForHello = 2;
constexpr std::uint64_t kForAnswer = 3;

struct HelloText {
  std::uint64_t purpose;
  Challenge challenge;
  RemoteHello hello;
};
static_assert(sizeof(HelloText) == 8 + sizeof(Challenge) + sizeof(RemoteHello));  // no padding

std::uint64_t hash(const Secret& secret, std::uint64_t purpose, const Challenge& challenge,
                   const RemoteHello& hello) {
  HelloText text{purpose, challenge, hello};
  text.hello.proof = 0;
  return siphash(secret, std::as_bytes(std::span(&text, 1)));
}

}  // namespace

std::uint64_t identity_of(const Secret& secret, const Address& address) {
  std::string text(reinterpret_cast<const char*>(&kForIdentity), sizeof kForIdentity);
  text += address;
  return siphash(secret, std::as_bytes(std::span(text)));
}

std::uint64_t proof_of(const Secret& secret, const Challenge& challenge, const RemoteHello& hello) {
  return hash(secret, kForHello, challenge, hello);
}

std::uint64_t answer_to(const Secret& secret, const Challenge& challenge,
                        const RemoteHello& hello) {
  return hash(secret, kForAnswer, challenge, hello);
}

}  // namespace larklane::control
