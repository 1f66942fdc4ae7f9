#pragma once
// Threads of several sources that send on lanes by tag, and receiving threads, in one process. An
// oracle of vector clocks checks that no match overtakes a message that happened before.

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/spin_lock.hpp"
#include "base/splitmix.hpp"
#include "base/thread_safety.hpp"
#include "msg/match/lane_order.hpp"
#include "msg/match/lane_sender.hpp"
#include "msg/match/lane_stamp.hpp"

namespace larklane::msg {

struct LanesCase {
  std::uint64_t seed;
  std::uint32_t sources, senders, receivers;  ///< senders: threads of each source
  std::uint32_t messages;                     ///< of each sender
  bool has_clock;                             ///< stamps from the processor's clock
};

class LanesWorld {
 public:
  explicit LanesWorld(const LanesCase& c)
      : case_(c), lanes_(*this), matcher_(*this), order_(lanes_, matcher_) {
    EXPECT_TRUE(order_.prepare());
    for (std::uint32_t s = 0; s < kSourcesMost; ++s)
      sources_[s] = std::make_unique<Sender>(lanes_.ring[s], c.has_clock);
  }

  void run() {
    std::vector<std::thread> senders, receivers;
    for (std::uint32_t s = 0; s < case_.sources; ++s)
      for (std::uint32_t t = 0; t < case_.senders; ++t)
        senders.emplace_back([this, s, t] { send_all(s, t); });
    for (std::uint32_t r = 0; r < case_.receivers; ++r)
      receivers.emplace_back([this, r] { receive(r); });
    std::thread helper([this] { drain_all(); });
    for (std::thread& thread : senders) thread.join();
    is_sent_.store(true, std::memory_order_release);  // pairs with the acquires of the others
    for (std::thread& thread : receivers) thread.join();
    is_over_.store(true, std::memory_order_release);  // pairs with drain_all()
    helper.join();
    EXPECT_EQ(matched_.load(std::memory_order_seq_cst), total());
    EXPECT_EQ(error_.load(std::memory_order_seq_cst), nullptr)
        << error_.load(std::memory_order_seq_cst);
  }

 private:
  static constexpr std::uint32_t kLanes = 4, kCells = 4, kTags = 8, kThreadsMost = 4;
  static constexpr std::uint32_t kSourcesMost = 2, kReceiversMost = 4, kRequests = 4;
  static constexpr std::uint32_t kWindow = 600;  // unmatched messages; bounds memory
  using Clocks = std::array<std::array<std::uint32_t, kTags>, kThreadsMost>;

  static std::uint32_t lane_of(std::uint32_t tag) {
    return static_cast<std::uint32_t>(splitmix(tag) % kLanes);
  }
  struct Link {  // of a backlog
    Link* next = nullptr;
  };
  struct Message : Link, LaneEntry {
    std::uint32_t from = 0, thread = 0, tag = 0, nth = 0;
    Clocks before{};  ///< messages of each thread and tag of its source that happened before
  };
  struct Ring {
    bool push(Message& message) {
      const SpinGuard guard(producer);
      const std::uint64_t at = tail.load(std::memory_order_relaxed);
      // acquire: pairs with Lanes::look()
      if (at - head.load(std::memory_order_acquire) == kCells) return false;
      cells[at % kCells] = &message;
      jitter();
      tail.store(at + 1, std::memory_order_release);  // pairs with Lanes::look()
      return true;
    }
    std::array<Message*, kCells> cells{};
    SpinLock producer;
    alignas(64) std::atomic<std::uint64_t> tail{0};
    alignas(64) std::atomic<std::uint64_t> head{0};
  };
  using Rings = std::array<Ring, kLanes>;  // of one source
  class Sender {
   public:
    Sender(Rings& rings, bool has_clock) : rings_(rings), stamps_(has_clock) {}
    void send(Message& message, std::uint32_t tag) {
      message.stamp = stamps_.next();
      message.lane_index = lane_of(tag);
      jitter();
      if (backlog_.has_some() || !push(message))
        (void)backlog_.send(message, [this](Link& link) { return push(link); });
    }
    void drain() {
      (void)backlog_.drain([this](Link& link) { return push(link); });
    }

   private:
    bool push(Link& link) {
      auto& message = static_cast<Message&>(link);
      return rings_[message.lane_index].push(message);
    }
    Rings& rings_;
    LaneStamps<> stamps_;
    LaneBacklog<Link> backlog_;
  };
  struct Lanes {
    explicit Lanes(LanesWorld& w) : world(w) {}
    std::uint32_t count() const { return kLanes; }
    std::uint32_t sources() const { return kSourcesMost; }
    template <class Work>
    void with(std::uint32_t lane, Work&& work) {
      const SpinGuard guard(locks[lane]);
      work();
    }
    template <class Work>
    void with_all(Work&& work) LARKLANE_NOT_FOLLOWED {
      for (SpinLock& lock : locks) lock.lock();
      work();
      for (SpinLock& lock : locks) lock.unlock();
    }
    /// Now and then it is cut short.
    bool look(std::uint32_t lane) {
      for (std::uint32_t s = 0; s < kSourcesMost; ++s) {
        Ring& r = ring[s][lane];
        const std::uint64_t tail = r.tail.load(std::memory_order_acquire);  // pairs with push()
        for (std::uint64_t at = r.head.load(std::memory_order_relaxed); at != tail; ++at) {
          if (below(64) == 0) return false;
          jitter();
          Message& message = *r.cells[at % kCells];
          message.source = s;
          if (!world.order_.is_wide() || !world.order_.put(message))
            world.matcher_.exact(lane, message);
          jitter();
          r.head.store(at + 1, std::memory_order_release);  // pairs with push()
        }
      }
      return true;
    }
    bool look_alone(std::uint32_t lane) {
      const SpinGuard guard(locks[lane]);
      return look(lane);
    }
    bool shows_nothing(std::uint32_t lane) {
      for (const Rings& of_source : ring) {
        const Ring& r = of_source[lane];
        // acquire, both: pair with look() and push()
        if (r.head.load(std::memory_order_acquire) != r.tail.load(std::memory_order_acquire))
          return false;
      }
      jitter();
      return world.matcher_.kept[lane].load(std::memory_order_acquire) == 0;  // as keep()
    }
    LanesWorld& world;
    std::array<SpinLock, kLanes> locks;
    std::array<Rings, kSourcesMost> ring;
  };
  enum class State : std::uint8_t { idle, posted, done };
  struct Request {  // atomics: the oracle reads other threads' requests
    std::atomic<int> source{-1}, tag{-1};
    std::atomic<State> state{State::idle};
    std::atomic<std::uint64_t> begin{0}, end{~std::uint64_t{0}};
    Message* got = nullptr;

    bool fits(const Message& m) const {
      const int s = source.load(std::memory_order_relaxed), t = tag.load(std::memory_order_relaxed);
      return (s < 0 || s == static_cast<int>(m.from)) && (t < 0 || t == static_cast<int>(m.tag));
    }
  };

  /// The plain model of matching tables: lists that are searched.
  struct Matcher {
    explicit Matcher(LanesWorld& w) : world(w) {}
    static Message& message(LaneEntry& entry) { return static_cast<Message&>(entry); }
    static bool match(LanesWorld& w, std::list<Request*>& from, Message& m) {
      const auto found =
          std::find_if(from.begin(), from.end(), [&](Request* r) { return r->fits(m); });
      if (found == from.end()) return false;
      Request& request = **found;
      from.erase(found);
      w.complete(request, m);
      return true;
    }
    void exact(std::uint32_t lane, LaneEntry& entry) {
      if (!match(world, posted[lane], message(entry))) keep(lane, message(entry));
    }
    /// release: of the count; pairs with Lanes::shows_nothing().
    void keep(std::uint32_t lane, Message& m) {
      table[lane].push_back(&m);
      kept[lane].store(table[lane].size(), std::memory_order_release);
    }
    void wide(LaneEntry& entry) {
      if (!match(world, wide_posted, message(entry))) unexpected.push_back(&message(entry));
    }
    void move_receives_wide(std::uint32_t lane) {
      jitter();
      wide_posted.splice(wide_posted.end(), posted[lane]);
    }
    LaneEntry* take_exact(std::uint32_t lane) {
      if (table[lane].empty()) return nullptr;
      Message* const m = table[lane].front();
      table[lane].pop_front();
      kept[lane].store(table[lane].size(), std::memory_order_release);  // as keep()
      return m;
    }
    bool prepare_exact() const {
      return std::none_of(wide_posted.begin(), wide_posted.end(), [](const Request* r) {
        return r->tag.load(std::memory_order_seq_cst) < 0;
      });
    }
    void poked() {}
    void move_exact() {
      for (Message* m : unexpected) keep(lane_of(m->tag), *m);
      unexpected.clear();
      for (Request* r : wide_posted)
        posted[lane_of(static_cast<std::uint32_t>(r->tag.load(std::memory_order_seq_cst)))]
            .push_back(r);
      wide_posted.clear();
    }
    LanesWorld& world;
    std::array<std::list<Request*>, kLanes> posted;
    std::array<std::list<Message*>, kLanes> table;
    std::array<std::atomic<std::size_t>, kLanes> kept{};  // messages in each table
    std::list<Request*> wide_posted;
    std::list<Message*> unexpected;
  };

  // ---- seeded choices and delays of the calling thread
  static std::uint64_t& state() {
    static thread_local std::uint64_t value = 1;
    return value;
  }
  static std::uint32_t below(std::uint32_t n) {
    state() += kSplitmixStep;
    return static_cast<std::uint32_t>(splitmix(state()) >> 33) % n;
  }
  static void jitter() {
    const std::uint32_t draw = below(512);
    if (draw == 0 && below(4) == 0) ::sched_yield();
    if (draw > 3) return;
    for (std::uint32_t turns = below(100); turns != 0; --turns) below(2);
  }

  std::uint64_t total() const {
    return std::uint64_t{case_.sources} * case_.senders * case_.messages;
  }
  void fail(const char* what) {
    const char* none = nullptr;
    error_.compare_exchange_strong(none, what, std::memory_order_seq_cst);
  }
  bool is_stopped() const {
    return error_.load(std::memory_order_relaxed) != nullptr ||
           matched_.load(std::memory_order_relaxed) == total();
  }

  // ---- senders
  struct Meeting {  // threads of a source tell each other the counts of sent messages
    std::mutex mutex;
    Clocks clocks{};
  };
  void meet(std::uint32_t s, Clocks& mine) {
    Meeting& meeting = meetings_[s][below(2)];
    const std::lock_guard guard(meeting.mutex);
    for (std::uint32_t t = 0; t < kThreadsMost; ++t)
      for (std::uint32_t a = 0; a < kTags; ++a)
        mine[t][a] = meeting.clocks[t][a] = std::max(mine[t][a], meeting.clocks[t][a]);
  }
  void send_all(std::uint32_t s, std::uint32_t t) {
    state() = splitmix(case_.seed * 64 + s * 8 + t);
    Clocks mine{};
    for (std::uint64_t i = 0; i < case_.messages; ++i) {
      if (below(2) == 0) meet(s, mine);
      auto* const m = new Message;
      m->from = s;
      m->thread = t;
      m->tag = below(kTags);
      m->nth = mine[t][m->tag];
      m->before = mine;
      const std::uint32_t tag = m->tag;
      sources_[s]->send(*m, tag);  // may be gone
      ++mine[t][tag];
      while (i * case_.senders * case_.sources >
                 matched_.load(std::memory_order_relaxed) + kWindow &&
             error_.load(std::memory_order_relaxed) == nullptr)
        ::sched_yield();
    }
  }
  void drain_all() {
    state() = splitmix(case_.seed + 1);
    while (!is_over_.load(std::memory_order_acquire)) {  // pairs with run()
      for (std::uint32_t s = 0; s < case_.sources; ++s) sources_[s]->drain();
      ::sched_yield();
    }
  }

  // ---- oracle
  void check(const Message& m, int tag, const char* what) {
    for (std::uint32_t t = 0; t < kThreadsMost; ++t)
      for (std::uint32_t a = 0; a < kTags; ++a)
        if ((tag < 0 || tag == static_cast<int>(a)) &&
            count_[m.from][t][a].load(std::memory_order_relaxed) < m.before[t][a])
          fail(what);
  }
  void account(const Message& m, int tag) {
    check(m, tag, "a match overtakes a message that happened before");
    if (count_[m.from][m.thread][m.tag].fetch_add(1, std::memory_order_relaxed) != m.nth)
      fail("messages of one thread and tag are not first in, first out");
    matched_.fetch_add(1, std::memory_order_relaxed);
  }
  void complete(Request& q, Message& m) {
    for (auto& of_thread : requests_)
      for (Request& other : of_thread) {
        const std::uint64_t begin = other.begin.load(std::memory_order_acquire);
        const auto is_older = [&] {
          return &other != &q && other.state.load(std::memory_order_acquire) == State::posted &&
                 other.begin.load(std::memory_order_acquire) == begin &&
                 other.end.load(std::memory_order_acquire) <
                     q.begin.load(std::memory_order_relaxed);
        };
        if (is_older() && other.fits(m) && is_older()) fail("an older receive is passed over");
      }
    account(m, q.tag.load(std::memory_order_relaxed));
    q.got = &m;
    q.state.store(State::done, std::memory_order_release);  // pairs with reap()
  }

  // ---- receivers
  template <class Exact, class Wide>
  void call(int tag, bool looks, Exact&& exact, Wide&& wide) {
    if (tag < 0) {
      (void)order_.with_any_tag(looks, wide);
      return;
    }
    const std::uint32_t lane = lane_of(static_cast<std::uint32_t>(tag));
    const auto exact_counted = [&] {
      exact();
      matcher_.kept[lane].store(matcher_.table[lane].size(),
                                std::memory_order_release);  // as keep()
    };
    (void)order_.with_tag(lane, looks, exact_counted, wide);
  }
  /// Progress of one lane. Waits for no lock.
  void poll(std::uint32_t lane) LARKLANE_NOT_FOLLOWED {
    if (lanes_.locks[lane].try_lock()) {
      (void)lanes_.look(lane);
      lanes_.locks[lane].unlock();
    }
    (void)order_.turn();
  }
  static Message* find(std::list<Message*>& messages, const Request& q, bool takes) {
    const auto found =
        std::find_if(messages.begin(), messages.end(), [&](Message* m) { return q.fits(*m); });
    if (found == messages.end()) return nullptr;
    Message* const m = *found;
    if (takes) messages.erase(found);
    return m;
  }
  void post_in(Request& q, std::list<Message*>& messages, std::list<Request*>& posted) {
    if (Message* const m = find(messages, q, true))
      complete(q, *m);
    else
      posted.push_back(&q);
  }
  void post(Request& q, int source, int tag) {
    q.end.store(~std::uint64_t{0}, std::memory_order_seq_cst);
    q.source.store(source, std::memory_order_seq_cst);
    q.tag.store(tag, std::memory_order_seq_cst);
    q.begin.store(tick_.fetch_add(1, std::memory_order_seq_cst), std::memory_order_seq_cst);
    q.state.store(State::posted, std::memory_order_seq_cst);
    call(
        tag, below(2) == 0,
        [&] {
          const std::uint32_t lane = lane_of(static_cast<std::uint32_t>(tag));
          post_in(q, matcher_.table[lane], matcher_.posted[lane]);
        },
        [&] { post_in(q, matcher_.unexpected, matcher_.wide_posted); });
    q.end.store(tick_.fetch_add(1, std::memory_order_seq_cst), std::memory_order_seq_cst);
  }
  void cancel(Request& q) {
    const int tag = q.tag.load(std::memory_order_seq_cst);
    const auto take_from = [&](std::list<Request*>& posted) {
      if (q.state.load(std::memory_order_seq_cst) != State::posted) return;
      posted.remove(&q);
      q.state.store(State::idle, std::memory_order_seq_cst);
    };
    call(
        tag, below(2) == 0,
        [&] { take_from(matcher_.posted[lane_of(static_cast<std::uint32_t>(tag))]); },
        [&] { take_from(matcher_.wide_posted); });
  }
  Message* probe(int source, int tag, bool takes) {
    Request q;
    q.source.store(source, std::memory_order_seq_cst);
    q.tag.store(tag, std::memory_order_seq_cst);
    Message* found = nullptr;
    const auto look = [&](std::list<Message*>& messages) {
      found = find(messages, q, takes);
      if (found == nullptr) return;
      if (takes)
        account(*found, tag);
      else
        check(*found, tag, "a probe shows a message that overtakes another");
    };
    if (tag < 0 && order_.shows_nothing()) return nullptr;
    call(
        tag, true, [&] { look(matcher_.table[lane_of(static_cast<std::uint32_t>(tag))]); },
        [&] { look(matcher_.unexpected); });
    return found;
  }
  static void reap(Request& q) {
    if (q.state.load(std::memory_order_acquire) != State::done) return;  // pairs with complete()
    delete q.got;
    q.state.store(State::idle, std::memory_order_seq_cst);
  }
  /// A probe, then the receive of the source and tag that it has shown: the very message.
  void probe_then_receive(int source, int tag) {
    const std::unique_lock alone(alone_);
    Message* const shown = probe(source, tag, false);
    if (shown == nullptr) return;
    const int from = static_cast<int>(shown->from), its_tag = static_cast<int>(shown->tag);
    for (std::uint32_t turns = below(4); turns != 0; --turns) poll(below(kLanes));
    if (below(2) == 0 && probe(from, -1, false) == nullptr)
      fail("a probe with a wildcard does not see a message that was shown before");
    Message* const got = probe(from, its_tag, true);
    if (got != shown) fail("a receive gets another message than the probe has shown");
    delete got;
  }
  void act(std::array<Request, kRequests>& mine, std::uint32_t& phase) {
    if (below(1000) == 0) phase = below(3);  // no wildcard tags, some, many
    const bool is_any = below(16) < (is_sent_.load(std::memory_order_acquire) ? 8 : phase * 4);
    const int tag = is_any ? -1 : static_cast<int>(below(kTags));
    const int source = below(2) == 0 ? -1 : static_cast<int>(below(case_.sources));
    const std::uint32_t choice = below(64);
    if (choice == 0) return probe_then_receive(source, tag);
    const std::shared_lock shared(alone_);
    Request& q = mine[below(kRequests)];
    if (choice < 32) {
      if (q.state.load(std::memory_order_seq_cst) == State::idle) post(q, source, tag);
    } else if (choice < 40) {
      delete probe(source, tag, true);
    } else if (choice < 44) {
      if (q.state.load(std::memory_order_seq_cst) == State::posted && below(4) == 0) cancel(q);
    } else if (choice < 48) {
      if (phase == 0) order_.try_exact();
    } else {
      for (std::uint32_t lane = 0; lane < kLanes; ++lane)
        if (below(2) == 0) poll(lane);
    }
  }
  void receive(std::uint32_t me) {
    using Steady = std::chrono::steady_clock;
    state() = splitmix(case_.seed * 64 + 48 + me);
    std::array<Request, kRequests>& mine = requests_[me];
    std::uint32_t phase = 1, idle = 0;
    std::uint64_t before = 0;
    auto last = Steady::now();
    while (!is_stopped()) {
      act(mine, phase);
      for (Request& q : mine) reap(q);
      const std::uint64_t now = matched_.load(std::memory_order_relaxed);
      if (now != before) {
        before = now;
        idle = 0;
        last = Steady::now();
      } else if (++idle % 256 == 0) {
        const std::shared_lock shared(alone_);
        for (Request& q : mine)
          if (q.state.load(std::memory_order_seq_cst) == State::posted) cancel(q);
        if (Steady::now() - last > std::chrono::seconds(60)) fail("stuck");
      }
    }
    for (Request& q : mine) {
      if (q.state.load(std::memory_order_seq_cst) == State::posted) cancel(q);
      reap(q);
    }
  }

  const LanesCase case_;
  Lanes lanes_;
  Matcher matcher_;
  LaneOrder<Lanes, Matcher> order_;
  std::array<std::unique_ptr<Sender>, kSourcesMost> sources_;
  std::array<std::array<Meeting, 2>, kSourcesMost> meetings_;
  std::array<std::array<Request, kRequests>, kReceiversMost> requests_;
  std::atomic<std::uint32_t> count_[kSourcesMost][kThreadsMost][kTags]{};
  std::atomic<std::uint64_t> matched_{0}, tick_{1};
  std::atomic<bool> is_sent_{false}, is_over_{false};
  std::atomic<const char*> error_{nullptr};
  std::shared_mutex alone_;
};

}  // namespace larklane::msg
