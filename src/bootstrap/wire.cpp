#include "bootstrap/wire.hpp"

#include <cstring>

namespace larklane::boot {
namespace {

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
