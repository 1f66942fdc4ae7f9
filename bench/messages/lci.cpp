// The same messages over LCI v2, for comparison: two processes, from any launcher that LCI
// supports; see one_pair.hpp. LCI_ATTR_OFI_PROVIDER_NAME selects libfabric's provider.

#include <sched.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <lci.hpp>
#include <memory>

#include "one_pair.hpp"

namespace {

/// Threads with devices of their own share LCI's default matching engine, as in LCI's own
/// benchmarks.
class Messenger {
 public:
  static constexpr bool kKeepsOrder = false;
  /// Collective.
  Messenger(const one_pair::Options& options, std::uint32_t thread)
      : first_tag_(thread * one_pair::kTags),
        counts_(options.completion == "counter"),
        yields_(options.threads != 1),
        has_own_(options.threads != 1 && options.lanes == "own"),
        device_(has_own_ ? lci::alloc_device() : lci::get_default_device()),
        told_(counts_ ? lci::alloc_counter() : lci::alloc_cq()),
        there_(lci::register_rcomp(heard_)) {
    lci::barrier();
  }
  ~Messenger() {
    lci::barrier();
    lci::deregister_rcomp(there_);
    lci::free_comp(&heard_);
    lci::free_comp(&told_);
    if (has_own_) lci::free_device(&device_);
  }
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;

  int rank() const { return rank_; }
  // LCI's posts have no hint that more follow.
  bool send(std::uint32_t tag, const void* buffer, std::uint64_t bytes, bool) {
    return posted([&] {
      return lci::post_send_x(1 - rank_, const_cast<void*>(buffer), bytes, first_tag_ + tag, told_)
          .device(device_)();
    });
  }
  bool am(const void* buffer, std::uint64_t bytes, bool) {
    return posted([&] {
      return lci::post_am_x(1 - rank_, const_cast<void*>(buffer), bytes, told_, there_)
          .device(device_)();
    });
  }
  bool receive(std::uint32_t tag, void* buffer, std::uint64_t bytes) {
    return posted([&] {
      return lci::post_recv_x(1 - rank_, buffer, bytes, first_tag_ + tag, told_).device(device_)();
    });
  }
  bool wait_one() {
    if (!counts_) {
      (void)wait(told_);
      return true;
    }
    ++waited_;
    while (lci::counter_get(told_) < waited_) turn();
    return true;
  }
  template <class Take>
  void hear(Take&& take) {
    const lci::status_t status = wait(heard_);
    take(status.buffer, status.size);
    std::free(status.buffer);
  }

 private:
  template <class Attempt>
  bool posted(Attempt&& attempt) {
    while (true) {
      const lci::status_t status = attempt();
      if (!status.is_retry()) return status.is_posted();
      turn();
    }
  }
  lci::status_t wait(lci::comp_t queue) {
    while (true) {
      const lci::status_t status = lci::cq_pop(queue);
      if (!status.is_retry()) return status;
      turn();
    }
  }
  void turn() {
    if (lci::progress_x().device(device_)().is_retry() && yields_) ::sched_yield();
  }

  const int rank_ = lci::get_rank_me();
  const std::uint32_t first_tag_;
  const bool counts_, yields_, has_own_;
  lci::device_t device_;
  std::int64_t waited_ = 0;
  lci::comp_t told_, heard_ = lci::alloc_cq();
  const lci::rcomp_t there_;
};

}  // namespace

int main(int argc, char** argv) {
  one_pair::Options options;
  if (const int status = one_pair::parse(argc, argv, &options); status != 0)
    return status < 0 ? 0 : status;
  if (options.tells_more) {
    std::fprintf(stderr, "messages-lci: --more-follow: LCI's posts can't say that\n");
    return 2;
  }
  lci::g_runtime_init();
  if (lci::get_rank_n() != 2) {
    std::fprintf(stderr, "messages-lci: 2 processes are needed, not %d\n", lci::get_rank_n());
    return 2;
  }
  std::uint64_t wrong = 0;
  {
    const auto make = [&](std::uint32_t thread) {
      return std::make_unique<Messenger>(options, thread);
    };
    wrong = one_pair::measure(make, options);
  }
  lci::g_runtime_fina();
  return wrong == 0 ? 0 : 1;
}
