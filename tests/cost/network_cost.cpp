// The software cost of one message over verbs, from MPI_Pready to the device and from its
// completion to MPI_Parrived: the face's own calls, the engine, a lane and the provider, on a
// device made of memory. Two processes' networks in one thread. Under callgrind each scenario is a
// dump of its own, named `send S`, `receive S`, ...; the device's calls are not counted. Without
// callgrind it checks bytes.

#include <valgrind/callgrind.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../prop/scripted_peer.hpp"
#include "../unit/net_verbs/device.hpp"
#include "larklane/mpi_partitioned.h"
#include "mpi/abi/next.hpp"
#include "mpi/partitioned/carrier.hpp"
#include "net/verbs/fabric.hpp"
#include "part/network/transport.hpp"

namespace larklane::cost {
namespace {

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "network_cost: %s\n", why.c_str());
  std::_Exit(1);
}
void require(bool holds, const char* what) {
  if (!holds) fail(what);
}
template <class T>
T must(Result<T> result, const char* what) {
  if (!result) fail(std::string(what) + ": " + errc_name(result.error().code()));
  return std::move(result).value();
}

/// Instructions are collected between begin and end, but not in the device; `prepared`: those of
/// MPIX_Pbuf_prepare. Thread safety: single-owner.
enum class Collect { off, until_post, from_completion, prepared };
Collect wanted = Collect::off;
bool is_collecting = false;

void toggle() {
  is_collecting = !is_collecting;
  CALLGRIND_TOGGLE_COLLECT;
}

/// In a call of the device. Thread safety: single-owner.
class InDevice {
 public:
  InDevice() : was_collecting_(is_collecting) {
    if (was_collecting_) toggle();
  }
  ~InDevice() {
    if (was_collecting_ && wanted != Collect::off) toggle();
  }
  InDevice(const InDevice&) = delete;
  InDevice& operator=(const InDevice&) = delete;

 private:
  const bool was_collecting_;
};

ibv_context_ops plain;

int post_send(ibv_qp* pair, ibv_send_wr* work, ibv_send_wr** bad) {
  const InDevice here;
  if (wanted == Collect::until_post) wanted = Collect::off;
  return plain.post_send(pair, work, bad);
}
int post_srq_recv(ibv_srq* queue, ibv_recv_wr* work, ibv_recv_wr** bad) {
  const InDevice here;
  return plain.post_srq_recv(queue, work, bad);
}
int poll_cq(ibv_cq* queue, int most, ibv_wc* completions) {
  const InDevice here;
  const int got = plain.poll_cq(queue, most, completions);
  if (got > 0 && wanted == Collect::from_completion && !is_collecting) toggle();
  return got;
}

struct Side {
  explicit Side(const std::string& others_name)
      : other(others_name), state(std::make_shared<part::PeerState>()) {
    state->peer = &other;
    std::string reason;
    auto fabric = verbs::Fabric::open({}, &reason);
    require(fabric.has_value(), reason.c_str());
    network =
        must(part::NetworkTransport::create(std::move(fabric).value(), {}, {counters}), "network");
  }
  part::Counters counters;
  part::ScriptedPeer other;
  std::shared_ptr<part::PeerState> state;
  std::unique_ptr<part::NetworkTransport> network;
};

/// A handle of a request of ours, as MPI_Psend_init would have made it. Thread safety:
/// single-owner.
class Handle {
 public:
  explicit Handle(part::Request* request) : partitioned_(request->kind()) {
    partitioned_.request = request;
    partitioned_.send = dynamic_cast<part::SendRequest*>(request);
    partitioned_.receive = dynamic_cast<part::RecvRequest*>(request);
    static std::uintptr_t last = 0x5c000000;
    const std::uintptr_t bits = ++last;
    std::memcpy(&handle, &bits, sizeof handle);
    mpi::detail::carriers.table.insert(mpi::handle_bits(handle), &partitioned_);
  }
  ~Handle() { mpi::detail::carriers.table.remove(mpi::handle_bits(handle)); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  MPI_Request handle{};

 private:
  mpi::Partitioned partitioned_;
};

class Case {
 public:
  /// @param groups  first partitions
  Case(int send_partitions, int recv_partitions, const std::vector<std::uint32_t>& groups)
      : send_partitions_(send_partitions),
        recv_partitions_(recv_partitions),
        from_(static_cast<std::size_t>(send_partitions) * 256),
        to_(from_.size()) {
    send_ = must(sender_.network->send_init(args(true), sender_.state, groups), "send_init");
    receive_ = must(receiver_.network->recv_init(args(false), receiver_.state), "recv_init");
    send_handle_.emplace(send_);
    receive_handle_.emplace(receive_);
  }
  ~Case() {
    require(sender_.network->free(send_).ok() && receiver_.network->free(receive_).ok(), "free");
    settle();
    sender_.network.reset();
    receiver_.network.reset();
  }
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  /// @param collect  of the last Pready, or of the arrival
  void round(int number, Collect collect) {
    std::fill(from_.begin(), from_.end(), static_cast<std::byte>(number));
    require(send_->start().ok() && receive_->start().ok(), "start");
    settle();  // the credit is there
    if (collect == Collect::prepared) toggle();
    require(MPIX_Pbuf_prepare(send_handle_->handle) == MPI_SUCCESS, "prepare");
    if (is_collecting) toggle();
    for (int p = 0; p + 1 < send_partitions_; ++p) ready(p);
    if (collect == Collect::until_post) begin(collect);
    ready(send_partitions_ - 1);
    require(!is_collecting, "the last Pready has not posted");
    device_.run();
    if (collect == Collect::from_completion) wanted = collect;
    int flag = 0;
    require(MPI_Parrived(receive_handle_->handle, recv_partitions_ - 1, &flag) == MPI_SUCCESS,
            "Parrived");
    if (is_collecting) toggle();
    wanted = Collect::off;
    require(flag != 0, "it has not arrived");
    settle();
    require(send_->poll() == part::Completion::complete, "the send is not complete");
    require(receive_->poll() == part::Completion::complete, "the receive is not complete");
    send_->finish();
    receive_->finish();
    require(from_ == to_, "wrong bytes");
  }

 private:
  part::InitArgs args(bool is_send) {
    part::InitArgs a;
    a.peer = is_send ? "receiver" : "sender";
    a.buffer = is_send ? from_.data() : to_.data();
    a.partitions = is_send ? send_partitions_ : recv_partitions_;
    a.count = from_.size() / static_cast<std::uint64_t>(a.partitions);
    a.type = std::make_shared<const Typemap>(Typemap::contiguous(1));
    return a;
  }
  static void begin(Collect collect) {
    wanted = collect;
    toggle();
  }
  void ready(int partition) {
    require(MPI_Pready(partition, send_handle_->handle) == MPI_SUCCESS, "Pready");
  }
  void settle() {
    for (int turn = 0; turn < 20; ++turn) {
      for (auto [from, to] : {std::pair{&sender_, &receiver_}, std::pair{&receiver_, &sender_}}) {
        while (!from->other.sent.empty()) {
          auto [kind, payload] = std::move(from->other.sent.front());
          from->other.sent.pop_front();
          to->network->on_record(to->state, {kind, payload, {}});
        }
        (void)from->network->lanes().progress_all();
      }
      device_.run();
    }
  }

  const int send_partitions_, recv_partitions_;
  verbs::FakeDevice& device_ = verbs::FakeDevice::get();
  std::vector<std::byte> from_, to_;
  Side sender_{"receiver"}, receiver_{"sender"};
  part::SendRequest* send_;
  part::RecvRequest* receive_;
  std::optional<Handle> send_handle_, receive_handle_;
};

/// One collected round, in the steady state, as a dump of that name.
void measure(const std::string& what, int send_partitions, int recv_partitions, Collect collect,
             const std::vector<std::uint32_t>& groups = {0}) {
  Case one(send_partitions, recv_partitions, groups);
  for (int warm = 1; warm <= 3; ++warm) one.round(warm, Collect::off);
  CALLGRIND_ZERO_STATS;
  one.round(4, collect);
  const std::string name =
      what + " " + std::to_string(send_partitions) + " " + std::to_string(recv_partitions);
  CALLGRIND_DUMP_STATS_AT(name.c_str());
}

}  // namespace
}  // namespace larklane::cost

int main() {
  using larklane::cost::Collect;
  using larklane::cost::measure;
  larklane::verbs::FakeDevice device;
  larklane::cost::plain = device.context.ops;
  device.context.ops.post_send = &larklane::cost::post_send;
  device.context.ops.post_srq_recv = &larklane::cost::post_srq_recv;
  device.context.ops.poll_cq = &larklane::cost::poll_cq;
  for (const int partitions : {1, 8, 32, 128, 1000}) {
    measure("send", partitions, partitions, Collect::until_post);
    measure("receive", partitions, partitions, Collect::from_completion);
  }
  measure("prepare", 8, 8, Collect::prepared);
  measure("send_last_of_4_groups", 128, 128, Collect::until_post, {0, 32, 64, 96});
  measure("send_last_of_2_groups", 128, 128, Collect::until_post, {0, 64});
  for (const auto& [s, r] : {std::pair{32, 8}, std::pair{8, 32}, std::pair{1, 256},
                             std::pair{256, 8}, std::pair{256, 1}})
    measure("receive", s, r, Collect::from_completion);
  std::puts("ok");
  return 0;
}
