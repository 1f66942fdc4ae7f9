// Refusals of the kernel, and peers that die: the documented error or the fallback, in time.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "control/plane/wire.hpp"
#include "part/records.hpp"
#include "ranks.hpp"

namespace larklane::part::fault {
namespace {

/// The record that a rank's control plane adds from now on: the same record for other memory, or a
/// typemap.
enum class Besides : std::uint8_t { nothing, map_again, staging_again, datatype_after_map };
Besides besides = Besides::nothing;
std::atomic<int> sent_besides{0};  // relaxed: whether there was any

ssize_t send_to_kernel(int socket, const msghdr* message, int flags) {
  return ::syscall(SYS_sendmsg, socket, message, flags);
}

/// A typemap of elements twice as far apart as the present ones.
void send_datatype(int socket, std::uint64_t channel, int flags) {
  const Typemap type(std::vector<TypeBlock>{{8, 4}, {0, 4}}, 16);
  std::vector<std::uint64_t> words(type.encoded_words());
  type.encode(words);
  const auto count = static_cast<std::uint32_t>(words.size());
  const record::Datatype head{channel, count, 0, count, 0};
  control::RecordHeader header;
  header.kind = static_cast<std::uint16_t>(record::Type::datatype);
  header.payload_bytes = static_cast<std::uint32_t>(sizeof head + words.size() * 8);
  std::vector<std::byte> bytes(control::record_bytes(header.payload_bytes));
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, &head, sizeof head);
  std::memcpy(bytes.data() + sizeof header + sizeof head, words.data(), words.size() * 8);
  iovec vector{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  require(send_to_kernel(socket, &message, flags) == ssize_t(bytes.size()), "a record");
}

/// @param message  has been sent, as a whole
void send_besides(int socket, const msghdr* message, ssize_t sent, int flags) {
  control::RecordHeader header;
  if (besides == Besides::nothing || message->msg_iov[0].iov_len < sizeof header) return;
  std::memcpy(&header, message->msg_iov[0].iov_base, sizeof header);
  const auto wanted = besides == Besides::staging_again ? record::Type::staging : record::Type::map;
  if (header.magic != control::kWireMagic || header.kind != static_cast<std::uint16_t>(wanted) ||
      sent != ssize_t(control::record_bytes(header.payload_bytes)))
    return;
  sent_besides.fetch_add(1, std::memory_order_relaxed);
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < message->msg_iovlen; ++i) {
    const auto* const piece = static_cast<const std::byte*>(message->msg_iov[i].iov_base);
    bytes.insert(bytes.end(), piece, piece + message->msg_iov[i].iov_len);
  }
  std::uint64_t channel_and_bytes[2];  // of either record
  std::memcpy(channel_and_bytes, bytes.data() + sizeof header, sizeof channel_and_bytes);
  if (besides == Besides::datatype_after_map)
    return send_datatype(socket, channel_and_bytes[0], flags);
  const auto other = shm::Segment::create(channel_and_bytes[1]).value();
  const int fd = other->fd();
  alignas(cmsghdr) std::byte space[CMSG_SPACE(sizeof fd)]{};
  msghdr again = *message;
  again.msg_control = space;
  again.msg_controllen = sizeof space;
  cmsghdr* const control = CMSG_FIRSTHDR(&again);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(control), &fd, sizeof fd);
  require(send_to_kernel(socket, &again, flags) == sent, "the record again");
}

constexpr std::uint64_t kElements = 16 * 1024;
constexpr std::uint64_t kRounds = 20;

std::shared_ptr<const Typemap> element_type(bool strided) {
  if (!strided) return std::make_shared<const Typemap>(Typemap::contiguous(8));
  return std::make_shared<const Typemap>(std::vector<TypeBlock>{{8, 4}, {0, 4}}, 16);
}

/// Where packed byte `i` of a buffer lies.
std::size_t place(bool strided, std::uint64_t i) {
  const std::uint64_t within = i % 8;
  return strided ? i / 8 * 16 + (within < 4 ? 8 + within : within - 4) : i;
}

std::byte byte_of(std::uint64_t round, std::uint64_t i) {
  return std::byte(1 + (i * 7 + round * 41) % 251);
}

InitArgs args_of(const Names& names, int peer, void* buffer, std::int32_t partitions,
                 bool strided) {
  return {{1, 2},
          0,
          5,
          names.address(peer),
          buffer,
          partitions,
          kElements / static_cast<std::uint64_t>(partitions),
          element_type(strided),
          ""};
}

/// A rank's request and buffer.
struct Sender {
  Sender(Names& names, Engine& engine, bool strided) : strided_(strided), data(kElements * 16) {
    auto made = engine.send_init(args_of(names, 1, data.data(), 8, strided));
    require(made.has_value(), std::string("send_init: ") + errc_name(made.error().code()));
    request = made.value();
  }
  void begin(std::uint64_t round, std::int32_t ready) {
    for (std::uint64_t i = 0; i < kElements * 8; ++i) data[place(strided_, i)] = byte_of(round, i);
    require(request->start().ok(), "Start of the send: " + request->error_text());
    for (std::int32_t p = 0; p < ready; ++p) require(request->pready(p, 1).ok(), "Pready");
  }
  bool strided_;
  std::vector<std::byte> data;
  SendRequest* request = nullptr;
};

struct Receiver {
  Receiver(Names& names, Engine& engine, bool strided) : strided_(strided), data(kElements * 16) {
    auto made = engine.recv_init(args_of(names, 0, data.data(), 4, strided));
    require(made.has_value(), std::string("recv_init: ") + errc_name(made.error().code()));
    request = made.value();
  }
  void begin() { require(request->start().ok(), "Start of the receive: " + request->error_text()); }
  void check(std::uint64_t round) const {
    for (std::uint64_t i = 0; i < kElements * 8; ++i)
      if (data[place(strided_, i)] != byte_of(round, i))
        give_up("wrong byte " + std::to_string(i) + " in round " + std::to_string(round));
  }
  bool strided_;
  std::vector<std::byte> data;
  RecvRequest* request = nullptr;
};

void send_rounds(Names& names, Engine& engine, bool strided) {
  Sender sender(names, engine, strided);
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    sender.begin(round, 8);
    require_complete(*sender.request);
  }
  require(engine.free(sender.request).ok(), "free");
}

void receive_rounds(Names& names, Engine& engine, bool strided) {
  Receiver receiver(names, engine, strided);
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    receiver.begin();
    require_complete(*receiver.request);
    receiver.check(round);
  }
  require(engine.free(receiver.request).ok(), "free");
}

void refuse_attach(bool reading, bool writing) {
  if (reading) refuse({SYS_process_vm_readv}, EPERM);
  if (writing) refuse({SYS_process_vm_writev}, EPERM);
}

/// The refused access of each rank: bit 0 reading, bit 1 writing; then whether types are strided.
using Refusal = std::tuple<unsigned, unsigned, bool>;
class AttachRefused : public testing::TestWithParam<Refusal> {};

std::string refusal_name(const testing::TestParamInfo<Refusal>& info) {
  static const char* const names[] = {"Nothing", "Read", "Write", "Both"};
  const auto [sender, receiver, strided] = info.param;
  return std::string("Sender") + names[sender] + "Receiver" + names[receiver] +
         (strided ? "Strided" : "");
}
INSTANTIATE_TEST_SUITE_P(Ways, AttachRefused,
                         testing::Combine(testing::Range(0u, 4u), testing::Range(0u, 4u),
                                          testing::Bool()),
                         refusal_name);

TEST_P(AttachRefused, BeforeTheEnginesAreThereDataTravelsAllTheSame) {
  const auto [to_sender, to_receiver, strided] = GetParam();
  Names names;
  Rank sender([&, to = to_sender, is_strided = strided](const Rank::Say&) {
    refuse_attach((to & 1) != 0, (to & 2) != 0);
    send_rounds(names, *make_engine(names, 0, "0"), is_strided);
  });
  Rank receiver([&, to = to_receiver, is_strided = strided](const Rank::Say&) {
    refuse_attach((to & 1) != 0, (to & 2) != 0);
    receive_rounds(names, *make_engine(names, 1, "0"), is_strided);
  });
  EXPECT_EQ(sender.wait(), 0);
  EXPECT_EQ(receiver.wait(), 0);
}

// A piece of a shared copy can't be handed over any more: whole runs only.
TEST(AttachRefusedLater, OneDirectionIsEnough) {
  for (const bool to_sender : {true, false}) {
    Names names;
    Rank sender([&](const Rank::Say&) {
      auto engine = make_engine(names, 0, "0", "1G");
      require(engine->reachable(names.address(1)).ok(), "reachable");
      if (to_sender) refuse({SYS_process_vm_writev}, EPERM);
      send_rounds(names, *engine, false);
    });
    Rank receiver([&](const Rank::Say&) {
      auto engine = make_engine(names, 1, "0", "1G");
      require(engine->reachable(names.address(0)).ok(), "reachable");
      if (!to_sender) refuse({SYS_process_vm_readv}, EPERM);
      receive_rounds(names, *engine, false);
    });
    EXPECT_EQ(sender.wait(), 0);
    EXPECT_EQ(receiver.wait(), 0);
  }
}

TEST(AttachRefusedLater, InBothDirectionsDataTravelsThroughStagingMemory) {
  for (const bool strided : {false, true}) {
    Names names;
    Rank sender([&](const Rank::Say&) {
      auto engine = make_engine(names, 0, "0");
      require(engine->reachable(names.address(1)).ok(), "reachable");
      refuse_attach(true, true);
      send_rounds(names, *engine, strided);
    });
    Rank receiver([&](const Rank::Say&) {
      auto engine = make_engine(names, 1, "0");
      require(engine->reachable(names.address(0)).ok(), "reachable");
      refuse_attach(true, true);
      receive_rounds(names, *engine, strided);
    });
    EXPECT_EQ(sender.wait(), 0);
    EXPECT_EQ(receiver.wait(), 0);
  }
}

TEST(RecordAgain, OfStagingMemoryChangesNothing) {
  Names names;
  Rank sender([&](const Rank::Say&) {
    besides = Besides::staging_again;
    auto engine = make_engine(names, 0, "0");
    require(engine->reachable(names.address(1)).ok(), "reachable");
    refuse_attach(true, true);
    send_rounds(names, *engine, false);
    require(sent_besides.load(std::memory_order_relaxed) != 0, "no record came twice");
  });
  Rank receiver([&](const Rank::Say&) {
    auto engine = make_engine(names, 1, "0");
    require(engine->reachable(names.address(0)).ok(), "reachable");
    refuse_attach(true, true);
    receive_rounds(names, *engine, false);
  });
  EXPECT_EQ(sender.wait(), 0);
  EXPECT_EQ(receiver.wait(), 0);
}

/// Rounds of a receiver with a mapped buffer as long as the message.
void receive_mapped(Names& names, Besides what, Completion wanted) {
  besides = what;
  const auto regions = std::make_shared<shm::Regions>();
  auto engine = make_engine(names, 1, "0", "64K", regions);
  auto* const data = static_cast<std::byte*>(regions->allocate(kElements * 8).value());
  auto made = engine->recv_init(args_of(names, 0, data, 4, false));
  require(made.has_value(), "recv_init");
  Completion end = Completion::complete;
  for (std::uint64_t round = 1; round <= kRounds && end == Completion::complete; ++round) {
    if (!(*made)->start().ok()) {
      end = Completion::failed;
      break;
    }
    end = complete(**made);
    for (std::uint64_t i = 0; end == Completion::complete && i < kElements * 8; ++i)
      if (data[i] != byte_of(round, i)) give_up("wrong byte " + std::to_string(i));
  }
  require(sent_besides.load(std::memory_order_relaxed) != 0, "nothing was sent besides");
  require(end == wanted, "another end: " + (*made)->error_text());
  require(engine->free(*made).ok(), "free");
}

TEST(RecordAgain, OfAMappingChangesNothing) {
  Names names;
  Rank sender([&](const Rank::Say&) {
    auto engine = make_engine(names, 0, "0");
    send_rounds(names, *engine, false);
  });
  Rank receiver(
      [&](const Rank::Say&) { receive_mapped(names, Besides::map_again, Completion::complete); });
  EXPECT_EQ(sender.wait(), 0);
  EXPECT_EQ(receiver.wait(), 0);
}

/// The mapping has been checked against the typemap that was known then.
TEST(RecordAgain, ADatatypeAfterTheMappingFailsThePairAndIsNotFollowed) {
  Names names;
  Rank sender([&](const Rank::Say&) {
    auto engine = make_engine(names, 0, "0");
    Sender own(names, *engine, false);
    // Once the typemap is here, which may be before the first Start: the helper serves it.
    for (int i = 0; i < 500 && own.request->error().ok(); ++i) (void)::poll(nullptr, 0, 10);
    if (own.request->start().ok()) {
      (void)own.request->pready(0, 8);
      require(complete(*own.request) == Completion::failed, "it completes");
    }
    expect_error(*own.request, Errc::kProtocol);
    require(engine->free(own.request).ok(), "free");
  });
  Rank receiver([&](const Rank::Say&) {
    receive_mapped(names, Besides::datatype_after_map, Completion::failed);
  });
  EXPECT_EQ(sender.wait(), 0);
  EXPECT_EQ(receiver.wait(), 0);
}

/// A round that fails for want of memory, and is reported with its remedy.
template <class Request>
void require_no_memory(Engine& engine, Request* request) {
  require(complete(*request) == Completion::failed, "completed");
  expect_error(*request, Errc::kNoMemory);
  require(request->error_text().find("memory") != std::string::npos, request->error_text());
  require(engine.free(request).ok(), "free");
}

TEST(AttachRefusedLater, WithoutStagingMemoryBothSidesFail) {
  for (const bool at_sender : {true, false}) {
    Names names;
    Rank sender([&](const Rank::Say&) {
      auto engine = make_engine(names, 0, "0");
      Sender s(names, *engine, false);
      s.begin(1, 8);
      require_complete(*s.request);
      refuse_attach(true, true);
      if (at_sender) refuse({SYS_fallocate}, ENOSPC);
      s.begin(2, 8);
      require_no_memory(*engine, s.request);
    });
    Rank receiver([&](const Rank::Say&) {
      auto engine = make_engine(names, 1, "0");
      Receiver r(names, *engine, false);
      r.begin();
      require_complete(*r.request);
      refuse_attach(true, true);
      if (!at_sender) refuse_shared_mappings();
      r.begin();
      require_no_memory(*engine, r.request);
    });
    EXPECT_EQ(sender.wait(), 0);
    EXPECT_EQ(receiver.wait(), 0);
  }
}

/// Slot limit, and whether the victim has a child that lives on.
using Death = std::tuple<const char*, bool>;
class PeerKilled : public testing::TestWithParam<Death> {};
INSTANTIATE_TEST_SUITE_P(Ways, PeerKilled,
                         testing::Combine(testing::Values("0", "1M"), testing::Bool()),
                         [](const testing::TestParamInfo<Death>& death) {
                           return std::string(*std::get<0>(death.param) == '0' ? "Direct"
                                                                               : "Slots") +
                                  (std::get<1>(death.param) ? "ChildLivesOn" : "");
                         });

/// In the victim: report that all is prepared, and wait for the end.
[[noreturn]] void await_death(const Rank::Say& say, bool forks) {
  if (forks && ::fork() == 0) {
    for (;;) ::pause();
  }
  say();
  for (;;) ::pause();
}

/// The round ends in time as its peer has died.
template <class Request>
void require_ended(Engine& engine, Request* request) {
  const auto deadline = Clock::now() + 4 * kPromised;
  while (request->poll() == Completion::pending) {
    require(Clock::now() < deadline, "waits for the dead");
    ::sched_yield();
  }
  require(request->poll() == Completion::failed, "completed");
  request->finish();
  expect_error(*request, Errc::kPeerDown);
  require(engine.free(request).ok(), "free");
}

TEST_P(PeerKilled, TheReceiverOfAKilledSenderFailsInTime) {
  const auto [slots, forks] = GetParam();
  Names names;
  Rank receiver([&, slot_bytes = slots](const Rank::Say& say) {
    auto engine = make_engine(names, 1, slot_bytes);
    Receiver r(names, *engine, false);
    r.begin();
    require_complete(*r.request);
    r.check(1);
    r.begin();
    bool arrived = false;
    while (!arrived) require(r.request->parrived(0, &arrived).ok(), r.request->error_text());
    say();
    require_ended(*engine, r.request);
  });
  Rank sender([&, slot_bytes = slots, is_forking = forks](const Rank::Say& say) {
    auto engine = make_engine(names, 0, slot_bytes);
    Sender s(names, *engine, false);
    s.begin(1, 8);
    require_complete(*s.request);
    s.begin(2, 5);
    await_death(say, is_forking);
  });
  ASSERT_TRUE(receiver.hear());
  ASSERT_TRUE(sender.hear());
  const auto killed = Clock::now();
  sender.kill();
  EXPECT_EQ(receiver.wait(), 0);
  EXPECT_LT(Clock::now() - killed, kPromised);
}

TEST_P(PeerKilled, TheSenderToAKilledReceiverFailsInTime) {
  const auto [slots, forks] = GetParam();
  Names names;
  Rank sender([&, slot_bytes = slots](const Rank::Say& say) {
    auto engine = make_engine(names, 0, slot_bytes);
    Sender s(names, *engine, false);
    s.begin(1, 8);
    require_complete(*s.request);
    s.begin(2, 5);
    say();
    require_ended(*engine, s.request);
  });
  Rank receiver([&, slot_bytes = slots, is_forking = forks](const Rank::Say& say) {
    auto engine = make_engine(names, 1, slot_bytes);
    Receiver r(names, *engine, false);
    r.begin();
    require_complete(*r.request);
    await_death(say, is_forking);
  });
  ASSERT_TRUE(sender.hear());
  ASSERT_TRUE(receiver.hear());
  const auto killed = Clock::now();
  receiver.kill();
  EXPECT_EQ(sender.wait(), 0);
  EXPECT_LT(Clock::now() - killed, kPromised);
}

TEST(MemoryRefused, InitFailsAtTheSender) {
  Names names;
  Rank receiver([&](const Rank::Say&) {
    auto engine = make_engine(names, 1, "0");
    for (;;) ::pause();
  });
  Rank sender([&](const Rank::Say&) {
    auto engine = make_engine(names, 0, "0");
    std::vector<std::byte> data(kElements * 8);
    refuse({SYS_fallocate}, ENOSPC);
    auto made = engine->send_init(args_of(names, 1, data.data(), 8, false));
    require(!made.has_value() && made.error().code() == Errc::kNoMemory, "no error");
    require(made.error().detail() == ENOSPC, "errno " + std::to_string(made.error().detail()));
  });
  EXPECT_EQ(sender.wait(), 0);
}

TEST(MemoryRefused, ForSlotsAloneAttachServesThePair) {
  constexpr std::uint64_t kTimes = 64;  // 8 MiB: slots would need 16
  Names names;
  const auto end = [&](bool sends) {
    return [&, sends](const Rank::Say&) {
      auto engine = make_engine(names, sends ? 0 : 1, "1M");
      std::vector<std::byte> data(kElements * 8 * kTimes);
      InitArgs args = args_of(names, sends ? 1 : 0, data.data(), 8, false);
      args.count *= kTimes;
      const rlimit limit{4 << 20, 4 << 20};
      require(!sends || ::setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
      Request* request = nullptr;
      SendRequest* send = nullptr;
      if (sends)
        request = send = engine->send_init(args).value();
      else
        request = engine->recv_init(args).value();
      for (std::uint64_t round = 1; round <= kRounds; ++round) {
        for (std::uint64_t i = 0; i < data.size(); ++i)
          data[i] = sends ? byte_of(round, i) : std::byte{0};
        require(request->start().ok(), "Start");
        if (sends) require(send->pready(0, 8).ok(), "Pready");
        require_complete(*request);
        for (std::uint64_t i = 0; i < data.size(); ++i)
          if (data[i] != byte_of(round, i)) give_up("wrong byte " + std::to_string(i));
      }
      require(engine->summary().peers.at(0).provider == "shm attach", "served by slots");
      require(engine->free(request).ok(), "free");
    };
  };
  Rank receiver(end(false));
  Rank sender(end(true));
  EXPECT_EQ(sender.wait(), 0);
  EXPECT_EQ(receiver.wait(), 0);
}

TEST(MemoryRefused, ReceiverThatCannotMapFailsBothSides) {
  for (const bool receives_first : {true, false}) {
    Names names;
    std::array<int, 2> go{};  // no INIT comes before the refusal
    ASSERT_EQ(::pipe(go.data()), 0);
    Rank receiver([&](const Rank::Say& say) {
      auto engine = make_engine(names, 1, "0");
      refuse_shared_mappings();
      require(::write(go[1], "g", 1) == 1, "go");
      const auto deadline = Clock::now() + kPromised;
      // Or the INIT is there before the receive.
      while (!receives_first && engine->summary().control.records_received == 0)
        require(Clock::now() < deadline, "no INIT");
      Receiver r(names, *engine, false);
      if (r.request->start().ok()) {
        require(complete(*r.request) == Completion::failed, "completed");
      }
      expect_error(*r.request, Errc::kNoMemory);
      require(engine->free(r.request).ok(), "free");
      say();
      for (;;) ::pause();
    });
    Rank sender([&](const Rank::Say& say) {
      auto engine = make_engine(names, 0, "0");
      char byte = 0;
      require(::read(go[0], &byte, 1) == 1, "go");
      Sender s(names, *engine, false);
      if (s.request->start().ok()) {
        require(complete(*s.request) == Completion::failed, "completed");
      }
      expect_error(*s.request, Errc::kNoMemory);
      require(engine->free(s.request).ok(), "free");
      say();
      for (;;) ::pause();
    });
    EXPECT_TRUE(sender.hear());
    EXPECT_TRUE(receiver.hear());
    for (const int end : go) ::close(end);
  }
}

}  // namespace
}  // namespace larklane::part::fault

/// Replaces libc's.
extern "C" ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  using namespace larklane::part::fault;
  const ssize_t sent = send_to_kernel(socket, message, flags);
  if (sent > 0) send_besides(socket, message, sent, flags);
  return sent;
}
