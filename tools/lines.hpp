#pragma once
// Output of several processes in one stream: lines stay whole. Thread safety: single-owner.

#include <cstddef>
#include <string>
#include <string_view>

namespace larklane::tools {

/// The stream.
class LineSink {
 public:
  explicit LineSink(int fd) noexcept : fd_(fd) {}
  /// @param who   whose it is @param tag  for the begin of each line
  /// @param text  whole lines, but for the last one's end
  /// @return false: it is not taken, see error()
  bool write(const void* who, std::string_view tag, std::string_view text);

  /// errno of the first write that failed; EPIPE: no process reads any more.
  int error() const noexcept { return error_; }

 private:
  int fd_;
  int error_ = 0;
  const void* open_ = nullptr;  ///< who has written the begin of a line without its end
};

/// What one process writes.
// Invariant: keeps less than kLineBytesMax between calls; of a longer line others may see parts.
class Lines {
 public:
  static constexpr std::size_t kLineBytesMax = 64 * 1024;

  Lines(LineSink& sink, std::string tag) : sink_(&sink), tag_(std::move(tag)) {}
  /// @return false: it is not taken, see error()
  bool add(std::string_view bytes);
  /// Nothing more comes: what has no end of line goes out as it is.
  bool finish();
  int error() const noexcept { return sink_->error(); }

 private:
  LineSink* sink_;
  std::string tag_;
  std::string begun_;
};

}  // namespace larklane::tools
