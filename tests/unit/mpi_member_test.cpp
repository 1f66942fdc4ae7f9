// Member lists of communicators over several jobs.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "mpi/world/member.hpp"

namespace larklane::mpi {
namespace {

Job job(const char* name) { return std::make_shared<const std::string>(name); }

bool equal(const std::vector<Member>& a, const std::vector<Member>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (*a[i].job != *b[i].job || a[i].rank != b[i].rank) return false;
  }
  return true;
}

TEST(MpiMember, NeighboursOfOneJobAreARange) {
  const Job a = job("pmix-prterun-host-7@1"), b = job("hydra-1-2");
  EXPECT_EQ(text_of(std::vector<Member>{{a, 0}, {a, 1}, {a, 2}, {a, 7}, {b, 3}, {b, 2}}),
            "0-2,7@pmix-prterun-host-7@1+3,2@hydra-1-2");
  EXPECT_EQ(text_of(std::vector<Member>{{a, 5}}), "5@pmix-prterun-host-7@1");
}

TEST(MpiMember, OneJobUnderTwoNamesOfTheSameTextIsOne) {
  EXPECT_EQ(text_of(std::vector<Member>{{job("x"), 0}, {job("x"), 1}}), "0-1@x");
}

TEST(MpiMember, EveryOrderComesBack) {
  const Job jobs[] = {job("a"), job("b@1")};
  // All sequences of four members out of two jobs with three ranks.
  for (int code = 0; code < 6 * 6 * 6 * 6; ++code) {
    std::vector<Member> members;
    for (int i = 0, rest = code; i < 4; ++i, rest /= 6) {
      members.push_back({jobs[rest % 6 / 3], rest % 3});
    }
    const auto parsed = members_of_text(text_of(members));
    ASSERT_TRUE(parsed) << text_of(members);
    EXPECT_TRUE(equal(members, *parsed)) << text_of(members);
  }
}

TEST(MpiMember, OtherTextsAreRefused) {
  for (const char* text :
       {"0", "0@", "@job", "a@job", "0-@job", "3-1@job", "-1@job", "0,@job", "0 @job", "0-1x@job",
        "0@job+", "0@job+1", "99999999999@job", "0-2147483647@job", "0-999999,0@job"}) {
    const bool is_whole = std::string(text) == "0@job+";  // an end without a beginning is no list
    EXPECT_EQ(members_of_text(text).has_value(), is_whole) << text;
  }
}

TEST(MpiMember, ABirthComesBack) {
  const Birth birth{job("spawn-1f"), {{0x0123456789abcdef, 7}, {{job("a"), 0}, {job("b"), 3}}}};
  EXPECT_EQ(birth.text(), "spawn-1f:0123456789abcdef0000000000000007:0@a+3@b");
  const auto parsed = Birth::of_text(birth.text());
  ASSERT_TRUE(parsed);
  EXPECT_EQ(*parsed->job, "spawn-1f");
  EXPECT_EQ(parsed->with_parents.recipe, birth.with_parents.recipe);
  EXPECT_TRUE(equal(parsed->with_parents.others, birth.with_parents.others));
}

TEST(MpiMember, OtherBirthsAreRefused) {
  for (const char* text :
       {"", "job", "job:", "job:0123456789abcdef0000000000000007",
        ":0123456789abcdef0000000000000007:0@a", "job:0123456789abcdef0000000000000007:",
        "job:0123456789abcdef000000000000000:0@a", "job:0123456789abcdeg0000000000000007:0@a",
        "job:0123456789abcdef000000000000000g:0@a", "job:0123456789abcdef0000000000000007:x"}) {
    EXPECT_FALSE(Birth::of_text(text)) << text;
  }
}

}  // namespace
}  // namespace larklane::mpi
