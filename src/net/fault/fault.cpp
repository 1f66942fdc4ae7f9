#include "net/fault/fault.hpp"

#include <sys/eventfd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "base/unique_fd.hpp"
#include "net/fault/traffic.hpp"

namespace larklane::fault {
namespace {

/// The result of a call that can only be refused; ok: it goes on.
Status refusal(const Fault* fault) {
  return fault != nullptr && fault->what == What::refuse ? fault->status : Status();
}

class FaultLink final : public net::Link {
 public:
  FaultLink(Traffic& traffic, std::unique_ptr<net::Link> inner)
      : traffic_(traffic), inner_(std::move(inner)) {
    state_.inner = inner_.get();
  }
  ~FaultLink() override {
    if (state_.under_way_count == 0) return;
    std::fprintf(stderr, "larklane: fault: link destroyed with %u operations under way\n",
                 state_.under_way_count);
    std::abort();
  }

  std::span<const std::byte> offer() const noexcept override { return inner_->offer(); }
  Status connect(std::span<const std::byte> peer_offer) override {
    LARKLANE_TRY(refusal(traffic_.chance().next(Call::connect)));
    return inner_->connect(peer_offer);
  }
  Result<net::Post> write(const net::Transfer& transfer, net::Operation& operation) override {
    return traffic_.post(state_, {Call::write, transfer}, operation);
  }
  Result<net::Post> write_immediate(const net::Transfer& transfer, std::uint32_t immediate,
                                    net::Operation& operation) override {
    return traffic_.post(state_, {Call::write_immediate, transfer, {}, immediate}, operation);
  }
  Result<net::Post> write_small(std::span<const std::byte> bytes, net::RemoteMemory to,
                                net::Operation& operation) override {
    return traffic_.post(state_, {Call::write_small, {nullptr, nullptr, to, 0}, bytes}, operation);
  }
  Result<net::Post> write_small_immediate(std::span<const std::byte> bytes, net::RemoteMemory to,
                                          std::uint32_t immediate,
                                          net::Operation& operation) override {
    const net::Transfer transfer{nullptr, nullptr, to, 0};
    return traffic_.post(state_, {Call::write_small_immediate, transfer, bytes, immediate},
                         operation);
  }
  Result<net::Post> read(const net::Transfer& transfer, net::Operation& operation) override {
    return traffic_.post(state_, {Call::read, transfer}, operation);
  }
  Result<net::Post> probe(net::Operation& operation) override {
    return traffic_.post(state_, {Call::probe, {}}, operation);
  }
  /// Takes as long as a probe.
  Result<net::Post> settle(net::RemoteMemory, net::Operation& operation) override {
    return traffic_.post(state_, {Call::probe, {}}, operation);
  }
  void end(Status status) override {
    traffic_.end(state_, status);
    inner_->end(status);
  }
  bool is_cut() const noexcept override { return inner_->is_cut(); }
  Status failure() const noexcept override {
    return state_.dead.ok() ? inner_->failure() : state_.dead;
  }
  void carry_only(net::ChannelHalf half, std::optional<std::uint16_t> slot,
                  std::uint32_t partitions) override {
    inner_->carry_only(half, slot, partitions);
  }
  void use_queues(std::uint32_t count) override { inner_->use_queues(count); }

 private:
  Traffic& traffic_;
  const std::unique_ptr<net::Link> inner_;
  LinkState state_;
};

class FaultEndpoint final : public net::Endpoint {
 public:
  FaultEndpoint(std::shared_ptr<Score> score, net::Receiver& receiver)
      : score_(std::move(score)), traffic_(*score_, score_->next_endpoint(), receiver) {}

  Status open(net::Fabric& below) {
    const WaitFd wait_fd = score_->plan().wait_fd;
    if (wait_fd != WaitFd::good) {
      own_fd_.reset(::eventfd(wait_fd == WaitFd::always ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK));
      if (!own_fd_) return {Errc::kSystem, errno};
    }
    auto inner = below.open_endpoint(traffic_);
    if (!inner) return inner.error();
    inner_ = std::move(*inner);
    return {};
  }

  Result<std::unique_ptr<net::Link>> open_link() override {
    LARKLANE_TRY(refusal(traffic_.chance().next(Call::open_link)));
    auto link = inner_->open_link();
    if (!link) return link.error();
    return std::unique_ptr<net::Link>(std::make_unique<FaultLink>(traffic_, std::move(*link)));
  }
  Result<std::uint32_t> poll(std::uint32_t most) override { return traffic_.poll(*inner_, most); }
  Status reserve_immediates(std::uint32_t count) override {
    LARKLANE_TRY(refusal(traffic_.chance().next(Call::reserve)));
    return inner_->reserve_immediates(count);
  }
  void release_immediates(std::uint32_t count) override { inner_->release_immediates(count); }
  int wait_fd() const noexcept override { return own_fd_ ? own_fd_.get() : inner_->wait_fd(); }
  bool arm(net::Wake wake) override { return !traffic_.has_work() && inner_->arm(wake); }
  bool does_all_wake() const noexcept override { return inner_->does_all_wake(); }

 private:
  const std::shared_ptr<Score> score_;
  Traffic traffic_;
  UniqueFd own_fd_;
  std::unique_ptr<net::Endpoint> inner_;
};

}  // namespace

Fabric::Fabric(std::unique_ptr<net::Fabric> inner, Plan plan)
    : inner_(std::move(inner)),
      limits_(inner_->limits()),
      score_(std::make_shared<Score>(std::move(plan))) {
  limits_.are_small_writes_done = false;  // they may be held
  limits_.has_wide_immediates = false;
  limits_.has_mapped_memory = false;  // a load or store can't fail
}
Fabric::~Fabric() = default;

Result<std::unique_ptr<net::Memory>> Fabric::register_memory(void* start, std::uint64_t bytes) {
  LARKLANE_TRY(refusal(score_->next(Call::register_memory)));
  return inner_->register_memory(start, bytes);
}

Result<std::unique_ptr<net::AllocatedMemory>> Fabric::allocate_memory(std::uint64_t bytes) {
  LARKLANE_TRY(refusal(score_->next(Call::register_memory)));
  return inner_->allocate_memory(bytes);
}

Result<std::unique_ptr<net::Endpoint>> Fabric::open_endpoint(net::Receiver& receiver) {
  LARKLANE_TRY(refusal(score_->next(Call::open_endpoint)));
  auto endpoint = std::make_unique<FaultEndpoint>(score_, receiver);
  LARKLANE_TRY(endpoint->open(*inner_));
  return std::unique_ptr<net::Endpoint>(std::move(endpoint));
}

std::uint64_t Fabric::hits_count(What what) const noexcept { return score_->hits().count(what); }

}  // namespace larklane::fault
