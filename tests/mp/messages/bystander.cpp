// Two threads of each process post on one lane, and one of them makes progress for both: no post of
// the other is stranded.
//
//   bystander MESSAGES    of each thread, each way, half of them so long that they are fetched
//
// Exit status: of program.hpp; 1: something does not end in a minute, or arrives with other bytes.

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "program.hpp"

namespace {

using namespace larklane;
using namespace larklane::program;

constexpr std::size_t kWords = 2000;

/// One thread's exchange with its like at the peer: message for message.
class Exchange {
 public:
  Exchange(Context& context, std::uint32_t tag)
      : peer_(1 - context.rank()),
        tag_(tag),
        vci_(got(context.create_vci(), "create_vci")),
        over_(got(Synchronizer::create(context.completions(), 2), "synchronizer")) {
    options_.completion = &over_;
    options_.signals_always = true;
  }
  Vci& vci() { return vci_; }

  /// @param turn  while it waits @param queues  its sends never have to be posted again
  template <class Turn>
  void run(std::uint64_t messages, bool queues, Turn&& turn) {
    std::vector<std::uint64_t> from(kWords), to(kWords);
    options_.queues = queues;
    for (std::uint64_t message = 0; message < messages; ++message) {
      const std::size_t words = message % 2 == 0 ? kWords : 1 + message % 50;
      fill(std::span(from).first(words), message << 8 | tag_);
      (void)got(post_recv(vci_, peer_, tag_, to.data(), kWords * sizeof to[0], options_),
                "post_recv");
      wait_until(
          "room for a send",
          [&] {
            return got(post_send(vci_, peer_, tag_, from.data(), words * sizeof from[0], options_),
                       "post_send") == Post::posted;
          },
          turn);
      wait_until(
          "the end of a message", [&] { return over_.test(); }, turn);
      for (const Completion& completion : over_.completions())
        if (!completion.status.ok() || completion.bytes != words * sizeof from[0])
          fail(1, "a completion of message " + std::to_string(message));
      if (!is_filled(std::span(to).first(words), message << 8 | tag_))
        fail(1, "payload of message " + std::to_string(message));
      (void)over_.reset();
    }
  }

 private:
  const int peer_;
  const std::uint32_t tag_;
  Vci vci_;
  Synchronizer over_;
  PostOptions options_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) fail(3, "bystander MESSAGES");
  const std::uint64_t messages = std::strtoull(argv[1], nullptr, 10);
  auto context = begin();
  {
    Exchange active(*context, 1), idle(*context, 2);
    if (&active.vci().inside() != &idle.vci().inside()) fail(3, "there are two lanes");
    std::atomic<bool> is_over{false};
    std::thread bystander([&] {
      for (const bool queues : {false, true})
        idle.run(messages / 2, queues, [] { ::sched_yield(); });
      is_over.store(true, std::memory_order_relaxed);  // a flag; the join publishes the rest
    });
    const auto turn = [&] {
      if (active.vci().progress() == 0) ::sched_yield();
    };
    active.run(messages, false, turn);
    wait_until(
        "the end of the other thread", [&] { return is_over.load(std::memory_order_relaxed); },
        turn);
    bystander.join();
  }
  meet(*context);
  if (context->rank() == 0) std::printf("bystander: %s messages of each thread\n", argv[1]);
  return 0;
}
