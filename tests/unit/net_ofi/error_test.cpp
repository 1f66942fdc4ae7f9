// What libfabric refuses and fails, provoked by tables of calls of our own: opening, posting,
// reading completions, and completions in error.

#include <gtest/gtest.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "../net_heard.hpp"
#include "net/ofi/endpoint.hpp"
#include "net/ofi/link.hpp"
#include "net/ofi/memory.hpp"

namespace larklane::ofi {
namespace {

/// A libfabric that does nothing but what the test says. Thread safety: single-owner.
class FakeLibrary {
 public:
  explicit FakeLibrary(const char* provider) {
    current_ = this;
    fid_ops_ = {sizeof fid_ops_, &close, &bind, &control, nullptr, nullptr, nullptr};
    fabric_ops_.trywait = [](fid_fabric*, fid**, int) { return 0; };
    domain_ops_.cq_open = &open_queue;
    domain_ops_.av_open = &open_table;
    domain_ops_.endpoint = &open_endpoint;
    memory_ops_.reg = &register_memory;
    queue_ops_.read = &read_queue;
    queue_ops_.readerr = &read_error;
    table_ops_.insert = [](fid_av*, const void*, std::size_t, fi_addr_t* peer, std::uint64_t,
                           void*) {
      *peer = 0;
      return 1;
    };
    table_ops_.remove = [](fid_av*, fi_addr_t*, std::size_t, std::uint64_t) { return 0; };
    cm_ops_.getname = &name;
    rma_ops_.writemsg = [](fid_ep*, const fi_msg_rma* message, std::uint64_t) {
      return current_->post(message->context);
    };
    rma_ops_.read = [](fid_ep*, void*, std::size_t, void*, fi_addr_t, std::uint64_t, std::uint64_t,
                       void* context) { return current_->post(context); };
    rma_ops_.inject = [](fid_ep*, const void*, std::size_t length, fi_addr_t, std::uint64_t to,
                         std::uint64_t) {
      return current_->inject({to, length, std::nullopt});
    };
    rma_ops_.injectdata = [](fid_ep*, const void*, std::size_t length, std::uint64_t data,
                             fi_addr_t, std::uint64_t to, std::uint64_t) {
      return current_->inject({to, length, data});
    };
    fabric_ = {{0, nullptr, &fid_ops_}, &fabric_ops_, 0};
    domain_ = {{0, nullptr, &fid_ops_}, &domain_ops_, &memory_ops_};
    queue_ = {{0, nullptr, &fid_ops_}, &queue_ops_};
    table_ = {{0, nullptr, &fid_ops_}, &table_ops_};
    endpoint_ = {};
    endpoint_.fid.ops = &fid_ops_;
    endpoint_.cm = &cm_ops_;
    endpoint_.rma = &rma_ops_;
    region = {{0, nullptr, &fid_ops_}, nullptr, 7};
    domain.choice.info.reset(::fi_allocinfo());
    domain.choice.info->addr_format = FI_SOCKADDR_IN;
    domain.choice.info->fabric_attr->prov_name = ::strdup(provider);
    domain.choice.finish = Finish::ordered;
    domain.fabric.reset(&fabric_);
    domain.domain.reset(&domain_);
  }
  ~FakeLibrary() {
    domain = {};
    current_ = nullptr;
  }
  FakeLibrary(const FakeLibrary&) = delete;
  FakeLibrary& operator=(const FakeLibrary&) = delete;

  enum Step { queue, table, endpoint, bind_queue, bind_table, enable, get_name, kSteps };
  std::array<int, kSteps> errors{};  ///< of calls that open
  int busy_names = 0;                ///< of the next endpoints, when they are enabled
  int queues_with_wait_error = 0;
  ssize_t post_error = 0;
  std::vector<void*> posted;  ///< contexts, until the test takes them
  struct Injected {
    std::uint64_t to;
    std::size_t length;
    std::optional<std::uint64_t> immediate;
    bool operator==(const Injected&) const = default;
  };
  std::vector<Injected> injected;     ///< those that were not refused
  std::deque<ssize_t> inject_errors;  ///< of the next ones
  std::deque<fi_cq_data_entry> done;
  std::deque<fi_cq_err_entry> failed;
  ssize_t read_error_code = 0;       ///< of fi_cq_read
  bool is_error_lost = false;        ///< there is one, and fi_cq_readerr has none
  std::vector<int> register_errors;  ///< of the next calls
  std::uint32_t registers = 0, reads = 0;
  fid_mr region{};
  Domain domain;

  void finish(void* context) { done.push_back({context, 0, 0, nullptr, 0}); }
  void fail(void* context, int error) {
    fi_cq_err_entry entry{};
    entry.op_context = context;
    entry.err = error;
    failed.push_back(entry);
  }

 private:
  static int close(fid*) { return 0; }
  static int bind(fid*, fid* to, std::uint64_t) {
    return -current_->errors[to == &current_->queue_.fid ? bind_queue : bind_table];
  }
  static int control(fid*, int command, void* argument) {
    if (command == FI_ENABLE && current_->busy_names > 0) {
      --current_->busy_names;
      return -FI_EBUSY;
    }
    if (command == FI_ENABLE) return -current_->errors[enable];
    *static_cast<int*>(argument) = 0;  // FI_GETWAIT
    return 0;
  }
  static int open_queue(fid_domain*, fi_cq_attr* attributes, fid_cq** made, void*) {
    *made = &current_->queue_;
    if (attributes->wait_obj == FI_WAIT_FD && current_->queues_with_wait_error != 0)
      return -current_->queues_with_wait_error;
    return -current_->errors[queue];
  }
  static int open_table(fid_domain*, fi_av_attr*, fid_av** made, void*) {
    *made = &current_->table_;
    return -current_->errors[table];
  }
  static int open_endpoint(fid_domain*, fi_info*, fid_ep** made, void*) {
    *made = &current_->endpoint_;
    return -current_->errors[endpoint];
  }
  static int register_memory(fid*, const void*, std::size_t, std::uint64_t, std::uint64_t,
                             std::uint64_t, std::uint64_t, fid_mr** made, void*) {
    *made = &current_->region;
    const std::uint32_t number = current_->registers++;
    return number < current_->register_errors.size() ? -current_->register_errors[number] : 0;
  }
  static int name(fid_t, void* address, std::size_t* bytes) {
    *bytes = 16;
    std::memset(address, 1, *bytes);
    return -current_->errors[get_name];
  }
  static ssize_t read_queue(fid_cq*, void* entries, std::size_t most) {
    ++current_->reads;
    if (current_->read_error_code != 0) return -current_->read_error_code;
    if (!current_->failed.empty() || current_->is_error_lost) return -FI_EAVAIL;
    const std::size_t count = std::min(most, current_->done.size());
    if (count == 0) return -FI_EAGAIN;
    std::copy_n(current_->done.begin(), count, static_cast<fi_cq_data_entry*>(entries));
    current_->done.erase(current_->done.begin(),
                         current_->done.begin() + static_cast<std::ptrdiff_t>(count));
    return static_cast<ssize_t>(count);
  }
  static ssize_t read_error(fid_cq*, fi_cq_err_entry* entry, std::uint64_t) {
    if (current_->failed.empty()) return -FI_EAGAIN;
    *entry = current_->failed.front();
    current_->failed.pop_front();
    return 1;
  }
  ssize_t inject(Injected one) {
    const ssize_t error = inject_errors.empty() ? 0 : inject_errors.front();
    if (!inject_errors.empty()) inject_errors.pop_front();
    if (error == 0) injected.push_back(one);
    return -error;
  }
  ssize_t post(void* context) {
    if (post_error != 0) return -post_error;
    posted.push_back(context);
    return 0;
  }

  static inline FakeLibrary* current_ = nullptr;
  fi_ops fid_ops_{};
  fi_ops_fabric fabric_ops_{};
  fi_ops_domain domain_ops_{};
  fi_ops_mr memory_ops_{};
  fi_ops_cq queue_ops_{};
  fi_ops_av table_ops_{};
  fi_ops_cm cm_ops_{};
  fi_ops_rma rma_ops_{};
  fid_fabric fabric_{};
  fid_domain domain_{};
  fid_cq queue_{};
  fid_av table_{};
  fid_ep endpoint_{};
};

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

/// libfabric's shm, which injects up to 64 bytes.
class OfiInjects : public OfiError {
 protected:
  using Injected = std::vector<FakeLibrary::Injected>;

  OfiInjects() : OfiError("shm") {
    library.domain.choice.info->tx_attr->inject_size = 64;
    library.domain.choice.info->ep_attr->max_order_waw_size = 4096;
    library.domain.choice.info->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    start();
  }
  Result<net::Post> write_immediate(std::size_t length) {
    return links[0]->write_immediate({many.data(), &memory, {1000, 7}, length}, 5, note);
  }
  Result<net::Post> write_some(std::size_t length) {
    return links[0]->write({many.data(), &memory, {1000, 7}, length}, note);
  }
  void expect_is(Result<net::Post> answer, net::Post wanted) {
    ASSERT_TRUE(answer);
    EXPECT_EQ(*answer, wanted);
  }

  std::array<std::byte, 200> many{};
  Note note;
};

TEST_F(OfiInjects, WhatIsCopiedIsDone) {
  for (const std::size_t length : {0, 1, 64}) {
    library.injected.clear();
    expect_is(write_immediate(length), net::Post::done);
    EXPECT_EQ(library.injected, (Injected{{1000, length, 5}}));
  }
  library.injected.clear();
  const std::span<const std::byte> small = std::span(many).first(20);
  expect_is(links[0]->write_small(small, {1000, 7}, note), net::Post::done);
  expect_is(links[0]->write_small_immediate(small, {1000, 7}, 5, note), net::Post::done);
  expect_is(links[0]->write_small_wide(small, {1000, 7}, 5ULL << 32 | 6, note), net::Post::done);
  EXPECT_EQ(library.injected,
            (Injected{{1000, 20, std::nullopt}, {1000, 20, 5}, {1000, 20, 5ULL << 32 | 6}}));
  EXPECT_TRUE(library.posted.empty());
  EXPECT_EQ(note.ends, 0) << "what is done is not completed, too";
}

// Who looks at the beginning, or hears of it, has the rest.
TEST_F(OfiInjects, UpToTwicePartsTheBeginningLastAndItTellsThePeer) {
  for (const std::size_t length : {65, 128}) {
    library.injected.clear();
    expect_is(write_immediate(length), net::Post::done);
    const std::size_t front = std::max(length - 64, std::size_t{8});
    EXPECT_EQ(library.injected,
              (Injected{{1000 + front, length - front, std::nullopt}, {1000, front, 5}}));
  }
  expect_is(write_immediate(129), net::Post::posted);
  library.finish(library.posted.back());
  poll();
  EXPECT_EQ(note.ends, 1);
}

TEST_F(OfiInjects, WithoutAnImmediateTheBeginningIsWrittenLast) {
  for (const std::size_t length : {0, 1, 64}) {
    library.injected.clear();
    expect_is(write_some(length), net::Post::done);
    EXPECT_EQ(library.injected, (Injected{{1000, length, std::nullopt}}));
  }
  // The first word as a whole.
  library.injected.clear();
  for (const std::size_t length : {65, 72, 73, 128}) expect_is(write_some(length), net::Post::done);
  EXPECT_EQ(library.injected, (Injected{{1008, 57, std::nullopt},
                                        {1000, 8, std::nullopt},
                                        {1008, 64, std::nullopt},
                                        {1000, 8, std::nullopt},
                                        {1009, 64, std::nullopt},
                                        {1000, 9, std::nullopt},
                                        {1064, 64, std::nullopt},
                                        {1000, 64, std::nullopt}}));
  EXPECT_TRUE(library.posted.empty());
  expect_is(write_some(129), net::Post::posted);
  library.finish(library.posted.back());
  poll();
  EXPECT_EQ(note.ends, 1);

  library.injected.clear();
  library.inject_errors = {FI_EAGAIN};
  expect_is(write_some(100), net::Post::retry);
  EXPECT_TRUE(library.injected.empty()) << "the beginning without the rest";
  library.inject_errors = {0, FI_EAGAIN};
  expect_is(write_some(100), net::Post::retry);
  EXPECT_EQ(library.injected, (Injected{{1036, 64, std::nullopt}}));
}

TEST_F(OfiInjects, WhatIsRefusedInTheMiddleIsWrittenAgain) {
  library.inject_errors = {0, FI_EAGAIN};
  expect_is(write_immediate(100), net::Post::retry);
  library.inject_errors = {FI_EAGAIN};
  expect_is(write_immediate(100), net::Post::retry);
  EXPECT_EQ(library.injected, (Injected{{1036, 64, std::nullopt}}));
  library.injected.clear();
  expect_is(write_immediate(100), net::Post::done);
  EXPECT_EQ(library.injected, (Injected{{1036, 64, std::nullopt}, {1000, 36, 5}}));
}

TEST_F(OfiInjects, AnErrorEndsItsLink) {
  const Status error(Errc::kTransfer, FI_EACCES);
  library.inject_errors = {0, FI_EACCES};
  EXPECT_EQ(write_immediate(100).error(), error);
  EXPECT_EQ(write_immediate(1).error(), error);
  EXPECT_EQ(links[0]->failure(), error);
  EXPECT_TRUE(links[1]->failure().ok());
}

TEST_F(OfiError, OverSocketsNothingIsInjected) {
  library.domain.choice.info->tx_attr->inject_size = 64;
  library.domain.choice.info->ep_attr->max_order_waw_size = 4096;
  library.domain.choice.info->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  start();
  Note note;
  for (const std::size_t length : {0, 64})
    expect_posted(links[0]->write_immediate({bytes.data(), &memory, {0, 7}, length}, 5, note));
  expect_posted(links[0]->write_small(bytes, {0, 7}, note));
  EXPECT_TRUE(library.injected.empty());
  for (void* context : library.posted) library.finish(context);
  poll();
  EXPECT_EQ(note.ends, 3);
}

TEST_F(OfiError, WhateverIsRefusedAnEndpointIsOpenedOrNot) {
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

TEST_F(OfiError, WhoHasTheNumberOfAKilledProcessTakesTheNextNameThatIsFree) {
  library.busy_names = 3;
  EXPECT_TRUE(Endpoint::open(library.domain, heard));
  EXPECT_EQ(library.busy_names, 0);
  library.busy_names = 1000;
  EXPECT_EQ(Endpoint::open(library.domain, heard).error(), Status(Errc::kSystem, FI_EBUSY));
  EXPECT_GT(library.busy_names, 0) << "there is an end to it";
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

TEST_F(OfiError, WhatAPeerHasTriedAndWasRefusedIsNobodysError) {
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

TEST_F(OfiError, AnErrorOfALinkThatIsGoneSaysNothing) {
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

}  // namespace
}  // namespace larklane::ofi
