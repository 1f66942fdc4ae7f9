#pragma once
// Messages for people: one line per message, `larklane: warn: rank 3: ...`, written to standard
// error by a single write(2). One destination per process, like standard error itself. Thread
// safety: thread-safe.

#include <cstdint>
#include <functional>
#include <string_view>

namespace larklane {

enum class LogLevel : std::uint8_t {
  error,  ///< cannot continue as asked
  warn,   ///< unexpected, continues
  info,   ///< how things are done
};

/// The level that option `log_level` names; warn (the default) for anything else.
LogLevel log_level_named(std::string_view name) noexcept;
/// Messages above `level` are dropped. Before the first call: warn.
void set_log_level(LogLevel level) noexcept;
/// World rank for the start of each line; negative (as before the first call): left out.
void set_log_rank(int rank) noexcept;

/// Receives every message that passes the level, without the start of the line, instead of standard
/// error.
using LogSink = std::function<void(LogLevel level, std::string_view message)>;
/// An empty sink gives messages to standard error again. Returns when no other thread is in the
/// former sink.
void set_log_sink(LogSink sink);

// printf formats; errno is kept. Longer than 1000 characters: cut. Control characters are escaped.
[[gnu::format(printf, 1, 2)]] void log_error(const char* format, ...);
[[gnu::format(printf, 1, 2)]] void log_warn(const char* format, ...);
[[gnu::format(printf, 1, 2)]] void log_info(const char* format, ...);
/// Warns at the first call with this key in the life of the process.
[[gnu::format(printf, 2, 3)]] void log_warn_once(std::string_view key, const char* format, ...);

}  // namespace larklane
