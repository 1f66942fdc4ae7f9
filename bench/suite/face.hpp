#pragma once
// A face sent between neighbours, in one of the ways that the patterns compare.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "measure/options.hpp"

namespace larklane::bench {

/// One end of a face.
struct FaceEnd {
  std::byte* data;
  std::uint64_t bytes;
  int peer;
  int route;  ///< distinguishes the faces between two ranks; the same at both ends
  bool is_sent;
  std::uint32_t threads, partitions;  ///< partitions: a multiple of threads
  std::uint64_t place;                ///< of the face in the receiver's memory, bytes
};

/// The calls of one round. Sender: start, ready of every partition, joined, finish. Receiver:
/// start, await_whole, arrived until it returns true, finish. Thread safety: several threads may
/// call ready() and arrived(), each for its own partitions. Everything else is single-owner, while
/// no other thread is in a call.
class Face {
 public:
  explicit Face(const FaceEnd& end) : end_(end) {}
  virtual ~Face() = default;
  Face(const Face&) = delete;
  Face& operator=(const Face&) = delete;

  virtual void start() = 0;
  /// Sender: `thread` has computed `partition`; `last`: this is the thread's last one.
  virtual void ready(std::uint32_t, std::uint32_t, bool) {}
  /// Sender: all threads have finished.
  virtual void joined() {}
  /// Receiver: waits for the parts that threads can't wait for one by one.
  virtual void await_whole() {}
  /// Receiver: `thread` checks once, after await_whole() unless only one thread calls.
  virtual bool arrived(std::uint32_t partition, std::uint32_t thread) = 0;
  virtual void finish() = 0;
  /// True if the face claims to be complete while a part is held back.
  virtual bool claims_completion() { return false; }

 protected:
  const FaceEnd end_;
};

/// One way on one rank: creates its faces, and owns their shared state. Thread safety:
/// single-owner.
class FaceWay {
 public:
  virtual ~FaceWay() = default;
  FaceWay(const FaceWay&) = delete;
  FaceWay& operator=(const FaceWay&) = delete;

  /// Called in the same order at both ends; the face must not outlive this. A face without a peer,
  /// MPI_PROC_NULL, does nothing and arrives at once.
  std::unique_ptr<Face> face(const FaceEnd& end);

 protected:
  FaceWay() = default;

 private:
  virtual std::unique_ptr<Face> make(const FaceEnd& end) = 0;
};

/// Collective over all ranks, as its destruction is.
/// @param name     a way of bench/benchmarks.def
/// @param options  `threads` is the same on all ranks; they outlive the way
/// @param memory   of this rank: contains all faces that it receives; outlives the way
/// @return null if this MPI can't
std::unique_ptr<FaceWay> make_face_way(const std::string& name, const Options& options,
                                       std::span<std::byte> memory);
/// Routes are below this.
inline constexpr int kRoutesMax = 32;
/// The highest tag that routes need.
int tag_max(std::uint32_t threads);

}  // namespace larklane::bench
