#include "world.hpp"

#include <sched.h>

#include <cstdio>
#include <cstring>
#include <utility>

namespace larklane::bench {
namespace {

constexpr std::uint32_t kTag = 0xffffffff;  ///< no thread uses it

}  // namespace

void give_up(const char* what, Status status) {
  std::fprintf(stderr, "larklane bench: %s: %s\n", what, errc_name(status.code()));
  std::exit(1);
}

void Waiter::turn() {
  if (progresses_ && vci_.progress() != 0) {
    misses_ = 0;
  } else if (yields_ && ++misses_ > kMissesMax) {
    sched_yield();
  }
}

NativeWorld::NativeWorld(Context& context, Around around)
    : context_(context),
      around_(std::move(around)),
      told_(must(CompletionQueue::create(context.completions()), "completion queue")) {}

Vci& NativeWorld::lane(std::size_t index) {
  while (lanes_.size() <= index) lanes_.push_back(must(context_.create_vci(), "create_vci"));
  return lanes_[index];
}

void NativeWorld::send(int rank, const void* bytes, std::size_t count) {
  PostOptions options;
  options.completion = &told_;
  Waiter waiter(lane(0), true, true);
  const bool is_posted = waiter.post(
      [&] { return post_send(lane(0), rank, kTag, bytes, count, options); }, "post_send");
  if (!is_posted) return;
  waiter.until([&] {
    const auto told = told_.pop();
    if (told && !told->status.ok()) give_up("post_send", told->status);
    return told.has_value();
  });
}

void NativeWorld::receive(int rank, void* bytes, std::size_t count) {
  PostOptions options;
  options.completion = &told_;
  options.signals_always = true;
  Waiter waiter(lane(0), true, true);
  waiter.post([&] { return post_recv(lane(0), rank, kTag, bytes, count, options); }, "post_recv");
  waiter.until([&] {
    const auto told = told_.pop();
    if (told && !told->status.ok()) give_up("post_recv", told->status);
    return told.has_value();
  });
}

void NativeWorld::gather(const void* mine, std::size_t bytes, void* all) {
  auto* const of_ranks = static_cast<std::byte*>(all);
  const std::size_t whole = bytes * static_cast<std::size_t>(size());
  if (rank() != 0) {
    send(0, mine, bytes);
    return receive(0, all, whole);
  }
  std::memcpy(of_ranks, mine, bytes);
  for (int r = 1; r < size(); ++r)
    receive(r, of_ranks + bytes * static_cast<std::size_t>(r), bytes);
  for (int r = 1; r < size(); ++r) send(r, all, whole);
}

std::vector<double> NativeWorld::gather(double mine) {
  std::vector<double> all(static_cast<std::size_t>(size()));
  gather(&mine, sizeof mine, all.data());
  return all;
}

void NativeWorld::swap(int peer, const void* mine, std::size_t bytes, void* theirs) {
  if (rank() < peer) {
    send(peer, mine, bytes);
    receive(peer, theirs, bytes);
  } else {
    std::vector<std::byte> kept(bytes);
    std::memcpy(kept.data(), mine, bytes);
    receive(peer, theirs, bytes);
    send(peer, kept.data(), bytes);
  }
}

}  // namespace larklane::bench
