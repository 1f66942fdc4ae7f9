// The same messages by LCI v2, for comparison: two processes, from any launcher that LCI knows; see
// one_pair.hpp. LCI_ATTR_OFI_PROVIDER_NAME names libfabric's provider.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <lci.hpp>

#include "one_pair.hpp"

namespace {

class Messenger {
 public:
  explicit Messenger(bool counts)
      : counts_(counts),
        told_(counts ? lci::alloc_counter() : lci::alloc_cq()),
        there_(lci::register_rcomp(heard_)) {
    lci::barrier();
  }
  ~Messenger() {
    lci::barrier();
    lci::deregister_rcomp(there_);
    lci::free_comp(&heard_);
    lci::free_comp(&told_);
  }
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;

  int rank() const { return rank_; }
  // LCI's posts can't say that more follow.
  bool send(std::uint32_t tag, const void* buffer, std::uint64_t bytes, bool) {
    return posted(
        [&] { return lci::post_send(1 - rank_, const_cast<void*>(buffer), bytes, tag, told_); });
  }
  bool am(const void* buffer, std::uint64_t bytes, bool) {
    return posted(
        [&] { return lci::post_am(1 - rank_, const_cast<void*>(buffer), bytes, told_, there_); });
  }
  bool receive(std::uint32_t tag, void* buffer, std::uint64_t bytes) {
    return posted([&] { return lci::post_recv(1 - rank_, buffer, bytes, tag, told_); });
  }
  bool wait_one() {
    if (!counts_) {
      (void)wait(told_);
      return true;
    }
    ++waited_;
    while (lci::counter_get(told_) < waited_) lci::progress();
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
      lci::progress();
    }
  }
  lci::status_t wait(lci::comp_t queue) {
    while (true) {
      const lci::status_t status = lci::cq_pop(queue);
      if (!status.is_retry()) return status;
      lci::progress();
    }
  }

  const int rank_ = lci::get_rank_me();
  const bool counts_;
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
    Messenger messenger(options.completion == "counter");
    wrong = one_pair::measure(messenger, options);
  }
  lci::g_runtime_fina();
  return wrong == 0 ? 0 : 1;
}
