// Messages between threads over an MPI, as messages/native.cpp over Larklane.

#include <mpi.h>

#include "benchmarks.hpp"
#include "messages/exchange.hpp"
#include "messages/phases.hpp"
#include "ranks.hpp"

namespace larklane::bench {
namespace {

/// One communicator, and one window over all receive memory.
struct Lane {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Win window = MPI_WIN_NULL;  ///< for puts
};

/// @param has_hints  the communicator tells that its receives name sources and tags
void dup_world(bool has_hints, MPI_Comm* made) {
  if (!has_hints) {
    MPI_Comm_dup(MPI_COMM_WORLD, made);
    return;
  }
  MPI_Info info;
  MPI_Info_create(&info);
  for (const char* hint : {"mpi_assert_no_any_source", "mpi_assert_no_any_tag"})
    MPI_Info_set(info, hint, "true");
  MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, made);
  MPI_Info_free(&info);
}

/// A thread's calls. Thread safety: single-owner.
class MpiEnd {
 public:
  MpiEnd(const std::string& way, const Shape& shape, std::uint32_t thread, const Lane& lane)
      : shape_(shape),
        lane_(lane),
        thread_(thread),
        count_(static_cast<int>(shape.bytes)),
        data_tag_(Numbers::is_mixed(way) ? 0 : 2 * number_in_lane(way, shape, thread)),
        answer_tag_(2 * number_in_lane(way, shape, thread) + 1),
        isend_(shape.options->operation == "ssend" ? MPI_Issend : MPI_Isend),
        puts_(lane.window != MPI_WIN_NULL),
        sends_(puts_ ? 0 : shape.options->window),
        receives_(puts_ ? 1 : shape.options->window) {}

  void post_receives() {
    if (puts_) {
      MPI_Irecv(nullptr, 0, MPI_BYTE, shape_.peer, data_tag_, lane_.comm, &receives_[0]);
      return;
    }
    for (std::uint32_t slot = 0; slot < receives_.size(); ++slot)
      MPI_Irecv(shape_.in_of(thread_, slot), count_, MPI_BYTE, shape_.peer, data_tag_, lane_.comm,
                &receives_[slot]);
  }
  void wait_receives() {
    wait_all(receives_);
    if (puts_) MPI_Win_sync(lane_.window);
  }
  std::span<const std::byte> message(std::uint32_t slot) const {
    return {shape_.in_of(thread_, slot), shape_.bytes};
  }
  void release() {}
  void enter() {}
  void leave() {}

  void post_send(std::uint32_t slot) {
    std::byte* const from = shape_.out_of(thread_, slot);
    if (puts_)
      MPI_Put(from, count_, MPI_BYTE, shape_.peer,
              static_cast<MPI_Aint>(shape_.place(thread_, slot)), count_, MPI_BYTE, lane_.window);
    else
      isend_(from, count_, MPI_BYTE, shape_.peer, data_tag_, lane_.comm, &sends_[slot]);
  }
  void wait_sends() {
    if (!puts_) return wait_all(sends_);
    MPI_Win_flush(shape_.peer, lane_.window);
    send_nothing(data_tag_);
  }
  void answer() { send_nothing(answer_tag_); }
  void wait_answer() {
    std::vector<MPI_Request> receive(1);
    MPI_Irecv(nullptr, 0, MPI_BYTE, shape_.peer, answer_tag_, lane_.comm, receive.data());
    wait_all(receive);
  }

 private:
  /// Threads that share a communicator have tags of their own.
  static int number_in_lane(const std::string& way, const Shape& shape, std::uint32_t thread) {
    return static_cast<int>(thread / shape.lanes(way));
  }
  void send_nothing(int tag) const { MPI_Send(nullptr, 0, MPI_BYTE, shape_.peer, tag, lane_.comm); }
  void wait_all(std::vector<MPI_Request>& requests) const {
    wait_for_all(requests, shape_.options->yields);
  }

  const Shape& shape_;
  const Lane lane_;
  const std::uint32_t thread_;
  const int count_, data_tag_, answer_tag_;
  decltype(&MPI_Isend) const isend_;
  const bool puts_;
  std::vector<MPI_Request> sends_, receives_;
};

/// Communicators as lanes. Creation and destruction are collective.
class MpiWay {
 public:
  MpiWay(const std::string& name, const Shape& shape) : shape_(shape), lanes_(shape.lanes(name)) {
    for (Lane& lane : lanes_) {
      dup_world(name == "hints", &lane.comm);
      if (shape.options->operation != "put") continue;
      MPI_Win_create(shape_.in.data(), static_cast<MPI_Aint>(shape_.in.size()), 1, MPI_INFO_NULL,
                     lane.comm, &lane.window);
      MPI_Win_lock_all(MPI_MODE_NOCHECK, lane.window);
    }
    for (std::uint32_t thread = 0; thread < shape_.threads; ++thread)
      ends_.push_back(
          std::make_unique<MpiEnd>(name, shape_, thread, lanes_[thread % lanes_.size()]));
  }
  ~MpiWay() {
    for (Lane& lane : lanes_) {
      if (lane.window != MPI_WIN_NULL) {
        MPI_Win_unlock_all(lane.window);
        MPI_Win_free(&lane.window);
      }
      MPI_Comm_free(&lane.comm);
    }
  }
  MpiWay(const MpiWay&) = delete;
  MpiWay& operator=(const MpiWay&) = delete;

  MpiEnd& end(std::uint32_t thread) { return *ends_[thread]; }
  void begin_round() {}
  void end_round() {}

 private:
  const Shape shape_;
  std::vector<Lane> lanes_;
  std::vector<std::unique_ptr<MpiEnd>> ends_;
};

class MpiWorld : public MpiRanks {
 public:
  using Way = MpiWay;
  using End = MpiEnd;

  std::unique_ptr<MpiWay> make_way(const std::string& name, const Shape& shape) const {
    return std::make_unique<MpiWay>(name, shape);
  }
};

}  // namespace

Point measure_messages(const Options& options, std::uint64_t size, const std::vector<Link>&,
                       double timer_ns, double budget_ns, const Watcher& watcher) {
  MpiWorld world;
  return Exchange(options.of_process(), size, world, timer_ns, watcher).run(budget_ns);
}

Point measure_message_turns(const Options& options, std::uint64_t size, const std::vector<Link>&,
                            double timer_ns, double budget_ns, const Watcher& watcher) {
  MpiWorld world;
  return Phases(options.of_process(), size, world, timer_ns, watcher).run(budget_ns);
}

}  // namespace larklane::bench
