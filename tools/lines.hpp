#pragma once
// Output of several processes in one stream: lines stay whole. Thread safety: single-owner.

#include <cstddef>
#include <string>
#include <string_view>

namespace larklane::tools {

/// The stream. Output that its reader has no room for is kept: a write never waits for a reader.
class LineSink {
 public:
  /// From which on its writers should pause.
  static constexpr std::size_t kKeptBytesMax = 64 * 1024;

  explicit LineSink(int fd) noexcept : fd_(fd) {}
  /// @param who   the writer @param tag  for the begin of each line
  /// @param text  whole lines, but for the last one's end
  /// @return false: it is not taken, see error()
  bool write(const void* who, std::string_view tag, std::string_view text);
  /// Writes as much as the reader has room for. @return as write()
  bool flush();

  int fd() const noexcept { return fd_; }
  std::size_t kept_bytes() const noexcept { return kept_.size(); }
  bool is_full() const noexcept { return kept_bytes() >= kKeptBytesMax; }
  /// errno of the first write that failed; EPIPE: no process reads any more.
  int error() const noexcept { return error_; }

 private:
  int fd_;
  int error_ = 0;
  std::string kept_;
  const void* open_ = nullptr;  ///< the writer of the begin of a line without its end
};

/// The output of one process.
/// Invariant: keeps less than kLineBytesMax between calls; of a longer line others may see parts.
class Lines {
 public:
  static constexpr std::size_t kLineBytesMax = 64 * 1024;

  Lines(LineSink& sink, std::string tag) : sink_(&sink), tag_(std::move(tag)) {}
  /// @return false: it is not taken, see error()
  bool add(std::string_view bytes);
  /// Nothing more comes: a line without its end goes out as it is.
  bool finish();
  int error() const noexcept { return sink_->error(); }
  /// The sink is full: nothing should be added now.
  bool is_paused() const noexcept { return sink_->is_full(); }

 private:
  LineSink* sink_;
  std::string tag_;
  std::string begun_;
};

}  // namespace larklane::tools
