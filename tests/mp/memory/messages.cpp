// Messages, puts and gets between buffers that the kernel does not copy: each kind of memory at one
// side with each at the other, of several lengths, in one buffer or in two. Prints `messages ok` on
// rank 0.
//
//   memory_messages [before|after|more]    the first thread ends: before the context is made, or
//   after some messages; more kinds of memory: each meets its like, plain, secret and guarded
//   memory
//   memory_messages lost message|reply|put|get    half of rank 1's buffer is lost (its file is
//   cut): it gets SIGBUS in a thread of its own, and rank 0 an error. Prints `victim ok`, `survivor
//   ok`
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
    if (memory_.kind != PAGED) guard(&memory_, PROT_NONE);  // its pages are empty when they come
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
        vci_(vci_of(context)),
        told_(queue_of(context)),
        mail_(queue_of(context)),
        there_(got(mail_.register_remote(), "register_remote")) {}

  void send(std::uint32_t tag, const void* from, std::uint64_t bytes) {
    end_of("send", [&] { return post_send(vci_, peer(), tag, from, bytes, options()); });
  }
  void receive(std::uint32_t tag, void* to, std::uint64_t bytes) {
    end_of("receive", [&] { return post_recv(vci_, peer(), tag, to, bytes, options()); });
  }

  /// Rank 1's buffer is lost from `kept` bytes on. @return of rank 0: how its operation ended
  Status lose(std::string_view how, unsigned char* buffer, std::uint64_t bytes, auto&& cut) {
    auto region = got(context_.register_region(buffer, bytes), "register_region");
    RemoteRegion own = region.remote(), theirs{};
    send(kTalk, &own, sizeof own);
    receive(kTalk, &theirs, sizeof theirs);
    char word = 0;
    if (context_.rank() == 1) {
      cut();
      send(kTalk, &word, 1);
      if (how == "message") receive(kTag, buffer, bytes);
      if (how == "reply") send(kTag, buffer, bytes);
      receive(kTalk, &word, 1);  // which never comes
      return {};
    }
    receive(kTalk, &word, 1);
    return ended("the operation", [&] {
      return how == "message" ? post_send(vci_, peer(), kTag, buffer, bytes, options())
             : how == "reply" ? post_recv(vci_, peer(), kTag, buffer, bytes, options())
             : how == "put"   ? post_put(vci_, theirs, 0, buffer, bytes, options())
                              : post_get(vci_, theirs, 0, buffer, bytes, options());
    });
  }

  /// Rank 0 sends, puts and gets; of a get the kinds change sides.
  void transfer(kind active, kind passive, int number) {
    Memory mine(context_.rank() == 0 ? active : passive);
    char is_there = mine.is_there(), is_theirs = 0;
    send(kTalk, &is_there, 1);
    receive(kTalk, &is_theirs, 1);
    if (!is_there || !is_theirs) {
      ++skipped;
      if (context_.rank() == 0)
        std::printf("skipped: %s with %s\n", kind_names[active], kind_names[passive]);
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
  Status ended(const char* what, Call&& call) {
    const auto post = call();
    return post ? next(told_, what).status : post.error();
  }
  template <class Call>
  void end_of(const char* what, Call&& call) {
    const Status status = ended(what, call);
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

unsigned char* lost_buffer;

void on_lost(int, siginfo_t* info, void*) {
  const auto* const at = static_cast<const unsigned char*>(info->si_addr);
  char name[16] = "";
  (void)::pthread_getname_np(::pthread_self(), name, sizeof name);
  const bool is_good = std::string_view(name) != "larklane" && at >= lost_buffer + kBytesMax / 2 &&
                       at < lost_buffer + kBytesMax + PAGE;
  const std::string_view said = is_good ? "victim ok\n" : "victim failed: another signal\n";
  (void)!::write(1, said.data(), said.size());
  (void)::kill(::getpid(), SIGKILL);
}

int run_lost(std::string_view how) {
  auto context = begin();
  struct sigaction action {};
  action.sa_sigaction = on_lost;
  action.sa_flags = SA_SIGINFO;
  (void)::sigaction(SIGBUS, &action, nullptr);
  const int file = static_cast<int>(::syscall(SYS_memfd_create, "lost", 0));
  if (::ftruncate(file, kBytesMax) != 0) fail(3, "ftruncate");
  void* const start = ::mmap(nullptr, kBytesMax, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (start == MAP_FAILED) fail(3, "mmap");
  lost_buffer = static_cast<unsigned char*>(start);
  std::memset(lost_buffer, 1, kBytesMax);
  Place place(*context);
  const Status status = place.lose(how, lost_buffer, kBytesMax, [&] {
    if (::ftruncate(file, kBytesMax / 2 / PAGE * PAGE + PAGE) != 0) fail(3, "ftruncate");
  });
  std::printf("rank %d ends with: %s\n", context->rank(), errc_name(status.code()));
  std::puts(status.ok() ? "survivor failed" : "survivor ok");
  std::fflush(stdout);
  std::_Exit(status.ok());
}

pthread_t first_thread;

int run(std::string_view ends) {
  if (ends == "before") (void)::pthread_join(first_thread, nullptr);
  auto context = begin();
  catch_faults();
  Place place(*context);
  int number = 0;
  const bool has_more = ends == "more";
  for (int active = 0; active < (has_more ? static_cast<int>(READ_ONLY) : HALF); ++active)
    for (int passive = 0; passive < (has_more ? READ_ONLY : KINDS); ++passive, number += 100) {
      const bool is_wanted = (active >= KINDS || passive >= KINDS) &&
                             (active == passive || active < HALF || passive < HALF) &&
                             active != PAGED;
      if (has_more && !is_wanted) continue;
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
  if (argc == 3) return run_lost(argv[2]);
  if (argc == 1 || std::string_view(argv[1]) == "more") return run(argc == 1 ? "" : argv[1]);
  first_thread = ::pthread_self();
  std::thread([ends = std::string_view(argv[1])] { std::exit(run(ends)); }).detach();
  ::pthread_exit(nullptr);
}
