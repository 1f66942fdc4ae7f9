#include "heard.hpp"

#include <atomic>
#include <utility>

#include "larklane/message.hpp"

namespace larklane::bench {
namespace {

void check(Status status) {
  if (!status.ok()) give_up("an operation", status);
}

class OfQueue final : public Heard {
 public:
  explicit OfQueue(CompletionDomain& domain)
      : queue_(must(CompletionQueue::create(domain), "completion queue")) {}
  CompletionObject& object() noexcept override { return queue_; }
  bool has(std::uint64_t ends) override {
    while (heard_ < ends) {
      const auto told = queue_.pop();
      if (!told) return false;
      check(told->status);
      ++heard_;
    }
    return true;
  }
  void restart() override { heard_ = 0; }

 private:
  CompletionQueue queue_;
  std::uint64_t heard_ = 0;
};

class OfCounter final : public Heard {
 public:
  explicit OfCounter(CompletionDomain& domain)
      : counter_(must(Counter::create(domain), "counter")) {}
  CompletionObject& object() noexcept override { return counter_; }
  bool has(std::uint64_t ends) override {
    if (counter_.completed() - before_ < ends) return false;
    if (counter_.failed() != 0) give_up("an operation", Errc::kTransfer);
    return true;
  }
  void restart() override { before_ = counter_.completed(); }

 private:
  Counter counter_;
  std::uint64_t before_ = 0;
};

/// Ready after exactly `signals` signals.
class OfSynchronizer final : public Heard {
 public:
  OfSynchronizer(CompletionDomain& domain, std::uint32_t signals)
      : synchronizer_(must(Synchronizer::create(domain, signals), "synchronizer")) {}
  CompletionObject& object() noexcept override { return synchronizer_; }
  bool has(std::uint64_t) override { return synchronizer_.test(); }
  void restart() override {
    for (const Completion& told : synchronizer_.completions()) check(told.status);
    if (synchronizer_.test()) check(synchronizer_.reset());
  }

 private:
  Synchronizer synchronizer_;
};

/// The handler writes its state until free() succeeds.
void free_handler(Handler& handler, Waiter& waiter) {
  while (!handler.free().ok()) waiter.turn();
}

class OfHandler final : public Heard {
 public:
  OfHandler(CompletionDomain& domain, Waiter& waiter)
      : waiter_(waiter), handler_(must(Handler::create(domain, &take, this), "handler")) {}
  ~OfHandler() override { free_handler(handler_, waiter_); }
  CompletionObject& object() noexcept override { return handler_; }
  bool has(std::uint64_t ends) override {
    // acquire: the operations' results; pairs with take()'s release
    if (heard_.load(std::memory_order_acquire) < ends) return false;
    // relaxed: ordered by the load above
    if (has_failed_.load(std::memory_order_relaxed)) give_up("an operation", Errc::kTransfer);
    return true;
  }
  // relaxed: no other thread writes now
  void restart() override { heard_.store(0, std::memory_order_relaxed); }

 private:
  static void take(const Completion& told, void* state) {
    auto& self = *static_cast<OfHandler*>(state);
    // relaxed: published by the next line
    if (!told.status.ok()) self.has_failed_.store(true, std::memory_order_relaxed);
    self.heard_.fetch_add(1, std::memory_order_release);  // release: pairs with has()
  }

  Waiter& waiter_;
  std::atomic<std::uint64_t> heard_ = 0;
  std::atomic<bool> has_failed_ = false;
  Handler handler_;  // last: calls take() until it is freed
};

class QueuedArrivals final : public Arrivals {
 public:
  QueuedArrivals(CompletionDomain& domain, std::uint32_t count)
      : Arrivals(count), queue_(must(CompletionQueue::create(domain), "completion queue")) {}
  bool are_all_there() override {
    while (arrived_ < slots_.size()) {
      const auto told = queue_.pop();
      if (!told) return false;
      arrived_ += keep(slots_, *told);
    }
    return true;
  }
  RemoteCompletion register_remote() override {
    return must(queue_.register_remote(), "register_remote");
  }
  void release() override {
    Arrivals::release();
    arrived_ = 0;
  }

 private:
  CompletionQueue queue_;
  std::size_t arrived_ = 0;
};

class HandledArrivals final : public Arrivals {
 public:
  HandledArrivals(CompletionDomain& domain, std::uint32_t count, Waiter& waiter)
      : Arrivals(count),
        waiter_(waiter),
        handler_(must(Handler::create(domain, &take, this), "handler")) {}
  ~HandledArrivals() override { free_handler(handler_, waiter_); }
  bool are_all_there() override {
    // acquire: the slots; pairs with take()'s release
    return arrived_.load(std::memory_order_acquire) >= slots_.size();
  }
  RemoteCompletion register_remote() override {
    return must(handler_.register_remote(), "register_remote");
  }
  void release() override {
    Arrivals::release();
    // relaxed: the peer sends only after the answer that follows
    arrived_.store(0, std::memory_order_relaxed);
  }

 private:
  static void take(const Completion& told, void* state) {
    auto& self = *static_cast<HandledArrivals*>(state);
    // release: the slot; pairs with are_all_there()
    if (keep(self.slots_, told)) self.arrived_.fetch_add(1, std::memory_order_release);
  }

  Waiter& waiter_;
  std::atomic<std::size_t> arrived_ = 0;
  Handler handler_;  // last: calls take() until it is freed
};

}  // namespace

std::unique_ptr<Heard> make_heard(const std::string& kind, CompletionDomain& domain,
                                  std::uint32_t signals, Waiter& waiter) {
  if (kind == "counter") return std::make_unique<OfCounter>(domain);
  if (kind == "synchronizer") return std::make_unique<OfSynchronizer>(domain, signals);
  if (kind == "handler") return std::make_unique<OfHandler>(domain, waiter);
  return std::make_unique<OfQueue>(domain);
}

Arrivals::~Arrivals() { Arrivals::release(); }

std::span<const std::byte> Arrivals::message(std::uint32_t slot) const noexcept {
  return {static_cast<const std::byte*>(slots_[slot].buffer), slots_[slot].bytes};
}

void Arrivals::release() {
  for (Completion& slot : slots_) {
    free_buffer(slot.buffer);
    slot = {};
  }
}

bool Arrivals::keep(std::vector<Completion>& slots, const Completion& completion) noexcept {
  const bool is_kept = completion.status.ok() && completion.tag < slots.size() &&
                       slots[completion.tag].buffer == nullptr;
  if (is_kept)
    slots[completion.tag] = completion;
  else
    free_buffer(completion.buffer);
  return is_kept;
}

std::unique_ptr<Arrivals> make_arrivals(const std::string& kind, CompletionDomain& domain,
                                        std::uint32_t count, Waiter& waiter) {
  if (kind == "handler") return std::make_unique<HandledArrivals>(domain, count, waiter);
  return std::make_unique<QueuedArrivals>(domain, count);
}

}  // namespace larklane::bench
