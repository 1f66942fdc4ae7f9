#pragma once
// One face on its way between neighbours, in one of the ways that the patterns compare.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace larklane::bench {

/// One end of it.
struct FaceEnd {
  std::byte* data;
  std::uint64_t bytes;
  int peer;
  int route;  ///< what tells it from other faces between the two; the same at both ends
  bool is_sent;
  std::uint32_t threads, partitions;  ///< partitions: a multiple of threads
  std::uint64_t place;                ///< of the face in the receiver's memory, bytes
};

/// The calls of one round: start; sent: ready of every partition, joined; received: await_whole,
/// arrived until it says so; finish.
/// Thread safety: ready() and arrived() by several threads, each with its own partitions;
/// everything else single-owner, while no other thread is in a call.
class Face {
 public:
  explicit Face(const FaceEnd& end) : end_(end) {}
  virtual ~Face() = default;
  Face(const Face&) = delete;
  Face& operator=(const Face&) = delete;

  virtual void start() = 0;
  /// Sent: `partition` has been computed by `thread`, whose last it is if `last`.
  virtual void ready(std::uint32_t, std::uint32_t, bool) {}
  /// Sent: all threads have finished.
  virtual void joined() {}
  /// Received: what threads can't wait for one by one.
  virtual void await_whole() {}
  /// Received: one look by `thread`, after await_whole() unless it is the only one.
  virtual bool arrived(std::uint32_t partition, std::uint32_t thread) = 0;
  virtual void finish() = 0;
  /// While a part is held back: does it claim to be complete?
  virtual bool claims_completion() { return false; }

 protected:
  const FaceEnd end_;
};

/// One way on one rank: makes its faces, and owns what they share.
/// Thread safety: single-owner.
class FaceWay {
 public:
  virtual ~FaceWay() = default;
  FaceWay(const FaceWay&) = delete;
  FaceWay& operator=(const FaceWay&) = delete;

  /// In the same way at both ends; not to outlive this. A face without a peer, MPI_PROC_NULL, does
  /// nothing and is there at once.
  std::unique_ptr<Face> face(const FaceEnd& end);

 protected:
  FaceWay() = default;

 private:
  virtual std::unique_ptr<Face> make(const FaceEnd& end) = 0;
};

/// Collective over all ranks, as its destruction is.
/// @param name     a way of bench/benchmarks.def
/// @param threads  the same on all ranks
/// @param memory   of this rank: all faces that it receives lie in it; outlives the way
/// @return null if this MPI can't
std::unique_ptr<FaceWay> make_face_way(const std::string& name, std::uint32_t threads,
                                       std::span<std::byte> memory);
/// Routes are below this.
inline constexpr int kRoutesMax = 32;
/// The highest tag that they need.
int tag_max(std::uint32_t threads);

}  // namespace larklane::bench
