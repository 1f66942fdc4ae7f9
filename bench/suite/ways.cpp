// The ways: partitioned, one send after the join, a persistent one, a send a thread, a put a
// thread. For calibration also one that only pretends to be partitioned.

#include <algorithm>
#include <span>

#include "clock.hpp"
#include "mpipcl.hpp"
#include "partitioned.hpp"
#include "put_window.hpp"
#include "way.hpp"

namespace larklane::bench {
namespace {

constexpr int kTag = 7;
constexpr int kSender = 0, kReceiver = 1;

int count_of(std::uint64_t bytes) { return static_cast<int>(bytes); }

/// Partitioned communication: MPI-4's, or a library's.
template <class Request>
class Partitioned final : public Way {
 public:
  explicit Partitioned(const Pair& pair)
      : Way(pair, pair.options->send_partitions(), pair.options->receive_partitions()),
        request_(
            {pair.buffer, pair.bytes,
             pair.is_sender ? pair.options->send_partitions() : pair.options->receive_partitions(),
             pair.is_sender ? kReceiver : kSender, kTag, pair.is_sender, pair.comm},
            *pair.options),
        is_there_(arrived_ns_.size()) {}

  void start(std::uint64_t) override {
    std::ranges::fill(is_there_, false);
    missing_ = is_there_.size();
    request_.start();
  }
  void ready(std::uint32_t partition, std::uint32_t, bool) override {
    begun_ns_[partition] = now_ns();
    request_.ready(partition);
  }
  bool poll() override {
    for (std::size_t p = 0; p < is_there_.size(); ++p) {
      if (is_there_[p] || !request_.arrived(static_cast<std::uint32_t>(p))) continue;
      arrived_ns_[p] = now_ns();
      is_there_[p] = true;
      --missing_;
    }
    return missing_ == 0;
  }
  void wait() override {
    request_.wait();
    std::ranges::fill(arrived_ns_, now_ns());
  }
  void finish() override { request_.wait(); }
  bool claims_completion() override { return request_.is_complete(); }

 private:
  Request request_;
  std::vector<char> is_there_;
  std::size_t missing_ = 0;
};

/// One message after all threads have joined.
class OneMessage : public Way {
 public:
  void ready(std::uint32_t, std::uint32_t, bool) override {}
  bool poll() override {
    int flag = 0;
    MPI_Test(&request_, &flag, MPI_STATUS_IGNORE);
    if (flag) arrived_ns_[0] = now_ns();
    return flag != 0;
  }
  void wait() override {
    MPI_Wait(&request_, MPI_STATUS_IGNORE);
    arrived_ns_[0] = now_ns();
  }
  void finish() override { MPI_Wait(&request_, MPI_STATUS_IGNORE); }

 protected:
  explicit OneMessage(const Pair& pair) : Way(pair, 1, 1) {}
  MPI_Request request_ = MPI_REQUEST_NULL;
};

class Join final : public OneMessage {
 public:
  explicit Join(const Pair& pair) : OneMessage(pair) {}

  void start(std::uint64_t) override {
    if (!pair_.is_sender)
      MPI_Irecv(pair_.buffer, count_of(pair_.bytes), MPI_BYTE, kSender, kTag, pair_.comm,
                &request_);
  }
  void joined() override {
    begun_ns_[0] = now_ns();
    MPI_Isend(pair_.buffer, count_of(pair_.bytes), MPI_BYTE, kReceiver, kTag, pair_.comm,
              &request_);
  }
};

class Persistent final : public OneMessage {
 public:
  explicit Persistent(const Pair& pair) : OneMessage(pair) {
    if (pair.is_sender)
      MPI_Send_init(pair.buffer, count_of(pair.bytes), MPI_BYTE, kReceiver, kTag, pair.comm,
                    &request_);
    else
      MPI_Recv_init(pair.buffer, count_of(pair.bytes), MPI_BYTE, kSender, kTag, pair.comm,
                    &request_);
  }
  ~Persistent() override { MPI_Request_free(&request_); }

  void start(std::uint64_t) override {
    if (!pair_.is_sender) MPI_Start(&request_);
  }
  void joined() override {
    begun_ns_[0] = now_ns();
    MPI_Start(&request_);
  }
};

/// Each thread sends its share when it is ready.
class ThreadSends final : public Way {
 public:
  ThreadSends(const Pair& pair, bool own_communicators)
      : Way(pair, pair.options->threads, pair.options->threads),
        share_(pair.bytes / pair.options->threads),
        comms_(pair.options->threads, pair.comm),
        requests_(pair.options->threads, MPI_REQUEST_NULL),
        found_(pair.options->threads),
        owns_comms_(own_communicators) {
    if (owns_comms_)
      for (MPI_Comm& comm : comms_) MPI_Comm_dup(pair.comm, &comm);
  }
  ~ThreadSends() override {
    if (owns_comms_)
      for (MPI_Comm& comm : comms_) MPI_Comm_free(&comm);
  }

  void start(std::uint64_t) override {
    if (pair_.is_sender) return;
    for (std::size_t t = 0; t < requests_.size(); ++t)
      MPI_Irecv(pair_.buffer + t * share_, count_of(share_), MPI_BYTE, kSender, tag_of(t),
                comms_[t], &requests_[t]);
  }
  void ready(std::uint32_t, std::uint32_t thread, bool last) override {
    if (!last) return;
    begun_ns_[thread] = now_ns();
    MPI_Send(pair_.buffer + thread * share_, count_of(share_), MPI_BYTE, kReceiver, tag_of(thread),
             comms_[thread]);
  }
  bool poll() override {
    int count = 0;
    MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, found_.data(),
                 MPI_STATUSES_IGNORE);
    if (count == MPI_UNDEFINED) return true;
    const double now = count > 0 ? now_ns() : 0;
    for (int i = 0; i < count; ++i)
      arrived_ns_[static_cast<std::size_t>(found_[static_cast<std::size_t>(i)])] = now;
    return false;
  }
  void wait() override {
    MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
    std::ranges::fill(arrived_ns_, now_ns());
  }
  void finish() override {}

 private:
  static int tag_of(std::size_t thread) { return kTag + 1 + static_cast<int>(thread); }

  const std::uint64_t share_;
  std::vector<MPI_Comm> comms_;
  std::vector<MPI_Request> requests_;
  std::vector<int> found_;
  const bool owns_comms_;
};

/// Each thread puts its share into the receiver's window, then a mark that the receiver polls.
class Puts final : public Way {
 public:
  explicit Puts(const Pair& pair)
      : Way(pair, pair.options->threads, pair.options->threads),
        share_(pair.bytes / pair.options->threads),
        window_(pair.comm, message().first(pair.is_sender ? 0 : pair.bytes), pair.options->threads),
        is_there_(pair.options->threads) {}

  void start(std::uint64_t round) override {
    round_ = round;
    std::ranges::fill(is_there_, false);
    missing_ = is_there_.size();
  }
  void ready(std::uint32_t, std::uint32_t thread, bool last) override {
    if (!last) return;
    begun_ns_[thread] = now_ns();
    const std::uint64_t at = thread * share_;
    window_.put(message().subspan(at, share_), at, kReceiver, thread, round_);
  }
  bool poll() override {
    window_.look();
    for (std::size_t t = 0; t < is_there_.size(); ++t) {
      if (is_there_[t] || !window_.arrived(t, round_)) continue;
      arrived_ns_[t] = now_ns();
      is_there_[t] = true;
      --missing_;
    }
    return missing_ == 0;
  }
  void finish() override {}

 private:
  std::span<std::byte> message() const { return {pair_.buffer, pair_.bytes}; }

  const std::uint64_t share_;
  PutWindow window_;
  std::uint64_t round_ = 0;
  std::vector<char> is_there_;
  std::size_t missing_ = 0;
};

/// Imitates a partitioned library that sends everything in Wait: its early-bird share must be 0.
class Pretended final : public Way {
 public:
  explicit Pretended(const Pair& pair)
      : Way(pair, pair.options->send_partitions(), pair.options->receive_partitions()),
        send_(pair) {}

  void start(std::uint64_t round) override { send_.start(round); }
  void ready(std::uint32_t partition, std::uint32_t, bool) override {
    begun_ns_[partition] = now_ns();
  }
  void joined() override { send_.joined(); }
  bool poll() override {
    const bool all = send_.poll();
    if (all) std::ranges::fill(arrived_ns_, now_ns());
    return all;
  }
  void finish() override { send_.finish(); }

 private:
  Join send_;
};

}  // namespace

std::unique_ptr<Way> make_way(const std::string& name, const Pair& pair) {
  if (!missing(name).empty()) return nullptr;
  if (name == "partitioned") return std::make_unique<Partitioned<MpiRequest>>(pair);
  if (name == "mpipcl") return std::make_unique<Partitioned<MpipclRequest>>(pair);
  if (name == "join") return std::make_unique<Join>(pair);
  if (name == "persistent") return std::make_unique<Persistent>(pair);
  if (name == "threads") return std::make_unique<ThreadSends>(pair, false);
  if (name == "thread-comms") return std::make_unique<ThreadSends>(pair, true);
  if (name == "rma") return std::make_unique<Puts>(pair);
  if (name == "pretended") return std::make_unique<Pretended>(pair);
  return nullptr;
}

}  // namespace larklane::bench
