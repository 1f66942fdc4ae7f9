#include "net/loop/simulation.hpp"

#include <algorithm>
#include <cstring>

namespace larklane::loop {
namespace {

constexpr std::uintptr_t kLineBytes = 64;
/// A copy is cut in pieces of at most this many bytes, small ones in this many pieces.
constexpr std::size_t kPieceBytesMax = 4096;
constexpr std::size_t kPiecesMin = 3;
/// The longest stall when exploring, in line transfers: while one thread stalls, others get through
/// hundreds of steps.
constexpr std::uint64_t kStallLinesMax = 400;

}  // namespace

Simulation::Simulation(Options options) : options_(options), random_(options.seed) {}

Simulation::~Simulation() = default;

void Simulation::spawn(std::string name, std::function<void()> body, std::uint32_t core) {
  const auto index = static_cast<std::uint32_t>(threads_.size());
  auto thread = std::make_unique<Thread>();
  thread->name = std::move(name);
  thread->core = core;
  thread->stall_one_in = 2u << random_.below(10);
  thread->time_ps = self_ == kNobody ? 0 : self().time_ps;
  thread->fiber = std::make_unique<Fiber>([this, index, work = std::move(body)] {
    work();
    threads_[index]->ended = true;
    effect();
    leave(*threads_[index]->fiber);
  });
  threads_.push_back(std::move(thread));
  add_turn(index);
}

std::string Simulation::run() {
  running_ = this;
  leave(outside_);
  running_ = nullptr;
  self_ = kNobody;
  return diagnosis_;
}

/// Switch to the next thread in turn; back outside if there is none, or no time left.
void Simulation::leave(Fiber& from) {
  if (turns_.empty() || turns_.front().time_ps > options_.deadline_ps) {
    if (!turns_.empty())
      diagnosis_ = "not over by the virtual deadline\n" + states();
    else if (!sleepers_.empty())
      diagnosis_ = "deadlock: all wait, and nothing can change any more\n" + states();
    from.switch_to(outside_);
    return;
  }
  std::pop_heap(turns_.begin(), turns_.end(), std::greater<>());
  self_ = turns_.back().thread;
  turns_.pop_back();
  if (self().fiber.get() != &from) from.switch_to(*self().fiber);
}

void Simulation::fail(const std::string& why) {
  diagnosis_ = why + "\n" + states();
  self().fiber->switch_to(outside_);
  std::abort();
}

std::string Simulation::states() const {
  std::string text;
  for (const auto& thread : threads_)
    text += "  " + thread->name + " at " + std::to_string(thread->time_ps) + " ps: " +
            (thread->ended               ? std::string("ended")
             : thread->waits_for.empty() ? std::string("runs")
                                         : "waits for " + thread->waits_for) +
            "\n";
  return text;
}

void Simulation::add_turn(std::uint32_t thread) {
  turns_.push_back({threads_[thread]->time_ps, random_.next(), thread});
  std::push_heap(turns_.begin(), turns_.end(), std::greater<>());
}

std::uint64_t Simulation::step_ps(std::uint64_t table_ps) {
  if (!options_.explore) return table_ps;
  // Nothing but the seed decides, so that a run is repeated wherever its memory lies.
  if (random_.one_in(self().stall_one_in))
    return random_.below(kStallLinesMax * options_.costs.line_transfer_ps);
  return random_.below(random_.one_in(2) ? options_.costs.modify_ps
                                         : options_.costs.line_transfer_ps);
}

void Simulation::spend(std::uint64_t ps) {
  self().time_ps += step_ps(ps);
  add_turn(self_);
  leave(*self().fiber);
}

Simulation::Line& Simulation::line_of(const void* address) {
  return lines_[reinterpret_cast<std::uintptr_t>(address) / kLineBytes];
}

/// Until the line is here, behind the threads that asked for it before.
std::uint64_t Simulation::transfer_ps(Line& line) {
  line.free_ps = std::max(line.free_ps, now_ps()) + options_.costs.line_transfer_ps;
  return line.free_ps - now_ps();
}

void Simulation::charge_load(const void* address) {
  Line& line = line_of(address);
  const bool held = (line.sharers & my_bit()) != 0;
  line.sharers |= my_bit();
  spend(held ? options_.costs.load_ps : transfer_ps(line));
}

void Simulation::charge_modify(const void* address) {
  Line& line = line_of(address);
  const bool held_alone = line.sharers == my_bit();
  line.sharers = my_bit();
  spend(held_alone ? options_.costs.modify_ps : transfer_ps(line));
}

void Simulation::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  spend(options_.costs.copy_setup_ps);
  const std::size_t piece =
      std::clamp((bytes + kPiecesMin - 1) / kPiecesMin, std::size_t{1}, kPieceBytesMax);
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t length = std::min(piece, bytes - done);
    spend(length * options_.costs.copy_byte_ps);
    std::memcpy(to + done, from + done, length);
    effect();
    done += length;
  }
}

void Simulation::effect() {
  ++effects_;
  for (const std::uint32_t sleeper : sleepers_) {
    // It would have polled in vain until now.
    threads_[sleeper]->time_ps =
        std::max(threads_[sleeper]->time_ps, self().time_ps) + step_ps(options_.costs.poll_ps);
    add_turn(sleeper);
  }
  sleepers_.clear();
}

void Simulation::begin_wait(std::string what) {
  effect();
  self().waits_for = std::move(what);
}

void Simulation::end_wait() {
  self().waits_for.clear();
  effect();
}

void Simulation::pause(std::uint64_t seen_effects) {
  if (effects_ != seen_effects) return spend(options_.costs.poll_ps);
  sleepers_.push_back(self_);
  leave(*self().fiber);
}

void Simulation::sleep(Event& event, std::string what) {
  self().waits_for = std::move(what);
  event.sleepers_.push_back(self_);
  leave(*self().fiber);
  self().waits_for.clear();
}

void Simulation::wake(Event& event) {
  for (const std::uint32_t sleeper : event.sleepers_) {
    threads_[sleeper]->time_ps = std::max(threads_[sleeper]->time_ps, now_ps()) + step_ps(0);
    add_turn(sleeper);
  }
  event.sleepers_.clear();
}

}  // namespace larklane::loop
