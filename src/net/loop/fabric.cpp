#include "net/loop/fabric.hpp"

#include <utility>

#include "net/loop/hub.hpp"

namespace larklane::loop {
namespace {

/// A call of a lane's: one at a time, and in a callback only by the thread that polls.
class Call {
 public:
  Call(Hub& hub, Port& port, bool is_poll) : port_(port) {
    static thread_local char self;
    const void* user = nullptr;
    // relaxed: finds out, orders nothing
    is_outer_ = port.user.compare_exchange_strong(user, &self, std::memory_order_relaxed,
                                                  std::memory_order_relaxed);
    if (!is_outer_ && (is_poll || user != &self))
      hub.report(Offence::not_serial, user == &self ? "a poll in a callback" : "two threads");
    ++port.calls_count;
  }
  ~Call() {
    if (is_outer_) port_.user.store(nullptr, std::memory_order_relaxed);  // relaxed: as above
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  Port& port_;
  bool is_outer_;
};

class HubMemory final : public net::Memory {
 public:
  HubMemory(std::shared_ptr<Hub> hub, const Region& region)
      : hub_(std::move(hub)), remote_(hub_->add_region(region)) {}
  ~HubMemory() override { hub_->remove_region(remote_.key); }
  net::RemoteMemory remote() const noexcept override { return remote_; }
  const Hub* hub() const noexcept { return hub_.get(); }

 private:
  const std::shared_ptr<Hub> hub_;
  const net::RemoteMemory remote_;
};

class HubLink final : public net::Link {
 public:
  HubLink(std::shared_ptr<Hub> hub, Port& port) : hub_(std::move(hub)) {
    end_.port = &port;
    hub_->add_end(end_);
  }
  ~HubLink() override { hub_->remove_end(end_); }

  std::span<const std::byte> offer() const noexcept override {
    static_assert(sizeof end_.offer <= net::kOfferBytesMax);
    return std::as_bytes(std::span(&end_.offer, 1));
  }
  Status connect(std::span<const std::byte> peer_offer) override {
    const Call call(*hub_, *end_.port, false);
    return hub_->connect(end_, peer_offer);
  }
  Result<net::Post> write(const net::Transfer& transfer, net::Operation& operation) override {
    return post({.transfer = transfer}, operation);
  }
  Result<net::Post> write_immediate(const net::Transfer& transfer, std::uint32_t immediate,
                                    net::Operation& operation) override {
    return post({.transfer = transfer, .immediate = immediate}, operation);
  }
  Result<net::Post> write_small(std::span<const std::byte> bytes, net::RemoteMemory to,
                                net::Operation& operation) override {
    return post(small(bytes, to), operation);
  }
  Result<net::Post> write_small_immediate(std::span<const std::byte> bytes, net::RemoteMemory to,
                                          std::uint32_t immediate,
                                          net::Operation& operation) override {
    Request request = small(bytes, to);
    request.immediate = immediate;
    return post(request, operation);
  }
  Result<net::Post> write_small_wide(std::span<const std::byte> bytes, net::RemoteMemory to,
                                     std::uint64_t immediate, net::Operation& operation) override {
    Request request = small(bytes, to);
    request.immediate = immediate;
    return post(request, operation);
  }
  Result<net::Post> read(const net::Transfer& transfer, net::Operation& operation) override {
    return post({.is_read = true, .transfer = transfer}, operation);
  }
  Result<net::Post> probe(net::Operation& operation) override { return post({}, operation); }
  Result<net::Post> settle(net::RemoteMemory, net::Operation& operation) override {
    if (!hub_->limits().is_connected_by_use) return net::Post::done;
    return post({}, operation);
  }

 private:
  static Request small(std::span<const std::byte> bytes, net::RemoteMemory to) {
    return {.is_small = true, .small = bytes, .transfer = {nullptr, nullptr, to, bytes.size()}};
  }
  Result<net::Post> post(const Request& request, net::Operation& operation) {
    const Call call(*hub_, *end_.port, false);
    const auto* memory = dynamic_cast<const HubMemory*>(request.transfer.memory);
    const bool is_ours = memory != nullptr && memory->hub() == hub_.get();
    return hub_->post(end_, request, is_ours ? memory->remote().key : 0, operation);
  }

  const std::shared_ptr<Hub> hub_;
  End end_;
};

class HubEndpoint final : public net::Endpoint {
 public:
  HubEndpoint(std::shared_ptr<Hub> hub, std::uint32_t process, net::Receiver& receiver)
      : hub_(std::move(hub)) {
    port_.receiver = &receiver;
    port_.process = process;
  }
  Status enter() {
    const Status status = hub_->add_port(port_);
    has_entered_ = status.ok();
    return status;
  }
  ~HubEndpoint() override {
    if (has_entered_) hub_->remove_port(port_);
  }

  Result<std::unique_ptr<net::Link>> open_link() override {
    const Call call(*hub_, port_, false);
    return std::unique_ptr<net::Link>(std::make_unique<HubLink>(hub_, port_));
  }
  Result<std::uint32_t> poll(std::uint32_t most) override {
    const Call call(*hub_, port_, true);
    hub_->turn_for_poll(port_);
    std::uint32_t served = 0;
    for (Delivery delivery; served < most && hub_->take(port_, delivery); ++served) {
      if (delivery.operation != nullptr)
        delivery.operation->complete(*delivery.operation, delivery.status);
      else if (delivery.immediate <= UINT32_MAX)
        port_.receiver->on_immediate(static_cast<std::uint32_t>(delivery.immediate));
      else
        port_.receiver->on_wide_immediate(delivery.immediate);
    }
    if (served == 0) LARKLANE_TRY(hub_->verdict(port_));
    return served;
  }
  Status reserve_immediates(std::uint32_t count) override {
    const Call call(*hub_, port_, false);
    return hub_->reserve(port_, count);
  }
  void release_immediates(std::uint32_t count) override {
    const Call call(*hub_, port_, false);
    hub_->release(port_, count);
  }
  int wait_fd() const noexcept override { return port_.bell.get(); }
  bool arm(net::Wake wake) override {
    const Call call(*hub_, port_, false);
    return hub_->arm(port_, wake);
  }
  bool does_all_wake() const noexcept override {
    return port_.wakes_for_all.load(std::memory_order_relaxed);
  }

 private:
  const std::shared_ptr<Hub> hub_;
  Port port_;
  bool has_entered_ = false;
};

class ProcessFabric final : public net::Fabric {
 public:
  explicit ProcessFabric(std::shared_ptr<Hub> hub)
      : hub_(std::move(hub)), process_(hub_->add_process()) {}
  ~ProcessFabric() override { hub_->remove_process(process_); }

  const net::Limits& limits() const noexcept override { return hub_->limits(); }
  Result<std::unique_ptr<net::Memory>> register_memory(void* start, std::uint64_t bytes) override {
    const Region region{static_cast<std::byte*>(start), bytes, 0, process_};
    return std::unique_ptr<net::Memory>(std::make_unique<HubMemory>(hub_, region));
  }
  Result<std::unique_ptr<net::Endpoint>> open_endpoint(net::Receiver& receiver) override {
    auto endpoint = std::make_unique<HubEndpoint>(hub_, process_, receiver);
    LARKLANE_TRY(endpoint->enter());
    return std::unique_ptr<net::Endpoint>(std::move(endpoint));
  }

 private:
  const std::shared_ptr<Hub> hub_;
  const std::uint32_t process_;
};

}  // namespace

const char* offence_name(Offence offence) noexcept {
  switch (offence) {
    case Offence::outside_memory:
      return "outside of registered memory";
    case Offence::memory_busy:
      return "memory deregistered while it is used";
    case Offence::foreign_memory:
      return "memory of another fabric";
    case Offence::receiver_not_ready:
      return "receiver not ready";
    case Offence::released_too_many:
      return "more released than reserved";
    case Offence::operation_busy:
      return "operation posted twice";
    case Offence::operation_touched:
      return "operation written while under way";
    case Offence::no_callback:
      return "operation without callback";
    case Offence::link_busy:
      return "link destroyed while it is used";
    case Offence::endpoint_busy:
      return "endpoint destroyed before its links";
    case Offence::fabric_busy:
      return "fabric destroyed while it is used";
    case Offence::not_connected:
      return "post before both sides are connected";
    case Offence::crossed:
      return "first operations of both sides cross";
    case Offence::too_long:
      return "longer than the limits allow";
    case Offence::completed_twice:
      return "operation completed twice";
    case Offence::not_serial:
      return "calls at the same time";
  }
  return "unknown";
}

Fabric::Fabric(Options options)
    : hub_(std::make_shared<Hub>(std::move(options))),
      own_(std::make_unique<ProcessFabric>(hub_)) {}
Fabric::~Fabric() = default;

const net::Limits& Fabric::limits() const noexcept { return own_->limits(); }
Result<std::unique_ptr<net::Memory>> Fabric::register_memory(void* start, std::uint64_t bytes) {
  return own_->register_memory(start, bytes);
}
Result<std::unique_ptr<net::Endpoint>> Fabric::open_endpoint(net::Receiver& receiver) {
  return own_->open_endpoint(receiver);
}
std::unique_ptr<net::Fabric> Fabric::for_process() { return std::make_unique<ProcessFabric>(hub_); }
std::uint64_t Fabric::turn(std::uint64_t most) { return hub_->turn(most); }
std::uint64_t Fabric::settle() { return hub_->settle(); }
std::size_t Fabric::under_way_count() { return hub_->under_way_count(); }
std::size_t Fabric::registrations_count() { return hub_->registrations_count(); }
void Fabric::kill_endpoint(std::uint32_t number) { hub_->kill_endpoint(number); }
void Fabric::kill_process(std::uint32_t process) { hub_->kill_process(process + 1); }
std::vector<Violation> Fabric::take_violations() { return hub_->take_violations(); }

}  // namespace larklane::loop
