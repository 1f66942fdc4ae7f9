#pragma once
// The one reader of files that a user names or another process leaves. Thread safety: thread-safe.

#include <cstddef>
#include <string>

namespace larklane {

/// Largest file of each kind. Texts that people write or that one command writes: options, tuning
/// tables, copy costs. A million bytes are some 20,000 lines.
inline constexpr std::size_t kTextFileBytesMax = std::size_t{1} << 20;
/// Records of `larklane bench` and recorded noise: a sample takes some 20 bytes, so ten million
/// samples; as JSON values they take ten times as much memory.
inline constexpr std::size_t kRecordFileBytesMax = std::size_t{1} << 28;

/// Reads a regular file whole, also through a link. It never waits: a pipe, a device or a folder is
/// refused before a byte is read.
/// @return 0, or the reason: ENOENT, EISDIR, EFBIG (more than `bytes_max`), EINVAL (no regular
/// file) or the system's errno; then `text` is empty
int read_input_file(const std::string& path, std::size_t bytes_max, std::string* text);

/// The meaning of that errno for people, with the limit where it is one.
std::string input_file_problem(int error, std::size_t bytes_max);

}  // namespace larklane
