// Refusals and failures of libfabric, provoked by call tables of the test: opening, posting,
// reading completions, and completions in error.

#include <gtest/gtest.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "../net_heard.hpp"
#include "fake_library.hpp"
#include "net/ofi/endpoint.hpp"
#include "net/ofi/link.hpp"
#include "net/ofi/memory.hpp"

namespace larklane::ofi {
namespace {

using net::Heard;
using net::Note;

/// An endpoint with two links.
class OfiError : public testing::Test {
 protected:
  explicit OfiError(const char* provider = "tcp") : library(provider) {}
  void start() {
    auto opened = Endpoint::open(library.domain, heard);
    ASSERT_TRUE(opened);
    endpoint = std::move(*opened);
    for (auto& link : links) {
      auto made = endpoint->open_link();
      ASSERT_TRUE(made);
      link = std::move(*made);
      ASSERT_TRUE(link->connect(link->offer()).ok());
    }
  }
  Result<net::Post> write(std::size_t link, Note& note) {
    return links[link]->write({bytes.data(), &memory, {0, 7}, bytes.size()}, note);
  }
  Result<net::Post> read(std::size_t link, Note& note) {
    return links[link]->read({bytes.data(), &memory, {0, 7}, bytes.size()}, note);
  }
  void expect_posted(Result<net::Post> answer) {
    ASSERT_TRUE(answer);
    EXPECT_EQ(*answer, net::Post::posted);
  }
  std::uint32_t poll() {
    auto served = endpoint->poll(64);
    EXPECT_TRUE(served);
    return served ? *served : 0;
  }
  void expect_works(std::size_t link) {
    Note note;
    expect_posted(write(link, note));
    library.finish(library.posted.back());
    poll();
    EXPECT_EQ(note.ends, 1);
    EXPECT_TRUE(note.status.ok());
  }

  FakeLibrary library;
  Heard heard;
  std::array<std::byte, 64> bytes{};
  Memory memory{Fid<fid_mr>(&library.region), nullptr, nullptr};
  std::unique_ptr<net::Endpoint> endpoint;
  std::array<std::unique_ptr<net::Link>, 2> links;
};

/// libfabric's tcp; its polls move the parts of a write in order.
class OfiParts : public OfiError {
 protected:
  using Parts = std::vector<FakeLibrary::Part>;

  OfiParts() { start(); }
  Parts of_write(std::size_t length, bool is_looked_for) {
    note.is_looked_for = is_looked_for;
    expect_posted(links[0]->write({many.data(), &memory, {1000, 7}, length}, note));
    return library.parts;
  }
  Parts whole(std::size_t length) { return {{many.data(), length, 1000, length}}; }
  Parts beginning_last(std::size_t length) {
    return {{many.data() + 4, length - 4, 1004, length - 4}, {many.data(), 4, 1000, 4}};
  }

  std::array<std::byte, 100> many{};
  Note note;
};

TEST_F(OfiParts, TheBeginningOfAWatchedWriteIsItsLastPart) {
  for (const std::size_t length : {8, 24, 100})
    EXPECT_EQ(of_write(length, true), beginning_last(length)) << length;
  EXPECT_EQ(of_write(4, true), whole(4));
  expect_posted(links[0]->write_small(std::span(many).first(24), {1000, 7}, note));
  EXPECT_EQ(library.parts, beginning_last(24));
}

TEST_F(OfiParts, AnUnwatchedWriteHasOnePart) {
  for (const std::size_t length : {0, 8, 100}) EXPECT_EQ(of_write(length, false), whole(length));
}

/// A provider that keeps no order of bytes within a write.
class OfiUnordered : public OfiError {
 protected:
  OfiUnordered() : OfiError("verbs;ofi_rxm") { start(); }

  ~OfiUnordered() override {
    for (auto& link : links) link.reset();
  }

  Note note;  // outlives the links
};

TEST_F(OfiUnordered, WritesHaveOnePart) {
  note.is_looked_for = true;
  expect_posted(write(0, note));
  EXPECT_EQ(library.parts.size(), 1u);
}

TEST_F(OfiUnordered, SmallWritesAreCopiedAndReportTheirCompletion) {
  const std::span<const std::byte> small = std::span(bytes).first(20);
  expect_posted(links[0]->write_small(small, {0, 7}, note));
  expect_posted(links[0]->write_small_immediate(small, {0, 7}, 5, note));
  expect_posted(links[0]->write_small_wide(small, {0, 7}, 5ULL << 32 | 6, note));
  EXPECT_EQ(library.write_flags,
            (std::vector<std::uint64_t>{FI_INJECT | FI_COMPLETION,
                                        FI_INJECT | FI_COMPLETION | FI_REMOTE_CQ_DATA,
                                        FI_INJECT | FI_COMPLETION | FI_REMOTE_CQ_DATA}));
  EXPECT_EQ(note.ends, 0);
  for (void* context : library.posted) library.finish(context);
  poll();
  EXPECT_EQ(note.ends, 3);
}

TEST_F(OfiError, AnyRefusalOpensAnEndpointOrNone) {
  for (int step = 0; step < FakeLibrary::kSteps; ++step) {
    library.errors = {};
    library.errors[static_cast<std::size_t>(step)] = FI_EINVAL;
    EXPECT_EQ(Endpoint::open(library.domain, heard).error(), Status(Errc::kSystem, FI_EINVAL))
        << step;
    library.errors[static_cast<std::size_t>(step)] = FI_ENOMEM;
    EXPECT_EQ(Endpoint::open(library.domain, heard).error(), Status(Errc::kNoMemory, FI_ENOMEM))
        << step;
  }
  library.errors = {};
  library.queues_with_wait_error = FI_ENOSYS;
  auto opened = Endpoint::open(library.domain, heard);
  ASSERT_TRUE(opened);
  EXPECT_EQ((*opened)->wait_fd(), -1);
  EXPECT_FALSE((*opened)->arm(net::Wake::all));
}

TEST_F(OfiError, AnImmediateWithAnUpperHalfIsAWideOne) {
  start();
  for (const std::uint64_t data : {0ULL, 0xffff'ffffULL, 1ULL << 32, ~0ULL})
    library.done.push_back({nullptr, FI_REMOTE_CQ_DATA, 0, nullptr, data});
  EXPECT_EQ(poll(), 4u);
  EXPECT_EQ(heard.all, (std::vector<std::uint32_t>{0, 0xffff'ffff}));
  EXPECT_EQ(heard.wide, (std::vector<std::uint64_t>{1ULL << 32, ~0ULL}));
}

TEST_F(OfiError, ACompletionInErrorFailsItsOperationAndItsLink) {
  struct Case {
    int error;
    Errc code;
  };
  constexpr Case kCases[] = {{FI_ECANCELED, Errc::kPeerDown},    {FI_ECONNRESET, Errc::kPeerDown},
                             {FI_ECONNABORTED, Errc::kPeerDown}, {FI_ECONNREFUSED, Errc::kPeerDown},
                             {FI_ENOTCONN, Errc::kPeerDown},     {FI_ESHUTDOWN, Errc::kPeerDown},
                             {FI_EHOSTUNREACH, Errc::kPeerDown}, {FI_EHOSTDOWN, Errc::kPeerDown},
                             {FI_ENETUNREACH, Errc::kPeerDown},  {FI_ETIMEDOUT, Errc::kPeerDown},
                             {EPIPE, Errc::kPeerDown},           {FI_EACCES, Errc::kTransfer},
                             {FI_EKEYREJECTED, Errc::kTransfer}, {FI_ENOMEM, Errc::kTransfer},
                             {FI_EIO, Errc::kTransfer},          {FI_ETRUNC, Errc::kTransfer},
                             {FI_EOTHER, Errc::kTransfer}};
  for (const Case& one : kCases) {
    start();
    const Status error(one.code, one.error);
    library.posted.clear();
    Note before, first, second, other, late;
    for (Note* note : {&before, &first}) expect_posted(write(0, *note));
    expect_posted(read(0, second));
    expect_posted(write(1, other));
    library.finish(library.posted[0]);
    poll();
    library.fail(library.posted[1], one.error);
    library.fail(library.posted[2], FI_ECANCELED);
    library.finish(library.posted[3]);
    poll();
    for (Note* note : {&before, &first, &second, &other}) ASSERT_EQ(note->ends, 1) << one.error;
    EXPECT_TRUE(before.status.ok() && other.status.ok());
    EXPECT_EQ(first.status, error);
    EXPECT_EQ(second.status, Status(Errc::kPeerDown, FI_ECANCELED));
    EXPECT_EQ(links[0]->failure(), error) << "the first one stays";
    EXPECT_EQ(write(0, late).error(), error);
    EXPECT_EQ(read(0, late).error(), error);
    expect_works(1);
    EXPECT_EQ(late.ends, 0);
    for (auto& link : links) link.reset();
    endpoint.reset();
  }
}

TEST_F(OfiError, ARefusedAccessOfAPeerIsNoErrorOfALink) {
  start();
  Note note;
  expect_posted(write(0, note));
  int foreign = 0;
  for (void* context : {static_cast<void*>(nullptr), static_cast<void*>(&foreign)})
    library.fail(context, FI_EACCES);
  EXPECT_EQ(poll(), 2u);
  EXPECT_EQ(note.ends, 0);
  EXPECT_TRUE(links[0]->failure().ok() && links[1]->failure().ok());
  EXPECT_TRUE(heard.all.empty());
  library.finish(library.posted.back());
  poll();
  EXPECT_EQ(note.ends, 1);
}

TEST_F(OfiError, AnErrorOfAClosedLinkIsIgnored) {
  start();
  Note note;
  expect_posted(write(0, note));
  links[0].reset();
  EXPECT_EQ(note.ends, 1);
  EXPECT_EQ(note.status.code(), Errc::kPeerDown);
  library.fail(library.posted.back(), FI_ECANCELED);
  EXPECT_EQ(poll(), 1u);
  EXPECT_EQ(note.ends, 1);
  expect_works(1);
}

TEST_F(OfiError, AnErrorThatCantBeReadEndsNoPollInALoop) {
  start();
  library.is_error_lost = true;
  library.reads = 0;
  EXPECT_EQ(poll(), 0u);
  EXPECT_EQ(library.reads, 1u);
  library.is_error_lost = false;
  library.read_error_code = FI_EINTR;
  EXPECT_EQ(poll(), 0u);
  library.read_error_code = 0;
  expect_works(0);
}

TEST_F(OfiError, AQueueThatCantBeReadEndsAll) {
  start();
  std::array<Note, 20> notes;
  for (std::size_t i = 0; i < notes.size(); ++i)
    expect_posted(i % 2 == 0 ? write(i % 4 / 2, notes[i]) : read(i % 4 / 2, notes[i]));
  library.read_error_code = FI_EIO;
  const Status error(Errc::kSystem, FI_EIO);
  EXPECT_EQ(endpoint->poll(64).error(), error);
  library.read_error_code = 0;
  for (void* context : library.posted) library.finish(context);
  EXPECT_EQ(endpoint->poll(64).error(), error);
  for (const Note& note : notes) {
    ASSERT_EQ(note.ends, 1);
    EXPECT_EQ(note.status, error);
  }
  EXPECT_EQ(endpoint->open_link().error(), error);
  EXPECT_FALSE(endpoint->arm(net::Wake::all));
}

TEST_F(OfiError, APostThatIsRefusedFailsItsLinkAlone) {
  start();
  Note under_way, refused;
  expect_posted(write(0, under_way));
  library.post_error = FI_EAGAIN;
  for (Result<net::Post> answer : {write(0, refused), read(0, refused)}) {
    ASSERT_TRUE(answer);
    EXPECT_EQ(*answer, net::Post::retry);
  }
  library.post_error = FI_EINVAL;
  EXPECT_EQ(read(0, refused).error(), Status(Errc::kTransfer, FI_EINVAL));
  library.post_error = 0;
  EXPECT_EQ(write(0, refused).error(), Status(Errc::kTransfer, FI_EINVAL));
  EXPECT_EQ(refused.ends, 0);
  EXPECT_EQ(under_way.ends, 0) << "libfabric has it";
  library.finish(library.posted.back());
  poll();
  EXPECT_EQ(under_way.ends, 1);
  EXPECT_TRUE(under_way.status.ok());
  expect_works(1);
}

TEST_F(OfiError, MemoryIsRefusedOrGetsAnotherKey) {
  fi_domain_attr attributes{};
  attributes.mr_key_size = 2;
  Registrar registrar(*library.domain.domain, attributes);
  library.register_errors = {FI_ENOKEY, FI_ENOKEY};
  EXPECT_TRUE(registrar.add(bytes.data(), bytes.size()));
  EXPECT_EQ(library.registers, 3u);
  for (const int error : {FI_ENOMEM, FI_EAGAIN, FI_EPERM, FI_EIO, int{FI_ENOKEY}}) {
    library.registers = 0;
    library.register_errors.assign(1000, error);
    const Errc code = error == FI_EIO || error == FI_ENOKEY ? Errc::kSystem : Errc::kNoMemory;
    EXPECT_EQ(registrar.add(bytes.data(), 0).error(), Status(code, error));
    EXPECT_EQ(library.registers, error == FI_ENOKEY ? 64u : 1u);
  }
}

TEST_F(OfiError, KeysCantBeGuessed) {
  fi_domain_attr attributes{};
  attributes.mr_key_size = 8;
  for (int process = 0; process < 2; ++process) {
    Registrar registrar(*library.domain.domain, attributes);
    for (int i = 0; i < 200; ++i) EXPECT_TRUE(registrar.add(bytes.data(), bytes.size()));
  }
  auto keys = library.keys;
  std::ranges::sort(keys);
  ASSERT_EQ(std::ranges::adjacent_find(keys), keys.end()) << "of two processes no two are alike";
  // No two of them are near each other: 400 keys of 64 bits are 2^-11 of the way to one such pair.
  std::uint64_t nearest = UINT64_MAX;
  for (std::size_t i = 1; i < keys.size(); ++i) nearest = std::min(nearest, keys[i] - keys[i - 1]);
  EXPECT_GT(nearest, std::uint64_t{1} << 32);
}

TEST_F(OfiError, AKeyIsAsLongAsTheProviderTakesIt) {
  fi_domain_attr attributes{};
  attributes.mr_key_size = 4;
  Registrar registrar(*library.domain.domain, attributes);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(registrar.add(bytes.data(), bytes.size()));
  EXPECT_TRUE(std::ranges::all_of(library.keys, [](auto key) { return key <= UINT32_MAX; }));
  EXPECT_TRUE(std::ranges::any_of(library.keys, [](auto key) { return key > UINT16_MAX; }));
  library.keys.clear();
  attributes.mr_mode = FI_MR_PROV_KEY;
  EXPECT_TRUE(Registrar(*library.domain.domain, attributes).add(bytes.data(), bytes.size()));
  EXPECT_EQ(library.keys, (std::vector<std::uint64_t>{0})) << "the provider chooses";
}

TEST_F(OfiError, WithoutRandomBytesNothingIsRegistered) {
  fi_domain_attr attributes{};
  attributes.mr_key_size = 8;
  const auto none = [](std::span<std::byte>) { return Status(Errc::kSystem, ENOSYS); };
  EXPECT_EQ(Registrar(*library.domain.domain, attributes, none).add(bytes.data(), 1).error(),
            Status(Errc::kSystem, ENOSYS));
  EXPECT_EQ(library.registers, 0u);
}

}  // namespace
}  // namespace larklane::ofi
