// Boards of processes that run as threads: the cards that each process gets, and the error if one
// is missing.

#include <sched.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "boot_fixture.hpp"
#include "bootstrap/board.hpp"

namespace larklane::boot {
namespace {

/// How the processes of a test meet.
enum class Way : std::uint8_t { launcher, rank_0, folder, peers };

/// With a folder for files.
template <class Base>
class InFolder : public Base {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "larklane_boot_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

class BoardTest : public InFolder<testing::TestWithParam<Way>> {
 protected:
  /// Before run(), which runs `body` of each rank below `come` in a thread.
  using Body = std::function<void(Board&)>;
  void run(int size, int come, const char* wait, const Body& body) {
    std::unique_ptr<ServerThread> server;
    Settings settings{{"size", std::to_string(size)}, {"job", kJob}, {"boot_wait_ns", wait}};
    if (GetParam() == Way::launcher) {
      server = std::make_unique<ServerThread>(size);
      settings.emplace_back("meet", server->place());
    } else if (GetParam() == Way::rank_0) {
      settings.emplace_back("meet", "127.0.0.1:" + std::to_string(free_port()));
    } else {
      settings.emplace_back("board", folder_);
    }
    gather_all_.assign(static_cast<std::size_t>(size), {});
    gather_count_ = size;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < come; ++rank) {
      threads.emplace_back([&, rank] {
        std::string problem;
        Settings own = settings;
        own.emplace_back("rank", std::to_string(rank));
        auto board = GetParam() == Way::peers ? Board::open(peers_of(rank, size), &problem)
                                              : Board::open(config_of(own), &problem);
        ASSERT_TRUE(board) << problem;
        EXPECT_EQ((*board)->rank(), rank);
        EXPECT_EQ((*board)->size(), size);
        body(**board);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  static std::uint16_t free_port() {
    auto listener = listen_at({loopback(0)});
    return port_of(listener->get());
  }

  /// An all-gather between threads.
  Peers peers_of(int rank, int size) {
    return {rank, size, [this, rank](const void* own, std::size_t bytes, void* all) {
              std::unique_lock lock(gather_mutex_);
              const auto turn = gather_turn_;
              gather_all_[static_cast<std::size_t>(rank)].assign(static_cast<const char*>(own),
                                                                 bytes);
              if (--gather_count_ == 0) {
                gathered_.clear();
                for (const std::string& one : gather_all_) gathered_ += one;
                gather_count_ = static_cast<int>(gather_all_.size());
                ++gather_turn_;
                gather_done_.notify_all();
              }
              gather_done_.wait(lock, [&] { return gather_turn_ != turn; });
              std::memcpy(all, gathered_.data(), gathered_.size());
              return true;
            }};
  }

  Warnings warnings_;
  std::mutex gather_mutex_;
  std::condition_variable gather_done_;
  std::vector<std::string> gather_all_;
  std::string gathered_;
  int gather_count_ = 0;
  std::uint64_t gather_turn_ = 0;
};

std::string card_text(int rank) {
  return std::string(static_cast<std::size_t>(rank) * 7, 'c') + std::to_string(rank);
}

TEST_P(BoardTest, CardsOfSomePeersAndFences) {
  constexpr int kSize = 8;
  std::atomic<int> at_fence{0};
  run(kSize, kSize, "20s", [&](Board& board) {
    std::string problem;
    ASSERT_TRUE(board.publish(bytes_of(card_text(board.rank())), &problem).ok()) << problem;
    for (const int step : {1, 3}) {
      const int peer = (board.rank() + step) % kSize;
      auto card = board.card_of(peer, &problem);
      ASSERT_TRUE(card) << problem;
      EXPECT_EQ(text_of(*card), card_text(peer));
    }
    EXPECT_EQ(text_of(board.card_of(board.rank(), &problem).value()), card_text(board.rank()));
    for (int fence = 1; fence <= 3; ++fence) {
      at_fence.fetch_add(1, std::memory_order_relaxed);  // relaxed: the fence orders
      ASSERT_TRUE(board.fence(&problem).ok()) << problem;
      EXPECT_GE(at_fence.load(std::memory_order_relaxed), fence * kSize);
    }
  });
}

TEST_P(BoardTest, CardsComeWhileAnotherThreadIsAtTheFence) {
  std::atomic<bool> has_cards{false};
  run(2, 2, "5s", [&](Board& board) {
    std::string problem;
    ASSERT_TRUE(board.publish(bytes_of(card_text(board.rank())), &problem).ok()) << problem;
    if (board.rank() == 1) {  // comes when rank 0 has them
      has_cards.wait(false, std::memory_order_acquire);
      EXPECT_TRUE(board.fence(&problem).ok()) << problem;
      return;
    }
    std::thread at_fence([&] {
      std::string why;
      EXPECT_TRUE(board.fence(&why).ok()) << why;
    });
    for (int i = 0; i < 500; ++i) {
      auto card = board.card_of(1, &problem);
      EXPECT_TRUE(card) << problem;
      if (!card) break;
      EXPECT_EQ(text_of(*card), card_text(1));
      ::sched_yield();
    }
    has_cards.store(true, std::memory_order_release);  // pairs with the acquire above
    has_cards.notify_all();
    at_fence.join();
  });
}

TEST_P(BoardTest, MisuseChangesNothing) {
  run(2, 2, "20s", [&](Board& board) {
    std::string problem;
    EXPECT_EQ(board.card_of(0, &problem).error(), Status(Errc::kNotActive));
    EXPECT_EQ(board.publish(bytes_of(std::string(kCardBytesMax + 1, 'x')), &problem),
              Status(Errc::kInvalidArgument));
    EXPECT_NE(problem.find("4096"), std::string::npos) << problem;
    ASSERT_TRUE(board.publish(bytes_of(std::string(kCardBytesMax, 'x')), &problem).ok());
    EXPECT_EQ(board.publish(bytes_of("again"), &problem), Status(Errc::kAlreadyActive));
    for (const int rank : {-1, 2}) {
      EXPECT_EQ(board.card_of(rank, &problem).error(), Status(Errc::kInvalidArgument));
      EXPECT_NE(problem.find("0..1"), std::string::npos) << problem;
    }
    auto card = board.card_of(1 - board.rank(), &problem);
    ASSERT_TRUE(card) << problem;
    EXPECT_EQ(card->size(), kCardBytesMax);
    EXPECT_TRUE(board.fence(&problem).ok()) << problem;
  });
}

TEST_P(BoardTest, AMissingRankIsNamedInTime) {
  if (GetParam() == Way::peers) GTEST_SKIP() << "the all-gather is the program's";
  // Three of four ranks; rank 1 publishes nothing until rank 0 has asked in vain.
  std::atomic<bool> has_asked{false};
  run(4, 3, "150ms", [&](Board& board) {
    std::string problem;
    if (board.rank() == 0) {
      ASSERT_TRUE(board.publish(bytes_of("zero"), &problem).ok()) << problem;
      const std::uint64_t begin = now_ns();
      EXPECT_EQ(board.card_of(3, &problem).error(), Status(Errc::kUnreachable, ETIMEDOUT));
      EXPECT_GE(now_ns() - begin, 150'000'000U);
      EXPECT_EQ(problem, "rank 3 has not published its card within 150 ms");
      EXPECT_EQ(board.card_of(1, &problem).error(), Status(Errc::kUnreachable, ETIMEDOUT));
      has_asked.store(true, std::memory_order_release);  // pairs with the acquire below
      has_asked.notify_all();
      Result<Card> card = Errc::kUnreachable;
      for (int turn = 0; turn < 100 && !card; ++turn) card = board.card_of(1, &problem);
      ASSERT_TRUE(card) << problem;
      EXPECT_EQ(text_of(*card), "late");
    } else if (board.rank() == 1) {
      has_asked.wait(false, std::memory_order_acquire);
      ASSERT_TRUE(board.publish(bytes_of("late"), &problem).ok()) << problem;
    }
    const Status status = board.fence(&problem);
    // The first rank whose time is over ends, so the others name that rank; if it served the cards,
    // they see only its end.
    const bool is_named =
        problem.find("did not come to the fence within 150 ms") != std::string::npos ||
        problem.find("has ended before the fence") != std::string::npos ||
        problem.find("who serves the cards") != std::string::npos;
    EXPECT_FALSE(status.ok());
    EXPECT_TRUE(is_named) << problem;
    std::string again;
    EXPECT_EQ(board.fence(&again), status);
    EXPECT_EQ(again, problem);
    EXPECT_EQ(board.card_of(0, &again).error().ok(), false);
  });
}

TEST_P(BoardTest, TheAbsentAreNamedAtAFence) {
  if (GetParam() == Way::peers) GTEST_SKIP() << "the all-gather is the program's";
  run(4, 1, "100ms", [&](Board& board) {
    std::string problem;
    EXPECT_EQ(board.fence(&problem), Status(Errc::kUnreachable, ETIMEDOUT));
    EXPECT_EQ(problem, "ranks 1-3 did not come to the fence within 100 ms");
  });
}

std::string name_of(const testing::TestParamInfo<Way>& tested) {
  static constexpr const char* kNames[] = {"Launcher", "Rank0", "Folder", "Peers"};
  return kNames[static_cast<std::size_t>(tested.param)];
}
INSTANTIATE_TEST_SUITE_P(Ways, BoardTest,
                         testing::Values(Way::launcher, Way::rank_0, Way::folder, Way::peers),
                         name_of);

class OpenTest : public testing::Test {
 protected:
  /// Expects each part in the error's text.
  static void expect_refused(const Settings& settings, const std::vector<std::string>& parts,
                             Errc code = Errc::kBadOption) {
    std::string problem;
    const auto board = Board::open(config_of(settings), &problem);
    EXPECT_EQ(board.error().code(), code) << problem;
    for (const std::string& part : parts)
      EXPECT_NE(problem.find(part), std::string::npos) << problem << "\nwithout " << part;
  }
  Warnings warnings_;
};

TEST_F(OpenTest, AProcessWithoutALauncherIsAlone) {
  for (const Settings& settings :
       {Settings{}, Settings{{"job", "x"}}, Settings{{"size", "1"}, {"rank", "0"}}}) {
    std::string problem;
    auto board = Board::open(config_of(settings), &problem);
    ASSERT_TRUE(board) << problem;
    EXPECT_EQ((*board)->size(), 1);
    EXPECT_EQ((*board)->rank(), 0);
    EXPECT_TRUE((*board)->publish(bytes_of("me"), &problem).ok());
    EXPECT_EQ(text_of((*board)->card_of(0, &problem).value()), "me");
    EXPECT_TRUE((*board)->fence(&problem).ok());
  }
}

TEST_F(OpenTest, WrongVariablesAreNamed) {
  const Settings whole{{"rank", "1"}, {"size", "2"}, {"meet", "h:1"}, {"job", "j"}};
  const auto without = [&](std::string_view name) {
    Settings less;
    for (const auto& one : whole)
      if (one.first != name) less.push_back(one);
    return less;
  };
  const auto with = [&](const char* name, const std::string& value) {
    Settings other = without(name);
    other.emplace_back(name, value);
    return other;
  };
  expect_refused(without("size"), {"LARKLANE_SIZE is not set", "accepted:"});
  expect_refused(without("rank"), {"LARKLANE_RANK is not set", "accepted: 0..1"});
  expect_refused(without("meet"), {"LARKLANE_MEET is not set", "HOST:PORT", "LARKLANE_BOARD"});
  expect_refused(without("job"), {"LARKLANE_JOB is not set", "64 characters"});
  expect_refused(with("rank", "2"), {"LARKLANE_RANK is \"2\"", "0..1", "LARKLANE_SIZE is 2"});
  expect_refused(with("job", std::string(65, 'j')),
                 {"LARKLANE_JOB is a text of 65 bytes", "64 characters"});
  expect_refused(with("job", "two words"), {"LARKLANE_JOB is a text of 9 bytes", "without blanks"});
  expect_refused(with("board", "/tmp"), {"LARKLANE_BOARD is \"/tmp\"", "LARKLANE_MEET is \"h:1\""});
  for (const char* place : {"h", ":1", "h:", "h:x", "h:0", "h:65536", "h:-1", "[]:1", "::1:5"})
    expect_refused(with("meet", place), {std::string("LARKLANE_MEET is \"") + place, "HOST:PORT"});
  expect_refused({{"board", "/nonexistent/folder"}, {"rank", "0"}, {"size", "1"}, {"job", "j"}},
                 {"LARKLANE_BOARD is \"/nonexistent/folder\"", "No such file", "accepted:"},
                 Errc::kSystem);
  expect_refused({{"meet", "no host:1"}, {"rank", "1"}, {"size", "2"}, {"job", "j"}},
                 {"LARKLANE_MEET is no host:1"});
}

TEST_F(OpenTest, AnAddressWithoutAListenerIsRefused) {
  std::string place;
  {
    const ServerThread gone(2);
    place = gone.place();
  }
  expect_refused(
      {{"meet", place}, {"rank", "1"}, {"size", "2"}, {"job", "j"}, {"boot_wait_ns", "100ms"}},
      {place, "Connection refused", "for 100 ms"}, Errc::kUnreachable);
}

TEST_F(OpenTest, AnotherJobIsNotJoined) {
  const ServerThread server(2);
  expect_refused({{"meet", server.place()},
                  {"rank", "1"},
                  {"size", "2"},
                  {"job", "other"},
                  {"boot_wait_ns", "100ms"}},
                 {server.place(), "another job", "LARKLANE_JOB"}, Errc::kUnreachable);
  EXPECT_NE(warnings_.take().find("LARKLANE_JOB"), std::string::npos);
}

/// Answers every connection to one port, since a process tries again until its time is over.
class Answering {
 public:
  explicit Answering(std::function<void(int fd)> answer)
      : listener_(std::move(*listen_at({loopback(0)}))), thread_([this, answer] {
          pollfd polled{listener_.get(), POLLIN, 0};
          while (!ends_.load(std::memory_order_relaxed)) {  // relaxed: it says nothing else
            if (::poll(&polled, 1, 1) != 1) continue;
            const UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
            answer(fd.get());
          }
        }) {}
  ~Answering() {
    ends_.store(true, std::memory_order_relaxed);  // relaxed: as above
    thread_.join();
  }
  std::string place() const { return "127.0.0.1:" + std::to_string(port_of(listener_.get())); }

 private:
  std::atomic<bool> ends_{false};
  UniqueFd listener_;
  std::thread thread_;
};

TEST_F(OpenTest, AStrangerAtThePortIsNamed) {
  const Answering stranger([](int fd) {
    const char text[] = "220 some mail server, ready since a long time\r\n";
    ::send(fd, text, sizeof text, MSG_NOSIGNAL);
  });
  // Rank 0 does not serve at an address that is already served.
  expect_refused({{"meet", stranger.place()},
                  {"rank", "0"},
                  {"size", "2"},
                  {"job", "j"},
                  {"boot_wait_ns", "300ms"}},
                 {stranger.place(), "is not Larklane"}, Errc::kUnreachable);
}

TEST_F(OpenTest, AServerWithoutTheSecretIsRefused) {
  const Answering impostor([](int fd) {
    const Challenge challenge;
    ::send(fd, &challenge, sizeof challenge, MSG_NOSIGNAL);
    Hello hello;
    ::recv(fd, &hello, sizeof hello, MSG_WAITALL);
    Welcome welcome;
    welcome.proof = hello.proof;  // the only proof that it has seen
    ::send(fd, &welcome, sizeof welcome, MSG_NOSIGNAL);
  });
  expect_refused({{"meet", impostor.place()},
                  {"rank", "1"},
                  {"size", "2"},
                  {"job", "j"},
                  {"boot_wait_ns", "300ms"}},
                 {impostor.place(), "another job"}, Errc::kUnreachable);
}

TEST_F(OpenTest, ALateAnswerIsNotTakenForAnother) {
  const ServerThread server(3);
  std::string problem;
  auto board = Board::open(config_of({{"meet", server.place()},
                                      {"rank", "0"},
                                      {"size", "3"},
                                      {"job", kJob},
                                      {"boot_wait_ns", "100ms"}}),
                           &problem);
  ASSERT_TRUE(board) << problem;
  ASSERT_TRUE((*board)->publish(bytes_of("zero"), &problem).ok());
  RawProcess one(server.port()), two(server.port());
  ASSERT_TRUE(one.introduce(1, 3) && two.introduce(2, 3));
  EXPECT_EQ((*board)->card_of(1, &problem).error(), Status(Errc::kUnreachable, ETIMEDOUT));
  for (const auto& [process, card] : {std::pair{&one, "one"}, {&two, "two"}}) {
    process->send(packed(Kind::publish, 0, bytes_of(card)));
    process->send(packed(Kind::who, 0));  // answered when the card has been passed on
    ASSERT_TRUE(process->next());
  }
  EXPECT_EQ(text_of((*board)->card_of(2, &problem).value()), "two");
  EXPECT_EQ(text_of((*board)->card_of(1, &problem).value()), "one");
}

TEST_F(OpenTest, TwoOfOneRankAndOtherSizesAreRefusedAtOnce) {
  const ServerThread server(2);
  const Settings settings{{"meet", server.place()}, {"rank", "1"}, {"size", "2"}, {"job", kJob}};
  std::string problem;
  const auto board = Board::open(config_of(settings), &problem);
  ASSERT_TRUE(board) << problem;
  expect_refused(settings, {"rank 1 has come before", "LARKLANE_RANK"}, Errc::kProtocol);
  Settings other = settings;
  other[2].second = "3";
  expect_refused(other, {"LARKLANE_SIZE is 3 here"}, Errc::kProtocol);
}

TEST_F(OpenTest, TheEndOfTheServerIsReported) {
  ServerThread server(2);
  std::string problem;
  auto board = Board::open(
      config_of({{"meet", server.place()}, {"rank", "1"}, {"size", "2"}, {"job", kJob}}), &problem);
  ASSERT_TRUE(board) << problem;
  ASSERT_TRUE((*board)->publish(bytes_of("x"), &problem).ok());
  server.stop();
  EXPECT_EQ((*board)->card_of(0, &problem).error().code(), Errc::kSystem);
  EXPECT_NE(problem.find("rank 0 or the launcher"), std::string::npos) << problem;
  EXPECT_EQ((*board)->fence(&problem).code(), Errc::kSystem);
}

TEST_F(OpenTest, PeersThatMakeNoSenseAreRefused) {
  const auto gather = [](const void*, std::size_t, void*) { return false; };
  std::string problem;
  for (Peers peers :
       {Peers{0, 0, gather}, Peers{-1, 2, gather}, Peers{2, 2, gather}, Peers{0, 1, {}}}) {
    EXPECT_EQ(Board::open(std::move(peers), &problem).error(), Status(Errc::kInvalidArgument));
    EXPECT_NE(problem.find("accepted:"), std::string::npos);
  }
  auto board = Board::open(Peers{0, 2, gather}, &problem);
  ASSERT_TRUE(board);
  EXPECT_EQ((*board)->publish(bytes_of("x"), &problem).code(), Errc::kSystem);
  EXPECT_NE(problem.find("all-gather has failed"), std::string::npos);
}

/// Files that other processes have left.
class FolderTest : public InFolder<OpenTest> {
 protected:
  Settings settings(int rank, const std::string& job, const std::string& size = "2") const {
    return {{"board", folder_},
            {"rank", std::to_string(rank)},
            {"size", size},
            {"job", job},
            {"boot_wait_ns", "50ms"}};
  }
  std::unique_ptr<Board> board(const Settings& settings) {
    auto opened = Board::open(config_of(settings), &problem_);
    EXPECT_TRUE(opened) << problem_;
    if (!opened) return nullptr;
    EXPECT_TRUE((*opened)->publish(bytes_of("card"), &problem_).ok()) << problem_;
    return std::move(opened).value();
  }
  std::filesystem::path job_folder() const {
    return std::filesystem::directory_iterator(folder_)->path();
  }
  std::string problem_;
};

TEST_F(FolderTest, EarlierJobsAreNotSeen) {
  board(settings(1, "first"));
  const auto other = board(settings(0, "second"));
  EXPECT_EQ(other->card_of(1, &problem_).error(), Status(Errc::kUnreachable, ETIMEDOUT));
  expect_refused(settings(1, "first"), {"rank 1 has come before", "LARKLANE_JOB"}, Errc::kProtocol);
}

TEST_F(FolderTest, DamagedCardsAreNamed) {
  const auto own = board(settings(0, "job"));
  board(settings(1, "job"));
  const auto path = job_folder() / "card.1";
  const auto size = std::filesystem::file_size(path);
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(size) - 1);
    file.put('x');
  }
  const auto reader = board(settings(90, "job", "100"));
  EXPECT_EQ(reader->card_of(1, &problem_).error().code(), Errc::kProtocol);
  EXPECT_NE(problem_.find("card.1 is no card"), std::string::npos) << problem_;
  for (const auto bytes : {size - 1, std::uintmax_t{31}, std::uintmax_t{0}}) {
    std::filesystem::resize_file(path, bytes);
    const auto again = board(settings(2 + static_cast<int>(bytes), "job", "100"));
    EXPECT_EQ(again->card_of(1, &problem_).error().code(), Errc::kProtocol);
    EXPECT_NE(problem_.find("card.1 is no card"), std::string::npos) << problem_;
  }
  EXPECT_EQ(own->card_of(1, &problem_).error().code(), Errc::kProtocol);
}

TEST_F(FolderTest, OtherSizesAreNamed) {
  const auto own = board(settings(0, "job"));
  board(settings(1, "job", "3"));
  EXPECT_EQ(own->card_of(1, &problem_).error().code(), Errc::kProtocol);
  EXPECT_NE(problem_.find("LARKLANE_SIZE is 2 here, but 3 for rank 1"), std::string::npos);
}

TEST_F(FolderTest, AFolderThatOthersMayWriteIsRefused) {
  board(settings(0, "job"));
  ASSERT_EQ(::chmod(job_folder().c_str(), 0777), 0);
  expect_refused(settings(1, "job"), {"LARKLANE_BOARD", "not permitted"}, Errc::kSystem);
}

}  // namespace
}  // namespace larklane::boot
