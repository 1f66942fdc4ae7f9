#include "lines.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace larklane::tools {

bool LineSink::write(const void* who, std::string_view tag, std::string_view text) {
  if (text.empty()) return true;
  std::string out;
  if (open_ != nullptr && open_ != who) out += '\n';
  bool is_begin = open_ != who;
  open_ = text.back() == '\n' ? nullptr : who;
  while (!text.empty()) {
    if (is_begin) out += tag;
    const std::size_t length = std::min(text.find('\n'), text.size() - 1) + 1;
    out += text.substr(0, length);
    text.remove_prefix(length);
    is_begin = true;
  }
  for (std::string_view left = out; !left.empty();) {
    const ssize_t written = ::write(fd_, left.data(), left.size());
    if (written >= 0) {
      left.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd writable{fd_, POLLOUT, 0};
      ::poll(&writable, 1, -1);
    } else if (errno != EINTR) {
      if (error_ == 0) error_ = errno;
      return false;
    }
  }
  return true;
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
