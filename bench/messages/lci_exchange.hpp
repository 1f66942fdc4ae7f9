#pragma once
// Messages between threads over LCI v2, as native.cpp over Larklane. `World` is that of
// applications/lci.cpp: lane(index), turn(index), gather(number).

#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <lci.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "exchange.hpp"

namespace larklane::bench {

/// Retries `call()` until LCI accepts it, with a turn after each refusal.
/// @return true if the completion will be signaled
template <class Call, class Turn>
bool is_posted(Call&& call, Turn&& turn) {
  for (;;) {
    const lci::status_t status = call();
    if (!status.is_retry()) return status.is_posted();
    turn();
  }
}

/// The ends of operations, in a counter or a completion queue. Thread safety: single-owner.
class LciEnds {
 public:
  explicit LciEnds(bool counts)
      : counts_(counts), told_(counts ? lci::alloc_counter() : lci::alloc_cq()) {}
  ~LciEnds() { lci::free_comp(&told_); }
  LciEnds(const LciEnds&) = delete;
  LciEnds& operator=(const LciEnds&) = delete;

  lci::comp_t told() const { return told_; }
  void add(bool is_posted) { posted_ += is_posted; }
  bool are_all_there() {
    if (counts_) return lci::counter_get(told_) >= posted_;
    while (heard_ < posted_ && !lci::cq_pop(told_).is_retry()) ++heard_;
    return heard_ == posted_;
  }

 private:
  const bool counts_;
  lci::comp_t told_;
  std::int64_t posted_ = 0, heard_ = 0;
};

/// Active messages of a window, by slot. Thread safety: single-owner.
class LciArrivals {
 public:
  explicit LciArrivals(std::uint32_t count) : slots_(count) {}
  ~LciArrivals() {
    release();
    lci::deregister_rcomp(number_);
    lci::free_comp(&heard_);
  }
  LciArrivals(const LciArrivals&) = delete;
  LciArrivals& operator=(const LciArrivals&) = delete;

  /// The same number in both processes, which register in one order.
  lci::rcomp_t number() const { return number_; }
  bool are_all_there() {
    while (arrived_ < slots_.size()) {
      const lci::status_t status = lci::cq_pop(heard_);
      if (status.is_retry()) return false;
      slots_[status.tag] = {static_cast<std::byte*>(status.buffer), status.size};
      ++arrived_;
    }
    return true;
  }
  std::span<const std::byte> message(std::uint32_t slot) const { return slots_[slot]; }
  void release() {
    for (std::span<std::byte>& slot : slots_) std::free(std::exchange(slot, {}).data());
    arrived_ = 0;
  }

 private:
  std::vector<std::span<std::byte>> slots_;
  std::size_t arrived_ = 0;
  lci::comp_t heard_ = lci::alloc_cq();
  const lci::rcomp_t number_ = lci::register_rcomp(heard_);
};

/// A thread's calls. LCI reorders the messages of several threads on one device, so each slot of a
/// window has its own tag. Thread safety: single-owner.
template <class World>
class LciEnd {
 public:
  /// Memory of sends and receives, registered with the lane's device.
  struct Memory {
    lci::mr_t out, in;
  };
  LciEnd(World& world, const Shape& shape, std::uint32_t thread, std::uint32_t lane,
         const Memory& memory)
      : world_(world),
        shape_(shape),
        thread_(thread),
        lane_(lane),
        device_(world.lane(lane)),
        memory_(memory) {
    if (shape.options->operation == "am") arrivals_.emplace(window());
  }
  LciEnd(const LciEnd&) = delete;
  LciEnd& operator=(const LciEnd&) = delete;

  void post_receives() {
    if (arrivals_) return;
    for (std::uint32_t slot = 0; slot < window(); ++slot)
      post(received_, [&] {
        return lci::post_recv_x(shape_.peer, shape_.in_of(thread_, slot), shape_.bytes, tag(slot),
                                received_.told())
            .device(device_)
            .mr(memory_.in)();
      });
  }
  void wait_receives() {
    if (!arrivals_) return wait(received_);
    while (!arrivals_->are_all_there()) turn();
  }
  std::span<const std::byte> message(std::uint32_t slot) const {
    if (arrivals_) return arrivals_->message(slot);
    return {shape_.in_of(thread_, slot), shape_.bytes};
  }
  void release() {
    if (arrivals_) arrivals_->release();
  }
  void enter() {}
  void leave() {}

  void post_send(std::uint32_t slot) {
    std::byte* const from = shape_.out_of(thread_, slot);
    post(sent_, [&] {
      if (arrivals_)
        return lci::post_am_x(shape_.peer, from, shape_.bytes, sent_.told(), arrivals_->number())
            .tag(slot)
            .device(device_)
            .mr(memory_.out)();
      return lci::post_send_x(shape_.peer, from, shape_.bytes, tag(slot), sent_.told())
          .device(device_)
          .mr(memory_.out)();
    });
  }
  void wait_sends() { wait(sent_); }
  void answer() {
    post(sent_, [&] {
      return lci::post_send_x(shape_.peer, nullptr, 0, tag(window()), sent_.told())
          .device(device_)();
    });
    wait(sent_);
  }
  void wait_answer() {
    post(answers_, [&] {
      return lci::post_recv_x(shape_.peer, nullptr, 0, tag(window()), answers_.told())
          .device(device_)();
    });
    wait(answers_);
  }

 private:
  static constexpr unsigned kMissesMax = 200;  ///< before it yields

  std::uint32_t window() const { return shape_.options->window; }
  lci::tag_t tag(std::uint32_t place) const { return thread_ * (window() + 1) + place; }
  template <class Call>
  void post(LciEnds& ends, Call&& call) {
    ends.add(is_posted(call, [this] { turn(); }));
  }
  void wait(LciEnds& ends) {
    while (!ends.are_all_there()) turn();
  }
  void turn() {
    if (world_.turn(lane_)) {
      misses_ = 0;
    } else if (shape_.options->yields && ++misses_ == kMissesMax) {
      misses_ = 0;
      sched_yield();
    }
  }

  World& world_;
  const Shape& shape_;
  const std::uint32_t thread_, lane_;
  const lci::device_t device_;
  const Memory memory_;
  const bool counts_ = shape_.options->completion == "counter";
  LciEnds sent_{counts_}, received_{counts_}, answers_{counts_};
  std::optional<LciArrivals> arrivals_;
  unsigned misses_ = 0;
};

/// Devices as lanes. Creation and destruction are collective.
template <class World>
class LciWay {
 public:
  LciWay(World& world, const std::string& name, const Shape& shape) : world_(world), shape_(shape) {
    const std::uint32_t lanes = shape.lanes(name);
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      const lci::device_t device = world.lane(lane);
      memory_.push_back(
          {lci::register_memory_x(shape.out.data(), shape.out.size()).device(device)(),
           lci::register_memory_x(shape.in.data(), shape.in.size()).device(device)()});
    }
    for (std::uint32_t thread = 0; thread < shape.threads; ++thread)
      ends_.push_back(std::make_unique<LciEnd<World>>(world, shape_, thread, thread % lanes,
                                                      memory_[thread % lanes]));
  }
  ~LciWay() {
    (void)world_.gather(0.0);
    for (auto& memory : memory_) {
      lci::deregister_memory(&memory.out);
      lci::deregister_memory(&memory.in);
    }
  }
  LciWay(const LciWay&) = delete;
  LciWay& operator=(const LciWay&) = delete;

  LciEnd<World>& end(std::uint32_t thread) { return *ends_[thread]; }
  void begin_round() {}
  void end_round() {}

 private:
  World& world_;
  const Shape shape_;
  std::vector<typename LciEnd<World>::Memory> memory_;
  std::vector<std::unique_ptr<LciEnd<World>>> ends_;
};

/// The world that Exchange needs.
template <class World>
class LciRanks {
 public:
  using Way = LciWay<World>;
  using End = LciEnd<World>;

  explicit LciRanks(World& world) : world_(world) {}
  int rank() const { return world_.rank(); }
  int size() const { return world_.size(); }
  std::vector<double> gather(double mine) { return world_.gather(mine); }
  std::unique_ptr<Way> make_way(const std::string& name, const Shape& shape) {
    return std::make_unique<Way>(world_, name, shape);
  }

 private:
  World& world_;
};

/// @return why this program can't run the options over LCI; empty if it can
inline std::string refusal_of_lci(const Options& options) {
  const char* const of_lci = ": not of LCI, here";
  if (options.benchmark == "message-turns") return options.benchmark + of_lci;
  for (const std::string& way : options.ways)
    if (way == "one-tag" || way == "hints" || way == "funneled") return "--ways " + way + of_lci;
  if (options.operation != "send" && options.operation != "am")
    return "--operation " + options.operation + of_lci;
  if (options.completion != "queue" && options.completion != "counter")
    return "--completion " + options.completion + of_lci;
  if (options.progress != "workers") return "--progress " + options.progress + of_lci;
  if (options.more_follow) return std::string("--more-follow") + of_lci;
  return {};
}

}  // namespace larklane::bench
