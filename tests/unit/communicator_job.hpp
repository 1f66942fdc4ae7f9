#pragma once
// Communicators of the processes of a job.

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "msg/protocol/communicator.hpp"
#include "net/shm/network_fabric.hpp"
#include "unit/msg_job.hpp"

namespace larklane::msg {

using Mode = Communicator::Mode;

inline ContextId id_of(std::uint64_t number) { return {number, number * 0x9e37'79b9'7f4a'7c15}; }
inline UserBytes bytes_of(std::vector<std::byte>& bytes) { return {bytes.data(), bytes.size()}; }
inline UserBytes bytes_of(std::uint64_t& value) {
  return {reinterpret_cast<std::byte*>(&value), sizeof value};
}

inline Job::Options over_shm() {
  Job::Options options;
  options.decorate = [](std::unique_ptr<net::Fabric>, int) {
    std::string reason;
    return std::move(shm::open_network({}, &reason)).value();
  };
  return options;
}

enum class Lanes : std::uint8_t { one, by_tag };
inline Job::Options options_of(Lanes lanes, Job::Options with_one = {}) {
  if (lanes == Lanes::one) return with_one;
  Job::Options options = over_shm();
  options.lanes.count_max = 4;
  options.lanes_by_tag = true;
  return options;
}
inline std::string name_of(const testing::TestParamInfo<Lanes>& lanes) {
  return lanes.param == Lanes::one ? "OneLane" : "LanesByTag";
}

class CommunicatorBase : public testing::Test {
 protected:
  explicit CommunicatorBase(Job::Options options = {}) : job_(std::move(options)) {}

  Engine& engine(int rank) { return *job_.at(rank).engine; }
  Communicator& open(int rank, std::uint64_t number, Hints hints = {}) {
    if (job_.options.lanes_by_tag) hints.lanes_by_tag = Hints::LanesByTag::by_visibility;
    std::vector<int> members(static_cast<std::size_t>(job_.options.size));
    std::iota(members.begin(), members.end(), 0);
    auto opened = engine(rank).open(id_of(number), members, rank, hints);
    EXPECT_TRUE(opened) << errc_name(opened.error().code());
    return **opened;
  }
  std::vector<Communicator*> open_all(std::uint64_t number, const Hints& hints = {}) {
    std::vector<Communicator*> all;
    all.reserve(static_cast<std::size_t>(job_.options.size));
    for (int rank = 0; rank < job_.options.size; ++rank) all.push_back(&open(rank, number, hints));
    return all;
  }
  /// Null: complete.
  static Pending* send(Communicator& from, int to, std::uint32_t tag, UserBytes bytes,
                       Mode mode = Mode::standard) {
    auto sent = from.send(to, tag, bytes, mode);
    EXPECT_TRUE(sent) << errc_name(sent.error().code());
    return sent ? *sent : nullptr;
  }
  static Pending& receive(Communicator& at, int from, std::int64_t tag, UserBytes to) {
    auto posted = at.receive(from, tag, to);
    EXPECT_TRUE(posted) << errc_name(posted.error().code());
    return **posted;
  }
  Outcome finish(Pending* pending) {
    if (pending == nullptr) return {};
    for (int i = 0; i < 100'000 && !is_done(*pending); ++i) job_.step();
    EXPECT_TRUE(is_done(*pending)) << "nothing comes";
    const Outcome end = outcome(*pending);
    if (is_done(*pending)) release(*pending);
    return end;
  }
  /// A value arrives, as a message of its own.
  void expect_value(Communicator& at, int from, std::int64_t tag, std::uint64_t wanted) {
    std::uint64_t value = 0;
    const Outcome end = finish(&receive(at, from, tag, bytes_of(value)));
    EXPECT_TRUE(end.status.ok()) << errc_name(end.status.code());
    EXPECT_EQ(value, wanted);
  }

  /// Longest message that is copied.
  std::uint64_t eager() const { return job_.options.lanes_by_tag ? kEager - 8 : kEager; }

  Job job_;
};

class CommunicatorShmTest : public CommunicatorBase {
 protected:
  CommunicatorShmTest() : CommunicatorBase(over_shm()) {}
};

}  // namespace larklane::msg
