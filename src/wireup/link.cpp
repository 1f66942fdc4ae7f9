#include "wireup/link.hpp"

#include <algorithm>
#include <utility>

namespace larklane::wireup {

Link::First Link::first_of(std::span<const std::byte> ours, std::span<const std::byte> theirs) {
  if (std::ranges::lexicographical_compare(ours, theirs)) return First::theirs;
  if (std::ranges::lexicographical_compare(theirs, ours)) return First::ours;
  return First::either;
}

Status Link::want() {
  if (is_over()) return failure_;
  if (state_ != State::unopened) return {};
  if (const Status opened = open(); !opened.ok()) {
    give_up(opened);
    return opened;
  }
  state_ = State::offered;
  return send_offer();
}

Status Link::hear_offer(std::span<const std::byte> offer) {
  if (is_connected()) return Errc::kProtocol;
  if (const Status wanted = want(); !wanted.ok()) {
    if (is_over()) send_ready(wanted);  // now, or as before: an offer and a refusal may cross
    return {};
  }
  if (const Status connected = connect(offer); !connected.ok()) {
    lose(connected);
    return {};
  }
  state_ = State::connected;
  if (is_connected_by_use()) first_ = first_of(this->offer(), offer);
  if (first_ == First::theirs) serve(true);
  if (first_ != First::ours) send_ready({});
  return {};
}

Status Link::hear_ready(Status status) {
  if (is_over()) return {};  // each side has told the other one
  // acquire: pairs with answered()'s release, of answer_.
  const bool is_answered = is_answered_.load(std::memory_order_acquire);
  if (!status.ok()) {
    // The greeting side reports its own failure here: its completion can't take the user's lock.
    if (is_answered && !answer_.ok()) {
      finish(answer_, Cause::here);
      return {};
    }
    if (first_ == First::theirs && !is_ready()) send_ready(status);
    finish(status, Cause::peer);
    return {};
  }
  if (!is_connected()) return {};  // of no offer: a link becomes ready by the one that follows it
  if (is_ready()) return Errc::kProtocol;
  if (first_ == First::ours && state_ == State::connected) {
    state_ = State::greeting;
    serve(true);
    greet();
    return {};
  }
  if (first_ == First::ours && !is_answered) return Errc::kProtocol;
  begin();
  return {};
}

void Link::lose(Status status) {
  if (is_over()) return;
  send_ready(status);
  finish(status, Cause::here);
}

void Link::answered(Status status) {
  answer_ = status;
  // release: pairs with hear_ready()'s acquire; before the peer can answer.
  is_answered_.store(true, std::memory_order_release);
  send_ready(status);
}

void Link::begin() {
  state_ = State::ready;
  has_been_ready_ = true;
  serve(false);
  if (first_ == First::theirs) send_ready({});
  on_ready();
}

void Link::finish(Status status, Cause cause) {
  if (is_over()) return;
  state_ = State::over;
  failure_ = status;
  serve(false);
  on_over(status, cause);
}

void Link::serve(bool is_served) {
  if (std::exchange(is_served_, is_served) != is_served) on_served();
}

}  // namespace larklane::wireup
