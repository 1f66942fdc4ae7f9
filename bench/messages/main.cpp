// `larklane bench message-rate`, its variants, and the applications, without an MPI.

#include "applications/applications.hpp"
#include "applications/ports.hpp"
#include "program.hpp"

int main(int argc, char** argv) {
  using namespace larklane::bench;
  const auto measure = [](const Record& record, std::uint64_t bytes, double budget_ns,
                          const Watcher& watcher, NativeWorld& world) {
    return measure_application<Native>(record.options, bytes, world, record.environment.timer_ns,
                                       budget_ns, watcher);
  };
  return run_messages(argc, argv, {.measure_application = measure});
}
