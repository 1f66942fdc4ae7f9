#pragma once
// Bounds of the steps of named calls, and their comparison with the counts.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "steps.hpp"

namespace larklane::cost {

/// The name of the empty call: the instructions of the counting itself.
inline constexpr const char* kNothing = "nothing";

/// Read-modify-writes: the locks are among them. Thread safety: immutable.
struct Most {
  const char* name;
  std::uint64_t instructions, atomics, lines_written;
};

/// Of most repeats: now and then a turn polls more, or gives credit back.
template <class Number>
std::uint64_t median(const std::vector<Steps>& all, Number&& number) {
  std::vector<std::uint64_t> values;
  for (const Steps& steps : all) values.push_back(number(steps));
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}
template <class Number>
std::uint64_t most_of(const std::vector<Steps>& all, Number&& number) {
  std::uint64_t most = 0;
  for (const Steps& steps : all) most = std::max(most, number(steps));
  return most;
}

using AllSteps = std::map<std::string, std::vector<Steps>>;

/// Instructions of a call, less those of the counting.
inline std::uint64_t instructions_of(const AllSteps& all, const std::string& name) {
  const auto number = [](const Steps& steps) { return steps.instructions; };
  return median(all.at(name), number) - median(all.at(kNothing), number);
}

/// @param all  of `bounds` and kNothing, each `repeats` times or more
inline void expect_bounded(const AllSteps& all, std::span<const Most> bounds, std::size_t repeats) {
  ASSERT_EQ(all.size(), bounds.size() + 1);
  std::printf("%-40s %22s %16s %16s\n", "", "instructions, at most", "atomics", "lines written");
  for (const Most& most : bounds) {
    SCOPED_TRACE(most.name);
    ASSERT_TRUE(all.contains(most.name));
    const std::vector<Steps>& each = all.at(most.name);
    const std::uint64_t instructions = instructions_of(all, most.name);
    const std::uint64_t atomics = median(each, [](const Steps& steps) { return steps.atomics; });
    const std::uint64_t lines =
        median(each, [](const Steps& steps) { return steps.lines_written.size(); });
    std::printf("%-40s %14lu, %6lu %8lu, %6lu %8lu, %6lu\n", most.name, instructions,
                most.instructions, atomics, most.atomics, lines, most.lines_written);
    EXPECT_LE(instructions, most.instructions);
    EXPECT_LE(atomics, most.atomics);
    EXPECT_LE(lines, most.lines_written);
    EXPECT_GE(each.size(), repeats);
    EXPECT_EQ(most_of(each, [](const Steps& steps) { return steps.system_calls; }), 0u);
    EXPECT_EQ(most_of(each, [](const Steps& steps) { return steps.allocations; }), 0u);
  }
}

}  // namespace larklane::cost
