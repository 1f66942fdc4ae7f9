// Faces: one message that one thread sends after the join, a message a thread, partitions.

#include "face.hpp"

#include <mpi.h>

#include <algorithm>

#include "partitioned.hpp"
#include "wait.hpp"

namespace larklane::bench {
namespace {

constexpr int kTag = 1000;

int count_of(std::uint64_t bytes) { return static_cast<int>(bytes); }

/// Beyond the edge.
class Nobody final : public Face {
 public:
  using Face::Face;
  void start() override {}
  bool arrived(std::uint32_t, std::uint32_t) override { return true; }
  void finish() override {}
};

/// What the original suite calls single: one thread communicates, the others have joined.
class Single final : public Face {
 public:
  using Face::Face;

  void start() override {
    is_over_ = false;
    if (!end_.is_sent)
      MPI_Irecv(end_.data, count_of(end_.bytes), MPI_BYTE, end_.peer, kTag + end_.route,
                MPI_COMM_WORLD, &request_);
  }
  void joined() override {
    MPI_Isend(end_.data, count_of(end_.bytes), MPI_BYTE, end_.peer, kTag + end_.route,
              MPI_COMM_WORLD, &request_);
  }
  void await_whole() override {
    wait_until([&] { return arrived(0, 0); });
  }
  bool arrived(std::uint32_t, std::uint32_t) override {
    if (is_over_) return true;  // of several threads none gets further
    int flag = 0;
    MPI_Test(&request_, &flag, MPI_STATUS_IGNORE);
    is_over_ = flag != 0;
    return is_over_;
  }
  void finish() override { await_whole(); }

 private:
  MPI_Request request_ = MPI_REQUEST_NULL;
  bool is_over_ = false;
};

/// Each thread communicates what it computes.
class Multiple final : public Face {
 public:
  explicit Multiple(const FaceEnd& end)
      : Face(end),
        share_(end.bytes / end.threads),
        requests_(end.threads, MPI_REQUEST_NULL),
        is_over_(end.threads) {}

  void start() override {
    std::ranges::fill(is_over_, false);
    if (end_.is_sent) return;
    for (std::uint32_t t = 0; t < end_.threads; ++t)
      MPI_Irecv(end_.data + t * share_, count_of(share_), MPI_BYTE, end_.peer, tag_of(t),
                MPI_COMM_WORLD, &requests_[t]);
  }
  void ready(std::uint32_t, std::uint32_t thread, bool last) override {
    if (last)
      MPI_Isend(end_.data + thread * share_, count_of(share_), MPI_BYTE, end_.peer, tag_of(thread),
                MPI_COMM_WORLD, &requests_[thread]);
  }
  bool arrived(std::uint32_t, std::uint32_t thread) override {
    if (is_over_[thread]) return true;
    int flag = 0;
    MPI_Test(&requests_[thread], &flag, MPI_STATUS_IGNORE);
    is_over_[thread] = flag != 0;
    return flag != 0;
  }
  void finish() override {
    for (std::uint32_t t = 0; t < end_.threads; ++t) wait_until([&] { return arrived(0, t); });
  }

 private:
  int tag_of(std::uint32_t thread) const {
    return kTag + end_.route * static_cast<int>(end_.threads) + static_cast<int>(thread);
  }

  const std::uint64_t share_;
  std::vector<MPI_Request> requests_;
  std::vector<char> is_over_;
};

class Partitioned final : public Face {
 public:
  explicit Partitioned(const FaceEnd& end)
      : Face(end),
        request_(make_partitioned(
            {end.data, end.bytes, end.partitions, end.peer, kTag + end.route, end.is_sent})) {}
  ~Partitioned() override { MPI_Request_free(&request_); }

  void start() override { MPI_Start(&request_); }
  void ready(std::uint32_t partition, std::uint32_t, bool) override {
    MPI_Pready(static_cast<int>(partition), request_);
  }
  bool arrived(std::uint32_t partition, std::uint32_t) override {
    int flag = 0;
    MPI_Parrived(request_, static_cast<int>(partition), &flag);
    return flag != 0;
  }
  void finish() override { wait_for(&request_); }
  bool claims_completion() override { return is_complete(request_); }

 private:
  MPI_Request request_;
};

}  // namespace

const std::vector<std::string>& face_way_names() {
  static const std::vector<std::string> names{"single", "multiple", "partitioned"};
  return names;
}

std::unique_ptr<Face> make_face(const std::string& name, const FaceEnd& end) {
  if (!missing(name).empty()) return nullptr;
  if (end.peer == MPI_PROC_NULL) return std::make_unique<Nobody>(end);
  if (name == "single") return std::make_unique<Single>(end);
  if (name == "multiple") return std::make_unique<Multiple>(end);
  if (name == "partitioned") return std::make_unique<Partitioned>(end);
  return nullptr;
}

int tag_max(std::uint32_t threads) { return kTag + kRoutesMax * static_cast<int>(threads) - 1; }

}  // namespace larklane::bench
