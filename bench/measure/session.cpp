#include "session.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "clock.hpp"
#include "watchdog.hpp"

namespace larklane::bench {
namespace {

constexpr int kFailed = 1;

void save(const Session& session) {
  const Record& record = *session.record;
  const auto write = [&](const std::string& path, auto&& writer) {
    if (path.empty()) return;
    const std::string problem = writer(record, path);
    if (problem.empty()) return;
    std::fprintf(stderr, "larklane bench: %s\n", problem.c_str());
    session.end_launch();
  };
  write(record.options.json, write_json);
  write(record.options.csv, write_csv);
}

/// Shows "[2/7] 262144 bytes  45 %, 12 s left" on a terminal, each time over the last one.
class Progress {
 public:
  explicit Progress(const Options& options) : options_(options), began_ns_(now_ns()) {}
  void show(std::size_t point, double share) {
    const double done =
        (static_cast<double>(point) + share) / static_cast<double>(options_.sizes.size());
    if (options_.quiet || !isatty(STDERR_FILENO) || now_ns() - shown_ns_ < 2e8) return;
    shown_ns_ = now_ns();
    const double left_s = (shown_ns_ - began_ns_) * 1e-9 * (1 - done) / done;
    std::fprintf(stderr, "\r[%zu/%zu] %llu bytes  %3.0f %%, %.0f s left \033[K", point + 1,
                 options_.sizes.size(), static_cast<unsigned long long>(options_.sizes[point]),
                 100 * share, left_s);
  }
  void clear() const {
    if (!options_.quiet && isatty(STDERR_FILENO)) std::fputs("\r\033[K", stderr);
  }

 private:
  const Options& options_;
  const double began_ns_;
  double shown_ns_ = 0;
};

}  // namespace

int printed(int status) {
  const int error = std::fflush(stdout) != 0 ? errno : std::ferror(stdout) != 0 ? EIO : 0;
  if (error == 0) return status;
  std::fprintf(stderr, "larklane bench: standard output: %s\n", std::strerror(error));
  return status != 0 ? status : kFailed;
}

int measure_sizes(const Session& session, const MeasureSize& measure) {
  Record& record = *session.record;
  const Options& o = record.options;
  if (session.tells) std::fputs(table_head(record).c_str(), stdout);
  if (session.tells && record.environment.is_oversubscribed)
    std::fprintf(stderr, "larklane bench: more threads than cores%s\n",
                 o.compute_ns > 0 ? ": computing, a wait for a clock, is not slowed" : "");
  std::size_t at = 0;
  Progress progress(o);
  std::optional<Watchdog> watchdog;
  const auto on_hang = [&](const std::string& way) {
    record.failures.push_back(
        {way, o.bytes_of(o.sizes[at]),
         "it was not made, or a round not over, after " + std::to_string(o.limit_s) + " s"});
    const std::string problem = o.json.empty() ? "" : write_json(record, o.json);
    if (!problem.empty()) std::fprintf(stderr, "\nlarklane bench: %s\n", problem.c_str());
    std::fprintf(stderr, "\nlarklane bench: %s hangs at %llu bytes: %s\n", way.c_str(),
                 static_cast<unsigned long long>(record.failures.back().bytes),
                 record.failures.back().what.c_str());
    session.end_launch();
  };
  if (session.tells) watchdog.emplace(o.limit_s, on_hang);
  const Watcher watcher{[&](const std::string& way) { watchdog->feed(way); },
                        [&](double share) { progress.show(at, share); }};
  const double ends_ns = now_ns() + o.budget_s * 1e9;
  std::uint64_t wrong = 0;
  for (; at < o.sizes.size(); ++at) {
    const double budget_ns = (ends_ns - now_ns()) / static_cast<double>(o.sizes.size() - at);
    Point point = measure(o.sizes[at], budget_ns, watcher);
    if (!session.tells) continue;
    watchdog->feed({});
    progress.clear();
    for (const Series& series : point.series) wrong += series.wrong + !series.refused.empty();
    std::fputs(table_lines(record, point).c_str(), stdout);
    if (point.rounds < o.iterations && point.rounds > 0)
      std::printf("# %u of %u rounds: the time budget\n", point.rounds, o.iterations);
    std::fflush(stdout);
    record.points.push_back(std::move(point));
    save(session);
  }
  return wrong == 0 ? 0 : kFailed;
}

}  // namespace larklane::bench
