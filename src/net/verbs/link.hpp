#pragma once
// Queue pairs to one endpoint of one peer: for writes, and one for reads, so that a read that waits
// for its turn (max_rd_atomic) never holds up writes. One is for writes where channels share a
// link. Where each has its own (Temucin et al., CLUSTER'23, section IV.A) there may be several:
// partitions that are neighbours go by one, and the immediates are the paper's.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/immediate.hpp"
#include "net/link_posts.hpp"
#include "net/provider.hpp"
#include "net/verbs/endpoint.hpp"
#include "net/verbs/offer.hpp"

namespace larklane::verbs {

/// How long the device waits for an answer, and how often again.
inline constexpr std::uint8_t kAckTimeout = 18;  // 4.096 us * 2^18: 1 s
inline constexpr std::uint8_t kAckRetries = 6;   // Soft-RoCE takes 7, the most, for no limit at all
/// 7.5 s by these numbers; a device may wait up to four times as long (IBTA, 9.7.6.1.3).
inline constexpr std::uint64_t kUnansweredNs =
    (kAckRetries + 1) * (std::uint64_t{4096} << kAckTimeout);

/// Thread safety: vci-serial.
class Link final : public net::Link {
 public:
  static Result<std::unique_ptr<Link>> create(Endpoint& endpoint, std::string* reason);
  ~Link() override;

  std::span<const std::byte> offer() const noexcept override { return offer_bytes_; }
  Status connect(std::span<const std::byte> peer_offer) override;

  void use_queues(std::uint32_t count) override;
  void carry_only(net::ChannelHalf half, std::optional<std::uint16_t> slot,
                  std::uint32_t partitions) override;
  /// One that has come in on a link that carries one channel, in the lane's way. Nothing: of no
  /// half that is here.
  std::optional<std::uint32_t> immediate_here(std::uint32_t immediate) const noexcept;

  LARKLANE_NET_LINK_POSTS;
  net::PostPrepared prepare(const net::Transfer& transfer, std::uint32_t immediate,
                            net::Operation& operation) override;
  Result<net::Post> probe(net::Operation& operation) override;
  Status failure() const noexcept override { return first_writes_.error(); }
  /// The peer can't use it any more either.
  void end(Status status) override;

 private:
  /// The one channel that it carries.
  struct Channel {
    net::ChannelHalf half;
    std::optional<std::uint16_t> slot;
    net::Cells cells;
  };

  Link(Endpoint& endpoint, std::vector<std::unique_ptr<SendQueue>> writes,
       std::unique_ptr<SendQueue> reads);

  Status make_offer();
  Status make_copies(SendQueue& writes, std::string* reason);
  std::uint32_t immediate_there(std::uint32_t immediate) const noexcept;
  SendQueue& queue_of(std::uint32_t immediate) const noexcept;
  Status connect_pair(ibv_qp* pair, const QueueAddress& own, const QueueAddress& peers,
                      const Offer& peer);
  Result<net::Post> post(SendQueue& queue, const SendQueue::Request& request,
                         net::Operation& operation);
  Result<net::Post> post_transfer(SendQueue& queue, ibv_wr_opcode opcode,
                                  const net::Transfer& transfer, std::uint32_t immediate,
                                  net::Operation& operation);
  Result<net::Post> post_small(ibv_wr_opcode opcode, std::span<const std::byte> bytes,
                               net::RemoteMemory to, std::uint32_t immediate, unsigned flags,
                               net::Operation& operation);

  template <bool kIsExtended>
  static Result<net::Post> post_prepared(net::Operation& operation);
  static net::PostPrepared post_prepared_to(const SendQueue& queue) noexcept;
  Result<net::Post> not_posted_slow(SendQueue& queue, net::Operation& operation, int error);
  Result<net::Post> broken_slow(SendQueue& queue, Status error);

  Endpoint& endpoint_;
  const std::uint64_t bytes_max_;  ///< of one operation
  std::vector<std::unique_ptr<SendQueue>> writes_;
  std::unique_ptr<SendQueue> reads_;
  SendQueue& first_writes_;
  std::optional<Channel> channel_;
  Offer offer_{};
  std::vector<std::byte> offer_bytes_;
  bool is_connected_ = false;
};

}  // namespace larklane::verbs
