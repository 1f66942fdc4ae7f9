#pragma once
// Messages between threads over Larklane, as suite/messages.cpp over an MPI.

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "exchange.hpp"
#include "heard.hpp"
#include "world.hpp"

namespace larklane::bench {

/// State that the threads of a way share. Thread safety: immutable.
struct Memory {
  const Region* out;
  const Region* in;
  RemoteRegion theirs;  ///< the peer's receive memory
};

/// A thread's calls. Thread safety: single-owner.
class NativeEnd {
 public:
  NativeEnd(NativeWorld& world, const std::string& way, const Shape& shape, const Memory& memory,
            std::uint32_t thread, Vci& vci);

  /// Exchanges numbers with the peer's thread. Both sides call this first, thread by thread.
  void meet();

  void enter() { world_.enter(way_, waiter_.vci()); }
  void leave() { world_.leave(way_, waiter_.vci()); }
  void post_receives();
  void wait_receives();
  std::span<const std::byte> message(std::uint32_t slot) const;
  void release();
  void post_send(std::uint32_t slot);
  void wait_sends();
  void answer() { send_nothing(answer_tag_); }
  void wait_answer();

 private:
  void send_nothing(std::uint32_t tag);
  void receive_nothing(std::uint32_t tag);
  void wait_nothing();

  NativeWorld& world_;
  const std::string& way_;
  const Shape& shape_;
  const Memory& memory_;
  const std::uint32_t thread_, data_tag_, answer_tag_;
  const bool puts_, signals_;  ///< puts, followed by one message or each with a signal
  Waiter waiter_;
  std::unique_ptr<Heard> sends_, receives_;
  std::unique_ptr<Arrivals> arrivals_;  ///< active messages; null: there are none
  CompletionQueue control_;             ///< signaled by receives of no bytes
  PostOptions of_send_, of_receive_, of_control_;
  RemoteCompletion there_ = 0;  ///< the peer's completion object for arrivals
  std::uint64_t posted_ = 0;    ///< sends whose completion is signaled
};

/// Creation and destruction are collective.
class NativeWay {
 public:
  NativeWay(NativeWorld& world, const std::string& name, const Shape& shape);
  NativeWay(const NativeWay&) = delete;
  NativeWay& operator=(const NativeWay&) = delete;

  NativeEnd& end(std::uint32_t thread) { return *ends_[thread]; }
  /// With --progress dedicated, begin_round() starts a thread that makes progress on all lanes.
  void begin_round();
  void end_round() { progress_ = {}; }

 private:
  NativeWorld& world_;
  const std::string name_;
  Shape shape_;  // puts: `in` is the region's
  std::vector<Vci*> lanes_;
  Region out_, in_;
  Memory memory_;
  std::vector<std::unique_ptr<NativeEnd>> ends_;
  std::jthread progress_;
};

}  // namespace larklane::bench
