#include "console.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

#include "base/printable.hpp"

namespace larklane::tools {
namespace {

/// @return 0, or an errno
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written == 0 ? EIO : errno;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

/// Is it the begin of a character without its rest?
bool is_begin(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 1;
  if (first > 0xf4 || text.size() >= length) return false;
  for (const char c : text.substr(1))
    if ((static_cast<unsigned char>(c) & 0xc0) != 0x80) return false;
  return true;
}

/// The printable form of `text`. @param[out] rest  the begin of a character, at its end
std::string shown(std::string_view text, std::string_view* rest) {
  std::string out;
  for (; !text.empty();) {
    char escaped[kEscapeBytes];
    const bool is_kept = text[0] == '\n' || text[0] == '\t';
    const std::size_t length = is_kept ? 1 : shown_length(text);
    if (length == 0 && is_begin(text)) break;
    if (length != 0)
      out += text.substr(0, length);
    else
      out.append(escaped, escape(static_cast<unsigned char>(text[0]), escaped));
    text.remove_prefix(length != 0 ? length : 1);
  }
  *rest = text;
  return out;
}

}  // namespace

ssize_t Console::write(void* cookie, const char* bytes, std::size_t count) {
  Stream& stream = *static_cast<Stream*>(cookie);
  std::string text(stream.kept, stream.kept_bytes);
  text.append(bytes, count);
  std::string_view rest;
  const std::string out = shown(text, &rest);
  stream.kept_bytes = rest.copy(stream.kept, sizeof stream.kept);
  if (stream.error == 0) stream.error = write_all(stream.fd, out);
  return static_cast<ssize_t>(count);  // end() tells of a failure, once
}

Console::Console() : out_{STDOUT_FILENO}, errors_{STDERR_FILENO} {
  const cookie_io_functions_t functions{nullptr, &Console::write, nullptr, nullptr};
  for (Stream* const stream : {&out_, &errors_}) {
    std::FILE*& standard = stream == &out_ ? stdout : stderr;
    std::fflush(standard);
    stream->file = ::fopencookie(stream, "w", functions);
    if (stream->file == nullptr) continue;  // no memory: as it was
    const bool is_line = stream == &out_ && ::isatty(stream->fd) != 0;
    std::setvbuf(stream->file, nullptr,
                 stream == &errors_ ? _IONBF
                 : is_line          ? _IOLBF
                                    : _IOFBF,
                 BUFSIZ);
    stream->before = standard;
    standard = stream->file;
  }
}

Console::~Console() {
  for (Stream* const stream : {&out_, &errors_}) {
    if (stream->file == nullptr) continue;
    (stream == &out_ ? stdout : stderr) = stream->before;
    std::fclose(stream->file);
  }
}

int Console::end(int status) {
  std::fflush(stdout);
  if (out_.error == 0) return status;
  std::fprintf(stderr, "larklane: standard output: %s\n", std::strerror(out_.error));
  return status != 0 ? status : 1;
}

}  // namespace larklane::tools
