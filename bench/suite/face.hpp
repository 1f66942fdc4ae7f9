#pragma once
// One face on its way between neighbours, in one of the ways that the patterns compare.

#include <cstddef>
#include <cstdint>
#include <memory>
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

/// At both ends the same. A face without a peer, MPI_PROC_NULL, does nothing and is there at once.
/// @param name  one of face_way_names()   @return null if this MPI can't
std::unique_ptr<Face> make_face(const std::string& name, const FaceEnd& end);
const std::vector<std::string>& face_way_names();
/// Routes are below this.
inline constexpr int kRoutesMax = 32;
/// The highest tag that they need.
int tag_max(std::uint32_t threads);

}  // namespace larklane::bench
