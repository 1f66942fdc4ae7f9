#pragma once
// The instructions of a part of a program, one at a time: the program runs in a child process that
// is stepped through. Exact, and the same each time; no times. Linux on x86-64.

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace larklane::cost {

/// Thread safety: immutable.
struct Steps {
  using Line = std::pair<std::uint64_t, std::uint64_t>;  ///< inode, number in the file

  std::uint64_t instructions = 0;
  std::uint64_t atomics = 0;  ///< read-modify-writes that other cores see as one: locks, too
  std::uint64_t system_calls = 0;
  std::uint64_t allocations = 0;             ///< calls of malloc and the like, and of free
  std::set<Line> lines_read, lines_written;  ///< of memory that is shared between processes
};

/// In the program: the code between these two is stepped through, under that name.
void begin_steps(const char* name);
void end_steps();

/// The steps of `program` between each begin_steps() and end_steps(), by name, in order. Empty: it
/// could not be run or followed, or has ended badly, as standard error shows.
/// @param foreign  part of a library's file name: steps in it, and in its callees, are not counted.
/// Empty: all are
std::map<std::string, std::vector<Steps>> steps_of(const std::function<bool()>& program,
                                                   const std::string& foreign = {});

/// The rounds of such a program. @param counts  set: true in the rounds behind the warm-up
/// @return false: a round has failed
template <class Calls>
bool run_rounds(int warmup, int repeats, bool* counts, Calls all_calls) {
  for (int round = 0; round < warmup + repeats; ++round) {
    *counts = round >= warmup;
    if (!all_calls(round)) return false;
  }
  return true;
}

}  // namespace larklane::cost
