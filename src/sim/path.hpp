#pragma once
// How a message of partitions gets from one side to the other. Its functions run on virtual
// threads.

#include <cstdint>

namespace larklane::sim {

/// Thread safety: single-owner; ready() is thread-safe among virtual threads.
class Path {
 public:
  Path() = default;
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;
  virtual ~Path() = default;

  /// Start, on both sides.
  virtual void start(std::uint64_t round) = 0;
  /// The sender's thread says that a partition is ready. @return false: the engine refused it
  virtual bool ready(std::uint64_t round, std::uint32_t partition) = 0;
  /// The receiver's thread waits until everything is there.
  virtual void receive(std::uint64_t round) = 0;
  /// How many transfers of partitions the round had.
  virtual std::uint32_t transfers() const = 0;
};

}  // namespace larklane::sim
