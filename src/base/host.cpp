#include "base/host.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace larklane {

std::string host_id() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat net {};
  (void)::stat("/proc/self/ns/net", &net);
  return boot + "-" + std::to_string(net.st_dev) + "-" + std::to_string(net.st_ino);
}

std::string memory_id() {
  struct stat processes {};
  (void)::stat("/proc/self/ns/pid", &processes);
  return host_id() + "-" + std::to_string(processes.st_ino) + "-" + std::to_string(::geteuid());
}

}  // namespace larklane
