#pragma once
// The plane: the state that connect, accept and the helper share. plane.cpp: the calls of other
// threads; plane_helper.cpp: the helper's loop, and the end of peers; plane_incoming.cpp:
// connections in.

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

/// Far above the content of a socket buffer: only a live peer that sends without end reaches it.
inline constexpr int kDrainReadsMax = 65536;

// Thread safety: thread-safe; the members below "The helper's own" belong to the helper.
// Invariants:
// 1. A peer's records reach the handler before its on_peer_down, which comes once. bury() drains
// every connection that may carry records, in the backlog or accepted. The helper reads nothing of
// a buried peer. The end of one connection with a remote process may arrive before its last
// records. So the helper buries a remote peer only when the connection that the peer opened has
// ended, too.
// 2. The object of an epoll event exists until the helper has served the batch of events. Peers
// live as long as the plane; closed connections lie in closed_ until then.
// 3. An address belongs to the process that listens at it. On one host the plane believes a hello
// if the kernel names the same process for the listener of each of its addresses; between hosts, if
// it is proven. No other connection ends a peer, or becomes one.
// 4. Nothing can wake a helper that sleeps in a set whose descriptors the program has closed. A
// waiting thread sees this and starts another helper, which only ends the peers and runs posted
// work. The plane is destroyed without the first helper. If that one wakes all the same, it touches
// nothing but its Turn.
// 5. epoll_wait has a time limit only while a retry or a deadline is pending, or the plane ends:
// nothing wakes an idle helper. Lock order: mutex_, a peer's mutex, work_mutex_. The helper holds
// none while the handler or a Watched runs.
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
  // relaxed: a call that sees the old value for a moment fails by itself
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
  // relaxed: the helper sees its own store; on another thread no value equals the caller's id
  bool is_helper() const noexcept {
    return helper_id_.load(std::memory_order_relaxed) == ::gettid();
  }

  // On the helper.
  void run();
  /// All that the helper needs while it sleeps: the plane may be destroyed meanwhile (invariant 4).
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
  bool is_complete(Incoming& incoming, Incoming::Parsed parsed);
  bool serve_hello(Incoming& incoming);
  bool serve_record(Incoming& incoming);
  void end(Incoming& incoming);
  void reject_version(Incoming& incoming, Introduction introduction);
  /// The larger belief of two addresses decides. `gone`: its process has ended, and no process
  /// listens there.
  enum class Belief : std::uint8_t { right, gone, later, wrong };
  Belief belief_in(Incoming& incoming, const Introduction& introduction);
  Belief belief_in(Incoming& incoming, std::uint64_t nonce, const Address& address);
  bool judge(Incoming& incoming, Introduction introduction);
  /// Of a process that has ended: it has sent more than its hello.
  static bool has_left_record(Incoming& incoming);
  QueuedPeer* gone_peer_of(const Incoming& incoming, const Introduction& introduction);
  bool follows_claim(const Incoming& incoming, const Introduction& introduction) const;
  /// The helper judges the hello again later.
  void park(Incoming& incoming, Introduction introduction);
  void judge_again();
  void disbelieve(Incoming& incoming, const char* complaint);
  void identify(Incoming& incoming, const Introduction& introduction);
  QueuedPeer* peer_of(const Introduction& introduction, bool is_remote);
  void refuse(Incoming& incoming);
  void drop_silent(Unproven<Incoming>& unproven, std::uint64_t now_ns);
  void close(Incoming& incoming);

  std::vector<Listener> own_;  // the helper owns their descriptors, and remote_'s
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
  /// The program has closed the descriptors: the plane uses no number of its own any more.
  std::atomic<bool> is_bereft_{false};
  struct Turn {
    std::mutex mutex;          // held by the helper while it is awake
    bool is_replaced = false;  // guarded by mutex: the sleeping helper never returns to the plane
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
  std::map<Address, QueuedPeer*> by_address_;  // the latest peer with the name
  Status accept_error_;                        // not ok: this process takes no connections any more

  std::mutex work_mutex_;
  std::deque<std::function<void()>> work_;
  SpareThread spare_;

  // The helper's own.
  std::map<std::pair<bool, std::uint64_t>, QueuedPeer*> by_nonce_;  // is remote, nonce
  /// Peers that had ended before the helper could identify their processes: nonce, process id.
  std::map<std::pair<std::uint64_t, pid_t>, QueuedPeer*> gone_;
  std::vector<std::unique_ptr<Incoming>> incoming_;
  std::vector<std::unique_ptr<Incoming>> closed_;
  // of incoming_, without a believed hello or a claim
  Unproven<Incoming> unproven_local_, unproven_remote_;
  std::vector<QueuedPeer*> retrying_;
  std::vector<RemotePeer*> dialing_;
  std::deque<std::pair<QueuedPeer*, Reason>> doomed_;
  struct Dying {
    QueuedPeer* peer;
    Reason reason;
    std::uint64_t deadline_ns;
  };
  std::vector<Dying> dying_;  // remote, hung up; earlier records are still on their way
  Watches watches_{-1};
  bool is_listening_ = false;
  bool has_served_ = false;                ///< a connection in, since the helper slept last
  bool has_events_ = true;                 // false: epoll_wait is refused
  std::uint64_t unaccepted_since_ns_ = 0;  // the first failed accept since a successful one
  bool has_claims_ = false;                // of incoming_: those with a claim
};

}  // namespace larklane::control
