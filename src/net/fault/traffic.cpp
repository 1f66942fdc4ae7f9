#include "net/fault/traffic.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace larklane::fault {
namespace {

constexpr std::size_t kWordBytes = 8;

}  // namespace

std::unique_ptr<Posted> Traffic::make(LinkState& link, const Request& request,
                                      net::Operation& outer) {
  auto posted = std::make_unique<Posted>();
  posted->complete = &completed;
  posted->wakes = outer.wakes;
  posted->is_last = outer.is_last;
  posted->is_looked_for = outer.is_looked_for;
  posted->request = request;
  posted->small.assign(request.small.begin(), request.small.end());
  posted->traffic = this;
  posted->link = &link;
  posted->outer = &outer;
  return posted;
}

Result<net::Post> Traffic::post(LinkState& link, const Request& request, net::Operation& outer) {
  const Fault* fault = chance_.next(request.call);
  if (fault != nullptr && fault->what == What::retry) return net::Post::retry;
  if (fault != nullptr && fault->what == What::refuse) {
    end(link, fault->status);
    return fault->status;
  }
  auto posted = make(link, request, outer);
  if (!dead_.ok() || !link.dead.ok()) {
    add_due(std::move(posted), dead_.ok() ? link.dead : dead_, true);
    return net::Post::posted;
  }
  if (fault != nullptr && fault->what == What::garble) {
    garble(*posted);
  } else if (fault != nullptr) {
    posted->verdict = fault->status;
    if (fault->what == What::kill) end(link, fault->status);
    if (fault->moved == Moved::half) halve(*posted);
    if (fault->moved == Moved::nothing) {
      add_due(std::move(posted), fault->status, true);
      return net::Post::posted;
    }
  }
  if (posted->verdict.ok() && chance_.one_in(plan_.held_one_in)) {
    hold(std::move(posted), 1 + chance_.below(plan_.held_polls_max));
    return net::Post::posted;
  }
  return pass(std::move(posted), false);
}

void Traffic::end(LinkState& link, Status status) {
  if (link.dead.ok()) link.dead = status;
  drop_held(&link, link.dead);
}

/// @param is_known  its poster has been told that it is posted
Result<net::Post> Traffic::pass(std::unique_ptr<Posted> posted, bool is_known) {
  LinkState& link = *posted->link;
  const bool may_retry = !is_known && posted->verdict.ok();
  Result<net::Post> answer = forward(*posted);
  if (!answer) {
    if (link.dead.ok()) link.dead = answer.error();
    if (may_retry) return answer;
    add_due(std::move(posted), answer.error(), true);
    return net::Post::posted;
  }
  switch (answer.value()) {
    case net::Post::posted:
      ++link.under_way_count;
      below_.emplace(posted.get(), std::move(posted));
      break;
    case net::Post::done:
      if (may_retry && !chance_.one_in(plan_.late_one_in)) return net::Post::done;
      add_due(std::move(posted), {}, true);
      break;
    case net::Post::retry:
      if (may_retry) {
        chance_.forget_post(posted->request.call);
        return net::Post::retry;
      }
      hold(std::move(posted), 1);
      break;
  }
  return net::Post::posted;
}

Result<net::Post> Traffic::forward(Posted& posted) {
  net::Link& link = *posted.link->inner;
  const Request& request = posted.request;
  switch (request.call) {
    case Call::write_immediate:
      return link.write_immediate(request.transfer, request.immediate, posted);
    case Call::write_small:
      return link.write_small(posted.small, request.transfer.remote, posted);
    case Call::write_small_immediate:
      return link.write_small_immediate(posted.small, request.transfer.remote, request.immediate,
                                        posted);
    case Call::read:
      return link.read(request.transfer, posted);
    case Call::probe:
      return link.probe(posted);
    default:
      return link.write(request.transfer, posted);
  }
}

/// A word is never seen in parts. The last half: the first word may have to arrive last.
void Traffic::halve(Posted& posted) {
  Request& request = posted.request;
  net::Transfer& transfer = request.transfer;
  const std::uint64_t bytes = posted.small.empty() ? transfer.bytes : posted.small.size();
  const std::uint64_t cut = (bytes / 2 + kWordBytes - 1) / kWordBytes * kWordBytes;
  const std::uint64_t left_out = std::min(cut, bytes);
  transfer.remote.address += left_out;
  if (posted.small.empty()) {
    transfer.local += left_out;
    transfer.bytes -= left_out;
  } else {
    posted.small.erase(posted.small.begin(),
                       posted.small.begin() + static_cast<std::ptrdiff_t>(left_out));
  }
  if (request.call == Call::write_immediate) request.call = Call::write;
  if (request.call == Call::write_small_immediate) request.call = Call::write_small;
}

/// Never the same: one bit is another one, or, half of the time, any.
void Traffic::garble(Posted& posted) {
  const auto other = [&](std::uint64_t bits) {
    const std::uint64_t flipped = std::uint64_t{1} << chance_.below(bits);
    return chance_.one_in(2) ? flipped : flipped | chance_.below(std::uint64_t{1} << (bits - 1));
  };
  const Call call = posted.request.call;
  const bool has_immediate = call == Call::write_immediate || call == Call::write_small_immediate;
  const bool has_words = posted.small.size() >= kWordBytes;
  if (has_immediate && !(has_words && chance_.one_in(2))) {
    posted.request.immediate ^= static_cast<std::uint32_t>(other(32));
  } else if (has_words) {
    std::byte* const at =
        posted.small.data() + chance_.below(posted.small.size() / kWordBytes) * kWordBytes;
    std::uint64_t word = 0;
    std::memcpy(&word, at, sizeof(word));
    word ^= other(64);
    std::memcpy(at, &word, sizeof(word));
  }
}

void Traffic::hold(std::unique_ptr<Posted> posted, std::uint64_t polls) {
  ++posted->link->under_way_count;
  held_.push_back({std::move(posted), polls_ + polls});
}

std::uint64_t Traffic::lateness() {
  return chance_.one_in(plan_.late_one_in) ? 1 + chance_.below(plan_.late_polls_max) : 0;
}

void Traffic::add_due(std::unique_ptr<Posted> posted, Status status, bool may_be_late) {
  ++posted->link->under_way_count;
  due_.push_back({std::move(posted), status, 0, polls_ + (may_be_late ? lateness() : 0)});
}

/// @param link  null: of all links
void Traffic::drop_held(const LinkState* link, Status status) {
  for (Held& held : std::exchange(held_, {})) {
    if (link != nullptr && held.posted->link != link) {
      held_.push_back(std::move(held));
      continue;
    }
    --held.posted->link->under_way_count;
    add_due(std::move(held.posted), status, false);
  }
}

void Traffic::pass_held() {
  for (Held& held : std::exchange(held_, {})) {
    if (held.not_before > polls_) {
      held_.push_back(std::move(held));
      continue;
    }
    --held.posted->link->under_way_count;
    (void)pass(std::move(held.posted), true);
  }
}

void Traffic::completed(net::Operation& operation, Status status) {
  auto& posted = static_cast<Posted&>(operation);
  Traffic& traffic = *posted.traffic;
  const auto found = traffic.below_.find(&posted);
  std::unique_ptr<Posted> own = std::move(found->second);
  traffic.below_.erase(found);
  --posted.link->under_way_count;
  traffic.add_due(std::move(own), status, true);
}

void Traffic::on_immediate(std::uint32_t immediate) {
  if (!dead_.ok()) return;
  if (const std::uint64_t late = lateness(); late > 0) {
    due_.push_back({nullptr, {}, immediate, polls_ + late});
    return;
  }
  ++heard_count_;
  receiver_.on_immediate(immediate);
}

/// One of the due operations; in order, unless the plan wants none.
bool Traffic::serve_one() {
  std::vector<std::size_t> ripe;
  for (std::size_t i = 0; i < due_.size(); ++i)
    if (due_[i].not_before <= polls_ || !dead_.ok()) ripe.push_back(i);
  if (ripe.empty()) return false;
  const std::size_t at = ripe[plan_.late_one_in == 0 ? 0 : chance_.below(ripe.size())];
  Due due = std::move(due_[at]);
  due_.erase(due_.begin() + static_cast<std::ptrdiff_t>(at));
  if (due.posted == nullptr) {
    if (dead_.ok()) receiver_.on_immediate(due.immediate);
    return true;
  }
  LinkState& link = *due.posted->link;
  --link.under_way_count;
  const Status status = !due.posted->verdict.ok() ? due.posted->verdict
                        : !link.dead.ok()         ? link.dead
                        : !dead_.ok()             ? dead_
                                                  : due.status;
  due.posted->outer->complete(*due.posted->outer, status);
  return true;
}

Result<std::uint32_t> Traffic::poll(net::Endpoint& inner, std::uint32_t most) {
  ++polls_;
  const Fault* fault = chance_.next(Call::poll);
  if (fault != nullptr && fault->what == What::refuse && dead_.ok()) dead_ = fault->status;
  if (!dead_.ok()) drop_held(nullptr, dead_);
  pass_held();
  heard_count_ = 0;
  const Result<std::uint32_t> answer = inner.poll(most);
  if (!answer && dead_.ok()) {
    dead_ = answer.error();
    drop_held(nullptr, dead_);
  }
  std::uint32_t served = heard_count_;
  while (served < most && serve_one()) ++served;
  if (!dead_.ok() && served == 0 && below_.empty() && due_.empty()) return dead_;
  return served;
}

}  // namespace larklane::fault
