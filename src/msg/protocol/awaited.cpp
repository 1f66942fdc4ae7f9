#include "msg/protocol/awaited.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace larklane::msg {
namespace {

bool is_asking(const Operation& operation) noexcept {
  return is_kind(operation.header, RecordKind::ask);
}

}  // namespace

bool Awaited::grow_locked() noexcept {
  constexpr std::uint32_t kFirst = 64;
  const std::uint32_t size = std::min(std::max(2 * size_, kFirst), kPlaceMask);
  if (size == size_) return false;
  std::unique_ptr<Place[]> places(new (std::nothrow) Place[size]);
  if (places == nullptr) return false;
  std::copy_n(places_.get(), size_, places.get());
  for (std::uint32_t number = size; number > size_; --number)
    places[number - 1].next_free = std::exchange(free_, number);
  places_ = std::move(places);
  size_ = size;
  return true;
}

std::uint32_t Awaited::add(Operation& operation, std::uint32_t places) noexcept {
  const SpinGuard guard(lock_);
  if (count_ >= most_ && !is_ordinary(operation.header)) return 0;
  if ((free_ == 0 && !grow_locked()) || free_ > places) return 0;
  const std::uint32_t number = free_;
  Place& place = places_[number - 1];
  free_ = place.next_free;
  place.operation = &operation;
  ++place.uses;
  ++count_;
  return operation.awaited = place.uses << kPlaceBits | number;
}

Operation* Awaited::take_locked(std::uint32_t number) noexcept {
  Place& place = places_[number - 1];
  place.next_free = std::exchange(free_, number);
  --count_;
  place.operation->awaited = 0;
  return std::exchange(place.operation, nullptr);
}

Operation* Awaited::find_locked(std::uint32_t number, const Connection& connection) noexcept {
  const std::uint32_t place = number & kPlaceMask;
  if (place == 0 || place > size_) return nullptr;
  Operation* const operation = places_[place - 1].operation;
  if (operation == nullptr || operation->awaited != number || operation->connection != &connection)
    return nullptr;
  return operation;
}

Operation* Awaited::find(std::uint32_t number, const Connection& connection) noexcept {
  const SpinGuard guard(lock_);
  return find_locked(number, connection);
}

Operation* Awaited::take(std::uint32_t number, const Connection& connection) noexcept {
  const SpinGuard guard(lock_);
  if (find_locked(number, connection) == nullptr) return nullptr;
  return take_locked(number & kPlaceMask);
}

Operation* Awaited::take_asking(std::uint32_t place, const Connection& connection) noexcept {
  const SpinGuard guard(lock_);
  if (place >= size_) return nullptr;
  const Operation* const operation = places_[place].operation;
  if (operation == nullptr || operation->connection != &connection || !is_asking(*operation))
    return nullptr;
  return take_locked(place + 1);
}

Operation* Awaited::take_one_of(const Connection& connection, Which which, Sweep& sweep) noexcept {
  const SpinGuard guard(lock_);
  while (sweep.place < size_) {
    const Operation* const operation = places_[sweep.place++].operation;
    if (operation == nullptr || operation->connection != &connection) continue;
    if (which == Which::all || !is_asking(*operation)) return take_locked(sweep.place);
  }
  return nullptr;
}

net::Memory* Awaited::take_memory_of_asking(const Connection& connection, Sweep& sweep) noexcept {
  const SpinGuard guard(lock_);
  while (sweep.place < size_) {
    Operation* const operation = places_[sweep.place++].operation;
    if (operation == nullptr || operation->connection != &connection || !is_asking(*operation))
      continue;
    if (net::Memory* const memory = std::exchange(operation->registered, nullptr)) return memory;
  }
  return nullptr;
}

bool Awaited::may_have_one_of(const Connection& connection) noexcept {
  constexpr std::uint32_t kSearchMost = 1024;
  const SpinGuard guard(lock_);
  if (count_ == 0 || size_ > kSearchMost) return count_ != 0;
  return std::any_of(places_.get(), places_.get() + size_, [&](const Place& place) {
    return place.operation != nullptr && place.operation->connection == &connection;
  });
}

bool Awaited::has_ordinary(const Connection& connection, std::uint32_t number) noexcept {
  const SpinGuard guard(lock_);
  return std::any_of(places_.get(), places_.get() + size_, [&](const Place& place) {
    return place.operation != nullptr && place.operation->connection == &connection &&
           OrdinaryWord::number_in(place.operation->header) == number;
  });
}

std::uint32_t Awaited::count() noexcept {
  const SpinGuard guard(lock_);
  return count_;
}

}  // namespace larklane::msg
