// `larklane bench message-rate` and `message-latency` without an MPI.

#include "measure/pairs.hpp"
#include "program.hpp"

int main(int argc, char** argv) {
  using namespace larklane::bench;
  return run_messages(argc, argv, {.ways = message_way_names()});
}
