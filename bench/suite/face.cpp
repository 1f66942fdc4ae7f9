// Ways to exchange faces: one message after the join, a persistent one, a message a thread (in one
// communicator or in one each), a put a thread, partitions.

#include "face.hpp"

#include <mpi.h>

#include <algorithm>

#include "mpipcl.hpp"
#include "partitioned.hpp"
#include "put_window.hpp"
#include "wait.hpp"

namespace larklane::bench {
namespace {

constexpr int kTag = 1000;

int count_of(std::uint64_t bytes) { return static_cast<int>(bytes); }

/// The neighbour beyond the edge.
class Nobody final : public Face {
 public:
  using Face::Face;
  void start() override {}
  bool arrived(std::uint32_t, std::uint32_t) override { return true; }
  void finish() override {}
};

/// One thread communicates after the others have joined.
class OneMessage : public Face {
 public:
  void await_whole() override {
    wait_until([&] { return arrived(0, 0); });
  }
  bool arrived(std::uint32_t, std::uint32_t) override {
    if (is_over_) return true;  // several threads always return here
    int flag = 0;
    MPI_Test(&request_, &flag, MPI_STATUS_IGNORE);
    is_over_ = flag != 0;
    return is_over_;
  }
  void finish() override { await_whole(); }

 protected:
  using Face::Face;
  int tag() const { return kTag + end_.route; }
  MPI_Request request_ = MPI_REQUEST_NULL;
  bool is_over_ = false;
};

/// The original suite's "single".
class Single final : public OneMessage {
 public:
  explicit Single(const FaceEnd& end) : OneMessage(end) {}

  void start() override {
    is_over_ = false;
    if (!end_.is_sent)
      MPI_Irecv(end_.data, count_of(end_.bytes), MPI_BYTE, end_.peer, tag(), MPI_COMM_WORLD,
                &request_);
  }
  void joined() override {
    MPI_Isend(end_.data, count_of(end_.bytes), MPI_BYTE, end_.peer, tag(), MPI_COMM_WORLD,
              &request_);
  }
};

class Persistent final : public OneMessage {
 public:
  explicit Persistent(const FaceEnd& end) : OneMessage(end) {
    if (end.is_sent)
      MPI_Send_init(end.data, count_of(end.bytes), MPI_BYTE, end.peer, tag(), MPI_COMM_WORLD,
                    &request_);
    else
      MPI_Recv_init(end.data, count_of(end.bytes), MPI_BYTE, end.peer, tag(), MPI_COMM_WORLD,
                    &request_);
  }
  ~Persistent() override { MPI_Request_free(&request_); }

  void start() override {
    is_over_ = false;
    if (!end_.is_sent) MPI_Start(&request_);
  }
  void joined() override { MPI_Start(&request_); }
};

/// Each thread sends its own share.
class Multiple final : public Face {
 public:
  /// @param comms  by thread
  Multiple(const FaceEnd& end, const std::vector<MPI_Comm>& comms)
      : Face(end),
        comms_(comms),
        share_(end.bytes / end.threads),
        requests_(end.threads, MPI_REQUEST_NULL),
        is_over_(end.threads) {}

  void start() override {
    std::ranges::fill(is_over_, false);
    if (end_.is_sent) return;
    for (std::uint32_t t = 0; t < end_.threads; ++t)
      MPI_Irecv(end_.data + t * share_, count_of(share_), MPI_BYTE, end_.peer, tag_of(t), comms_[t],
                &requests_[t]);
  }
  void ready(std::uint32_t, std::uint32_t thread, bool last) override {
    if (last)
      MPI_Isend(end_.data + thread * share_, count_of(share_), MPI_BYTE, end_.peer, tag_of(thread),
                comms_[thread], &requests_[thread]);
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

  const std::vector<MPI_Comm>& comms_;
  const std::uint64_t share_;
  std::vector<MPI_Request> requests_;
  std::vector<char> is_over_;
};

/// Each thread puts its share into the receiver's memory, then a mark, which the receiver polls.
/// The put may arrive before the receiver's start(): this memory has no other use in the round.
class Put final : public Face {
 public:
  Put(const FaceEnd& end, PutWindow& window)
      : Face(end), window_(window), share_(end.bytes / end.threads), is_over_(end.threads) {}

  void start() override {
    ++round_;
    std::ranges::fill(is_over_, false);
  }
  void ready(std::uint32_t, std::uint32_t thread, bool last) override {
    if (!last) return;
    const std::uint64_t at = thread * share_;
    window_.put({end_.data + at, share_}, end_.place + at, end_.peer, part_of(thread), round_);
  }
  bool arrived(std::uint32_t, std::uint32_t thread) override {
    if (is_over_[thread]) return true;
    window_.look();
    is_over_[thread] = window_.arrived(part_of(thread), round_);
    return is_over_[thread] != 0;
  }
  void finish() override {
    if (end_.is_sent) return;  // put() has flushed
    for (std::uint32_t t = 0; t < end_.threads; ++t) wait_until([&] { return arrived(0, t); });
  }

 private:
  std::size_t part_of(std::uint32_t thread) const {
    return static_cast<std::size_t>(end_.route) * end_.threads + thread;
  }

  PutWindow& window_;
  const std::uint64_t share_;
  std::uint64_t round_ = 0;
  std::vector<char> is_over_;
};

/// MPI-4's partitioned calls, or a library's.
template <class Request>
class Partitioned final : public Face {
 public:
  Partitioned(const FaceEnd& end, const Options& options)
      : Face(end),
        request_({end.data, end.bytes, end.partitions, end.peer, kTag + end.route, end.is_sent},
                 options) {}

  void start() override { request_.start(); }
  void ready(std::uint32_t partition, std::uint32_t, bool) override { request_.ready(partition); }
  bool arrived(std::uint32_t partition, std::uint32_t) override {
    return request_.arrived(partition);
  }
  void finish() override {
    wait_until([&] { return request_.test(); });
  }
  bool claims_completion() override { return request_.is_complete(); }

 private:
  Request request_;
};

/// Faces without shared state.
template <class Kind>
class Alone final : public FaceWay {
  std::unique_ptr<Face> make(const FaceEnd& end) override { return std::make_unique<Kind>(end); }
};

template <class Request>
class Partitions final : public FaceWay {
 public:
  explicit Partitions(const Options& options) : options_(options) {}

 private:
  std::unique_ptr<Face> make(const FaceEnd& end) override {
    return std::make_unique<Partitioned<Request>>(end, options_);
  }

  const Options& options_;
};

/// A message a thread.
class Messages final : public FaceWay {
 public:
  Messages(std::uint32_t threads, bool own_communicators)
      : comms_(threads, MPI_COMM_WORLD), owns_comms_(own_communicators) {
    if (owns_comms_)
      for (MPI_Comm& comm : comms_) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  }
  ~Messages() override {
    if (owns_comms_)
      for (MPI_Comm& comm : comms_) MPI_Comm_free(&comm);
  }

 private:
  std::unique_ptr<Face> make(const FaceEnd& end) override {
    return std::make_unique<Multiple>(end, comms_);
  }

  std::vector<MPI_Comm> comms_;  // by thread
  const bool owns_comms_;
};

/// A put a thread.
class Puts final : public FaceWay {
 public:
  Puts(std::uint32_t threads, std::span<std::byte> memory)
      : window_(MPI_COMM_WORLD, memory, std::size_t{kRoutesMax} * threads) {}

 private:
  std::unique_ptr<Face> make(const FaceEnd& end) override {
    return std::make_unique<Put>(end, window_);
  }

  PutWindow window_;
};

}  // namespace

std::unique_ptr<Face> FaceWay::face(const FaceEnd& end) {
  if (end.peer == MPI_PROC_NULL) return std::make_unique<Nobody>(end);
  return make(end);
}

std::unique_ptr<FaceWay> make_face_way(const std::string& name, const Options& options,
                                       std::span<std::byte> memory) {
  if (!missing(name).empty()) return nullptr;
  const std::uint32_t threads = options.threads;
  if (name == "single") return std::make_unique<Alone<Single>>();
  if (name == "persistent") return std::make_unique<Alone<Persistent>>();
  if (name == "multiple") return std::make_unique<Messages>(threads, false);
  if (name == "thread-comms") return std::make_unique<Messages>(threads, true);
  if (name == "rma") return std::make_unique<Puts>(threads, memory);
  if (name == "partitioned") return std::make_unique<Partitions<MpiRequest>>(options);
  if (name == "mpipcl") return std::make_unique<Partitions<MpipclRequest>>(options);
  return nullptr;
}

int tag_max(std::uint32_t threads) { return kTag + kRoutesMax * static_cast<int>(threads) - 1; }

}  // namespace larklane::bench
