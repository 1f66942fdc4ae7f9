// The profile recorder and its file.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "profile/recorder.hpp"

namespace larklane::profile {
namespace {

constexpr std::uint64_t kPlenty = 64 << 20;

class RecorderTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "recorder_" + std::to_string(::getpid()) + ".larkprof";
    ::unlink(path_.c_str());
  }
  void TearDown() override { ::unlink(path_.c_str()); }

  std::unique_ptr<Recorder> create(std::uint64_t bytes_max, bool has_writes = false) {
    Facts facts;
    facts.has_writes = has_writes;
    facts.rank = 3;
    facts.program = "app";
    auto made = Recorder::create(path_, facts, bytes_max);
    EXPECT_TRUE(made.has_value()) << std::strerror(made.error().detail());
    return made ? std::move(*made) : nullptr;
  }
  static Record numbered(std::uint64_t number) { return {.value = number, .kind = Kind::ready}; }
  static void write(Recorder& recorder, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) recorder.write(numbered(i));
  }

  /// The contents that a reader finds: the values of each chunk's records, in the order of the file
  /// but the full ones of a thread first.
  struct Found {
    FileHeader* header;
    std::vector<std::uint32_t> threads;
    std::vector<std::vector<std::uint64_t>> values;
    std::size_t total = 0;
  };
  Found read() {
    std::ifstream file(path_, std::ios::binary);
    data_.assign(std::istreambuf_iterator<char>(file), {});
    EXPECT_GE(data_.size(), kHeaderBytes);
    Found found{reinterpret_cast<FileHeader*>(data_.data()), {}, {}};
    std::vector<const Chunk*> chunks;
    for (std::size_t at = kHeaderBytes; at < data_.size(); at += sizeof(Chunk)) {
      chunks.push_back(reinterpret_cast<const Chunk*>(data_.data() + at));
      EXPECT_EQ(chunks.back()->magic, Chunk::kMagicNumber);
    }
    std::ranges::stable_sort(chunks, {}, [](const Chunk* chunk) {
      return std::pair(chunk->thread, chunk->sequence.load(std::memory_order_relaxed));
    });
    for (const Chunk* const chunk : chunks) {
      found.threads.push_back(chunk->thread);
      const std::uint32_t count = chunk->count.load(std::memory_order_relaxed);
      std::vector<std::uint64_t>& values = found.values.emplace_back();
      for (std::uint32_t i = 0; i < count; ++i) values.push_back(chunk->records[i].value);
      found.total += count;
    }
    return found;
  }
  /// In a child; @return its status as waitpid gives it
  template <class Body>
  static int in_child(Body body) {
    const pid_t child = ::fork();
    if (child == 0) {
      body();
      ::_exit(0);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    return status;
  }

  std::string path_;
  std::vector<char> data_;
};

TEST_F(RecorderTest, RecordsAreInTheFileAtOnce) {
  const auto recorder = create(kPlenty);
  ASSERT_NE(recorder, nullptr);
  write(*recorder, 2000);
  const Found found = read();
  EXPECT_EQ(std::memcmp(found.header->magic, kMagic, sizeof kMagic), 0);
  EXPECT_EQ(found.header->rank, 3);
  EXPECT_STREQ(found.header->program, "app");
  EXPECT_EQ(found.header->end_ns.load(std::memory_order_relaxed), 0u);
  ASSERT_EQ(found.values.size(), 2u);
  EXPECT_EQ(found.total, 2000u);
  for (std::uint64_t i = 0; i < 2000; ++i)
    EXPECT_EQ(found.values[i / Chunk::kRecords][i % Chunk::kRecords], i);
  EXPECT_EQ(recorder->number_request(), 1u);
  recorder->finish();
  EXPECT_NE(read().header->end_ns.load(std::memory_order_relaxed), 0u);
}

TEST_F(RecorderTest, RecordsThatDoNotFitAreCounted) {
  const auto recorder = create(kHeaderBytes + 2 * sizeof(Chunk));
  ASSERT_NE(recorder, nullptr);
  write(*recorder, 3 * Chunk::kRecords);
  const Found found = read();
  EXPECT_EQ(found.total, 2 * Chunk::kRecords);
  EXPECT_EQ(recorder->dropped_count(), Chunk::kRecords);
  EXPECT_EQ(recorder->dropped_errno(), 0);
  EXPECT_GE(found.header->full_since_ns.load(std::memory_order_relaxed), found.header->begin_ns);
}

TEST_F(RecorderTest, AKilledProcessLeavesItsRecords) {
  const int status = in_child([this] {
    const auto recorder = create(kPlenty);
    write(*recorder, 5000);
    ::raise(SIGKILL);
  });
  EXPECT_TRUE(WIFSIGNALED(status));
  const Found found = read();
  EXPECT_EQ(found.total, 5000u);
  EXPECT_EQ(found.header->end_ns.load(std::memory_order_relaxed), 0u);
}

TEST_F(RecorderTest, AFullDiskEndsTheRecordingNotTheProcess) {
  const int status = in_child([this] {
    const auto recorder = create(kPlenty);
    const rlimit limit{kHeaderBytes + sizeof(Chunk), kHeaderBytes + sizeof(Chunk)};
    ::signal(SIGXFSZ, SIG_IGN);
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(1);
    write(*recorder, 2 * Chunk::kRecords);
    ::_exit(recorder->dropped_count() == Chunk::kRecords && recorder->dropped_errno() == EFBIG ? 0
                                                                                               : 2);
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read().total, Chunk::kRecords);
}

// This process does not ignore the signal: it would end the program.
TEST_F(RecorderTest, FilesOfThisProcessMayBeShort) {
  const auto of_limit = [this](rlim_t bytes) {
    return in_child([this, bytes] {
      const rlimit limit{bytes, bytes};
      if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(1);
      auto made = Recorder::create(path_, {}, kPlenty);
      if (!made) ::_exit(made.error() == Status(Errc::kSystem, EFBIG) ? 3 : 4);
      write(**made, 3 * Chunk::kRecords);
      ::_exit((*made)->dropped_errno() == EFBIG ? 0 : 2);
    });
  };
  EXPECT_EQ(of_limit(kHeaderBytes + 5 * sizeof(Chunk) / 2), 0);
  EXPECT_EQ(read().total, 2 * Chunk::kRecords);
  ::unlink(path_.c_str());
  const int status = of_limit(kHeaderBytes);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3) << status;
}

// A program that closes all descriptors, and opens a file of its own, which gets the same number.
TEST_F(RecorderTest, AFileOfTheProgramIsNeverWrittenTo) {
  const std::string precious = path_ + ".precious";
  const int status = in_child([&] {
    const int lowest = ::dup(0);
    ::close(lowest);
    const auto recorder = create(kPlenty);
    write(*recorder, 1);
    ::close(lowest);
    if (::open(precious.c_str(), O_CREAT | O_RDWR, 0600) != lowest) ::_exit(1);
    write(*recorder, 2 * Chunk::kRecords);
    ::_exit(recorder->dropped_errno() == EBADF ? 0 : 2);
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(std::filesystem::file_size(precious), 0u);
  ::unlink(precious.c_str());
  EXPECT_EQ(read().total, Chunk::kRecords);
}

TEST_F(RecorderTest, AThreadThatEndsLeavesItsPlaceToTheNext) {
  const auto recorder = create(kPlenty);
  ASSERT_NE(recorder, nullptr);
  for (int i = 0; i < 100; ++i) std::thread([&] { write(*recorder, 10); }).join();
  const Found found = read();
  ASSERT_EQ(found.values.size(), 1u);
  EXPECT_EQ(found.total, 1000u);
}

TEST_F(RecorderTest, AThreadMayLeaveAFullChunk) {
  const auto recorder = create(kPlenty);
  ASSERT_NE(recorder, nullptr);
  write(*recorder, 1);
  std::thread([&] { write(*recorder, Chunk::kRecords); }).join();
  std::thread([&] { write(*recorder, 1); }).join();
  const Found found = read();
  ASSERT_EQ(found.values.size(), 3u);
  EXPECT_EQ(found.values[1].size(), Chunk::kRecords);
  EXPECT_EQ(found.values[2], std::vector<std::uint64_t>{0});
  EXPECT_EQ(found.threads, (std::vector<std::uint32_t>{0, 1, 1}));
}

TEST_F(RecorderTest, AThreadThatIsAskedForIsWaitedFor) {
  const auto recorder = create(kPlenty, true);
  ASSERT_NE(recorder, nullptr);
  write(*recorder, 1);
  EXPECT_EQ(recorder->number_of_thread(::gettid()), 0u);
  EXPECT_EQ(recorder->number_of_thread(-1), 1u);  // no thread of ours: no other thread gets its
                                                  // number
  int ended = 0;
  std::thread([&] {
    ended = ::gettid();
    write(*recorder, 2);
    EXPECT_EQ(recorder->number_of_thread(ended), 2u);
  }).join();
  EXPECT_EQ(recorder->number_of_thread(ended), 2u);
  std::thread([&] {
    const std::uint32_t number = recorder->number_of_thread(::gettid());
    write(*recorder, 3);
    EXPECT_EQ(read().threads.back(), number);
    EXPECT_EQ(recorder->number_of_thread(::gettid()), number);
  }).join();
}

TEST_F(RecorderTest, ThreadsDoNotMix) {
  const auto recorder = create(kPlenty);
  ASSERT_NE(recorder, nullptr);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { write(*recorder, 10000); });
  for (std::thread& thread : threads) thread.join();
  const Found found = read();
  EXPECT_EQ(found.total, 40000u);
  EXPECT_EQ(recorder->dropped_count(), 0u);
  for (const auto& values : found.values) {
    for (std::size_t i = 1; i < values.size(); ++i)
      EXPECT_TRUE(values[i] == values[i - 1] + 1 || values[i] == 0);
  }
}

TEST_F(RecorderTest, AFileThatIsThereIsLeftAlone) {
  std::ofstream(path_) << "precious";
  const auto made = Recorder::create(path_, {}, kPlenty);
  EXPECT_EQ(made.error(), Status(Errc::kSystem, EEXIST));
  const auto nowhere = Recorder::create(path_ + "/x", {}, kPlenty);
  EXPECT_EQ(nowhere.error(), Status(Errc::kSystem, ENOTDIR));
}

}  // namespace
}  // namespace larklane::profile
