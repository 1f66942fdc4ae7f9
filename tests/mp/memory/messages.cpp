// Messages, puts and gets between buffers that the kernel does not copy: each kind of memory at one
// side with each at the other, of several lengths, in one buffer or in two. Prints `messages ok` on
// rank 0.
//
//   memory_messages [before|after]    the first thread ends: before the context is made, or after
//   some messages
//
// Exit status: of program.hpp.

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "../messages/program.hpp"
#include "kinds.h"

namespace {

using namespace larklane;
using namespace larklane::program;

constexpr std::uint32_t kTag = 1, kTalk = 2;
constexpr std::uint64_t kLengths[] = {5'000, 100'000, 700'001};
constexpr std::uint64_t kBytesMax = 700'001;

/// Of one kind, for all lengths. Thread safety: single-owner.
class Memory {
 public:
  explicit Memory(kind of) { is_there_ = make_memory(&memory_, of, kBytesMax) != 0; }
  ~Memory() { free_memory(&memory_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  bool is_there() const { return is_there_; }
  unsigned char* start() const { return memory_.start; }
  void fill(std::uint64_t bytes, int number) {
    unguard(&memory_);
    for (std::uint64_t i = 0; i < bytes; ++i) memory_.start[i] = byte(i, number);
    if (memory_.kind != PAGED) guard(&memory_, PROT_NONE);  // whose pages are empty when they come
  }
  void clear() {
    unguard(&memory_);
    std::memset(memory_.start, 0xEE, memory_.bytes);
    guard(&memory_, PROT_READ);
  }
  void expect(std::uint64_t bytes, int number, const char* what) {
    for (std::uint64_t i = 0; i < bytes; ++i)
      if (memory_.start[i] != byte(i, number)) fail_at(what, number, i);
    const unsigned char rest = memory_.kind == PAGED ? 0 : 0xEE;
    for (std::uint64_t i = bytes; i < memory_.bytes; ++i)
      if (memory_.start[i] != rest) fail_at(what, number, i);
  }

 private:
  static unsigned char byte(std::uint64_t i, int number) {
    return static_cast<unsigned char>(i * 7 + i / 4096 * 13 + static_cast<std::uint64_t>(number));
  }
  [[noreturn]] static void fail_at(const char* what, int number, std::uint64_t i) {
    fail(1,
         std::string(what) + " " + std::to_string(number) + ": wrong byte at " + std::to_string(i));
  }

  memory memory_{};
  bool is_there_ = false;
};

class Place {
 public:
  explicit Place(Context& context)
      : context_(context),
        vci_(got(context.create_vci(), "create_vci")),
        told_(got(CompletionQueue::create(context.completions()), "queue")),
        mail_(got(CompletionQueue::create(context.completions()), "queue")),
        there_(got(mail_.register_remote(), "register_remote")) {}

  void send(std::uint32_t tag, const void* from, std::uint64_t bytes) {
    end_of("send", [&] { return post_send(vci_, peer(), tag, from, bytes, options()); });
  }
  void receive(std::uint32_t tag, void* to, std::uint64_t bytes) {
    end_of("receive", [&] { return post_recv(vci_, peer(), tag, to, bytes, options()); });
  }

  /// Rank 0 sends, puts and gets; of a get the kinds change sides.
  void transfer(kind active, kind passive, int number) {
    Memory mine(context_.rank() == 0 ? active : passive);
    char is_there = mine.is_there(), is_theirs = 0;
    send(kTalk, &is_there, 1);
    receive(kTalk, &is_theirs, 1);
    if (!is_there || !is_theirs) {
      ++skipped;
      return;
    }
    ++combinations;
    auto region = got(context_.register_region(mine.start(), kBytesMax), "register_region");
    RemoteRegion own = region.remote(), theirs{};
    send(kTalk, &own, sizeof own);
    receive(kTalk, &theirs, sizeof theirs);
    for (const std::uint64_t bytes : kLengths) {
      context_.rank() == 0 ? act(mine, theirs, bytes, number) : suffer(mine, bytes, number);
      number += 4;
    }
    char over = 0;
    send(kTalk, &over, 1);
    receive(kTalk, &over, 1);
  }

  int combinations = 0, skipped = 0;

 private:
  int peer() const { return 1 - context_.rank(); }
  PostOptions options() {
    PostOptions options;
    options.completion = &told_;
    options.signals_always = options.queues = true;
    return options;
  }
  template <class Call>
  void end_of(const char* what, Call&& call) {
    (void)got(call(), what);
    const Status status = next(told_, what).status;
    if (!status.ok())
      fail(1, std::string(what) + ": " + errc_name(status.code()) + ", errno " +
                  std::to_string(status.detail()));
  }
  Completion next(CompletionQueue& queue, const char* what) {
    std::optional<Completion> completion;
    wait_for(vci_, what, [&] { return (completion = queue.pop()).has_value(); });
    return *completion;
  }
  /// @param way  one buffer, one after an empty one, or two
  void send_in_buffers(const unsigned char* from, std::uint64_t bytes, int way) {
    if (way == 0) return send(kTag, from, bytes);
    const std::uint64_t first = way == 1 ? 0 : bytes / 3;
    const Buffer buffers[] = {{way == 1 ? nullptr : from, first}, {from + first, bytes - first}};
    end_of("send", [&] {
      return post_send(vci_, peer(), kTag, std::span<const Buffer>(buffers), options());
    });
  }
  void tell() { send(kTalk, &there_, sizeof there_); }
  RemoteCompletion hear() {
    RemoteCompletion there = 0;
    receive(kTalk, &there, sizeof there);
    return there;
  }

  void act(Memory& mine, const RemoteRegion& theirs, std::uint64_t bytes, int number) {
    mine.fill(bytes, number);
    (void)hear();
    send_in_buffers(mine.start(), bytes, number / 4 % 3);
    mine.fill(bytes, number + 1);
    const RemoteCompletion there = hear();
    end_of("put",
           [&] { return post_put(vci_, theirs, 0, mine.start(), bytes, options(), there, kTag); });
    mine.fill(bytes, number + 2);
    (void)hear();
    end_of("put", [&] { return post_put(vci_, theirs, 0, mine.start(), bytes, options()); });
    tell();
    mine.clear();
    (void)hear();
    end_of("get", [&] { return post_get(vci_, theirs, 0, mine.start(), bytes, options()); });
    mine.expect(bytes, number + 3, "get");
    tell();
  }
  void suffer(Memory& mine, std::uint64_t bytes, int number) {
    mine.clear();
    tell();
    receive(kTag, mine.start(), kBytesMax);
    mine.expect(bytes, number, "message");
    mine.clear();
    tell();
    (void)next(mail_, "the signal of a put");
    mine.expect(bytes, number + 1, "put with a signal");
    mine.clear();
    tell();
    (void)hear();
    mine.expect(bytes, number + 2, "put");
    mine.fill(bytes, number + 3);
    tell();
    (void)hear();
  }

  Context& context_;
  Vci vci_;
  CompletionQueue told_, mail_;
  const RemoteCompletion there_;
};

pthread_t first_thread;

int run(std::string_view ends) {
  if (ends == "before") (void)::pthread_join(first_thread, nullptr);
  auto context = begin();
  catch_faults();
  Place place(*context);
  int number = 0;
  for (int active = 0; active < HALF; ++active)
    for (int passive = 0; passive < KINDS; ++passive, number += 100) {
      place.transfer(static_cast<kind>(active), static_cast<kind>(passive), number);
      if (number == 0 && ends == "after") (void)::pthread_join(first_thread, nullptr);
    }
  if (__atomic_load_n(&opened_by_library, __ATOMIC_ACQUIRE) != 0)
    fail(1, "a thread of the library has run the SIGSEGV handler");
  if (context->rank() == 0)
    std::printf("messages ok: %d combinations, %d skipped\n", place.combinations, place.skipped);
  meet(*context);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 1) return run("");
  first_thread = ::pthread_self();
  std::thread([ends = std::string_view(argv[1])] { std::exit(run(ends)); }).detach();
  ::pthread_exit(nullptr);
}
