#pragma once
// The one writer of files that a user keeps. Thread safety: thread-safe.

#include <string>
#include <string_view>

namespace larklane {

/// Writes a file whole: to `path`.part first, which is synchronised with the disk and then renamed.
/// If that fails, an older file of the name is as it was, and no part of the new one stays. A
/// device or a pipe is written to, and of a link the file that it leads to is replaced.
/// @return 0, or an errno
int write_output_file(const std::string& path, std::string_view text);

/// Why a file is not there, and what helps. @param elsewhere  "name another folder with --out"
std::string output_file_problem(const std::string& path, int error, std::string_view elsewhere);

}  // namespace larklane
