#include "msg/protocol/engine.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <new>
#include <utility>

#include "base/clock.hpp"
#include "msg/protocol/by_tag.hpp"
#include "msg/protocol/pair.hpp"
#include "vci/mapping.hpp"

namespace larklane::msg {
namespace {

constexpr std::uint32_t kRegionMask = Engine::kRegionsMax - 1;

/// Memory that an allocated region owns. Thread safety: immutable.
struct MappedByPeers final : net::Memory {
  explicit MappedByPeers(std::unique_ptr<net::AllocatedMemory> memory_) noexcept
      : memory(std::move(memory_)) {}
  net::RemoteMemory remote() const noexcept override { return memory->remote(); }

  const std::unique_ptr<net::AllocatedMemory> memory;
};
struct OfHeap final : net::Memory {
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  explicit OfHeap(std::uint64_t bytes) noexcept
      : lines(new (std::nothrow) Line[bytes / sizeof(Line) + 1]()) {}
  net::RemoteMemory remote() const noexcept override { return registered->remote(); }

  const std::unique_ptr<Line[]> lines;
  std::unique_ptr<net::Memory> registered;  // goes first
};

std::uint32_t page_count(int size, std::uint32_t page) noexcept {
  return (static_cast<std::uint32_t>(size) + page - 1) / page;
}

}  // namespace

Engine::Engine(net::Fabric& fabric, CompletionDomain& domain, Connector& connector, Options options)
    : fabric_(fabric),
      domain_(domain),
      connector_(connector),
      options_(options),
      record_bytes_max_(
          RingShape{RingShape::kCellsMax, options.lane.packets.record_cells}.payload_bytes_max()),
      eager_bytes_max_(std::min(record_bytes_max_, options.eager_bytes_max)),
      small_bytes_max_(fabric.limits().small_bytes_max),
      asks_for_writes_(
          can_ask_for_writes(fabric.limits()) &&
          (options.rendezvous == Rendezvous::write ||
           (options.rendezvous == Rendezvous::chosen && fabric.limits().is_progress_manual))),
      pages_(new std::atomic<Page*>[page_count(options.size, kPagePeers)] {}),
      pool_(fabric, *this, options.lanes) {
  if (options.lanes_by_tag) use_lanes_by_tag();
}

Engine::~Engine() {
  while (woken_ != nullptr) Communicators::end_use(*std::exchange(woken_, woken_->next_woken_));
  for (std::uint32_t i = 0; i < page_count(options_.size, kPagePeers); ++i) {
    // No other thread is left
    const std::unique_ptr<Page> page(pages_[i].load(std::memory_order_relaxed));
    if (page == nullptr) continue;
    for (const std::atomic<Peer*>& of_page : *page) {
      const std::unique_ptr<Peer> peer(of_page.load(std::memory_order_relaxed));
      if (peer == nullptr) continue;
      for (std::uint32_t number = 0; number < vci::VciPool::kCountMax; ++number)
        delete peer->connections[number].load(std::memory_order_relaxed);
    }
  }
  for (auto& of_kind : spaces_)
    for (const auto& place : of_kind) {
      const std::unique_ptr<MatchingEngine> space(place.load(std::memory_order_relaxed));
      if (space != nullptr) empty(*space);
    }
}

void Engine::free_message(Operation& message) noexcept {
  if (!message.is_offer) give_back_buffer(message.local);
  message.lane->give_back(message);
}

void Engine::empty(MatchingEngine& space) noexcept {
  MatchingEngine::Sweep messages, receives;
  while (MatchMessage* const message = space.take_message(messages))
    free_message(*static_cast<PartOf<MatchMessage>&>(*message).whole);
  while (MatchReceive* const receive = space.take_receive(receives)) {
    Operation& operation = *static_cast<PartOf<MatchReceive>&>(*receive).whole;
    operation.lane->finish(operation, Errc::kNotActive);
  }
}

// --- lanes --------------------------------------------------------------------------------------

Result<MessageLane*> Engine::lane_of(std::uint32_t number) {
  const std::uint32_t index = number % pool_.count_max();
  // acquire: pairs with the release below.
  if (MessageLane* const made = made_[index].load(std::memory_order_acquire)) return made;
  const std::scoped_lock lock(mutex_);
  if (MessageLane* const made = made_[index].load(std::memory_order_relaxed)) return made;
  auto lane = MessageLane::create(*this, index, fabric_, domain_, options_.lane);
  if (!lane) return lane.error();
  lanes_[index] = std::move(lane).value();
  auto vci = pool_.at(index);
  if (!vci) {
    lanes_[index] = nullptr;
    return vci.error();
  }
  lanes_[index]->packets().begin(**vci);
  made_[index].store(lanes_[index].get(), std::memory_order_release);  // the lane is ready
  return lanes_[index].get();
}

Result<std::uint32_t> Engine::find_place(Use use) noexcept {
  const std::scoped_lock lock(mutex_);
  const std::uint32_t index = vci::least_used(std::span(users_).first(pool_.count_max()), 0);
  if (users_[index] >= (use == Use::shared ? kOwned : 1u)) return Status(Errc::kNoMemory, EBUSY);
  users_[index] += use == Use::shared ? 1 : kOwned;
  return index;
}

Result<MessageLane*> Engine::take_lane(Use use) {
  auto index = find_place(use);
  if (!index) return index.error();
  auto lane = lane_of(*index);
  if (!lane)
    leave(*index);
  else if (use == Use::own_thread)
    (void)(*lane)->vci().own();  // if the kernel can't, the lock stays
  return lane;
}

void Engine::give_back(const MessageLane& lane) noexcept {
  if (is_owned(lane.index())) lane.vci().disown();
  leave(lane.index());
}

bool Engine::is_owned(std::uint32_t index) noexcept {
  const std::scoped_lock lock(mutex_);
  return users_[index] == kOwned;
}

void Engine::leave(std::uint32_t index) noexcept {
  const std::scoped_lock lock(mutex_);
  users_[index] -= users_[index] == kOwned ? kOwned : 1;
}

thread_local constinit Engine::Others Engine::others_{};

[[gnu::always_inline]] inline std::uint32_t Engine::take_turn(MessageLane& own) noexcept {
  using Progress = vci::Switches::Progress;
  if (vci::switches.progress == Progress::all_lanes) return progress_all();
  own.attend();
  const std::uint32_t found = own.progress();
  if (vci::switches.progress == Progress::own_lane || !others_.turns.add(found != 0)) [[likely]]
    return found;
  return found + progress_others_slow(own, others_);
}

std::uint32_t Engine::poll(MessageLane& own) noexcept { return take_turn(own); }

std::uint32_t Engine::poll_if_busy(MessageLane& own) noexcept {
  if (vci::switches.progress != vci::Switches::Progress::hybrid || !own.looks_idle())
    return take_turn(own);
  own.attend();
  return others_.turns.add(false) ? poll_idle_slow(own) : 0;
}

/// A turn of an idle lane now and then finds out that a peer has died.
[[gnu::noinline]] std::uint32_t Engine::poll_idle_slow(MessageLane& own) noexcept {
  const std::uint32_t found = own.progress();
  return found + progress_others_slow(own, others_);
}

[[gnu::noinline]] std::uint32_t Engine::progress_others_slow(const MessageLane& own,
                                                             Others& others) noexcept {
  static_assert(vci::VciPool::kCountMax <= 64);
  const std::uint32_t most = options_.lanes.misses_max;
  const bool are_all_due = others.turns.are_all_due(most);
  if (are_all_due) others.strays = 0;
  constexpr std::uint32_t kLookEvery = 1024;
  if (are_all_due && ++others.looks % kLookEvery == 0) connector_.look_at_descriptors();
  if (are_all_due && options_.stall_ns != 0) look_for_stalls();
  std::uint32_t found = 0, found_on_strays = 0;
  for (std::uint64_t left = are_all_due ? ~std::uint64_t{0} >> (64 - pool_.count_max())
                                        : others.strays;
       left != 0; left &= left - 1) {
    const int index = std::countr_zero(left);
    // acquire: pairs with lane_of()'s release.
    MessageLane* const lane =
        made_[static_cast<std::size_t>(index)].load(std::memory_order_acquire);
    if (lane == nullptr || lane == &own || lane->vci().is_anothers()) continue;
    if (are_all_due && !lane->take_attended()) others.strays |= std::uint64_t{1} << index;
    const std::uint32_t of_lane = lane->progress();
    found += of_lane;
    if ((others.strays >> index & 1) != 0) found_on_strays += of_lane;
  }
  others.turns.pause(others.strays != 0, found_on_strays != 0, most);
  return found;
}

std::uint32_t Engine::try_progress(std::uint32_t records_max, std::uint64_t bytes_max) noexcept {
  const std::uint64_t most = std::min<std::uint64_t>(records_max, bytes_max / record_bytes_max_);
  MessageLane::hook_bytes_left = bytes_max;
  std::uint32_t served = 0;
  for (std::uint32_t index = 0; index < pool_.count_max(); ++index)
    // acquire: pairs with lane_of()'s release.
    if (MessageLane* const lane = made_[index].load(std::memory_order_acquire))
      served += lane->try_progress(static_cast<std::uint32_t>(std::max<std::uint64_t>(most, 1)));
  MessageLane::hook_bytes_left = MessageLane::kNoLimit;
  return served;
}

std::uint32_t Engine::progress_all() noexcept {
  std::uint32_t found = 0;
  for (std::uint32_t index = 0; index < pool_.count_max(); ++index)
    // acquire: pairs with lane_of()'s release.
    if (MessageLane* const lane = made_[index].load(std::memory_order_acquire);
        lane != nullptr && !lane->vci().is_anothers())
      found += lane->progress();
  return found;
}

// --- lanes by tag -------------------------------------------------------------------------------

std::uint32_t Engine::poll_everywhere(MessageLane& own) noexcept {
  std::uint32_t found = 0;
  for (std::uint32_t index = 0; index < pool_.count_max(); ++index)
    if (MessageLane* const lane = find_lane(index);
        lane != nullptr && !lane->vci().is_anothers() && !lane->looks_idle())
      found += lane->progress();
  return found + poll_if_busy(own);
}

/// Pushes need mapped rings, with the first word of a record last.
bool Engine::can_push() const noexcept {
  const net::Limits& network = fabric_.limits();
  return network.has_mapped_memory && !network.is_progress_manual &&
         std::min(network.first_word_last_bytes_max, network.write_bytes_max) >=
             std::uint64_t{options_.lane.packets.record_cells} * kCellBytes;
}

[[gnu::noinline]] MessageLane* Engine::made_lane_slow(std::uint32_t index) noexcept {
  const std::scoped_lock lock(mutex_);
  return made_[index].load(std::memory_order_relaxed);  // written under the mutex
}

void Engine::wake(Communicator& communicator, MessageLane& by) noexcept {
  // acq_rel: of the entry that its turn() finds; pairs with serve_woken()'s exchange.
  if (!communicator.is_woken_.exchange(true, std::memory_order_acq_rel)) {
    communicator.uses_.fetch_add(1, std::memory_order_relaxed);  // relaxed: the caller has a use
    const SpinGuard guard(woken_lock_);
    communicator.next_woken_ = std::exchange(woken_, &communicator);
  }
  by.note_woken();
}

void Engine::wake_by_all(Communicator& communicator) noexcept {
  for (std::uint32_t index = 0; index < pool_.count_max(); ++index)
    if (MessageLane* const lane = find_lane(index)) wake(communicator, *lane);
}

void Engine::serve_woken(MessageLane& by) noexcept {
  Communicator* woken = nullptr;
  {
    const SpinGuard guard(woken_lock_);
    woken = std::exchange(woken_, nullptr);
  }
  while (woken != nullptr) {
    Communicator& communicator = *std::exchange(woken, woken->next_woken_);
    (void)communicator.is_woken_.exchange(false, std::memory_order_acq_rel);  // as in wake()
    if (!communicator.by_tag()->turn()) wake(communicator, by);
    Communicators::end_use(communicator);
  }
}

void Engine::list_backlog(Pair& pair) noexcept {
  const SpinGuard guard(backlogs_lock_);
  if (std::exchange(pair.is_listed_, true)) return;
  pair.next_ = std::exchange(backlogs_, &pair);
}

bool Engine::drain_backlogs() noexcept {
  bool is_empty = true;
  Pair* listed = nullptr;
  {
    const SpinGuard guard(backlogs_lock_);
    listed = std::exchange(backlogs_, nullptr);
  }
  while (listed != nullptr) {
    Pair& pair = *listed;
    {
      const SpinGuard guard(backlogs_lock_);
      listed = pair.next_;
      pair.is_listed_ = false;
    }
    const bool is_drained = pair.drain();
    pair.tell(nullptr);
    if (is_drained) continue;
    is_empty = false;
    list_backlog(pair);
  }
  return is_empty;
}

// --- peers --------------------------------------------------------------------------------------

Engine::Peer* Engine::make_peer_locked(int rank) noexcept {
  if (Peer* const found = find_peer(rank)) return found;
  const auto at = static_cast<std::uint32_t>(rank);
  Page* page = pages_[at / kPagePeers].load(std::memory_order_relaxed);  // written under the mutex
  if (page == nullptr) {
    page = new (std::nothrow) Page{};
    if (page == nullptr) return nullptr;
    pages_[at / kPagePeers].store(page, std::memory_order_release);  // pairs with find_peer()
  }
  std::unique_ptr<Peer> peer(new (std::nothrow) Peer);
  if (peer == nullptr) return nullptr;
  peer->connections.reset(new (std::nothrow) std::atomic<Connection*>[vci::VciPool::kCountMax] {});
  if (peer->connections == nullptr) return nullptr;
  if (has_lanes_by_tag()) {
    peer->pair.reset(new (std::nothrow) Pair);
    if (peer->pair == nullptr) return nullptr;
  }
  (*page)[at % kPagePeers].store(peer.get(), std::memory_order_release);  // pairs with find_peer()
  return peer.release();
}

Connection* Engine::make_connection_slow(int rank, std::uint32_t number, bool is_wanted) noexcept {
  Connection* made = nullptr;
  {
    // acquire: the lane exists.
    MessageLane* const lane = made_[number % pool_.count_max()].load(std::memory_order_acquire);
    const std::scoped_lock lock(mutex_);
    Peer* const peer = make_peer_locked(rank);
    if (peer == nullptr) return nullptr;
    // relaxed: written under the mutex
    if (Connection* const found = peer->connections[number].load(std::memory_order_relaxed))
      return found;
    made = new (std::nothrow) Connection(*lane, rank, peer->pair.get());
    if (made == nullptr) return nullptr;
    // relaxed: a thread that has not heard of the connection may miss it
    if (number >= links_end_.load(std::memory_order_relaxed))
      links_end_.store(number + 1, std::memory_order_relaxed);
    peer->connections[number].store(made, std::memory_order_release);  // pairs with find_…()
  }
  if (is_wanted) connector_.want(rank, number);
  return made;
}

Connection* Engine::connection_of_link(int rank, std::uint32_t number) noexcept {
  if (Connection* const found = find_connection(rank, number)) return found;
  return make_connection_slow(rank, number, false);
}

template <class Visit>
void Engine::for_each_connection(Visit&& visit) const {
  const auto size = static_cast<std::uint32_t>(options_.size);
  const std::uint32_t end = links_end_.load(std::memory_order_relaxed);
  for (std::uint32_t first = 0; first < size; first += kPagePeers) {
    // acquire, here and below: as in find_peer()
    const Page* const page = pages_[first / kPagePeers].load(std::memory_order_acquire);
    if (page == nullptr) continue;
    for (std::uint32_t at = 0; at < std::min(kPagePeers, size - first); ++at) {
      const Peer* const peer = (*page)[at].load(std::memory_order_acquire);
      if (peer == nullptr) continue;
      for (std::uint32_t number = 0; number < end; ++number)
        // acquire: as in find_connection()
        if (auto* const made = peer->connections[number].load(std::memory_order_acquire))
          visit(*made);
    }
  }
}

std::uint32_t Engine::serve_all() noexcept {
  std::uint32_t found = 0;
  for (const auto& made : made_)
    // acquire: pairs with lane_of()'s release.
    if (MessageLane* const lane = made.load(std::memory_order_acquire)) found += lane->serve();
  return found;
}

[[gnu::noinline]] void Engine::look_for_stalls() noexcept {
  const std::uint64_t now = now_ns();
  // relaxed: a hint, which is_looking_ orders
  if (now < next_look_ns_.load(std::memory_order_relaxed)) return;
  // acquire: pairs with the release below; the previous thread's notes.
  if (is_looking_.exchange(true, std::memory_order_acquire)) return;
  for_each_connection([&](Connection& connection) {
    if (connection.rank() != rank() && connection.is_stalled(now, options_.stall_ns))
      connector_.ring(connection.rank());
  });
  next_look_ns_.store(now + options_.stall_ns / 2, std::memory_order_relaxed);
  is_looking_.store(false, std::memory_order_release);
}

Result<Communicator*> Engine::open(const ContextId& id, std::span<const int> members, int own_rank,
                                   const Hints& hints) noexcept {
  return communicators_.open(id, members, own_rank, hints);
}

bool Engine::is_quiet() const noexcept {
  bool is_quiet = true;
  for_each_connection([&](Connection& connection) { is_quiet &= connection.is_quiet(); });
  return is_quiet;
}

std::uint32_t Engine::held_packet_count() const noexcept {
  std::uint32_t held = 0;
  for (const auto& made : made_)
    // acquire: pairs with lane_of()'s release.
    if (MessageLane* const lane = made.load(std::memory_order_acquire))
      held += lane->packets().pool().held_count();
  return held;
}

void Engine::refuse(int rank, std::uint32_t number, Status status) noexcept {
  if (Connection* const connection = connection_of_link(rank, number)) connection->refuse(status);
  lose(rank, status);
}

void Engine::lose(int rank, Status status) noexcept {
  Peer* const peer = find_peer(rank);
  if (peer == nullptr) return;
  {
    const std::scoped_lock lock(mutex_);
    if (peer->is_lost.load(std::memory_order_relaxed)) return;  // written under the mutex
    peer->why = status;
    // release: of the reason; pairs with is_lost(). Before the search: see
    // docs/design/protocols/matching.md.
    peer->is_lost.store(true, std::memory_order_release);
    has_lost_.store(true, std::memory_order_release);  // the same, for all ranks
  }
  for (auto& of_kind : spaces_)
    for (const auto& made : of_kind) {
      // acquire: pairs with make_space_slow()
      MatchingEngine* const space = made.load(std::memory_order_acquire);
      if (space == nullptr) continue;
      MatchingEngine::Sweep sweep;
      while (MatchReceive* const receive =
                 space->take_receive_of(static_cast<std::uint32_t>(rank), sweep)) {
        Operation& operation = *static_cast<PartOf<MatchReceive>&>(*receive).whole;
        operation.lane->finish(operation, status);
      }
    }
  communicators_.lose(rank, status);
}

[[gnu::noinline]] bool Engine::is_lost_slow(int rank) const noexcept {
  const Peer* const peer = find_peer(rank);
  return peer != nullptr && peer->is_lost.load(std::memory_order_acquire);  // pairs with lose()
}

Status Engine::why_lost(int rank) const noexcept { return find_peer(rank)->why; }

MatchingEngine* Engine::make_space_slow(MatchSpace space) noexcept {
  const std::scoped_lock lock(mutex_);
  std::atomic<MatchingEngine*>& place = spaces_[space.is_ordered][space.number];
  // relaxed: written under the mutex
  if (MatchingEngine* const made = place.load(std::memory_order_relaxed)) return made;
  using Kind = MatchingEngine::Kind;
  auto made = MatchingEngine::create({.kind = space.is_ordered ? Kind::ordered : Kind::exact});
  if (!made) return nullptr;
  place.store(made->get(), std::memory_order_release);  // pairs with space()
  return std::move(made).value().release();
}

// --- regions ------------------------------------------------------------------------------------

Result<LocalRegion*> Engine::add_region(void* start, std::uint64_t bytes) noexcept {
  auto memory = fabric_.register_memory(start, bytes);
  if (!memory) return memory.error();
  // A region of no bytes may have any address but null, which find() returns for "none".
  auto* const first = start != nullptr ? static_cast<std::byte*>(start) : no_bytes_;
  return add_region(std::move(memory).value(), first, bytes);
}

Result<LocalRegion*> Engine::allocate_region(std::uint64_t bytes) noexcept {
  if (fabric_.limits().has_mapped_memory) {
    auto allocated = fabric_.allocate_mapped(bytes);
    if (!allocated) return allocated.error();
    std::byte* const start = (*allocated)->start();
    std::unique_ptr<net::Memory> memory(new (std::nothrow)
                                            MappedByPeers(std::move(allocated).value()));
    if (memory == nullptr) return Errc::kNoMemory;
    return add_region(std::move(memory), start, bytes);
  }
  if (bytes > PTRDIFF_MAX / 2) return Errc::kNoMemory;  // a longer array is an exception
  std::unique_ptr<OfHeap> heap(new (std::nothrow) OfHeap(bytes));
  if (heap == nullptr || heap->lines == nullptr) return Errc::kNoMemory;
  std::byte* const start = heap->lines[0].bytes;
  auto registered = fabric_.register_memory(start, bytes);
  if (!registered) return registered.error();
  heap->registered = std::move(registered).value();
  return add_region(std::move(heap), start, bytes);
}

Result<LocalRegion*> Engine::add_region(std::unique_ptr<net::Memory> memory, std::byte* start,
                                        std::uint64_t bytes) noexcept {
  std::unique_ptr<LocalRegion> region(new (std::nothrow)
                                          LocalRegion{*this, std::move(memory), start, bytes, 0});
  if (region == nullptr) return Errc::kNoMemory;
  const std::scoped_lock lock(mutex_);
  for (std::uint32_t index = 0; index < kRegionsMax; ++index) {
    if (regions_[index].load(std::memory_order_relaxed) != nullptr) continue;  // under the mutex
    region->number = ++region_uses_[index] * kRegionsMax | index;
    regions_[index].store(region.get(), std::memory_order_release);  // pairs with find()
    return region.release();
  }
  return Errc::kNoMemory;
}

void Engine::remove_region(LocalRegion& region) noexcept {
  const std::unique_ptr<LocalRegion> owned(&region);
  regions_[region.number & kRegionMask].store(nullptr, std::memory_order_relaxed);  // locks follow
  with_each_lane_idle();
}

std::byte* Engine::find(std::uint32_t number, std::uint64_t offset,
                        std::uint64_t bytes) const noexcept {
  // acquire: pairs with add_region()'s release.
  const LocalRegion* const region = regions_[number & kRegionMask].load(std::memory_order_acquire);
  if (region == nullptr || region->number != number || offset > region->bytes ||
      bytes > region->bytes - offset)
    return nullptr;
  return region->start + offset;
}

const net::Memory* Engine::memory_of(const Region& region, const void* start,
                                     std::uint64_t bytes) const noexcept {
  if (region.inside() == nullptr) return nullptr;
  const LocalRegion& inside = *region.inside();
  if (bytes == 0) return inside.memory.get();
  const auto* const first = static_cast<const std::byte*>(start);
  // As numbers: pointers of different objects can't be compared.
  const auto at = reinterpret_cast<std::uintptr_t>(first);
  const auto from = reinterpret_cast<std::uintptr_t>(inside.start);
  if (at < from || at - from > inside.bytes || bytes > inside.bytes - (at - from)) return nullptr;
  return inside.memory.get();
}

std::uint64_t Engine::offset_in(const Region* region, const void* start) const noexcept {
  if (region == nullptr) return 0;
  return static_cast<std::uint64_t>(static_cast<const std::byte*>(start) - region->inside()->start);
}

}  // namespace larklane::msg
