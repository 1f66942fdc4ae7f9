#pragma once
// The hub between the endpoints of a Fabric: posted operations, cut into parts. Any part may be
// the next to happen.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "net/loop/fabric.hpp"
#include "net/loop/piece.hpp"
#include "net/loop/random.hpp"
#include "net/provider.hpp"
#include "net/unseen_lock.hpp"

namespace larklane::loop {

struct End;
struct Port;

/// Registered memory.
struct Region {
  std::byte* start;
  std::uint64_t bytes;
  std::uint64_t address;  ///< of its first byte, for peers; not a pointer
  std::uint32_t process;
};

/// A posted request.
struct Request {
  bool is_read = false;
  bool is_small = false;
  std::span<const std::byte> small{};  ///< the caller's
  net::Transfer transfer{};            ///< small: `remote` and `bytes` only
  std::optional<std::uint64_t> immediate{};

  /// Arrives as a whole?
  bool is_word() const noexcept {
    return is_small && transfer.bytes == kWordBytes && transfer.remote.address % kWordBytes == 0;
  }
};

/// An operation between its post and the end of its effects.
/// Thread safety: single-owner: the hub's lock is held.
struct Flight {
  Request request;
  std::vector<std::byte> small;
  net::Operation* operation = nullptr;  ///< null: its completion is not reported
  End* end = nullptr;                   ///< null: its link is gone
  Port* target = nullptr;               ///< null: the peer's endpoint is gone
  std::uint64_t peer = 0;               ///< number of the end at the other side
  std::uint64_t local_key = 0;
  std::uint64_t serial = 0;
  std::uint32_t references = 0;  ///< parts and events
  std::uint32_t pieces_left = 0;
  bool is_stream = false;      ///< its pieces happen in their order, behind those of earlier ones
  bool has_landed = false;     ///< all pieces have happened
  bool is_completing = false;  ///< its completion is on the way
  Status status;

  /// May its pieces happen now?
  bool is_its_turn() const noexcept;
};

/// A part that can happen next.
struct Part {
  enum class Kind : std::uint8_t { piece, immediate, completion };
  Kind kind;
  Flight* flight;
  std::uint64_t not_before = 0;
  std::uint64_t offset = 0;  ///< piece
  std::uint64_t bytes = 0;

  bool can_happen(std::uint64_t now) const noexcept {
    return not_before <= now && flight->is_its_turn();
  }
};

/// An event that a poll finds.
struct Event {
  Flight* flight;
  bool is_immediate;
};

/// An endpoint, as the hub sees it.
struct Port {
  net::Receiver* receiver = nullptr;
  std::uint32_t process = 0;
  std::uint32_t number = 0;
  UniqueFd bell;
  bool is_armed = false;
  /// While it is armed. relaxed: with the hub's lock held, or a hint.
  std::atomic<bool> wakes_for_all{true};
  std::deque<Event> events;
  std::vector<Part> door;  ///< manual progress: arrivals that wait for a poll
  std::uint32_t reserved_count = 0;
  std::uint32_t waiting_count = 0;  ///< immediates that a poll has not served yet
  Status dead;
  std::atomic<const void*> user{nullptr};  ///< the thread that is in here; relaxed: orders nothing
  std::uint64_t calls_count = 0;  ///< plain: the thread sanitizer sees two threads without a lock
};

/// A link, as the hub sees it.
struct End {
  static constexpr std::uint64_t kMagic = 0x6c61726b6c6f6f70;  ///< "larkloop"
  struct Offer {
    std::uint64_t magic;
    const void* hub;
    std::uint64_t number;
  };
  Offer offer{};
  Port* port = nullptr;
  std::uint64_t peer = 0;  ///< number of its end; 0: not connected
  Status broken;
  std::uint32_t under_way_count = 0;
  bool is_used = false;               ///< something has been posted
  bool is_met = false;                ///< something of either side has been complete
  std::set<std::uint64_t> streams{};  ///< flights that have not landed
};

inline bool Flight::is_its_turn() const noexcept {
  return !is_stream || has_landed || !status.ok() || end == nullptr ||
         *end->streams.begin() == serial;
}

/// Events that one poll serves, outside of the lock.
struct Delivery {
  net::Operation* operation = nullptr;
  Status status;
  std::uint64_t immediate = 0;
};

/// Thread safety: thread-safe; functions that end in _locked want its lock held.
/// Invariants:
/// 1. Each part happens once; a completion comes after all pieces, or after the failure.
/// 2. Where choices come from (the seed, or Options::choose) nothing else decides.
class Hub {
 public:
  explicit Hub(Fabric::Options options);
  ~Hub();
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  const net::Limits& limits() const noexcept { return options_.limits; }
  std::uint32_t add_process();
  void remove_process(std::uint32_t process);

  net::RemoteMemory add_region(Region region);
  void remove_region(std::uint64_t key);
  Status add_port(Port& port);
  void remove_port(Port& port);
  void add_end(End& end);
  void remove_end(End& end);
  Status connect(End& end, std::span<const std::byte> offer);

  /// @param local_key  of `request.transfer.memory`; 0: that is no memory of this hub
  Result<net::Post> post(End& end, const Request& request, std::uint64_t local_key,
                         net::Operation& operation);
  /// The port's own share of a poll, before it takes deliveries.
  void turn_for_poll(Port& port);
  bool take(Port& port, Delivery& delivery);
  /// Not ok: the port is dead, and nothing more comes to it.
  Status verdict(Port& port);
  Status reserve(Port& port, std::uint32_t count);
  void release(Port& port, std::uint32_t count);
  bool arm(Port& port, net::Wake wake);

  std::uint64_t turn(std::uint64_t most);
  std::uint64_t settle();
  std::size_t under_way_count();
  std::size_t registrations_count();
  void kill_endpoint(std::uint32_t number);
  void kill_process(std::uint32_t process);
  void report(Offence offence, const std::string& detail);
  std::vector<Violation> take_violations();

 private:
  std::uint64_t choose_locked(std::uint64_t bound);
  bool chance_locked(std::uint32_t percent);
  void report_locked(Offence offence, const std::string& detail);

  bool check_locked(const End& end, const Request& request, std::uint64_t local_key,
                    const net::Operation& operation);
  bool check_local_locked(const End& end, const net::Transfer& transfer, std::uint64_t local_key);
  std::byte* local_locked(Flight& flight, std::uint64_t offset);
  std::byte* remote_locked(const Flight& flight, std::uint64_t offset, std::uint64_t bytes);

  Flight& launch_locked(End& end, const Request& request, std::uint64_t local_key);
  void cut_locked(Flight& flight);
  bool happens_at_once_locked(Flight& flight);
  void add_part_locked(Part part);
  void add_piece_locked(Flight& flight, std::uint64_t offset, std::uint64_t bytes);
  void drop_locked(Flight& flight);
  Port* owner_locked(const Part& part) const;
  bool is_concerned_locked(const Port& port) const;
  void ring_locked(Port* port);

  bool step_locked(Port* polling);
  bool skip_wait_locked();
  void happen_locked(const Part& part, Port* polling);
  void move_locked(const Part& part);
  void land_locked(Flight& flight);
  void give_immediate_locked(Flight& flight);
  void give_completion_locked(Flight& flight);
  void complete_locked(Flight& flight);
  void fail_locked(Flight& flight, Status status);
  void break_locked(End& end, Status status);
  void kill_locked(Port& port);

  const Fabric::Options options_;
  net::UnseenLock lock_;
  Random random_;
  std::uint64_t now_ = 0;
  std::uint64_t last_number_ = 0;
  std::uint32_t processes_ = 0;
  std::uint32_t ports_opened_ = 0;
  std::map<std::uint64_t, Region> regions_;  // by key
  std::map<std::uint64_t, End*> ends_;       // by number
  std::vector<Port*> ports_;
  std::map<std::uint64_t, std::unique_ptr<Flight>> flights_;  // by serial
  std::vector<Part> parts_;
  std::unordered_set<const net::Operation*> operations_;
  std::vector<Violation> violations_;
};

}  // namespace larklane::loop
