#pragma once
// One completion queue, one shared receive queue, and the links that use them.

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "net/provider.hpp"
#include "net/verbs/device.hpp"
#include "net/verbs/handles.hpp"
#include "net/verbs/send_queue.hpp"

namespace larklane::verbs {

/// Thread safety: vci-serial.
/// Invariants:
/// 1. Whenever a receiver is called, and after poll(), as many receives are posted as are reserved.
///    These include receives with an immediate that has come and has not been taken from the
///    completion queue.
/// 2. The completion queue has room for every receive that is posted and for every work request of
///    every queue: after an error each of them completes by itself.
/// 3. A queue is in the list of pending ones while it has something to deliver, or unsignalled
///    requests behind the last signalled one.
class Endpoint final : public net::Endpoint {
 public:
  /// @param device, domain  outlive it @param[out] reason  of an error: cause and remedy
  static Result<std::unique_ptr<Endpoint>> create(const Device& device, ibv_pd* domain,
                                                  net::Receiver& receiver, std::string* reason);
  ~Endpoint() override = default;

  Result<std::unique_ptr<net::Link>> open_link() override;
  Result<std::uint32_t> poll(std::uint32_t most) override;
  Status reserve_immediates(std::uint32_t count) override;
  void release_immediates(std::uint32_t count) override;
  int wait_fd() const noexcept override { return channel_->fd; }
  bool arm(net::Wake wake) override;
  bool does_all_wake() const noexcept override { return alarm_.is_for_all(); }

  const Counters& counters() const noexcept { return counters_; }
  /// Receives that it has room for: the wished number, or as many as memory allowed.
  std::uint32_t receives_max() const noexcept { return receives_max_; }

  // For links.
  /// @errors kNoMemory, kSystem; `reason` names the exhausted resource
  Result<std::unique_ptr<SendQueue>> open_queue(SendQueue::Shape shape, std::uint32_t inline_bytes,
                                                std::string* reason);
  void close_queue(SendQueue& queue) noexcept;
  /// It has operations to deliver.
  void set_pending(SendQueue& queue) noexcept;
  /// With one of a link's queues all end.
  void fail_partners(SendQueue& queue, Status error) noexcept;
  /// Arrivals on `pair` go through `link`, which carries one channel.
  void hear_by(const ibv_qp& pair, Link& link) { channels_[pair.qp_num] = &link; }
  void stop_hearing_by(const ibv_qp& pair) noexcept { channels_.erase(pair.qp_num); }
  const Device& device() const noexcept { return device_; }
  ibv_pd* domain() const noexcept { return domain_; }
  /// Features of the device that a lane's lock makes possible; for people.
  std::string offers() const;

 private:
  static constexpr std::uint32_t kBatch = 16;  // completions that are taken at once

  Endpoint(const Device& device, ibv_pd* domain, net::Receiver& receiver);

  Status open_receives(std::string* reason);
  /// In the completion queue, for all entries that all queues and `receives` receives can leave
  /// there.
  Status make_room(std::uint64_t queues, std::uint64_t receives, std::string* reason);
  Status post_receives(std::uint32_t count) noexcept;
  /// A domain of our own, so that the device's library takes no lock; where there is none, all
  /// queues are made in the common one.
  void take_thread_domain() noexcept;
  /// @param[out] extended  null: the device takes no ibv_wr_*
  QueuePair make_pair(ibv_qp_init_attr_ex attributes, ibv_qp_ex** extended) noexcept;
  Status post_chain(std::uint32_t count) noexcept;
  Status replace_receives() noexcept;
  /// As many as are ever posted while so many are reserved: replaced in chains, some are ahead.
  std::uint32_t receives_most(std::uint32_t reserved) const noexcept;
  std::uint32_t posted_receives() const noexcept {
    return reserved_ + static_cast<std::uint32_t>(receives_ahead_);
  }
  Status look_for_left() noexcept;
  Status serve(const ibv_wc* at, const ibv_wc* end, std::uint32_t* served);
  Result<std::uint32_t> poll_device(std::uint32_t most, std::uint32_t served);
  Result<std::uint32_t> poll_left(std::uint32_t most);
  Result<std::uint32_t> poll_broken(Status status);
  Status hear(const ibv_wc& completion);
  Status hear_of_channel(const ibv_wc& completion);
  void fail_receive_slow(const ibv_wc& completion) noexcept;
  void finish(const ibv_wc& completion);
  std::uint32_t deliver(std::uint32_t most);
  Status die(Status error);
  SendQueue* queue_of(std::uint32_t id) noexcept;

  const Device& device_;
  ibv_pd* const domain_;
  net::Receiver& receiver_;
  ThreadDomain thread_domain_;
  ProtectionDomain parent_domain_;  // `domain_`, used by one thread at a time; null: there is none
  bool takes_extended_ = true;      // until the device has said no
  CompletionChannel channel_;
  CompletionQueue completions_;
  SharedReceiveQueue receives_;
  Counters counters_;
  Alarm alarm_;
  std::unordered_map<std::uint32_t, Link*> channels_;  // by their pairs' numbers
  std::vector<SendQueue*> queues_{nullptr};  // by the low 16 bits of their id; null: free, but 0
  std::vector<std::uint16_t> lives_{0};  // high 16 bits of the id of the next queue in that place
  std::uint64_t queues_room_ = 0;        // completions that queues may leave
  std::uint64_t retired_room_ = 0;       // closed queues have left, until none is seen any more
  std::uint32_t receives_max_ = 0;
  std::uint32_t reserved_ = 0;
  std::int32_t receives_ahead_ = 0;  // posted, but not reserved; below 0: to be replaced
  static constexpr std::uint32_t kReceiveChain = 16;  // receives that are posted by one call
  std::array<ibv_recv_wr, kReceiveChain> chain_{};    // any number of the last ones
  std::array<ibv_wc, kBatch> fetched_{};  // found by arm(), and not yet served by poll()
  std::uint32_t left_begin_ = 0;
  std::uint32_t left_end_ = 0;
  SendQueue* pending_first_ = nullptr;
  SendQueue* pending_last_ = nullptr;
  Status dead_;
};

}  // namespace larklane::verbs
