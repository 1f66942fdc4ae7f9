#pragma once
// An RDMA device made of this process's memory: libibverbs' calls, defined by the test program
// instead of the library. It moves nothing until a test calls run(). One device, one process; queue
// pairs find each other by their numbers.

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

namespace larklane::verbs {

/// A work request that has been posted and not been carried out.
struct FakeRequest {
  ibv_send_wr work;
  std::vector<ibv_sge> elements;
  std::vector<std::byte> inlined;
};

struct FakeQueuePair : ibv_qp {
  ibv_qp_init_attr made{};
  std::uint32_t peer = 0;
  ibv_qp_attr to_receive{};  ///< as it was made ready
  ibv_qp_attr to_send{};
  std::deque<FakeRequest> requests;
  std::uint32_t unfreed = 0;  ///< carried out, unsignalled: their places are not free yet
  ibv_pd* domain = nullptr;
  // ibv_wr_*: the request that is being built.
  ibv_qp_ex extended{};
  ibv_send_wr building{};
  ibv_sge element{};
};

struct FakeCompletionQueue : ibv_cq {
  std::deque<ibv_wc> completions;
  bool is_armed = false;
  bool is_for_solicited = false;  ///< while it is armed: work posted so raises an event
};

struct FakeReceiveQueue : ibv_srq {
  std::uint32_t posted = 0;
  std::uint32_t posted_max = 0;
  std::uint64_t wr_id = 0;  // of all receives: the last one's
};

/// The state that the calls below work on, afresh for each test. Thread safety: single-owner.
class FakeDevice {
 public:
  FakeDevice();
  ~FakeDevice();
  static FakeDevice& get();

  /// Carry out up to `most` posted requests, round-robin over the queue pairs. @return how many
  std::uint32_t run(std::uint32_t most = ~0u);
  /// The oldest request of `pair` fails, and all behind it are flushed.
  void fail(FakeQueuePair& pair, ibv_wc_status status);
  /// A receive of `pair` fails, then its oldest request with `request_status`, and so on.
  void fail_receive(FakeQueuePair& pair, ibv_wc_status status,
                    ibv_wc_status request_status = IBV_WC_WR_FLUSH_ERR);
  std::uint32_t waiting() const;

  // Settings that tests may change before they open anything.
  bool is_present = true;
  ibv_device_attr attributes{};
  ibv_port_attr port{};
  std::vector<ibv_gid_entry> gids;
  std::uint32_t inline_max = 64;
  /// Thread domains and ibv_wr_*.
  void offer_extended();
  // ... and at any time: the errno of calls that shall fail.
  int create_cq_error = 0;
  int create_qp_error = 0;
  int register_error = 0;
  int open_error = 0;
  int post_send_error = 0;
  int post_receive_error = 0;
  bool is_poll_broken = false;
  bool does_withhold_at_fork = false;    ///< registered pages, as after ibv_fork_init()
  std::uint32_t receives_memory = ~0u;   ///< more receives of a queue than this: ENOMEM
  std::deque<ibv_async_event> events{};  ///< unread ones
  int events_end = EAGAIN;               ///< errno when there are none
  // Counts of calls and events.
  std::uint32_t thread_domains = 0;  ///< those that are there
  std::set<ibv_pd*> parent_domains;
  std::uint64_t carried_out = 0;  ///< requests of all posters
  std::uint32_t not_ready = 0;    ///< immediates that met no receive
  std::uint32_t overruns = 0;     ///< of completion queues
  std::uint32_t events_unacknowledged = 0;

  // The calls' own.
  void complete(FakeCompletionQueue& queue, const ibv_wc& completion, bool is_solicited = false);
  void carry_out(FakeQueuePair& pair, const FakeRequest& request);
  verbs_context whole_context{};
  ibv_context& context = whole_context.context;
  ibv_device device{};
  std::map<std::uint32_t, FakeQueuePair*> pairs;
  std::set<FakeReceiveQueue*> receive_queues;
  std::set<FakeCompletionQueue*> completion_queues;
  std::set<ibv_mr*> registrations;
  std::uint32_t next_number = 17;
  int event_pipe[2] = {-1, -1};
};

}  // namespace larklane::verbs
