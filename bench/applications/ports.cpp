#include "ports.hpp"

#include <algorithm>
#include <cstring>

#include "larklane/message.hpp"

namespace larklane::bench {

NativePort::NativePort(NativeWorld& world, Vci& vci, const Options& options,
                       const std::vector<RemoteRegion>& open, const Region& local)
    : open_(open),
      waiter_(vci, options.yields, true),
      heard_(make_heard("counter", world.context().completions(), 0, waiter_)) {
  options_.completion = &heard_->object();
  of_local_ = options_;
  of_local_.region = &local;
}

template <class Call>
void NativePort::post(Call&& call) {
  posted_ += waiter_.post(call, "post");
}

void NativePort::get(int rank, std::uint64_t offset, void* to, std::uint64_t bytes) {
  post([&] { return post_get(waiter_.vci(), of(rank), offset, to, bytes, of_local_); });
}

void NativePort::accumulate(int rank, std::uint64_t offset, const double* values,
                            std::uint32_t count) {
  for (std::uint32_t at = 0; at < count; at += kAccumulateMax)
    post([&] {
      return post_accumulate(waiter_.vci(), of(rank), offset + at * sizeof(double), values + at,
                             std::min(kAccumulateMax, count - at), of_local_);
    });
}

std::uint64_t NativePort::count_up(int rank, std::uint64_t offset) {
  std::uint64_t before = 0;
  post([&] { return post_fetch_add(waiter_.vci(), of(rank), offset, 1, &before, options_); });
  wait();
  return before;
}

void NativePort::receive(const Stream& stream, void* to, std::uint64_t bytes) {
  post([&] { return post_recv(waiter_.vci(), stream.rank, stream.tag, to, bytes, of_local_); });
}

void NativePort::send(const Stream& stream, const void* from, std::uint64_t bytes) {
  post([&] { return post_send(waiter_.vci(), stream.rank, stream.tag, from, bytes, of_local_); });
}

void NativePort::wait() {
  // Progress as in a flush that waits for nothing: peers' atomics need this process's progress.
  (void)waiter_.vci().progress();
  waiter_.until([&] { return heard_->has(posted_); });
  heard_->restart();
  posted_ = 0;
}

NativePorts::NativePorts(NativeWorld& world, const PortsShape& shape)
    : shown_(shape.open),
      mine_(must(world.context().allocate_region(shape.open.size()), "allocate_region")),
      local_(must(world.context().register_region(shape.local.data(), shape.local.size()),
                  "register_region")),
      open_(static_cast<std::size_t>(world.size())) {
  const RemoteRegion mine = mine_.remote();
  world.gather(&mine, sizeof mine, open_.data());
  for (std::uint32_t thread = 0; thread < shape.threads; ++thread)
    ports_.push_back(std::make_unique<NativePort>(world, world.lane(thread % shape.lanes),
                                                  *shape.options, open_, local_));
}

void NativePorts::begin_round() {
  if (!shown_.empty()) std::memcpy(mine_.start(), shown_.data(), shown_.size());
}

void NativePorts::end_round() {
  if (!shown_.empty()) std::memcpy(shown_.data(), mine_.start(), shown_.size());
}

}  // namespace larklane::bench
