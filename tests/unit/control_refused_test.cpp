// System calls of the control plane that are refused, or fail for want of a resource for ever:
// peers get an error, and nothing waits.

#include <mutex>
#include <string>

#include "control/local/socket.hpp"
#include "control/plane/plane.hpp"
#include "control_fixture.hpp"
#include "control_process.hpp"
#include "mp/fault/refuse.h"

namespace larklane::control {
namespace {

constexpr int kNoFilters = 77;

/// The plane of a child with a filter, and its events.
class Side {
 public:
  Side() {
    set_log_sink([this](LogLevel, std::string_view message) {
      const std::lock_guard lock(mutex_);
      log_ += message;
      log_ += '\n';
    });
  }
  ~Side() {
    plane.reset();
    set_log_sink({});
  }
  bool open(std::uint64_t accept_ns = 10'000'000'000) {
    auto made = Plane::create(listeners({own}), in, std::nullopt, accept_ns);
    if (made) plane = std::move(*made);
    return plane != nullptr;
  }
  bool has_logged(std::string_view part) {
    const std::lock_guard lock(mutex_);
    return log_.find(part) != std::string::npos;
  }
  /// The one peer is down, for this reason.
  bool is_down(std::string_view reason) {
    return in.wait_for_down() &&
           in.down()[0].first->down_reason().find(reason) != std::string::npos;
  }

  const Address own = fresh_address(), other = fresh_address();
  Inbox in;
  std::unique_ptr<Plane> plane;

 private:
  std::mutex mutex_;
  std::string log_;
};

/// Nothing accepts at `listening`; the peer's connection waits in its backlog.
bool connects(Side& side, const std::vector<Listener>& listening) {
  return side.plane->connect(listening.front().address).has_value();
}

/// Opens the side, whose `calls` fail from now on. @return 0; else what the child returns
template <class... Arguments>
int open_refusing(Side& side, const char* calls, int error, Arguments... arguments) {
  if (refuse_calls(calls, error) != 0) return kNoFilters;
  return side.open(arguments...) ? 0 : 1;
}

/// @return of a child: 0; 77: no filters; else which of its checks failed
int in_child(const std::function<int(Side&)>& body) {
  Process child([&](const Process::Tell&) {
    Side side;
    return body(side);
  });
  return child.wait();
}

#define EXPECT_CHILD(...)                                                               \
  do {                                                                                  \
    const int status = in_child(__VA_ARGS__);                                           \
    if (status == kNoFilters) GTEST_SKIP() << "seccomp filters are not to be had here"; \
    EXPECT_EQ(status, 0);                                                               \
  } while (false)

TEST(RefusedCalls, AListenerThatCanNotAcceptEndsPeers) {
  for (const int error : {EPERM, ENOSYS, EACCES}) {
    EXPECT_CHILD([error](Side& side) {
      const auto listening = listeners({side.other});
      if (const int failed = open_refusing(side, "accept4,accept", error)) return failed;
      if (!connects(side, listening)) return 2;
      RawPeer raw(fresh_address());
      if (!raw.connect(side.own)) return 3;
      if (!side.is_down("can't be accepted")) return 4;
      if (!raw.is_cut_off()) return 5;
      if (!side.has_logged("takes no more connections") || !side.has_logged("remedy: ")) return 6;
      const auto later = side.plane->connect(fresh_address());
      return !later && later.error() == Status(Errc::kSystem, error) ? 0 : 7;
    });
  }
}

TEST(RefusedCalls, WithoutAccept4ConnectionsAreAccepted) {
  for (const int error : {EPERM, ENOSYS}) {
    EXPECT_CHILD([error](Side& side) {
      if (const int failed = open_refusing(side, "accept4", error)) return failed;
      RawPeer raw(fresh_address());
      if (!raw.connect(side.own) || !raw.send_hello()) return 2;
      const std::string record = RawPeer::record(7, "heard");
      if (!raw.send(bytes_of(record))) return 3;
      return side.in.wait_for_records(1) && side.in.take()[0].payload == "heard" ? 0 : 4;
    });
  }
}

TEST(RefusedCalls, WithoutDescriptorsForEverPeersEnd) {
  EXPECT_CHILD([](Side& side) {
    const auto listening = listeners({side.other});
    // no limit of the process: UBSan needs descriptors, too
    if (const int failed = open_refusing(side, "accept4,accept", EMFILE, std::uint64_t{50'000'000}))
      return failed;
    if (!connects(side, listening)) return 2;
    RawPeer raw(fresh_address());
    if (!raw.connect(side.own)) return 3;
    if (!side.is_down("can't be accepted: Too many open files")) return 4;
    if (!raw.is_cut_off()) return 5;
    return side.has_logged("trying again") && side.has_logged("ulimit -n") ? 0 : 6;
  });
}

TEST(RefusedCalls, APeerThatNothingCanBeSentToIsDown) {
  for (const int error : {EPERM, ENOSYS, EACCES}) {
    EXPECT_CHILD([error](Side& side) {
      const auto listening = listeners({side.other});
      if (const int failed = open_refusing(side, "sendmsg", error)) return failed;
      (void)connects(side, listening);
      return side.is_down("nothing can be sent to it (sendmsg)") ? 0 : 2;
    });
  }
}

TEST(RefusedCalls, AConnectionThatCanNotBeReadIsClosed) {
  EXPECT_CHILD([](Side& side) {
    if (const int failed = open_refusing(side, "recvmsg", EPERM)) return failed;
    RawPeer raw(fresh_address());
    if (!raw.connect(side.own)) return 2;
    (void)raw.send_hello();  // it may be closed by now
    return raw.is_cut_off() ? 0 : 3;
  });
}

TEST(RefusedCalls, KeptRecordsLeaveWithoutATimer) {
  for (const int error : {EPERM, ENOSYS}) {
    EXPECT_CHILD([error](Side& side) {
      auto listening = listeners({side.other});
      Inbox in;
      auto other = Plane::create(std::move(listening), in);
      if (!other || !side.open()) return 1;
      auto peer = side.plane->connect(side.other);
      if (!peer || !(*peer)->send(1, {}).ok() || !in.wait_for_records(1)) return 2;
      if (refuse_calls("timerfd_settime", error) != 0) return kNoFilters;
      for (std::size_t count = 2; count < 5; ++count) {
        if (!(*peer)->send_later(2, {}).ok()) return 3;
        if (!in.wait_for_records(count)) return 4;
      }
      return 0;
    });
  }
}

TEST(RefusedCalls, AHelperThatCanNotSleepEndsPeersAndIsJoined) {
  EXPECT_CHILD([](Side& side) {
    if (const int failed = open_refusing(side, "epoll_wait", EPERM)) return failed;
    RawPeer raw(fresh_address());
    if (raw.connect(side.own) && !raw.is_cut_off()) return 2;
    side.plane.reset();
    return side.has_logged("the helper can't sleep (epoll_wait)") ? 0 : 3;
  });
}

TEST(TurnAway, TheBacklogIsNamedAndEnds) {
  auto listening = listeners({fresh_address()});
  const Address own = listening.front().address, other = fresh_address();
  RawPeer raw(other);
  ASSERT_TRUE(raw.connect(own) && raw.send_hello());
  const auto turned_away = turn_away(std::move(listening.front()));
  EXPECT_EQ(turned_away, std::vector<Address>{other});
  EXPECT_TRUE(raw.is_cut_off());
  EXPECT_EQ(connect_to(own).error(), Status(Errc::kUnreachable, ECONNREFUSED));
}

TEST(TurnAway, AConnectionWithoutAKnownHelloIsUnknown) {
  auto listening = listeners({fresh_address()});
  RawPeer raw(fresh_address());
  ASSERT_TRUE(raw.connect(listening.front().address) && raw.send(bytes_of("GET / HTTP/1.1\n")));
  EXPECT_EQ(turn_away(std::move(listening.front())), std::nullopt);
}

}  // namespace
}  // namespace larklane::control
