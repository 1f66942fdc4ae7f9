#pragma once
// `larklane bench`: the micro-benchmarks. Thread safety: single-owner.

#include <string>
#include <vector>

namespace larklane::tools {

/// Between a launcher and its ranks it becomes the measuring program of their MPI. Otherwise
/// python/larklane/bench/command.py starts launchers, several variants in turns.
/// @param words  the words behind `bench`
/// @return only if nothing was started: the exit status, after a message
int bench(const std::vector<std::string>& words);

/// Takes `--name VALUE` and `--name=VALUE` out of the words. @return its value, empty if absent
std::string take(std::vector<std::string>& words, const std::string& name);

/// A module of the Python package that lies beside this command, with matplotlib if some Python
/// here has it. @return as bench()
int run_python(const std::string& module, const std::vector<std::string>& words);

}  // namespace larklane::tools
