#pragma once
// Atomics of virtual threads: each operation is a scheduling point and charged to the caller.
// They have the size of their value, so that layouts are those of the real machine.

#include <atomic>
#include <cstdint>

#include "net/loop/simulation.hpp"

namespace larklane::loop {

/// Takes the place of std::atomic<T>. Outside of a running simulation it is a plain variable.
/// Thread safety: single-owner; atomic among virtual threads.
template <class T>
class Atomic {
 public:
  constexpr Atomic() noexcept = default;
  constexpr Atomic(T value) noexcept : value_(value) {}
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;

  T load(std::memory_order) const {
    if (Simulation* simulation = Simulation::running()) simulation->charge_load(this);
    return value_;
  }
  void store(T value, std::memory_order) {
    modify([&](T) { return value; });
  }
  T exchange(T value, std::memory_order) {
    return modify([&](T) { return value; });
  }
  T fetch_add(T value, std::memory_order) {
    return modify([&](T old) { return static_cast<T>(old + value); });
  }
  T fetch_sub(T value, std::memory_order) {
    return modify([&](T old) { return static_cast<T>(old - value); });
  }
  T fetch_or(T value, std::memory_order) {
    return modify([&](T old) { return static_cast<T>(old | value); });
  }
  T fetch_and(T value, std::memory_order) {
    return modify([&](T old) { return static_cast<T>(old & value); });
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order, std::memory_order) {
    return compare_exchange(expected, desired, false);
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order, std::memory_order) {
    Simulation* simulation = Simulation::running();
    return compare_exchange(expected, desired,
                            simulation != nullptr && simulation->spurious_failure());
  }

 private:
  template <class Change>
  T modify(Change&& change) {
    Simulation* simulation = Simulation::running();
    if (simulation != nullptr) simulation->charge_modify(this);
    const T old = value_;
    value_ = change(old);
    if (simulation != nullptr && value_ != old) simulation->effect();
    return old;
  }
  bool compare_exchange(T& expected, T desired, bool fails) {
    const T wanted = expected;
    const T old = modify([&](T now) { return now == wanted && !fails ? desired : now; });
    expected = old;
    return old == wanted && !fails;
  }

  T value_{};
};
static_assert(sizeof(Atomic<std::uint64_t>) == sizeof(std::uint64_t));

/// For templates that take their atomics from a platform.
struct Platform {
  template <class T>
  using Atomic = loop::Atomic<T>;
};

}  // namespace larklane::loop
