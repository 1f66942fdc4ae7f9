#include "noise.hpp"

#include <sched.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/output_file.hpp"
#include "measure/json_text.hpp"
#include "run.hpp"

namespace larklane::tools {
namespace {

constexpr std::size_t kDetoursMax = 1 << 17;  // of a core

/// Thread safety: single-owner, while it is watched by the watching thread.
struct Core {
  int number;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> detours;  ///< begin, length
  std::uint64_t span_ns = 0;
  int pinning_errno = 0;
};

std::vector<Core> allowed_cores() {
  std::vector<Core> cores;
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cores.push_back({cpu, {}});
  return cores;
}

/// Between two readings of the clock, at least.
std::uint64_t reading_ns() {
  std::uint64_t least = ~std::uint64_t{0}, before = now_ns();
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t now = now_ns();
    least = std::min(least, now - before);
    before = now;
  }
  return least;
}

/// Reads the clock over and over: where it jumps, the core did something else.
/// @param end_ns  0: it is called off
void watch(Core* core, std::uint64_t begin_ns, const std::atomic<std::uint64_t>& end_ns,
           std::uint64_t threshold_ns) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core->number, &set);
  if (::sched_setaffinity(0, sizeof set, &set) != 0) core->pinning_errno = errno;
  core->detours.resize(kDetoursMax);  // no page fault while it watches
  std::size_t count = 0;
  while (now_ns() < begin_ns) ::sched_yield();
  std::uint64_t before = begin_ns;
  // relaxed: a time
  while (before < end_ns.load(std::memory_order_relaxed) && count < kDetoursMax) {
    const std::uint64_t now = now_ns();
    if (now - before >= threshold_ns) core->detours[count++] = {before - begin_ns, now - before};
    before = now;
  }
  core->span_ns = before - begin_ns;
  core->detours.resize(count);
}

void show_progress(std::uint64_t begin_ns, std::uint64_t end_ns) {
  if (::isatty(STDERR_FILENO) == 0) return;  // to wake would be noise
  for (std::uint64_t now = now_ns(); now < end_ns; now = now_ns()) {
    if (now >= begin_ns)
      std::fprintf(stderr, "\r%3.0f of %.0f s", static_cast<double>(now - begin_ns) / 1e9,
                   static_cast<double>(end_ns - begin_ns) / 1e9);
    std::this_thread::sleep_for(
        std::chrono::nanoseconds(std::min<std::uint64_t>(1'000'000'000, end_ns - now)));
  }
  std::fputs("\r\033[K", stderr);
}

/// On all cores. @return false after a message
bool watch_all(std::vector<Core>& cores, std::uint64_t begin_ns, std::uint64_t end_ns,
               std::uint64_t threshold_ns) {
  std::atomic<std::uint64_t> until_ns{end_ns};
  std::vector<std::thread> threads;
  threads.reserve(cores.size());
  try {
    for (Core& core : cores)
      threads.emplace_back(watch, &core, begin_ns, std::cref(until_ns), threshold_ns);
    show_progress(begin_ns, end_ns);
  } catch (const std::system_error& error) {
    until_ns.store(0, std::memory_order_relaxed);  // relaxed: a time
    std::fprintf(stderr, "larklane noise: no thread for each of %zu cores: %s\n", cores.size(),
                 error.what());
  }
  for (std::thread& thread : threads) thread.join();
  return threads.size() == cores.size();
}

/// Cuts off later detours.
void end_at(std::uint64_t span_ns, Core* core) {
  std::erase_if(core->detours, [&](const auto& detour) { return detour.first >= span_ns; });
  for (auto& [begin, length] : core->detours) length = std::min(length, span_ns - begin);
}

void show(const Core& core, std::uint64_t span_ns) {
  std::vector<std::uint64_t> lengths;
  std::uint64_t sum = 0;
  for (const auto& [begin, length] : core.detours) {
    lengths.push_back(length);
    sum += length;
  }
  std::ranges::sort(lengths);
  const auto span = static_cast<double>(span_ns);
  std::printf("  core %3d: %8.1f detours a second, %6.3f %% of the time", core.number,
              static_cast<double>(lengths.size()) / span * 1e9,
              static_cast<double>(sum) / span * 100);
  if (!lengths.empty())
    std::printf(", median %.1f us, longest %.1f us",
                static_cast<double>(lengths[lengths.size() / 2]) / 1e3,
                static_cast<double>(lengths.back()) / 1e3);
  std::printf("\n");
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[11] = {};
  std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now));
  return text;
}

/// Before anything is recorded. @return 0, or an errno
int can_be_written(const std::string& path) {
  const int error = write_output_file(path + ".try", "");
  ::unlink((path + ".try").c_str());
  return error;
}

/// @return the exit status
int complain(const std::string& path, int error) {
  std::fprintf(stderr, "larklane noise: %s\n",
               output_file_problem(path, error, "name another file with --out").c_str());
  return 1;
}

}  // namespace

int noise(const NoiseRequest& request) {
  struct stat there {};
  if (::stat(request.path.c_str(), &there) == 0 &&
      (!request.overwrite || !S_ISREG(there.st_mode))) {
    std::fprintf(stderr, "larklane noise: %s is there already; --overwrite replaces a file\n",
                 request.path.c_str());
    return kRefused;
  }
  const auto threshold_ns = static_cast<std::uint64_t>(request.threshold_us * 1e3);
  const std::uint64_t threshold_min_ns = 4 * reading_ns();
  if (threshold_ns < threshold_min_ns) {
    std::fprintf(stderr,
                 "larklane noise: to read the clock takes %.1f us here: --threshold-us must be at "
                 "least %.1f\n",
                 static_cast<double>(threshold_min_ns) / 4e3,
                 static_cast<double>(threshold_min_ns) / 1e3);
    return kRefused;
  }
  std::vector<Core> cores = allowed_cores();
  if (cores.empty()) {
    std::fprintf(stderr, "larklane noise: which cores it may use is not known: %s\n",
                 std::strerror(errno));
    return 1;
  }
  if (const int error = can_be_written(request.path); error != 0)
    return complain(request.path, error);
  std::printf("Recording on %zu cores for %g s: leave the machine alone.\n", cores.size(),
              request.seconds);
  std::fflush(stdout);
  const std::uint64_t begin_ns = now_ns() + 100'000'000;  // until all threads are there
  const std::uint64_t end_ns = begin_ns + static_cast<std::uint64_t>(request.seconds * 1e9);
  if (!watch_all(cores, begin_ns, end_ns, threshold_ns)) return 1;

  nlohmann::ordered_json numbers = nlohmann::ordered_json::array();
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  std::uint64_t span_ns = end_ns - begin_ns;
  for (Core& core : cores) {
    if (core.pinning_errno != 0)
      std::fprintf(stderr, "larklane noise: core %d: its thread may have been elsewhere: %s\n",
                   core.number, std::strerror(core.pinning_errno));
    if (core.detours.size() < kDetoursMax || core.span_ns >= span_ns) continue;
    span_ns = core.span_ns;
    std::fprintf(stderr,
                 "larklane noise: core %d: %zu detours in %.1f s: what is later is left out; "
                 "--threshold-us makes them fewer\n",
                 core.number, kDetoursMax, static_cast<double>(span_ns) / 1e9);
  }
  for (Core& core : cores) {
    end_at(span_ns, &core);
    show(core, span_ns);
    numbers.push_back(core.number);
    rows.push_back(core.detours);
  }
  utsname kernel{};
  ::uname(&kernel);
  const nlohmann::ordered_json content = {
      {"recorded", today()},
      {"kernel", std::string(kernel.sysname) + " " + kernel.release + " " + kernel.machine},
      {"cores", std::move(numbers)},
      {"threshold_ns", threshold_ns},
      {"span_ns", span_ns},
      {"detours_ns", std::move(rows)}};
  if (const int error = write_output_file(request.path, bench::json_text(content)); error != 0)
    return complain(request.path, error);
  std::printf("%s: replayed by larklane bench BENCHMARK --noise trace:%s\n", request.path.c_str(),
              request.path.c_str());
  return 0;
}

}  // namespace larklane::tools
