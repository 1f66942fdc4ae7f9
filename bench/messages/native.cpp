#include "native.hpp"

#include <sched.h>

#include "larklane/message.hpp"
#include "numbers.hpp"

namespace larklane::bench {
namespace {

/// Such memory the library allocates, as MPI_Win_allocate() does.
bool is_put(const Shape& shape) { return shape.options->operation.starts_with("put"); }

}  // namespace

NativeEnd::NativeEnd(NativeWorld& world, const std::string& way, const Shape& shape,
                     const Memory& memory, std::uint32_t thread, Vci& vci)
    : world_(world),
      way_(way),
      shape_(shape),
      memory_(memory),
      thread_(thread),
      data_tag_(Numbers::is_mixed(way) ? 0 : 2 * thread),
      answer_tag_(2 * thread + 1),
      puts_(shape.options->operation == "put"),
      signals_(shape.options->operation == "put-signal"),
      waiter_(vci, shape.options->yields, shape.options->progress == "workers"),
      control_(must(CompletionQueue::create(world.context().completions()), "queue")) {
  const Options& o = *shape.options;
  CompletionDomain& domain = world.context().completions();
  sends_ = make_heard(o.completion, domain, o.window, waiter_);
  receives_ = make_heard(o.completion, domain, o.window, waiter_);
  if (o.operation == "am") arrivals_ = make_arrivals(o.completion, domain, o.window, waiter_);
  of_send_.completion = &sends_->object();
  of_send_.region = memory.out;
  of_send_.signals_always = o.completion == "synchronizer";  // it counts a window
  of_receive_.completion = &receives_->object();
  of_receive_.region = memory.in;
  of_control_.completion = &control_;
}

void NativeEnd::meet() {
  if (!arrivals_ && !signals_) return;
  const RemoteCompletion mine = signals_
                                    ? must(receives_->object().register_remote(), "register_remote")
                                    : arrivals_->register_remote();
  world_.swap(shape_.peer, &mine, sizeof mine, &there_);
}

void NativeEnd::post_receives() {
  if (arrivals_) return;
  if (puts_) return receive_nothing(data_tag_);
  receives_->restart();
  if (signals_) return;
  for (std::uint32_t slot = 0; slot < shape_.options->window; ++slot)
    waiter_.post(
        [&] {
          return larklane::post_recv(waiter_.vci(), shape_.peer, data_tag_,
                                     shape_.in_of(thread_, slot), shape_.bytes, of_receive_);
        },
        "post_recv");
}

void NativeEnd::wait_receives() {
  if (arrivals_) return waiter_.until([&] { return arrivals_->are_all_there(); });
  if (puts_) return wait_nothing();
  waiter_.until([&] { return receives_->has(shape_.options->window); });
}

std::span<const std::byte> NativeEnd::message(std::uint32_t slot) const {
  if (arrivals_) return arrivals_->message(slot);
  return {shape_.in_of(thread_, slot), shape_.bytes};
}

void NativeEnd::release() {
  if (arrivals_) arrivals_->release();
}

void NativeEnd::post_send(std::uint32_t slot) {
  const std::byte* const from = shape_.out_of(thread_, slot);
  of_send_.more_follow = shape_.options->more_follow && slot + 1 < shape_.options->window;
  posted_ += waiter_.post(
      [&] {
        if (arrivals_)
          return larklane::post_am(waiter_.vci(), shape_.peer, there_, slot, from, shape_.bytes,
                                   of_send_);
        if (puts_ || signals_)
          return larklane::post_put(waiter_.vci(), memory_.theirs, shape_.place(thread_, slot),
                                    from, shape_.bytes, of_send_, there_, slot);
        return larklane::post_send(waiter_.vci(), shape_.peer, data_tag_, from, shape_.bytes,
                                   of_send_);
      },
      "post");
}

void NativeEnd::wait_sends() {
  waiter_.until([&] { return sends_->has(posted_); });
  sends_->restart();
  posted_ = 0;
  if (puts_) send_nothing(data_tag_);  // all puts have arrived
}

void NativeEnd::wait_answer() {
  receive_nothing(answer_tag_);
  wait_nothing();
}

void NativeEnd::send_nothing(std::uint32_t tag) {
  waiter_.post([&] { return larklane::post_send(waiter_.vci(), shape_.peer, tag, nullptr, 0); },
               "post_send");
}

void NativeEnd::receive_nothing(std::uint32_t tag) {
  waiter_.post(
      [&] { return larklane::post_recv(waiter_.vci(), shape_.peer, tag, nullptr, 0, of_control_); },
      "post_recv");
}

void NativeEnd::wait_nothing() {
  waiter_.until([&] {
    const auto told = control_.pop();
    if (told && !told->status.ok()) give_up("post_recv", told->status);
    return told.has_value();
  });
}

NativeWay::NativeWay(NativeWorld& world, const std::string& name, const Shape& shape)
    : world_(world),
      name_(name),
      shape_(shape),
      out_(must(world.context().register_region(shape.out.data(), shape.out.size()),
                "register_region")),
      in_(must(is_put(shape) ? world.context().allocate_region(shape.in.size())
                             : world.context().register_region(shape.in.data(), shape.in.size()),
               "a region")),
      memory_{&out_, &in_, {}} {
  shape_.in = {static_cast<std::byte*>(in_.start()), shape.in.size()};
  const RemoteRegion mine = in_.remote();
  world.swap(shape_.peer, &mine, sizeof mine, &memory_.theirs);
  for (std::uint32_t lane = 0; lane < shape_.lanes(name); ++lane)
    lanes_.push_back(&world.lane(lane));
  for (std::uint32_t thread = 0; thread < shape_.threads; ++thread) {
    ends_.push_back(std::make_unique<NativeEnd>(world, name_, shape_, memory_, thread,
                                                *lanes_[thread % lanes_.size()]));
    ends_.back()->meet();
  }
}

void NativeWay::begin_round() {
  world_.before_round(name_);
  if (shape_.options->progress != "dedicated") return;
  progress_ = std::jthread([this](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::uint32_t served = 0;
      for (Vci* lane : lanes_) served += lane->progress();
      if (served == 0 && shape_.options->yields) sched_yield();
    }
  });
}

std::unique_ptr<NativeWay> NativeWorld::make_way(const std::string& name, const Shape& shape) {
  return std::make_unique<NativeWay>(*this, name, shape);
}

}  // namespace larklane::bench
