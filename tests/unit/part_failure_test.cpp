// Two processes, one of them without access to the other's memory: no call hangs, no reachable byte
// is lost, and no byte is stored into a buffer after its round has failed.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/config.hpp"
#include "control/plane/plane.hpp"
#include "part/engine.hpp"
#include "part/shared/channel.hpp"
#include "shm/segment.hpp"

namespace larklane::part {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

/// From now on the `number` of the calling thread, or of all that are here, fails with `error`.
bool refuse(long number, int error, bool of_all = false) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offsetof(seccomp_data, nr))),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(number), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{static_cast<unsigned short>(std::size(program)), program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, of_all ? SECCOMP_FILTER_FLAG_TSYNC : 0,
                   &filter) == 0;
}

/// How bytes travel.
struct Way {
  const char* slot_bytes_max;
  const char* piece_bytes;
};
constexpr Way kPieces{"0", "64K"};
constexpr Way kWholeRuns{"0", "1G"};
constexpr Way kSlots{"8M", "64K"};

/// One of two processes. Ends with the number of the first line that went wrong. Thread safety:
/// single-owner.
class Rank {
 public:
  Rank(std::atomic<int>& step, control::Address own, control::Address peer, const Way& way)
      : step_(step), own_(own), peer_(std::move(peer)) {
    Config config;
    std::string problem;
    (void)config.set("shm_slot_bytes_max", way.slot_bytes_max, &problem);
    (void)config.set("shm_piece_bytes", way.piece_bytes, &problem);
    (void)config.set("policy", "none", &problem);
    std::vector<control::Listener> listeners;
    auto listener = control::Listener::bind(std::move(own));
    if (!listener) ::_exit(90);
    listeners.push_back(std::move(*listener));
    auto engine = Engine::create(std::move(listeners), std::move(config));
    if (!engine) ::_exit(91);
    engine_ = std::move(*engine);
  }

  /// Both processes come here, as often as each other.
  void meet() {
    const int target = (met_ += 2);
    step_.fetch_add(1, std::memory_order_acq_rel);
    while (step_.load(std::memory_order_acquire) < target) ::usleep(500);
  }
  InitArgs args(std::vector<std::byte>& buffer, std::int32_t partitions,
                std::int32_t tag = 0) const {
    return {{1, 2},
            0,
            tag,
            peer_,
            buffer.data(),
            partitions,
            buffer.size() / static_cast<std::uint64_t>(partitions),
            std::make_shared<const Typemap>(Typemap::contiguous(1)),
            ""};
  }
  /// Null: it has failed.
  SendRequest* started_send(std::vector<std::byte>& buffer, std::int32_t partitions) {
    auto made = engine().send_init(args(buffer, partitions));
    return made && (*made)->start().ok() ? *made : nullptr;
  }
  static Completion complete(Request& request) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    Completion completion = request.poll();
    while (completion == Completion::pending && std::chrono::steady_clock::now() < deadline) {
      ::usleep(200);
      completion = request.poll();
    }
    if (completion != Completion::pending) request.finish();
    return completion;
  }
  Engine& engine() { return *engine_; }
  const control::Address& own() const { return own_; }

 private:
  std::atomic<int>& step_;
  int met_ = 0;
  const control::Address own_, peer_;
  std::unique_ptr<Engine> engine_;
};

#define CHECK_OR_END(condition) \
  if (!(condition)) return 1 + (__LINE__ - 1) % 255  // never 0

/// Runs both sides; the results of both.
std::pair<int, int> run(const std::function<int(Rank&)>& sender,
                        const std::function<int(Rank&)>& receiver, const Way& way) {
  void* const page =
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* const step = ::new (page) std::atomic<int>(0);
  static int count = 0;
  const std::string name =
      "larklane-failure-" + std::to_string(::getpid()) + "-" + std::to_string(count++);
  const auto start = [&](const std::function<int(Rank&)>& body, const char* own, const char* peer) {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    int result = 0;
    {
      Rank rank(*step, name + own, name + peer, way);
      rank.meet();
      result = body(rank);
      rank.meet();
    }
    ::_exit(result);
  };
  const pid_t first = start(sender, "s", "r");
  const pid_t second = start(receiver, "r", "s");
  const auto result_of = [](pid_t pid) {
    int status = 0;
    for (int i = 0; i < 4000; ++i, ::usleep(10'000))
      if (::waitpid(pid, &status, WNOHANG) == pid)
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    ::kill(pid, SIGKILL);
    ::waitpid(pid, &status, 0);
    return 2000;
  };
  const int sent = result_of(first);
  const int received = result_of(second);
  ::munmap(page, 4096);
  return {sent, received};
}

bool holds(const std::vector<std::byte>& buffer, std::byte value) {
  return std::all_of(buffer.begin(), buffer.end(), [&](std::byte b) { return b == value; });
}

TEST(PartFailure, APieceThatTheSenderMayNotWriteIsReadByTheReceiver) {
  const auto sender = [](Rank& rank) {
    std::vector<std::byte> data(8 * kMiB, std::byte{1});
    auto made = rank.engine().send_init(rank.args(data, 1));
    CHECK_OR_END(made.has_value());
    SendRequest& request = **made;
    for (int round = 1; round <= 2; ++round) {
      std::fill(data.begin(), data.end(), std::byte(round));
      CHECK_OR_END(request.start().ok());
      rank.meet();  // the receiver has started
      if (round == 2) CHECK_OR_END(refuse(SYS_process_vm_writev, EPERM));
      CHECK_OR_END(request.pready(0, 1).ok());
      CHECK_OR_END(Rank::complete(request) == Completion::complete);
      rank.meet();  // the receiver has not polled until now
    }
    return rank.engine().free(&request).ok() ? 0 : 1;
  };
  const auto receiver = [](Rank& rank) {
    std::vector<std::byte> data(8 * kMiB);
    auto made = rank.engine().recv_init(rank.args(data, 1));
    CHECK_OR_END(made.has_value());
    for (int round = 1; round <= 2; ++round) {
      CHECK_OR_END((*made)->start().ok());
      rank.meet();
      rank.meet();
      CHECK_OR_END(Rank::complete(**made) == Completion::complete);
      CHECK_OR_END(holds(data, std::byte(round)));
    }
    return rank.engine().free(*made).ok() ? 0 : 1;
  };
  EXPECT_EQ(run(sender, receiver, kPieces), std::pair(0, 0));
}

TEST(PartFailure, APieceThatTheReceiverMayNotReadIsWrittenByTheSender) {
  const auto sender = [](Rank& rank) {
    std::vector<std::byte> data(8 * kMiB, std::byte{1});
    auto made = rank.engine().send_init(rank.args(data, 1));
    CHECK_OR_END(made.has_value());
    for (int round = 1; round <= 2; ++round) {
      std::fill(data.begin(), data.end(), std::byte(round));
      CHECK_OR_END((*made)->start().ok());
      CHECK_OR_END((*made)->pready(0, 1).ok());
      rank.meet();  // the receiver may start
      rank.meet();  // it is complete, and this process has not polled
      CHECK_OR_END(Rank::complete(**made) == Completion::complete);
    }
    return 0;
  };
  const auto receiver = [](Rank& rank) {
    std::vector<std::byte> data(8 * kMiB);
    auto made = rank.engine().recv_init(rank.args(data, 1));
    CHECK_OR_END(made.has_value());
    for (int round = 1; round <= 2; ++round) {
      rank.meet();
      if (round == 2) CHECK_OR_END(refuse(SYS_process_vm_readv, EPERM));
      CHECK_OR_END((*made)->start().ok());
      CHECK_OR_END(Rank::complete(**made) == Completion::complete);
      CHECK_OR_END(holds(data, std::byte(round)));
      rank.meet();
    }
    return 0;
  };
  EXPECT_EQ(run(sender, receiver, kPieces), std::pair(0, 0));
}

TEST(PartFailure, NothingIsWrittenAfterTheReceiverHasFailed) {
  // One thread writes for a long time. In the middle of it another one's write fails, the receiver
  // may not read, and there is no staging memory.
  constexpr std::uint64_t kBytes = 512 * kMiB;
  const auto sender = [](Rank& rank) {
    std::vector<std::byte> data(kBytes, std::byte{1});
    SendRequest* const started = rank.started_send(data, 2);
    CHECK_OR_END(started != nullptr);
    SendRequest& request = *started;
    rank.meet();
    CHECK_OR_END(
        request.pready(0, 2).ok());  // until this round is over the two may not know each other
    CHECK_OR_END(Rank::complete(request) == Completion::complete);
    CHECK_OR_END(request.start().ok());
    CHECK_OR_END(refuse(SYS_fallocate, ENOSPC, true));
    rank.meet();
    std::thread slow([&] { (void)request.pready(0, 1); });
    std::thread broken([&] {
      if (!refuse(SYS_process_vm_writev, EIO)) ::_exit(92);
      ::usleep(3000);
      (void)request.pready(1, 1);
    });
    const Completion completion = Rank::complete(request);
    slow.join();
    broken.join();
    CHECK_OR_END(completion == Completion::failed);
    CHECK_OR_END(request.error() == Status(Errc::kNoMemory, ENOSPC));
    return rank.engine().free(&request).ok() ? 0 : 1;
  };
  const auto receiver = [](Rank& rank) {
    std::vector<std::byte> data(kBytes);
    auto made = rank.engine().recv_init(rank.args(data, 2));
    CHECK_OR_END(made.has_value());
    CHECK_OR_END((*made)->start().ok());
    rank.meet();
    CHECK_OR_END(Rank::complete(**made) == Completion::complete);
    CHECK_OR_END((*made)->start().ok());
    CHECK_OR_END(refuse(SYS_process_vm_readv, EPERM, true));
    rank.meet();
    CHECK_OR_END(Rank::complete(**made) == Completion::failed);
    std::byte* const last = &data[kBytes / 2 - 1];  // the last byte that the slow thread writes
    *last = std::byte{9};
    for (int i = 0; i < 500; ++i, ::usleep(1000)) CHECK_OR_END(*last == std::byte{9});
    return rank.engine().free(*made).ok() ? 0 : 1;
  };
  EXPECT_EQ(run(sender, receiver, kWholeRuns), std::pair(0, 0));
}

TEST(PartFailure, ARoundCompletesThoughNeitherMayReachTheOther) {
  const auto side = [](bool sends) {
    return [sends](Rank& rank) {
      std::vector<std::byte> data(8 * kMiB, std::byte{1});
      Request* request = nullptr;
      SendRequest* send = nullptr;
      if (sends) {
        auto made = rank.engine().send_init(rank.args(data, 1));
        CHECK_OR_END(made.has_value());
        request = send = *made;
      } else {
        auto made = rank.engine().recv_init(rank.args(data, 1));
        CHECK_OR_END(made.has_value());
        request = *made;
      }
      CHECK_OR_END(request->start().ok());
      if (sends) CHECK_OR_END(send->pready(0, 1).ok());
      CHECK_OR_END(Rank::complete(*request) == Completion::complete);
      rank.meet();
      CHECK_OR_END(refuse(sends ? SYS_process_vm_writev : SYS_process_vm_readv, EPERM));
      rank.meet();
      // A filter is a thread's, so the helpers may serve the round; else it goes through staging
      // memory.
      std::ranges::fill(data, std::byte(sends ? 2 : 0));
      CHECK_OR_END(request->start().ok());
      if (sends) CHECK_OR_END(send->pready(0, 1).ok());
      CHECK_OR_END(Rank::complete(*request) == Completion::complete);
      CHECK_OR_END(holds(data, std::byte{2}));
      return rank.engine().free(request).ok() ? 0 : 1;
    };
  };
  EXPECT_EQ(run(side(true), side(false), kPieces), std::pair(0, 0));
}

TEST(PartFailure, ASendIsReceivedThoughItsProcessHasEnded) {
  const auto sender = [](Rank& rank) {
    std::vector<std::byte> data(4096, std::byte{7});
    auto made = rank.engine().send_init(rank.args(data, 4));
    CHECK_OR_END(made.has_value());
    CHECK_OR_END((*made)->start().ok() && (*made)->pready(0, 4).ok());
    CHECK_OR_END(Rank::complete(**made) == Completion::complete);
    ::_exit(0);
    return 0;
  };
  const auto receiver = [](Rank& rank) {
    ::usleep(500'000);  // the helper has seen the INIT and the end
    std::vector<std::byte> data(4096);
    const InitArgs args = rank.args(data, 2);
    CHECK_OR_END(rank.engine().reachable(args.peer).ok());
    auto made = rank.engine().recv_init(args);
    CHECK_OR_END(made.has_value());
    CHECK_OR_END((*made)->start().ok());
    CHECK_OR_END(Rank::complete(**made) == Completion::complete);
    CHECK_OR_END(holds(data, std::byte{7}));
    CHECK_OR_END(!rank.engine().recv_init(rank.args(data, 2)).has_value());
    ::_exit(0);
    return 0;
  };
  EXPECT_EQ(run(sender, receiver, kSlots), std::pair(0, 0));
}

TEST(PartFailure, SlotsThatCannotBeReservedFailTheRoundOnBothSides) {
  constexpr std::uint64_t kBytes = 16 * kMiB;
  const auto sender = [](Rank& rank) {
    std::vector<std::byte> data(kBytes, std::byte{1});
    SendRequest* const started = rank.started_send(data, 16);
    CHECK_OR_END(started != nullptr);
    SendRequest& request = *started;
    CHECK_OR_END(request.pready(0, 16).ok());
    CHECK_OR_END(Rank::complete(request) == Completion::complete);
    rank.meet();  // the receiver has started again
    CHECK_OR_END(refuse(SYS_madvise, ENOMEM));
    for (int i = 0; i < 2; ++i) {
      CHECK_OR_END(request.start() == Status(Errc::kNoMemory, ENOMEM));
      CHECK_OR_END(!request.active());
      CHECK_OR_END(request.error_text().find("remedy: ") != std::string::npos);
    }
    rank.meet();
    return rank.engine().free(&request).ok() ? 0 : 1;
  };
  const auto receiver = [](Rank& rank) {
    std::vector<std::byte> data(kBytes);
    auto made = rank.engine().recv_init(rank.args(data, 16));
    CHECK_OR_END(made.has_value());
    CHECK_OR_END((*made)->start().ok());
    CHECK_OR_END(Rank::complete(**made) == Completion::complete);
    CHECK_OR_END(holds(data, std::byte{1}));
    CHECK_OR_END((*made)->start().ok());
    rank.meet();
    CHECK_OR_END(Rank::complete(**made) == Completion::failed);
    CHECK_OR_END((*made)->error() == Status(Errc::kNoMemory, ENOMEM));
    rank.meet();
    return rank.engine().free(*made).ok() ? 0 : 1;
  };
  const auto [sent, received] = run(sender, receiver, kSlots);
  EXPECT_EQ(sent, 0);
  EXPECT_EQ(received, 0);
}

TEST(PartFailure, ASegmentThatCouldNotBeMappedMayBeMappedLater) {
  const auto sender = [](Rank& rank) {
    std::vector<std::byte> data(64, std::byte{7});
    rank.meet();  // memory is short there
    auto first = rank.engine().send_init(rank.args(data, 1, 1));
    CHECK_OR_END(first.has_value());
    rank.meet();  // that could not be taken up
    auto second = rank.engine().send_init(rank.args(data, 1, 2));
    CHECK_OR_END(second.has_value() && (*second)->start().ok() && (*second)->pready(0, 1).ok());
    CHECK_OR_END(Rank::complete(**second) == Completion::complete);
    rank.meet();
    return 0;
  };
  const auto receiver = [](Rank& rank) {
    std::vector<std::byte> data(64);
    rlimit former{};
    CHECK_OR_END(::getrlimit(RLIMIT_AS, &former) == 0);
    ::usleep(100'000);  // the helper has its heap
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit tight{pages * 4096 + kMiB / 2, former.rlim_max};
    CHECK_OR_END(::setrlimit(RLIMIT_AS, &tight) == 0);
    rank.meet();
    auto first = rank.engine().recv_init(rank.args(data, 1, 1));
    CHECK_OR_END(first.has_value());
    // Start returns the error itself if the INIT came before.
    if ((*first)->start().ok()) CHECK_OR_END(Rank::complete(**first) == Completion::failed);
    CHECK_OR_END((*first)->error().code() == Errc::kNoMemory);
    CHECK_OR_END(::setrlimit(RLIMIT_AS, &former) == 0);
    rank.meet();
    auto second = rank.engine().recv_init(rank.args(data, 1, 2));
    CHECK_OR_END(second.has_value() && (*second)->start().ok());
    CHECK_OR_END(Rank::complete(**second) == Completion::complete);
    CHECK_OR_END(holds(data, std::byte{7}));
    rank.meet();
    return 0;
  };
  EXPECT_EQ(run(sender, receiver, kSlots), std::pair(0, 0));
}

/// Takes the first INIT and its segment. Thread safety: the helper writes, then `has_init`.
struct InitTaker : control::Handler {
  void on_record(control::Peer&, const control::Record& record) override {
    if (has_init.load(std::memory_order_relaxed) || !record::read(record.payload, init)) return;
    fd = std::move(record.fds.front());
    has_init.store(true, std::memory_order_release);
  }
  void on_peer_down(control::Peer&) override {}
  record::Init init{};
  UniqueFd fd;
  std::atomic<bool> has_init{false};
};

TEST(PartFailure, ABlockIsNotReusedWhileAPeerThatLeftMayStillStoreIntoIt) {
  const auto sender = [](Rank& rank) {
    std::vector<std::byte> data(64);
    const InitArgs args = rank.args(data, 1);
    InitArgs to_taker = args;
    to_taker.peer += "-taker";
    rank.meet();  // it listens
    auto first = rank.engine().send_init(to_taker);
    CHECK_OR_END(first.has_value() && (*first)->start().ok());
    CHECK_OR_END(Rank::complete(**first) == Completion::failed);
    CHECK_OR_END(rank.engine().free(*first).ok());
    CHECK_OR_END(rank.engine().send_init(args).has_value());
    rank.meet();
    return 0;
  };
  const auto receiver = [](Rank& rank) {
    InitTaker taker;
    std::vector<control::Listener> listeners;
    auto listener = control::Listener::bind(rank.own() + "-taker");
    CHECK_OR_END(listener.has_value());
    listeners.push_back(std::move(*listener));
    auto plane = control::Plane::create(std::move(listeners), taker);
    CHECK_OR_END(plane.has_value());
    rank.meet();
    while (!taker.has_init.load(std::memory_order_acquire)) ::usleep(1000);
    plane.value().reset();  // hangs up, and lives on
    auto segment = shm::Segment::map(std::move(taker.fd), taker.init.segment_bytes);
    CHECK_OR_END(segment.has_value());
    rank.meet();
    const auto* const header = reinterpret_cast<const BlockHeader<RealPlatform>*>(
        (*segment)->base() + taker.init.block_offset);
    CHECK_OR_END(header->generation == taker.init.block_generation);
    return 0;
  };
  EXPECT_EQ(run(sender, receiver, kSlots), std::pair(0, 0));
}

/// Answers an INIT with a typemap that makes no sense. Thread safety: the helper alone.
struct TypeForger : control::Handler {
  void on_record(control::Peer& from, const control::Record& record) override {
    record::Init init{};
    if (record.kind != static_cast<std::uint16_t>(record::Type::init) ||
        !record::read(record.payload, init))
      return;
    struct {
      record::Datatype head;
      std::uint64_t words[12];
    } forged{{init.channel, 12, 0, 12, 0}, {}};
    (void)from.send(static_cast<std::uint16_t>(record::Type::datatype),
                    std::as_bytes(std::span(&forged, 1)));
  }
  void on_peer_down(control::Peer&) override {}
};

TEST(PartFailure, ATypemapThatMakesNoSenseFailsTheSend) {
  const auto sender = [](Rank& rank) {
    std::vector<std::byte> data(64);
    InitArgs to_forger = rank.args(data, 1);
    to_forger.peer += "-forger";
    rank.meet();  // it listens
    auto request = rank.engine().send_init(to_forger);
    CHECK_OR_END(request.has_value());
    const Status started = (*request)->start();  // the answer may have come already
    CHECK_OR_END(!started.ok() || Rank::complete(**request) == Completion::failed);
    CHECK_OR_END((*request)->error().code() == Errc::kProtocol);
    CHECK_OR_END((*request)->error_text().find("typemap") != std::string::npos);
    CHECK_OR_END(rank.engine().free(*request).ok());
    rank.meet();
    return 0;
  };
  const auto receiver = [](Rank& rank) {
    TypeForger forger;
    std::vector<control::Listener> listeners;
    auto listener = control::Listener::bind(rank.own() + "-forger");
    CHECK_OR_END(listener.has_value());
    listeners.push_back(std::move(*listener));
    auto plane = control::Plane::create(std::move(listeners), forger);
    CHECK_OR_END(plane.has_value());
    rank.meet();
    rank.meet();
    return 0;
  };
  EXPECT_EQ(run(sender, receiver, kSlots), std::pair(0, 0));
}

std::size_t open_files() {
  const auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST(PartFailure, AnInitThatCannotBeSentLeavesNoBlockBehind) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizers open descriptors for their own checks";
#endif
  const std::string name = "larklane-failure-leak-" + std::to_string(::getpid());
  auto silent = control::Listener::bind(name + "-silent");  // never accepts or reads
  ASSERT_TRUE(silent.has_value());
  std::atomic<int> step{0};
  Rank rank(step, name, name + "-silent", kSlots);
  std::vector<std::byte> data(kMiB);
  std::vector<std::byte> small(64);
  std::vector<SendRequest*> made;
  for (int i = 0; i < 3000; ++i) {  // until records are queued, with descriptors of their own
    auto request = rank.engine().send_init(rank.args(small, 1));
    ASSERT_TRUE(request.has_value());
    made.push_back(*request);
  }
  const std::size_t before = open_files();
  rlimit former{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &former), 0);
  const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::close(next);
  const rlimit one_more{static_cast<rlim_t>(next) + 1, former.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &one_more), 0);
  const auto refused = rank.engine().send_init(rank.args(data, 1));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &former), 0);
  EXPECT_EQ(refused.error(), Status(Errc::kSystem, EMFILE));
  EXPECT_EQ(open_files(), before);
  for (SendRequest* request : made) EXPECT_TRUE(rank.engine().free(request).ok());
}

TEST(PartFailure, AMappedBufferMustLieInItsRegion) {
  auto region = shm::Segment::create(4096);
  ASSERT_TRUE(region.has_value());
  const Typemap bytes = Typemap::contiguous(1);
  EXPECT_TRUE(lies_within(**region, 0, bytes, 4096));
  EXPECT_FALSE(lies_within(**region, 1, bytes, 4096));
  EXPECT_FALSE(lies_within(**region, ~std::uint64_t{0}, bytes, 1));
  EXPECT_TRUE(lies_within(**region, ~std::uint64_t{0}, bytes, 0));
  const Typemap late({{16, 8}}, 32);  // a gap before its bytes
  EXPECT_TRUE(lies_within(**region, ~std::uint64_t{0} - 15, late, 8 * 128));
  EXPECT_FALSE(lies_within(**region, ~std::uint64_t{0} - 16, late, 8));
  EXPECT_FALSE(lies_within(**region, 0, late, 8 * 129));
  const Typemap backwards({{0, 8}}, -8);
  EXPECT_TRUE(lies_within(**region, 4088, backwards, 4096));
  EXPECT_FALSE(lies_within(**region, 4080, backwards, 4096));
  EXPECT_FALSE(lies_within(**region, 0, Typemap::contiguous(0), 8));
}

}  // namespace
}  // namespace larklane::part
