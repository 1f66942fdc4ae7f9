#include "part/network/probe.hpp"

#include <algorithm>

#include "part/network/transport.hpp"

namespace larklane::part {
namespace {

/// Time between looks while a probe is in flight: the longest delay of its failure's report.
constexpr std::uint64_t kProbeLookNs = 100'000'000;

}  // namespace

bool LinkProbe::end_look() noexcept {
  const bool is_silent = is_open_ && was_open_ && moved_ == last_moved_;
  was_open_ = is_open_;
  last_moved_ = moved_;
  silent_looks_ = is_silent ? silent_looks_ + 1 : 0;
  if (silent_looks_ < kSilentLooks) return false;
  silent_looks_ = 0;
  return true;
}

void LinkProbe::post(vci::Vci& vci, net::Link& to) {
  link = &to;
  // relaxed: the mutex orders posts; the completion comes after the post.
  state_.store(State::under_way, std::memory_order_relaxed);
  vci.post(*this);
}

void LinkProbe::ended(net::Operation& operation, Status status) {
  auto& probe = static_cast<LinkProbe&>(operation);
  if (!status.ok()) probe.failure_ = status;
  // release: pairs with state()'s acquire.
  probe.state_.store(status.ok() ? State::idle : State::failed, std::memory_order_release);
}

std::uint64_t NetworkTransport::look_after(NetLane& lane, std::uint64_t now_ns) {
  const std::scoped_lock lock(mutex_);
  fabric_->look();
  links_->end_closed();
  if (now_ns >= lane.next_look_ns) {
    lane.next_look_ns = now_ns + silence_ns_ / LinkProbe::kSilentLooks;
    look_for_silence_locked(lane);
  }
  bool is_under_way = false;
  links_->for_each_of(lane, [&](NetLink& link) {
    links_->look_for_failure(link);
    is_under_way |= link.probe.state() == LinkProbe::State::under_way;
    if (link.probe.state() == LinkProbe::State::failed) links_->lose(link, link.probe.failure());
  });
  cut_off_lost_locked();
  return is_under_way ? std::min(lane.next_look_ns, now_ns + kProbeLookNs) : lane.next_look_ns;
}

void NetworkTransport::look_for_silence_locked(NetLane& lane) {
  links_->for_each_of(lane, [](NetLink& link) { link.probe.begin_look(); });
  const auto see = [&](const auto& channel) {
    NetLink& link = channel.link();
    if (&link.lane == &lane)
      link.probe.see(channel.active() && !channel.peer_closed(), channel.moved());
  };
  for (const auto& [request, channel] : sends_) see(*channel);
  for (const auto& [request, channel] : receives_) see(*channel);
  links_->for_each_of(lane, [](NetLink& link) {
    const bool is_due = link.probe.end_look();
    if (!is_due || !link.is_ready()) return;
    if (link.probe.state() == LinkProbe::State::idle) link.probe.post(link.vci, *link.link);
  });
}

}  // namespace larklane::part
