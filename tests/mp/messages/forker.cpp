// Two threads of each process exchange messages with the other process, short and long ones, while
// the first thread forks again and again. All objects of the library are static, so a child's
// exit() destroys them there: with the parent's messages posted, and with any locks that other
// threads held at the fork. The parent's messages stay intact.
//
//   forker exit|quick|killed|lives CHILDREN
//
//   exit    a child calls exit()
//   quick   ... _exit()
//   killed  ... is killed
//   lives   it reports itself and waits for its end, which the launcher brings
//
// Exit status: of program.hpp; 1: a message came with wrong bytes, or a child does not end.

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "program.hpp"

namespace {

using namespace larklane;
using namespace larklane::program;

constexpr std::size_t kShortWords = 6, kLongWords = 3000, kWindow = 8;
/// Messages of a thread between two forks.
constexpr std::uint64_t kBetween = 40;

/// One thread's part: a window of messages each way.
class Exchange {
 public:
  Exchange(Context& context, std::uint32_t thread)
      : thread_(thread),
        rank_(context.rank()),
        peer_(1 - context.rank()),
        vci_(got(context.create_vci(), "create_vci")),
        told_(got(CompletionQueue::create(context.completions()), "queue")),
        region_(got(context.register_region(registered_.data(), sizeof registered_), "region")),
        packet_(take_packet(vci_)) {
    for (Slot& slot : slots_) {
      slot.out.resize(kLongWords);
      slot.in.resize(kLongWords);
    }
  }

  /// Until so many have come and gone.
  void run_to(std::uint64_t messages) {
    wait_until(
        "what " + std::to_string(messages) + " messages of a thread wait for",
        [&] { return sent_over_ >= messages && received_ >= messages; },
        [&] {
          for (Slot& slot : slots_) post(slot, messages);
          if (vci_.progress() == 0) ::sched_yield();
          while (const auto completion = told_.pop()) hear(*completion);
        });
  }
  void turn() {
    if (vci_.progress() == 0) ::sched_yield();
  }

 private:
  struct Slot {
    std::vector<std::uint64_t> out, in;
    std::uint64_t out_number = 0, in_number = 0;
    bool is_sending = false, is_receiving = false;
  };
  static std::size_t words_of(std::uint64_t number) {
    return number % 3 == 0 ? kLongWords : kShortWords;
  }
  std::uint64_t seed(int from, std::uint64_t number) const {
    return (number << 8) + thread_ * 2 + static_cast<std::uint64_t>(from);
  }
  std::uint32_t tag(std::uint64_t number) const {
    return static_cast<std::uint32_t>(number * 2 + thread_);
  }
  PostOptions telling(void* of) {
    PostOptions options;
    options.completion = &told_;
    options.user_context = of;
    options.signals_always = true;
    return options;
  }
  void post(Slot& slot, std::uint64_t messages) {
    if (!slot.is_receiving && in_posted_ < messages) {
      slot.in_number = in_posted_;
      slot.is_receiving = got(post_recv(vci_, peer_, tag(slot.in_number), slot.in.data(),
                                        kLongWords * sizeof slot.in[0], telling(&slot.in)),
                              "post_recv") == Post::posted;
      if (slot.is_receiving) ++in_posted_;
    }
    if (!slot.is_sending && out_posted_ < messages) {
      slot.out_number = out_posted_;
      const std::size_t words = words_of(slot.out_number);
      fill(std::span(slot.out).first(words), seed(rank_, slot.out_number));
      slot.is_sending = got(post_send(vci_, peer_, tag(slot.out_number), slot.out.data(),
                                      words * sizeof slot.out[0], telling(&slot.out)),
                            "post_send") == Post::posted;
      if (slot.is_sending) ++out_posted_;
    }
  }
  void hear(const Completion& completion) {
    if (!completion.status.ok())
      fail(1, std::string("a message has failed: ") + errc_name(completion.status.code()));
    for (Slot& slot : slots_) {
      if (completion.user_context == &slot.out) {
        slot.is_sending = false;
        ++sent_over_;
      } else if (completion.user_context == &slot.in) {
        const std::span words = std::span(slot.in).first(words_of(slot.in_number));
        if (completion.bytes != words.size_bytes() ||
            !is_filled(words, seed(peer_, slot.in_number)))
          fail(1, "message " + std::to_string(slot.in_number) + " is not what was sent");
        slot.is_receiving = false;
        ++received_;
      }
    }
  }

  const std::uint32_t thread_;
  const int rank_, peer_;
  std::array<std::uint64_t, 64> registered_{};
  Vci vci_;
  CompletionQueue told_;
  Region region_;
  Packet packet_;  // held to the end
  std::array<Slot, kWindow> slots_;
  std::uint64_t in_posted_ = 0, out_posted_ = 0, sent_over_ = 0, received_ = 0;
};

/// Static, as many programs have it. Destroyed from the last to the first.
std::unique_ptr<Context> context;
std::unique_ptr<Exchange> first, second;

[[noreturn]] void be_child(std::string_view how) {
  if (how == "exit") std::exit(0);
  if (how == "killed") ::raise(SIGKILL);
  if (how == "lives") {
    constexpr std::string_view kText = "a child lives on\n";
    (void)!::write(STDOUT_FILENO, kText.data(), kText.size());
    while (true) ::pause();
  }
  ::_exit(0);
}

void run(std::string_view how, std::uint64_t children) {
  const std::uint64_t all = (children + 1) * kBetween;
  std::thread other([&] { second->run_to(all); });
  for (std::uint64_t child = 1; child <= children; ++child) {
    first->run_to(child * kBetween);
    const pid_t pid = ::fork();
    if (pid < 0) fail(3, "fork");
    if (pid == 0) be_child(how);
    if (how == "lives") continue;
    int status = 0;
    wait_until(
        "the end of a child", [&] { return ::waitpid(pid, &status, WNOHANG) == pid; },
        [] { first->turn(); });
    const bool is_right = how == "killed" ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                                          : WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!is_right) fail(1, "a child has ended with status " + std::to_string(status));
  }
  first->run_to(all);
  other.join();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) fail(3, "forker exit|quick|killed|lives CHILDREN");
  context = begin();
  first = std::make_unique<Exchange>(*context, 0);
  second = std::make_unique<Exchange>(*context, 1);
  run(argv[1], std::strtoull(argv[2], nullptr, 10));
  meet(*context);
  if (context->rank() == 0) std::puts("forker: all has come");
  return 0;
}
