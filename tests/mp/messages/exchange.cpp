// Every thread of every process sends to every thread of every process, itself too, and receives as
// many: each byte is checked, and each message comes once and in its order.
//
//   exchange THREADS MESSAGES      MESSAGES in all, over the processes of the job
//
// Exit status: 0; 1 a message came with wrong bytes, or twice, or not at all, or was copied, or
// not, against LARKLANE_MESSAGE_EAGER_MAX; 3 a call has failed, as standard error shows.

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "program.hpp"

namespace {

using namespace larklane;
using namespace larklane::program;

constexpr std::size_t kLongest = 20000;

/// The bytes of one thread's messages to another: they follow from the threads and the number.
struct Row {
  std::uint64_t state;
  explicit Row(std::uint64_t from, std::uint64_t to, std::uint64_t number)
      : state((from << 40 ^ to << 20 ^ number) * 0x9e37'79b9'7f4a'7c15u + 1) {}
  std::uint64_t next() {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
  }
  /// Most are short; one in 512 is longer than any packet.
  std::size_t bytes() {
    const std::uint64_t chance = next() % 512;
    if (chance == 0) return 9000 + next() % (kLongest - 9000);
    return chance < 32 ? next() % 8000 : next() % 64;
  }
  void fill(std::byte* to, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += 8) {
      const std::uint64_t word = next();
      std::memcpy(to + at, &word, std::min<std::size_t>(8, bytes - at));
    }
  }
};

/// Bytes of the longest message that is copied, as the user has set.
std::uint64_t copied_most() {
  static const std::uint64_t most = [] {
    const char* const told = std::getenv("LARKLANE_MESSAGE_EAGER_MAX");
    return told == nullptr ? 8168 : std::strtoull(told, nullptr, 10);
  }();
  return most;
}

struct Sender {
  std::uint64_t sent = 0;
  bool is_busy = false;
  std::vector<std::byte> bytes;
};
struct Receiver {
  std::uint64_t received = 0;
  bool is_posted = false;
  std::vector<std::byte> bytes = std::vector<std::byte>(kLongest);
};

/// One thread's part.
class Thread {
 public:
  /// @param each  messages to each thread of the job
  Thread(Context& context, std::uint64_t thread, std::uint64_t threads, std::uint64_t each)
      : thread_(thread),
        threads_(threads),
        each_(each),
        all_(static_cast<std::uint64_t>(context.size()) * threads),
        self_(static_cast<std::uint64_t>(context.rank()) * threads + thread),
        vci_(got(context.create_vci(), "create_vci")),
        told_(got(CompletionQueue::create(context.completions()), "queue")),
        senders_(all_),
        receivers_(all_),
        wanted_(kLongest) {}

  void run(std::atomic<std::uint64_t>& left) {
    for (std::uint64_t turn = 0; over_ < 2 * all_; ++turn) {
      const std::uint64_t other = (self_ + turn) % all_;
      if (!receivers_[other].is_posted && receivers_[other].received < each_) post_receive(other);
      if (!senders_[other].is_busy && senders_[other].sent < each_) post_send(other);
      if (vci_.progress() == 0) ::sched_yield();
      while (auto completion = told_.pop()) hear(*completion);
    }
    // relaxed: a number. The other threads of all processes may need our progress.
    left.fetch_sub(1, std::memory_order_relaxed);
    while (left.load(std::memory_order_relaxed) != 0)
      if (vci_.progress() == 0) ::sched_yield();
  }

 private:
  PostOptions telling(void* of) {
    PostOptions options;
    options.completion = &told_;
    options.user_context = of;
    return options;
  }
  void post_receive(std::uint64_t other) {
    Receiver& receiver = receivers_[other];
    const auto tag = static_cast<std::uint32_t>((other % threads_) * threads_ + thread_);
    receiver.is_posted = got(post_recv(vci_, static_cast<int>(other / threads_), tag,
                                       receiver.bytes.data(), kLongest, telling(&receiver)),
                             "post_recv") == Post::posted;
  }
  void post_send(std::uint64_t other) {
    Sender& sender = senders_[other];
    Row row(self_, other, sender.sent);
    sender.bytes.resize(row.bytes());
    row.fill(sender.bytes.data(), sender.bytes.size());
    const auto tag = static_cast<std::uint32_t>(thread_ * threads_ + other % threads_);
    bool is_packet = false;
    const Post post =
        got(send(sender, static_cast<int>(other / threads_), tag, is_packet), "post_send");
    if (post == Post::retry) return;
    if ((post == Post::done) != (is_packet || sender.bytes.size() <= copied_most()))
      fail(1, std::to_string(sender.bytes.size()) + " bytes: copied, or not, against the option");
    sender.is_busy = post == Post::posted;
    if (!sender.is_busy) over_ += ++sender.sent == each_;
  }
  /// In each of the ways: as one buffer, as three, in a packet if one is free.
  Result<Post> send(Sender& sender, int rank, std::uint32_t tag, bool& is_packet) {
    const std::byte* const start = sender.bytes.data();
    const std::size_t bytes = sender.bytes.size(), third = bytes / 3;
    if (sender.sent % 3 == 1) {
      const Buffer parts[] = {
          {start, third}, {start + third, third}, {start + 2 * third, bytes - 2 * third}};
      return larklane::post_send(vci_, rank, tag, parts, telling(&sender));
    }
    if (sender.sent % 3 == 2 && bytes != 0 && bytes <= vci_.packet_bytes_max()) {
      is_packet = true;
      Packet packet = take_packet(vci_);
      if (!packet) return Post::retry;
      std::memcpy(packet.start(), start, bytes);
      return larklane::post_send(vci_, rank, tag, packet, bytes, telling(&sender));
    }
    return larklane::post_send(vci_, rank, tag, start, bytes, telling(&sender));
  }
  void hear(const Completion& completion) {
    if (!completion.status.ok())
      fail(3,
           "rank " + std::to_string(completion.rank) + ": " + errc_name(completion.status.code()));
    for (Sender& sender : senders_) {
      if (completion.user_context != &sender) continue;
      if (!sender.is_busy) fail(1, "a send is over twice");
      sender.is_busy = false;
      over_ += ++sender.sent == each_;
      return;
    }
    Receiver& receiver = *static_cast<Receiver*>(completion.user_context);
    const auto other = static_cast<std::uint64_t>(&receiver - receivers_.data());
    if (!receiver.is_posted) fail(1, "a receive is over twice");
    Row row(other, self_, receiver.received);
    const std::size_t bytes = row.bytes();
    row.fill(wanted_.data(), bytes);
    if (completion.bytes != bytes || std::memcmp(wanted_.data(), receiver.bytes.data(), bytes) != 0)
      fail(1, "message " + std::to_string(receiver.received) + " of thread " +
                  std::to_string(other) + " to " + std::to_string(self_) + " is not what was sent");
    receiver.is_posted = false;
    over_ += ++receiver.received == each_;
  }

  const std::uint64_t thread_, threads_, each_, all_, self_;
  Vci vci_;
  CompletionQueue told_;
  std::vector<Sender> senders_;
  std::vector<Receiver> receivers_;
  std::vector<std::byte> wanted_;
  std::uint64_t over_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) fail(3, "exchange THREADS MESSAGES");
  auto context = begin();
  const auto threads = std::strtoull(argv[1], nullptr, 10);
  const auto ranks = static_cast<std::uint64_t>(context->size());
  const std::uint64_t pairs = ranks * threads * ranks * threads;
  const std::uint64_t each = (std::strtoull(argv[2], nullptr, 10) + pairs - 1) / pairs;
  std::atomic<std::uint64_t> left{threads};
  std::vector<std::thread> running;
  for (std::uint64_t thread = 0; thread < threads; ++thread)
    running.emplace_back([&, thread] { Thread(*context, thread, threads, each).run(left); });
  for (std::thread& thread : running) thread.join();
  meet(*context);
  if (context->rank() == 0)
    std::printf("exchange: %llu messages\n", static_cast<unsigned long long>(each * pairs));
  return 0;
}
