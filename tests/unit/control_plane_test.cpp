// The control plane between peers that keep to the protocol, on one host and between hosts.

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <future>
#include <thread>

#include "control/plane/plane.hpp"
#include "control_fixture.hpp"

namespace larklane::control {
namespace {

using PlaneTest = ControlTest;

/// Laws that hold for every peer.
class AnyPlaneTest : public ControlTest, public testing::WithParamInterface<Net> {
 protected:
  bool is_remote() const { return GetParam() == Net::remote; }
  Place fresh_place() const { return control::fresh_place(GetParam()); }
  /// A place, and its name for when it has been moved.
  struct Named {
    Place place;
    Address name;
  };
  Named named_place() const {
    Place place = fresh_place();
    Address name = place.address;
    return {std::move(place), std::move(name)};
  }
};
INSTANTIATE_TEST_SUITE_P(Local, AnyPlaneTest, testing::Values(Net::local));
INSTANTIATE_TEST_SUITE_P(Remote, AnyPlaneTest, testing::Values(Net::remote));

std::string number_payload(std::uint32_t first, std::uint32_t second) {
  const std::uint32_t numbers[] = {first, second};
  return {reinterpret_cast<const char*>(numbers), sizeof numbers};
}
std::pair<std::uint32_t, std::uint32_t> numbers_of(const std::string& payload) {
  std::uint32_t numbers[2] = {};
  EXPECT_EQ(payload.size(), sizeof numbers);
  std::memcpy(numbers, payload.data(), std::min(payload.size(), sizeof numbers));
  return {numbers[0], numbers[1]};
}

UniqueFd memfd_with(const std::string& text) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(::write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  return fd;
}
std::string text_of(const UniqueFd& fd) {
  char text[100];
  const ssize_t length = ::pread(fd.get(), text, sizeof text, 0);
  return {text, static_cast<std::size_t>(std::max<ssize_t>(length, 0))};
}

/// Threads of this process that bear the helper's name.
std::vector<pid_t> helpers() {
  std::vector<pid_t> found;
  DIR* const tasks = ::opendir("/proc/self/task");
  while (const dirent* entry = ::readdir(tasks)) {
    std::string name;
    std::getline(std::ifstream(std::string("/proc/self/task/") + entry->d_name + "/comm"), name);
    if (name == "larklane") found.push_back(std::atoi(entry->d_name));
  }
  ::closedir(tasks);
  return found;
}
std::string status_of(pid_t thread, const std::string& key) {
  std::ifstream status("/proc/self/task/" + std::to_string(thread) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key + ":")) return line.substr(key.size() + 1);
  }
  ADD_FAILURE() << key;
  return {};
}

/// Returns when the helper has run `work`.
void run_on_helper(Plane& plane, const std::function<void()>& work) {
  std::promise<void> done;
  plane.post([&] {
    work();
    done.set_value();
  });
  ASSERT_EQ(done.get_future().wait_for(kPatience), std::future_status::ready);
}

TEST_P(AnyPlaneTest, RecordsTravelBothWays) {
  Named a_at = named_place();
  Named b_at = named_place();
  Inbox a_in;
  Inbox b_in;
  b_in.react = [](Peer& from, const Record& record) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(record.payload.data()) % 8, 0U);
    EXPECT_TRUE(from.send(static_cast<std::uint16_t>(record.kind + 1), record.payload).ok());
  };
  const auto a = make_plane(std::move(a_at.place), a_in);
  const auto b = make_plane(std::move(b_at.place), b_in);
  EXPECT_EQ(a->own_address(), is_remote() ? RemoteAddress::parse(a_at.name)->name : a_at.name);
  Peer* const to_b = must_connect(*a, b_at.name);
  EXPECT_EQ(must_connect(*a, b_at.name), to_b);
  EXPECT_EQ(to_b->address(), b_at.name);
  EXPECT_EQ(to_b->is_remote(), is_remote());
  EXPECT_EQ(to_b->pid(), is_remote() ? 0 : ::getpid());
  EXPECT_EQ(to_b->same_process(), !is_remote());
  EXPECT_FALSE(to_b->is_down());
  EXPECT_FALSE(to_b->has_ended());
  EXPECT_EQ(to_b->down_reason(), "");
  const std::vector<std::string> payloads = {"", "x", "12345678",
                                             std::string(kRecordBytesMax, 'y')};
  for (const std::string& payload : payloads) EXPECT_TRUE(to_b->send(7, bytes_of(payload)).ok());
  ASSERT_TRUE(a_in.wait_for_records(payloads.size()));
  const auto answers = a_in.take();
  for (std::size_t i = 0; i < payloads.size(); ++i) {
    EXPECT_EQ(answers[i].from, to_b);
    EXPECT_EQ(answers[i].kind, 8);
    EXPECT_EQ(answers[i].payload, payloads[i]);
  }
  for (const auto& record : b_in.take()) {
    EXPECT_EQ(record.from->address(), a_at.name);
    EXPECT_EQ(record.from->same_process(), !is_remote());
  }
  EXPECT_EQ(a->counters().records_sent, payloads.size());
  EXPECT_EQ(a->counters().records_received, payloads.size());
}

TEST_F(PlaneTest, RecordsThatCannotBeSentAreRefused) {
  Inbox in;
  const Address name = fresh_address();
  const auto plane = make_plane(listeners({name}), in);
  Peer* const self = must_connect(*plane, name);
  EXPECT_EQ(self->send(1, bytes_of(std::string(kRecordBytesMax + 1, 'x'))),
            Status(Errc::kInvalidArgument));
  const std::vector<int> five(kRecordFdsMax + 1, 0);
  EXPECT_EQ(self->send(1, {}, five), Status(Errc::kInvalidArgument));
  const int closed[] = {1'000'000};
  EXPECT_EQ(self->send(1, {}, closed).code(), Errc::kInvalidArgument);
  EXPECT_TRUE(self->send(2, {}).ok());
  ASSERT_TRUE(in.wait_for_records(1));
  EXPECT_EQ(in.take()[0].kind, 2);
}

TEST_F(PlaneTest, ConnectReportsTheReasonOfARefusal) {
  Inbox in;
  const Address name = fresh_address();
  const auto plane = make_plane(listeners({name}), in);
  EXPECT_EQ(plane->connect(fresh_address()).error(), Status(Errc::kUnreachable, ECONNREFUSED));
  EXPECT_EQ(plane->connect("").error(), Status(Errc::kInvalidArgument));
  EXPECT_EQ(plane->connect(Address(kAddressBytes, 'x')).error(), Status(Errc::kInvalidArgument));
  EXPECT_EQ(Listener::bind(name).error(), Status(Errc::kSystem, EADDRINUSE));
  EXPECT_EQ(Listener::bind("a b").error(), Status(Errc::kInvalidArgument));
  EXPECT_EQ(Plane::create({}, in).error(), Status(Errc::kInvalidArgument));
}

TEST_P(AnyPlaneTest, FifoPerPeerFromAnyThread) {
  constexpr std::uint32_t kThreads = 4;
  constexpr std::uint32_t kEach = 3000;
  Named b_at = named_place();
  Inbox a_in;
  Inbox b_in;
  const auto a = make_plane(fresh_place(), a_in);
  const auto b = make_plane(std::move(b_at.place), b_in);
  Peer* const to_b = must_connect(*a, b_at.name);
  std::mutex order;
  std::uint32_t next = 0;
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint32_t i = 0; i < kEach; ++i) {
        // kind 0: an order among all threads; kind 1: racing sends, in order per thread
        if (i % 2 == 0) {
          const std::lock_guard lock(order);
          ASSERT_TRUE(to_b->send(0, bytes_of(number_payload(0, next++))).ok());
        } else {
          ASSERT_TRUE(to_b->send(1, bytes_of(number_payload(t, i))).ok());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(b_in.wait_for_records(kThreads * kEach));
  std::uint32_t expected = 0;
  std::vector<std::int64_t> last(kThreads, -1);
  for (const auto& record : b_in.take()) {
    const auto [thread, number] = numbers_of(record.payload);
    if (record.kind == 0) {
      EXPECT_EQ(number, expected++);
    } else {
      EXPECT_GT(number, std::exchange(last.at(thread), number));
    }
  }
  EXPECT_EQ(expected, kThreads * kEach / 2);
}

TEST_F(PlaneTest, DescriptorsArriveWithTheirRecord) {
  const Address b_name = fresh_address();
  Inbox a_in;
  Inbox b_in;
  const auto a = make_plane(listeners({fresh_address()}), a_in);
  const auto b = make_plane(listeners({b_name}), b_in);
  Peer* const to_b = must_connect(*a, b_name);
  constexpr std::uint16_t kRecords = 200;
  for (std::uint16_t i = 0; i < kRecords; ++i) {
    std::vector<UniqueFd> fds;
    std::vector<int> numbers;
    for (std::size_t j = 0; j < i % (kRecordFdsMax + 1); ++j) {
      fds.push_back(memfd_with(std::to_string(i) + "/" + std::to_string(j)));
      numbers.push_back(fds.back().get());
    }
    ASSERT_TRUE(to_b->send(i, bytes_of(std::string(i, 'x')), numbers).ok());
  }
  ASSERT_TRUE(b_in.wait_for_records(kRecords));
  const auto records = b_in.take();
  for (std::uint16_t i = 0; i < kRecords; ++i) {
    EXPECT_EQ(records[i].kind, i);
    EXPECT_EQ(records[i].payload.size(), i);
    ASSERT_EQ(records[i].fds.size(), i % (kRecordFdsMax + 1)) << i;
    for (std::size_t j = 0; j < records[i].fds.size(); ++j) {
      EXPECT_EQ(text_of(records[i].fds[j]), std::to_string(i) + "/" + std::to_string(j));
      EXPECT_EQ(::fcntl(records[i].fds[j].get(), F_GETFD), FD_CLOEXEC);
    }
  }
}

TEST_P(AnyPlaneTest, BacklogHoldsRecordsUntilThereIsAHelper) {
  Named b_at = named_place();
  Inbox a_in;
  Inbox b_in;
  const auto a = make_plane(fresh_place(), a_in);
  Peer* const to_b = must_connect(*a, b_at.name);
  const UniqueFd fd = memfd_with("early");
  std::vector<int> numbers;
  if (!is_remote()) numbers.push_back(fd.get());
  for (std::uint16_t i = 0; i < 50; ++i) EXPECT_TRUE(to_b->send(i, {}, numbers).ok());
  const auto b = make_plane(std::move(b_at.place), b_in);
  ASSERT_TRUE(b_in.wait_for_records(50));
  const auto records = b_in.take();
  for (std::uint16_t i = 0; i < 50; ++i) {
    EXPECT_EQ(records[i].kind, i);
    if (is_remote()) continue;
    EXPECT_EQ(text_of(records[i].fds.at(0)), "early");
  }
}

TEST_P(AnyPlaneTest, ASlowReceiverNeverBlocksTheSender) {
  // more than the sockets hold, and less than 64 MiB
  const std::uint32_t records_total = is_remote() ? 30'000 : 100'000;
  const std::string filler(is_remote() ? 1000 : 0, 'x');
  constexpr std::uint32_t kFdEvery = 1000;
  Named b_at = named_place();
  Inbox a_in;
  Inbox b_in;
  b_in.set_gate(false);
  const auto a = make_plane(fresh_place(), a_in);
  const auto b = make_plane(std::move(b_at.place), b_in);
  Peer* const to_b = must_connect(*a, b_at.name);
  for (std::uint32_t i = 0; i < records_total; ++i) {
    UniqueFd fd;
    std::vector<int> numbers;
    if (!is_remote() && i % kFdEvery == 0) {
      fd = memfd_with(std::to_string(i));
      numbers.push_back(fd.get());
    }
    ASSERT_TRUE(to_b->send(3, bytes_of(number_payload(i, ~i) + filler), numbers).ok()) << i;
  }
  EXPECT_LT(a->counters().records_sent, records_total);  // else nothing was queued
  b_in.set_gate(true);
  ASSERT_TRUE(b_in.wait_for_records(records_total));
  const auto records = b_in.take();
  for (std::uint32_t i = 0; i < records_total; ++i) {
    ASSERT_EQ(numbers_of(records[i].payload.substr(0, 8)), std::make_pair(i, ~i));
    const bool has_fd = !is_remote() && i % kFdEvery == 0;
    ASSERT_EQ(records[i].fds.size(), has_fd ? 1U : 0U);
    if (has_fd) {
      ASSERT_EQ(text_of(records[i].fds[0]), std::to_string(i));
    }
  }
}

TEST_P(AnyPlaneTest, APeerThatTakesNothingCostsBoundedMemory) {
  Named b_at = named_place();
  Inbox in;
  const auto plane = make_plane(fresh_place(), in);
  allow_warning("before it had proven itself");
  Peer* const peer = must_connect(*plane, b_at.name);
  const std::string payload(kRecordBytesMax, 'x');
  int count = 0;
  for (; peer->has_room() && count < 20'000; ++count)
    ASSERT_TRUE(peer->send(0, bytes_of(payload)).ok());
  EXPECT_FALSE(peer->has_room());
  EXPECT_GT(count, 8000);
  // A send that has begun goes on.
  EXPECT_TRUE(peer->send(0, bytes_of(payload)).ok());
  EXPECT_TRUE(peer->send_later(0, bytes_of(payload)).ok());
  b_at.place = {};
  EXPECT_TRUE(in.wait_for_down());
  EXPECT_TRUE(peer->is_down());
}

TEST_P(AnyPlaneTest, TheEndSendsQueuedRecords) {
  constexpr std::uint32_t kRecords = 2000;  // ten times the capacity of a socket
  Named b_at = named_place();
  Inbox a_in;
  Inbox b_in;
  const auto b = make_plane(std::move(b_at.place), b_in);
  {
    const auto a = make_plane(fresh_place(), a_in);
    Peer* const to_b = must_connect(*a, b_at.name);
    const std::string payload(1000, 'x');
    for (std::uint32_t i = 0; i < kRecords; ++i) ASSERT_TRUE(to_b->send(0, bytes_of(payload)).ok());
  }
  ASSERT_TRUE(b_in.wait_for_down());
  const auto down = b_in.down();
  ASSERT_EQ(down.size(), 1U);
  EXPECT_EQ(down[0].second, kRecords);
  EXPECT_TRUE(down[0].first->is_down());
  EXPECT_EQ(down[0].first->send(0, {}), Status(Errc::kPeerDown));
}

TEST_P(AnyPlaneTest, SelfIsAPeerLikeOthers) {
  Place place = fresh_place();
  const Address name = place.address;
  const Address alias = fresh_address();
  place.own.push_back(std::move(listeners({alias})[0]));
  Inbox in;
  std::atomic<pid_t> delivered_on{0};
  in.react = [&](Peer&, const Record&) {
    delivered_on.store(::gettid(),
                       std::memory_order_relaxed);  // relaxed: joined by the inbox's mutex
  };
  const auto plane = make_plane(std::move(place), in);
  Peer* const self = must_connect(*plane, name);
  EXPECT_EQ(self->same_process(), !is_remote());
  EXPECT_EQ(self->pid(), is_remote() ? 0 : ::getpid());
  for (std::uint16_t i = 0; i < 100; ++i) ASSERT_TRUE(self->send(i, {}).ok());
  ASSERT_TRUE(in.wait_for_records(100));
  const auto records = in.take();
  for (std::uint16_t i = 0; i < 100; ++i) {
    EXPECT_EQ(records[i].kind, i);
    EXPECT_EQ(records[i].from, self);
  }
  if (is_remote()) return;
  EXPECT_EQ(must_connect(*plane, alias), self);
}

TEST_F(PlaneTest, AnAliasIsTheSamePeer) {
  const Address a_name = fresh_address();
  const Address b_name = fresh_address();
  const Address b_alias = fresh_address();
  Inbox a_in;
  Inbox b_in;
  b_in.react = [](Peer& from, const Record&) { EXPECT_TRUE(from.send(2, {}).ok()); };
  const auto a = make_plane(listeners({a_name}), a_in);
  const auto b = make_plane(listeners({b_name, b_alias}), b_in);
  Peer* const to_b = must_connect(*a, b_alias);
  EXPECT_TRUE(to_b->send(1, {}).ok());
  ASSERT_TRUE(a_in.wait_for_records(1));
  EXPECT_EQ(a_in.take()[0].from, to_b);
  EXPECT_EQ(must_connect(*a, b_name), to_b);
  EXPECT_EQ(must_connect(*b, a_name), b_in.take()[0].from);
}

TEST_F(PlaneTest, PostedWorkRunsInOrderOnTheHelper) {
  Inbox in;
  const auto plane = make_plane(listeners({fresh_address()}), in);
  std::mutex mutex;
  std::condition_variable done;
  std::vector<int> ran;
  for (int i = 0; i < 1000; ++i) {
    plane->post([&, i] {
      EXPECT_NE(::gettid(), ::getpid());
      const std::lock_guard lock(mutex);
      ran.push_back(i);
      done.notify_all();
    });
  }
  std::unique_lock lock(mutex);
  ASSERT_TRUE(done.wait_for(lock, kPatience, [&] { return ran.size() == 1000; }));
  EXPECT_TRUE(std::is_sorted(ran.begin(), ran.end()));
}

TEST_F(PlaneTest, WorkPostedBeforeTheEndRuns) {
  Inbox in;
  std::atomic<int> ran{0};
  {
    const auto plane = make_plane(listeners({fresh_address()}), in);
    plane->post([&, &p = *plane] {
      p.post([&] { ran.fetch_add(1, std::memory_order_relaxed); });  // relaxed: joined below
    });
  }
  EXPECT_EQ(ran.load(std::memory_order_relaxed), 1);  // relaxed: the helper has been joined
}

TEST_P(AnyPlaneTest, TheHandlerMayConnectAndSend) {
  Named c_at = named_place();
  Named b_at = named_place();
  Inbox a_in;
  Inbox b_in;
  Inbox c_in;
  std::atomic<Plane*> b_plane{nullptr};
  b_in.react = [&](Peer&, const Record& record) {
    // acquire: pairs with the store below
    Result<Peer*> to_c = b_plane.load(std::memory_order_acquire)->connect(c_at.name);
    ASSERT_TRUE(to_c);
    EXPECT_TRUE((*to_c)->send(record.kind, record.payload).ok());
  };
  const auto a = make_plane(fresh_place(), a_in);
  const auto b = make_plane(std::move(b_at.place), b_in);
  const auto c = make_plane(std::move(c_at.place), c_in);
  b_plane.store(b.get(), std::memory_order_release);  // pairs with the load above
  Peer* const to_b = must_connect(*a, b_at.name);
  for (std::uint16_t i = 0; i < 100; ++i) ASSERT_TRUE(to_b->send(i, bytes_of("forward")).ok());
  ASSERT_TRUE(c_in.wait_for_records(100));
  EXPECT_EQ(c_in.take()[99].kind, 99);
}

TEST_F(PlaneTest, AFullBacklogIsRetried) {
  const Address b_name = fresh_address();
  Inbox a_in;
  std::vector<Listener> silent = listeners({b_name});
  ASSERT_EQ(::listen(silent[0].fd.get(), 1), 0);
  std::vector<UniqueFd> fillers;
  for (int i = 0; i < 2; ++i) {
    RawPeer filler(fresh_address());
    ASSERT_TRUE(filler.connect(b_name));
    fillers.push_back(std::move(filler.fd));
  }
  const auto a = make_plane(listeners({fresh_address()}), a_in);
  Peer* const to_b = must_connect(*a, b_name);
  EXPECT_EQ(to_b->pid(), 0);
  for (std::uint16_t i = 0; i < 10; ++i) EXPECT_TRUE(to_b->send(i, {}).ok());
  EXPECT_EQ(a->counters().records_sent, 0U);
  fillers.clear();
  Inbox b_in;
  const auto b = make_plane(std::move(silent), b_in);
  ASSERT_TRUE(b_in.wait_for_records(10));
  EXPECT_EQ(b_in.take()[9].kind, 9);
  EXPECT_EQ(to_b->pid(), ::getpid());
}

TEST_P(AnyPlaneTest, KeptRecordsLeaveInOrderAndByThemselves) {
  Named b_at = named_place();
  Inbox a_in;
  Inbox b_in;
  auto a = make_plane(fresh_place(), a_in);
  const auto b = make_plane(std::move(b_at.place), b_in);
  Peer* const to_b = must_connect(*a, b_at.name);
  std::size_t count = 0;
  const auto arrive = [&](std::uint16_t first, std::size_t more) {
    ASSERT_TRUE(b_in.wait_for_records(count += more));
    const auto all = b_in.take();
    ASSERT_EQ(all.size(), more);
    for (std::size_t i = 0; i < more; ++i) EXPECT_EQ(all[i].kind, first + i);
    count = 0;
  };
  ASSERT_TRUE(to_b->send_later(1, bytes_of("one")).ok());  // makes the connection
  arrive(1, 1);
  for (std::uint16_t kind = 2; kind < 5; ++kind)
    ASSERT_TRUE(to_b->send_later(kind, bytes_of("12345")).ok());
  ASSERT_TRUE(to_b->send(5, bytes_of("five")).ok());
  arrive(2, 4);
  ASSERT_TRUE(to_b->send_later(6, {}).ok());
  to_b->flush_later();
  arrive(6, 1);
  for (int again = 0; again < 3; ++again) {  // no thread flushes: the helper does
    ASSERT_TRUE(to_b->send_later(7, bytes_of("seven")).ok());
    arrive(7, 1);
  }
  const std::string large(kRecordBytesMax, 'l');  // more than is kept
  for (std::uint16_t kind = 8; kind < 48; ++kind)
    ASSERT_TRUE(to_b->send_later(kind, bytes_of(large)).ok());
  arrive(8, 40);
  ASSERT_TRUE(to_b->send_later(48, {}).ok());
  a.reset();
  arrive(48, 1);
}

TEST_P(AnyPlaneTest, AnIdleHelperSleeps) {
  Named b_at = named_place();
  Inbox a_in;
  Inbox b_in;
  const auto a = make_plane(fresh_place(), a_in);
  const auto b = make_plane(std::move(b_at.place), b_in);
  ASSERT_TRUE(must_connect(*a, b_at.name)->send(0, {}).ok());
  ASSERT_TRUE(b_in.wait_for_records(1));
  const auto switches = [] {
    std::vector<std::string> all;
    for (const pid_t helper : helpers()) {
      all.push_back(status_of(helper, "voluntary_ctxt_switches"));
      all.push_back(status_of(helper, "nonvoluntary_ctxt_switches"));
    }
    return all;
  };
  ::poll(nullptr, 0, 200);  // gives them time to fall asleep
  const auto before = switches();
  const auto wakeups_before = a->counters().helper_wakeups + b->counters().helper_wakeups;
  ASSERT_EQ(before.size(), 4U);
  ::poll(nullptr, 0, 10000);
  EXPECT_EQ(switches(), before);
  EXPECT_EQ(a->counters().helper_wakeups + b->counters().helper_wakeups, wakeups_before);
  EXPECT_GT(wakeups_before, 0U);
}

TEST_F(PlaneTest, TheHelperTakesNoSignals) {
  Inbox in;
  const std::string own_mask = status_of(::gettid(), "SigBlk");
  const auto plane = make_plane(listeners({fresh_address()}), in);
  EXPECT_EQ(status_of(::gettid(), "SigBlk"), own_mask);
  run_on_helper(*plane, [] {
    const std::uint64_t blocked = std::stoull(status_of(::gettid(), "SigBlk"), nullptr, 16);
    for (const int signal : {SIGINT, SIGTERM, SIGALRM, SIGPROF, SIGUSR1, SIGCHLD}) {
      EXPECT_TRUE((blocked >> (signal - 1)) & 1) << signal;
    }
    EXPECT_EQ(helpers(), std::vector<pid_t>{::gettid()});
  });
}

TEST_F(PlaneTest, TheHelperMayUseTheCpusOfAllThreads) {
  cpu_set_t all;
  ASSERT_EQ(::sched_getaffinity(0, sizeof all, &all), 0);
  if (CPU_COUNT(&all) < 2) GTEST_SKIP() << "one CPU only";
  std::mutex mutex;
  std::condition_variable changed;
  bool is_over = false;
  std::thread other([&] {  // keeps the whole set, as the threads of a program that binds only some
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return is_over; });
  });
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  Inbox in;
  cpu_set_t found;
  CPU_ZERO(&found);
  const auto plane = make_plane(listeners({fresh_address()}), in);
  run_on_helper(*plane, [&] { EXPECT_EQ(::sched_getaffinity(0, sizeof found, &found), 0); });
  EXPECT_EQ(::sched_setaffinity(0, sizeof all, &all), 0);
  EXPECT_TRUE(CPU_EQUAL(&found, &all));
  {
    const std::lock_guard lock(mutex);
    is_over = true;
  }
  changed.notify_all();
  other.join();
}

}  // namespace
}  // namespace larklane::control
