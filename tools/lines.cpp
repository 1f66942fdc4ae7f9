#include "lines.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

namespace larklane::tools {

bool LineSink::write(const void* who, std::string_view tag, std::string_view text) {
  if (text.empty()) return true;
  if (open_ != nullptr && open_ != who) kept_ += '\n';
  bool is_begin = open_ != who;
  open_ = text.back() == '\n' ? nullptr : who;
  while (!text.empty()) {
    if (is_begin) kept_ += tag;
    const std::size_t length = std::min(text.find('\n'), text.size() - 1) + 1;
    kept_ += text.substr(0, length);
    text.remove_prefix(length);
    is_begin = true;
  }
  return flush();
}

bool LineSink::flush() {
  std::string_view left = kept_;
  while (!left.empty() && error_ == 0) {
    // Of a pipe that is said to be writable, PIPE_BUF bytes are: such a write does not block.
    pollfd writable{fd_, POLLOUT, 0};
    if (::poll(&writable, 1, 0) == 0) break;
    const ssize_t written = ::write(fd_, left.data(), std::min<std::size_t>(left.size(), PIPE_BUF));
    if (written >= 0)
      left.remove_prefix(static_cast<std::size_t>(written));
    else if (errno == EAGAIN)
      break;
    else if (errno != EINTR)
      error_ = errno;
  }
  kept_.erase(0, error_ == 0 ? kept_.size() - left.size() : kept_.size());
  return error_ == 0;
}

bool Lines::add(std::string_view bytes) {
  begun_ += bytes;
  std::size_t whole = begun_.rfind('\n') + 1;  // npos + 1: none
  if (whole == 0 && begun_.size() >= kLineBytesMax) whole = begun_.size();
  const bool is_read = sink_->write(this, tag_, std::string_view(begun_).substr(0, whole));
  begun_.erase(0, whole);
  return is_read;
}

bool Lines::finish() { return sink_->write(this, tag_, std::exchange(begun_, {})); }

}  // namespace larklane::tools
