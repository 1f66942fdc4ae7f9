#include "msg/protocol/link_numbers.hpp"

#include <new>

#include "msg/protocol/wire.hpp"

namespace larklane::msg {

std::uint32_t OwnNumbers::take() noexcept {
  const SpinGuard guard(lock_);
  if (!free_.empty()) {
    const std::uint32_t number = free_.back();
    free_.pop_back();
    states_[number] = State::used;
    return number;
  }
  if (states_.size() == OrdinaryWord::kNumbersMax) return kNone;
  try {
    free_.reserve(states_.size() + 1);
    states_.push_back(State::used);
  } catch (const std::bad_alloc&) {
    return kNone;
  }
  return static_cast<std::uint32_t>(states_.size() - 1);
}

void OwnNumbers::close(std::uint32_t number) noexcept {
  const SpinGuard guard(lock_);
  states_[number] = State::closing;
}

bool OwnNumbers::give_back(std::uint32_t number) noexcept {
  const SpinGuard guard(lock_);
  if (number >= states_.size() || states_[number] != State::closing) return false;
  states_[number] = State::free;
  free_.push_back(number);
  return true;
}

bool PeerNumbers::make_room(std::uint32_t number) noexcept {
  if (number < named_.size()) return true;
  try {
    named_.resize(std::size_t{number} + 1);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

}  // namespace larklane::msg
