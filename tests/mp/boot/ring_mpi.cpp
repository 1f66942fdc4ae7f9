// A native program under an MPI, whose communicator says who the processes are: a short message and
// a long one go to the next rank, and come as they were sent: `ring_mpi [--meet FILE]`. With --meet
// they enter MPI_Finalize together (meet_by_file.h).
//
// Exit status: 0; 1 payload is not what was sent; 3 a call has failed.

#include <mpi.h>
#include <sched.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "../../hosts/meet_by_file.h"
#include "larklane/boot_mpi.hpp"
#include "larklane/context.hpp"
#include "larklane/message.hpp"

namespace {

using namespace larklane;

int go_round(Context& context) {
  auto vci = context.create_vci();
  auto told = CompletionQueue::create(context.completions());
  if (!vci || !told) return 3;
  const int next = (context.rank() + 1) % context.size();
  const int before = (context.rank() + context.size() - 1) % context.size();
  PostOptions options;
  options.completion = &*told;
  options.signals_always = options.queues = true;
  for (const std::size_t words : {std::size_t{1}, std::size_t{1} << 15}) {
    const std::vector<std::uint64_t> out(words, static_cast<std::uint64_t>(context.rank()));
    std::vector<std::uint64_t> in(words, UINT64_MAX);
    const std::uint64_t bytes = words * sizeof in[0];
    if (!post_recv(*vci, before, 1, in.data(), bytes, options) ||
        !post_send(*vci, next, 1, out.data(), bytes, options))
      return 3;
    for (int ended = 0; ended < 2;) {
      if (vci->progress() == 0) ::sched_yield();
      while (auto completion = told->pop()) {
        if (!completion->status.ok()) return 3;
        ++ended;
      }
    }
    if (in != std::vector<std::uint64_t>(words, static_cast<std::uint64_t>(before))) return 1;
  }
  std::string problem;
  return context.fence(&problem).ok() ? 0 : 3;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int ranks = 0, status = 3;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  {
    std::string problem;
    auto context = Context::create(boot::peers_of(MPI_COMM_WORLD), &problem);
    if (context)
      status = go_round(**context);
    else
      std::fprintf(stderr, "ring_mpi: %s\n", problem.c_str());
  }
  if (argc == 3 && std::strcmp(argv[1], "--meet") == 0 && meet_by_file(argv[2], ranks) != 0)
    status = 3;
  MPI_Finalize();
  return status;
}
