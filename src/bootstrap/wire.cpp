#include "bootstrap/wire.hpp"

#include <cstring>

namespace larklane::boot {
namespace {

// The first word tells what a hash is for, so that none can be passed off as another.
constexpr std::uint64_t kForHello = 1;
constexpr std::uint64_t kForWelcome = 2;

struct Text {
  std::uint64_t purpose;
  std::uint64_t verdict;
  Challenge challenge;
  Hello hello;
};
static_assert(sizeof(Text) == 16 + sizeof(Challenge) + sizeof(Hello));  // no padding

std::uint64_t hash(const Secret& secret, std::uint64_t purpose, const Challenge& challenge,
                   const Hello& hello, Verdict verdict) {
  Text text{purpose, static_cast<std::uint64_t>(verdict), challenge, hello};
  text.hello.proof = 0;
  return siphash(secret, std::as_bytes(std::span(&text, 1)));
}

struct Header {
  std::uint32_t magic = kMagic;
  Kind kind = Kind::publish;
  std::uint32_t rank = 0;
  std::uint32_t bytes = 0;
};
static_assert(sizeof(Header) == 16);

bool carries_bytes(Kind kind) {
  return kind == Kind::publish || kind == Kind::card || kind == Kind::absent;
}

bool is_sound(const Header& header) {
  return header.magic == kMagic && header.kind < Kind::kCount &&
         header.bytes <= (carries_bytes(header.kind) ? kCardBytesMax : 0);
}

}  // namespace

std::uint64_t proof_of(const Secret& secret, const Challenge& challenge, const Hello& hello) {
  return hash(secret, kForHello, challenge, hello, Verdict::welcome);
}

std::uint64_t answer_to(const Secret& secret, const Challenge& challenge, const Hello& hello,
                        Verdict verdict) {
  return hash(secret, kForWelcome, challenge, hello, verdict);
}

std::string packed(Kind kind, std::uint32_t rank, std::span<const std::byte> bytes) {
  const Header header{kMagic, kind, rank, static_cast<std::uint32_t>(bytes.size())};
  std::string record(reinterpret_cast<const char*>(&header), sizeof header);
  record.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return record;
}

void RecordStream::add(std::span<const std::byte> bytes) {
  if (!is_broken_) bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

std::optional<Record> RecordStream::take() {
  Header header;
  if (is_broken_ || bytes_.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, bytes_.data(), sizeof header);
  if (!is_sound(header)) {
    is_broken_ = true;
    bytes_.clear();
    return std::nullopt;
  }
  const std::size_t length = sizeof header + header.bytes;
  if (bytes_.size() < length) return std::nullopt;
  const auto end = bytes_.begin() + static_cast<std::ptrdiff_t>(length);
  Record record{header.kind, header.rank, {bytes_.begin() + sizeof header, end}};
  bytes_.erase(bytes_.begin(), end);
  return record;
}

}  // namespace larklane::boot
