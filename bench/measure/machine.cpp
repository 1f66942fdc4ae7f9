#include "machine.hpp"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <set>

extern char** environ;

namespace larklane::bench {
namespace {

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string turbo() {
  const std::string off = first_line("/sys/devices/system/cpu/intel_pstate/no_turbo");
  if (!off.empty()) return off == "0" ? "on" : "off";
  const std::string on = first_line("/sys/devices/system/cpu/cpufreq/boost");
  if (!on.empty()) return on == "1" ? "on" : "off";
  return "unknown";
}

std::string or_unknown(std::string text) { return text.empty() ? "unknown" : text; }

}  // namespace

std::map<std::string, std::string> machine() {
  std::string cpu;
  std::set<std::string> sockets;
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const auto colon = line.find(": ");
    if (colon == std::string::npos) continue;
    if (line.starts_with("model name")) cpu = line.substr(colon + 2);
    if (line.starts_with("physical id")) sockets.insert(line.substr(colon + 2));
  }
  utsname kernel{};
  uname(&kernel);
  return {
      {"cpu", cpu.empty() ? kernel.machine : cpu},
      {"cores", std::to_string(sysconf(_SC_NPROCESSORS_ONLN))},
      {"sockets", sockets.empty() ? "unknown" : std::to_string(sockets.size())},
      {"kernel", kernel.release},
      {"governor", or_unknown(first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"))},
      {"turbo", turbo()}};
}

std::string base_name(const std::string& text) { return text.substr(text.rfind('/') + 1); }

std::map<std::string, std::string> listed_environment() {
  std::map<std::string, std::string> found;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    const auto equals = text.find('=');
    // LARKLANE_JOB holds a secret, LARKLANE_MEET the name of a host.
    if (text.starts_with("LARKLANE_JOB=") || text.starts_with("LARKLANE_MEET=")) continue;
    if (text.starts_with("LARKLANE_") || text.starts_with("OMP_") || text.starts_with("LCI_ATTR_"))
      found[text.substr(0, equals)] = base_name(text.substr(equals + 1));
  }
  return found;
}

std::string binding() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return "unknown";
  std::string text;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    int last = cpu;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set)) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(cpu) +
            (last > cpu ? "-" + std::to_string(last) : "");
    cpu = last;
  }
  return text;
}

}  // namespace larklane::bench
