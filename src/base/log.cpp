#include "base/log.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "base/printable.hpp"

namespace larklane {
namespace {

constexpr const char* kLevelNames[] = {"error", "warn", "info"};

// All relaxed: a message that races with a change of level or rank may see either.
std::atomic<LogLevel> threshold{LogLevel::warn};
std::atomic<int> world_rank{-1};

struct State {
  std::mutex mutex;  // leaf: only a sink is called with it held
  LogSink sink;
  std::set<std::string, std::less<>> warned;
};

/// Never destroyed: threads may still log while the process exits.
State& state() {
  static State& instance = *new State;
  return instance;
}

void write_line(LogLevel level, const char* message) noexcept {
  char line[1100];
  const char* level_name = kLevelNames[static_cast<std::size_t>(level)];
  const int rank = world_rank.load(std::memory_order_relaxed);
  const int length =
      rank < 0 ? std::snprintf(line, sizeof line, "larklane: %s: %s\n", level_name, message)
               : std::snprintf(line, sizeof line, "larklane: %s: rank %d: %s\n", level_name, rank,
                               message);
  // a message that standard error refuses has nowhere else to go
  [[maybe_unused]] const ssize_t written =
      ::write(STDERR_FILENO, line, static_cast<std::size_t>(std::max(length, 0)));
}

[[gnu::format(printf, 2, 0)]] void log_arguments(LogLevel level, const char* format,
                                                 std::va_list arguments) {
  if (level > threshold.load(std::memory_order_relaxed)) return;
  const int saved_errno = errno;
  char raw[1001];
  std::vsnprintf(raw, sizeof raw, format, arguments);
  // It may quote the environment, a file or another process.
  char message[sizeof raw];
  message[print_to(raw, message, sizeof message - 1)] = '\0';
  {
    const std::lock_guard lock(state().mutex);
    if (state().sink) {
      state().sink(level, message);
    } else {
      write_line(level, message);
    }
  }
  errno = saved_errno;
}

}  // namespace

LogLevel log_level_named(std::string_view name) noexcept {
  for (const LogLevel level : {LogLevel::error, LogLevel::warn, LogLevel::info}) {
    if (name == kLevelNames[static_cast<std::size_t>(level)]) return level;
  }
  return LogLevel::warn;
}

void set_log_level(LogLevel level) noexcept { threshold.store(level, std::memory_order_relaxed); }
void set_log_rank(int rank) noexcept { world_rank.store(rank, std::memory_order_relaxed); }

void set_log_sink(LogSink sink) {
  const std::lock_guard lock(state().mutex);
  std::swap(state().sink, sink);
}

#define LARKLANE_LOG_ARGUMENTS(level)      \
  std::va_list arguments;                  \
  va_start(arguments, format);             \
  log_arguments(level, format, arguments); \
  va_end(arguments)

void log_error(const char* format, ...) { LARKLANE_LOG_ARGUMENTS(LogLevel::error); }
void log_warn(const char* format, ...) { LARKLANE_LOG_ARGUMENTS(LogLevel::warn); }
void log_info(const char* format, ...) { LARKLANE_LOG_ARGUMENTS(LogLevel::info); }

void log_warn_once(std::string_view key, const char* format, ...) {
  {
    const std::lock_guard lock(state().mutex);
    if (!state().warned.emplace(key).second) return;
  }
  LARKLANE_LOG_ARGUMENTS(LogLevel::warn);
}

}  // namespace larklane
