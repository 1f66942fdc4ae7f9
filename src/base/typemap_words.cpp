// The wire form of a typemap: 64-bit words. Layout: docs/design/protocols/partitioned.md, which
// changes in the same commit.

#include <cstring>
#include <utility>

#include "base/typemap.hpp"

namespace larklane {
namespace {

/// First word: the kind of text, and its version.
constexpr std::uint64_t kMark = 0x4c4b544d'00000001;  // "LKTM", 1

struct Head {
  std::uint64_t mark;
  std::uint64_t node_count, place_count, entry_count, member_count;
  std::uint64_t root;  ///< kDense: one block
  std::uint64_t bytes;
  std::int64_t offset, extent;
};
constexpr std::uint64_t kWordBytes = sizeof(std::uint64_t);
constexpr std::uint64_t kHeadWords = sizeof(Head) / kWordBytes;

template <class T>
constexpr std::uint64_t words_of(std::uint64_t count) noexcept {
  return (count * sizeof(T) + kWordBytes - 1) / kWordBytes;
}

template <class T>
void put(std::span<const T> table, std::uint64_t*& to) noexcept {
  const std::uint64_t words = words_of<T>(table.size());
  if (words == 0) return;
  to[words - 1] = 0;  // of an odd number of members half a word is left
  std::memcpy(to, table.data(), table.size_bytes());
  to += words;
}

/// False: there are not so many left.
template <class T>
bool take(std::span<const std::uint64_t>& words, std::uint64_t count, std::vector<T>& table) {
  if (count > words.size() * (kWordBytes / std::min(sizeof(T), kWordBytes))) return false;
  const std::uint64_t needed = words_of<T>(count);
  if (needed > words.size()) return false;
  table.resize(count);
  if (count != 0) std::memcpy(table.data(), words.data(), count * sizeof(T));
  words = words.subspan(needed);
  return true;
}

}  // namespace

std::uint64_t Typemap::encoded_words() const noexcept {
  return kHeadWords + words_of<TypeNode>(tables_.nodes.size()) +
         words_of<std::int64_t>(tables_.places.size()) +
         words_of<TypeEntry>(tables_.entries.size()) +
         words_of<std::uint32_t>(tables_.members.size());
}

void Typemap::encode(std::span<std::uint64_t> words) const noexcept {
  const Head head{kMark,
                  tables_.nodes.size(),
                  tables_.places.size(),
                  tables_.entries.size(),
                  tables_.members.size(),
                  root_.node,
                  root_.bytes,
                  root_.offset,
                  extent_bytes_};
  std::memcpy(words.data(), &head, sizeof(head));
  std::uint64_t* to = words.data() + kHeadWords;
  put(std::span(tables_.nodes), to);
  put(std::span(tables_.places), to);
  put(std::span(tables_.entries), to);
  put(std::span(tables_.members), to);
}

Result<Typemap> Typemap::decode(std::span<const std::uint64_t> words) {
  Head head;
  if (words.size() < kHeadWords) return Errc::kProtocol;
  std::memcpy(&head, words.data(), sizeof(head));
  words = words.subspan(kHeadWords);
  TypeTables tables;
  if (head.mark != kMark || head.root > kDense || !take(words, head.node_count, tables.nodes) ||
      !take(words, head.place_count, tables.places) ||
      !take(words, head.entry_count, tables.entries) ||
      !take(words, head.member_count, tables.members) || !words.empty())
    return Errc::kProtocol;
  auto type = make(std::move(tables),
                   {static_cast<std::uint32_t>(head.root), head.bytes, head.offset}, head.extent);
  if (!type) return Errc::kProtocol;
  return type;
}

}  // namespace larklane
