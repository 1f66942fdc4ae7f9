#pragma once
// The plane: what connect, accept and the helper share. plane.cpp: what others call;
// plane_helper.cpp: the helper's loop, and the end of peers; plane_incoming.cpp: connections in.

#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/fd_identity.hpp"
#include "base/maker.hpp"
#include "base/unique_fd.hpp"
#include "base/unproven.hpp"
#include "control/helper/bell.hpp"
#include "control/helper/source.hpp"
#include "control/helper/spare_thread.hpp"
#include "control/helper/watches.hpp"
#include "control/plane/plane.hpp"
#include "control/plane/queued_peer.hpp"
#include "control/plane/wire.hpp"
#include "control/remote/remote_incoming.hpp"

namespace larklane::control {

/// Far above what a socket buffer holds: only a peer that is alive and sends on and on reaches it.
inline constexpr int kDrainReadsMax = 65536;

// Thread safety: thread-safe; the members below "The helper's own" belong to the helper.
// Invariants:
// 1. A peer's records reach the handler before its on_peer_down, which comes once: bury() drains
// every connection that may carry some, in the backlog or accepted, and nothing of a buried peer is
// read. What a remote process has sent before its end may still be on its way when the end of its
// other connection is here, so a remote peer is buried only when the connection that it opened has
// ended, too.
// 2. What an epoll event points to exists until the batch of events has been served: peers live as
// long as the plane, closed connections lie in closed_ until then.
// 3. An address belongs to the process that listens at it. On one host a hello is believed if the
// kernel names the same process for the listener of each of its addresses; between hosts, if it is
// proven. Nothing else ends a peer, or is one.
// 4. A helper that sleeps in a set whose descriptors the program has closed can't be woken. A
// thread that waits sees it, and starts another one, which only ends what there is: the plane goes
// without the first, which touches nothing but its Turn when it should wake all the same.
// 5. epoll_wait has a time limit only while something is retried or has a deadline, or the plane
// ends: an idle helper is never woken. Lock order: mutex_, a peer's mutex, work_mutex_. None is
// held while the handler or what is watched runs.
class PlaneImpl final : public Plane, private PeerHost {
 public:
  PlaneImpl(std::vector<Listener> own, Handler& handler, std::optional<Remote> remote,
            std::uint64_t accept_ns);
  ~PlaneImpl() override;
  Status start();

  Result<Peer*> connect(const Address& address) override;
  void post(std::function<void()> work) override;
  void post_spare(std::function<void()> work) override;
  const Address& own_address() const noexcept override { return own_.front().address; }
  Status watch(Watched& watched) override;
  void unwatch(Watched& watched) override;
  void catch_up() override;
  PlaneCounters counters() const noexcept override;
  void look_at_descriptors() override;

 private:
  PeerHost& host() noexcept { return *this; }
  // relaxed: a call that sees it a moment late fails by itself
  int epoll() const noexcept override {
    return is_bereft_.load(std::memory_order_relaxed) ? -1 : epoll_.get();
  }
  const Hello& hello() const noexcept override { return hello_; }
  const RemoteTerms& remote_terms() const noexcept override { return terms_; }
  // relaxed: statistics
  void count_sent(std::uint32_t records) noexcept override {
    records_sent_.fetch_add(records, std::memory_order_relaxed);
  }
  void flush_soon() noexcept override;
  void retry_soon(QueuedPeer& peer) override {
    post([this, &peer] { retrying_.push_back(&peer); });
  }
  void dial_soon(RemotePeer& peer) override;
  void report_down(QueuedPeer& peer, Reason reason) override {
    post([this, &peer, reason] { doom(peer, reason); });
  }

  Status listen_to(int listener);
  void join_helper();
  QueuedPeer* find_live_locked(const Address& address);
  QueuedPeer& add_peer_locked(const Address& address);
  // relaxed: on the helper its own store is seen, elsewhere no value is the caller's
  bool is_helper() const noexcept {
    return helper_id_.load(std::memory_order_relaxed) == ::gettid();
  }

  // On the helper.
  void run();
  /// While it sleeps the plane may go (invariant 4): all that it needs then.
  struct Sleep {
    int epoll;  // -1: epoll_wait is refused
    std::uint64_t rest_ns;
    int timeout_ms;  // without rest_ns
  };
  Sleep next_sleep(bool may_sleep) const;
  /// @return as epoll_wait()
  static int sleep_in(const Sleep& sleep, std::span<epoll_event> events);
  int timeout_ms() const;
  std::uint64_t next_deadline_ns() const;
  void serve_event(const epoll_event& event);
  void run_posted();
  void on_timer();
  void flush_all();
  void run_on_helper(std::function<void()> work);
  void retry_all();
  void on_time();
  bool has_posted();
  bool is_drained();
  void doom(QueuedPeer& peer, Reason reason) { doomed_.emplace_back(&peer, std::move(reason)); }
  void doom_if(QueuedPeer& peer, std::optional<Reason> reason) {
    if (reason) doom(peer, std::move(*reason));
  }
  void bury_doomed();
  bool awaits_rest(QueuedPeer& peer, const Reason& reason);
  bool is_robbed_of(QueuedPeer& peer) const;
  void bury(QueuedPeer& peer, Reason reason);
  void end_all(Status status, const std::string& why);
  void be_bereft();
  void run_bereft();

  // Connections in.
  void set_listening(bool on);
  void cannot_accept(const Address& at, int error);
  void stop_accepting(int error);
  void accept_all(std::uint64_t grace_ns = Unproven<Incoming>::kGraceNs);
  /// @param grace_ns  as of Unproven::room()
  void accept_local(const Listener& listener, std::uint64_t grace_ns);
  void accept_remote(std::uint64_t grace_ns);
  bool make_room(Unproven<Incoming>& unproven, std::uint64_t grace_ns);
  void take(std::unique_ptr<Incoming> incoming, Unproven<Incoming>& unproven);
  void send_away(Incoming& incoming);
  void drain_and_close(Incoming& incoming);
  bool serve(Incoming& incoming);
  bool serve_hello(Incoming& incoming);
  bool serve_record(Incoming& incoming);
  void end(Incoming& incoming);
  void reject_version(Incoming& incoming, Introduction introduction);
  /// The larger one of two addresses decides. `gone`: its process has ended, and no process
  /// listens there.
  enum class Belief : std::uint8_t { right, gone, later, wrong };
  Belief belief_in(Incoming& incoming, const Introduction& introduction);
  Belief belief_in(Incoming& incoming, std::uint64_t nonce, const Address& address);
  bool judge(Incoming& incoming, Introduction introduction);
  /// Of a process that has ended: it has sent something but its hello.
  static bool has_left_record(Incoming& incoming);
  QueuedPeer* gone_peer_of(const Incoming& incoming, const Introduction& introduction);
  bool follows_claim(const Incoming& incoming, const Introduction& introduction) const;
  /// Its hello is judged again later.
  void park(Incoming& incoming, Introduction introduction);
  void judge_again();
  void disbelieve(Incoming& incoming, const char* complaint);
  void identify(Incoming& incoming, const Introduction& introduction);
  QueuedPeer* peer_of(const Introduction& introduction, bool is_remote);
  void refuse(Incoming& incoming);
  void drop_silent(Unproven<Incoming>& unproven, std::uint64_t now_ns);
  void close(Incoming& incoming);

  std::vector<Listener> own_;  // their descriptors, and remote_'s, are the helper's
  std::optional<Remote> remote_;
  const std::uint64_t accept_ns_;
  Handler& handler_;
  const Maker maker_{};
  UniqueFd epoll_;
  Bell bell_;
  UniqueFd timer_;  // rings when records of send_later have waited long enough
  std::atomic<bool> is_timer_set_{false};
  std::vector<FdIdentity> identities_;  // of own_, then remote_
  Hello hello_;
  RemoteTerms terms_{};
  pthread_t helper_{};
  bool has_helper_ = false;
  /// The program has closed the descriptors: no number of this plane is touched any more.
  std::atomic<bool> is_bereft_{false};
  struct Turn {
    std::mutex mutex;  // held by the helper while it is awake
    bool is_replaced =
        false;  // guarded by mutex: the helper that sleeps never returns to the plane
  };
  const std::shared_ptr<Turn> turn_ = std::make_shared<Turn>();
  std::atomic<pid_t> helper_id_{0};
  std::atomic<bool> is_ending_{false};
  Source listener_source_{SourceKind::listener, nullptr};
  Source bell_source_{SourceKind::bell, nullptr};
  Source timer_source_{SourceKind::timer, nullptr};

  std::atomic<std::uint64_t> helper_wakeups_{0};
  std::atomic<std::uint64_t> records_sent_{0};
  std::atomic<std::uint64_t> records_received_{0};

  std::mutex mutex_;
  std::vector<std::unique_ptr<QueuedPeer>> peers_;
  std::map<Address, QueuedPeer*> by_address_;  // the latest that had the name
  Status accept_error_;                        // not ok: this process takes no connections any more

  std::mutex work_mutex_;
  std::deque<std::function<void()>> work_;
  SpareThread spare_;

  // The helper's own.
  std::map<std::pair<bool, std::uint64_t>, QueuedPeer*> by_nonce_;  // is remote, nonce
  /// Peers that had ended before it could be known which processes they were: nonce, process id.
  std::map<std::pair<std::uint64_t, pid_t>, QueuedPeer*> gone_;
  std::vector<std::unique_ptr<Incoming>> incoming_;
  std::vector<std::unique_ptr<Incoming>> closed_;
  // of incoming_, without a hello that is believed or a claim
  Unproven<Incoming> unproven_local_, unproven_remote_;
  std::vector<QueuedPeer*> retrying_;
  std::vector<RemotePeer*> dialing_;
  std::deque<std::pair<QueuedPeer*, Reason>> doomed_;
  struct Dying {
    QueuedPeer* peer;
    Reason reason;
    std::uint64_t deadline_ns;
  };
  std::vector<Dying> dying_;  // remote, hung up; what they sent before is not all here
  Watches watches_{-1};
  bool is_listening_ = false;
  bool has_served_ = false;                ///< a connection to us, since the helper slept last
  bool has_events_ = true;                 // false: epoll_wait is refused
  std::uint64_t unaccepted_since_ns_ = 0;  // the first accept that failed since one that did not
  bool has_claims_ = false;                // of incoming_: those with a claim
};

}  // namespace larklane::control
