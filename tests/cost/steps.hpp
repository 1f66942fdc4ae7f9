#pragma once
// What a piece of a program does, one instruction at a time: the program runs in a child process
// that is stepped through. Exact, and the same each time; no times. Linux on x86-64.

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

/// In the program: what is between these two is stepped through, under that name.
void begin_steps(const char* name);
void end_steps();

/// What `program` has done between each begin_steps() and end_steps(), by name, in its order.
/// Empty: it could not be run or followed, or has ended badly, as standard error says.
/// @param foreign  part of a library's file name: what is done in it, and in what it calls, is not
///                 counted. Empty: all is
std::map<std::string, std::vector<Steps>> steps_of(const std::function<bool()>& program,
                                                   const std::string& foreign = {});

}  // namespace larklane::cost
