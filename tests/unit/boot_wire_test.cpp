// Records and proofs of processes that meet.

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <string_view>

#include "base/secret.hpp"
#include "bootstrap/wire.hpp"

namespace larklane::boot {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(BootWire, RecordsComeBackHoweverTheyAreCut) {
  const std::string stream = packed(Kind::publish, 0, bytes_of("a card")) + packed(Kind::ask, 7) +
                             packed(Kind::card, 3, bytes_of("")) + packed(Kind::fence, 0);
  for (std::size_t piece = 1; piece <= stream.size(); ++piece) {
    RecordStream records;
    std::vector<Record> taken;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      records.add(bytes_of(std::string_view(stream).substr(at, piece)));
      while (auto record = records.take()) taken.push_back(std::move(*record));
    }
    ASSERT_EQ(taken.size(), 4U) << "pieces of " << piece;
    EXPECT_EQ(taken[0].kind, Kind::publish);
    EXPECT_EQ(taken[0].bytes.size(), 6U);
    EXPECT_EQ(taken[1].kind, Kind::ask);
    EXPECT_EQ(taken[1].rank, 7U);
    EXPECT_EQ(taken[2].rank, 3U);
    EXPECT_TRUE(taken[2].bytes.empty());
    EXPECT_EQ(taken[3].kind, Kind::fence);
    EXPECT_FALSE(records.is_broken());
  }
}

TEST(BootWire, AMalformedRecordEndsAStream) {
  const auto is_refused = [](std::size_t word, std::uint32_t value) {
    std::string record = packed(Kind::ask, 1);
    std::memcpy(record.data() + 4 * word, &value, sizeof value);
    RecordStream records;
    records.add(bytes_of(record));
    records.add(bytes_of(packed(Kind::ask, 1)));
    return !records.take() && records.is_broken() && !records.take();
  };
  EXPECT_TRUE(is_refused(0, kMagic + 1));
  EXPECT_TRUE(is_refused(1, static_cast<std::uint32_t>(Kind::kCount)));
  EXPECT_TRUE(is_refused(3, 1));  // a question carries no bytes
  EXPECT_FALSE(is_refused(2, 99));
  std::string card = packed(Kind::card, 1, {});
  const std::uint32_t too_many = kCardBytesMax + 1;
  std::memcpy(card.data() + 12, &too_many, sizeof too_many);
  RecordStream records;
  records.add(bytes_of(card));
  EXPECT_FALSE(records.take());
  EXPECT_TRUE(records.is_broken());
}

TEST(BootWire, RandomBytesAreRecordsOrTheEnd) {
  const char* const given = std::getenv("LARKLANE_SEED");
  const unsigned long seed = given != nullptr ? std::strtoul(given, nullptr, 10) : 20261125;
  std::mt19937_64 random(seed);
  for (int round = 0; round < 20'000; ++round) {
    std::string stream = packed(Kind::card, 3, bytes_of("twelve bytes")) + packed(Kind::fence, 0);
    for (std::uint64_t change = random() % 4; change > 0; --change)
      stream[random() % stream.size()] = static_cast<char>(random());
    RecordStream records;
    std::size_t bytes = 0;
    for (std::size_t at = 0; at < stream.size();) {
      const std::size_t piece = 1 + random() % 16;
      records.add(bytes_of(std::string_view(stream).substr(at, piece)));
      at += piece;
      while (const auto record = records.take()) {
        ASSERT_LT(record->kind, Kind::kCount);
        ASSERT_LE(record->bytes.size(), kCardBytesMax);
        bytes += 16 + record->bytes.size();
      }
    }
    ASSERT_LE(bytes, stream.size()) << "LARKLANE_SEED=" << seed;
  }
}

TEST(BootWire, AProofIsOfOneJobOneQuestionAndOneAnswer) {
  Challenge challenge;
  challenge.nonce = {1, 2};
  Hello hello;
  hello.rank = 1;
  hello.size = 2;
  hello.nonce = {3, 4};
  const Secret secret = key_of("job");
  const std::uint64_t proof = proof_of(secret, challenge, hello);
  EXPECT_NE(proof, proof_of(key_of("jobs"), challenge, hello));
  EXPECT_NE(proof, answer_to(secret, challenge, hello, Verdict::welcome));
  EXPECT_NE(answer_to(secret, challenge, hello, Verdict::welcome),
            answer_to(secret, challenge, hello, Verdict::rank_taken));
  Challenge other = challenge;
  other.nonce[1] = 3;
  EXPECT_NE(proof, proof_of(secret, other, hello));
  Hello taken = hello;
  taken.rank = 0;
  EXPECT_NE(proof, proof_of(secret, challenge, taken));
  taken = hello;
  taken.proof = 99;
  EXPECT_EQ(proof, proof_of(secret, challenge, taken));
}

}  // namespace
}  // namespace larklane::boot
