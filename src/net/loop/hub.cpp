#include "net/loop/hub.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace larklane::loop {
namespace {

/// The content of an operation's provider_space while it is pending.
std::byte* mark_of(const Flight& flight, std::size_t i) {
  return reinterpret_cast<std::byte*>(flight.serial * 0x9e3779b97f4a7c15u + i);
}

std::string range_text(std::uint64_t first, std::uint64_t bytes) {
  char text[64];
  std::snprintf(text, sizeof text, "%llu bytes at 0x%llx", static_cast<unsigned long long>(bytes),
                static_cast<unsigned long long>(first));
  return text;
}

}  // namespace

Hub::Hub(Fabric::Options options) : options_(std::move(options)), random_(options_.seed) {}

Hub::~Hub() {
  for (const Violation& violation : violations_)
    std::fprintf(stderr, "larklane: loop: nobody asked for: %s: %s\n",
                 offence_name(violation.offence), violation.detail.c_str());
  if (!violations_.empty()) std::abort();
}

std::uint64_t Hub::choose_locked(std::uint64_t bound) {
  if (bound <= 1) return 0;
  return options_.choose ? options_.choose(bound) : random_.below(bound);
}

bool Hub::chance_locked(std::uint32_t percent) {
  if (percent == 0) return false;
  return percent >= 100 || choose_locked(100) < percent;
}

void Hub::report_locked(Offence offence, const std::string& detail) {
  violations_.push_back({offence, detail});
  if (!options_.aborts) return;
  std::fprintf(stderr, "larklane: loop: %s: %s\n", offence_name(offence), detail.c_str());
  std::abort();
}

void Hub::report(Offence offence, const std::string& detail) {
  const net::UnseenGuard guard(lock_);
  report_locked(offence, detail);
}

std::vector<Violation> Hub::take_violations() {
  const net::UnseenGuard guard(lock_);
  return std::exchange(violations_, {});
}

// --- participants -----------------------------------------------------------------------------

std::uint32_t Hub::add_process() {
  const net::UnseenGuard guard(lock_);
  return ++processes_;
}

void Hub::remove_process(std::uint32_t process) {
  const net::UnseenGuard guard(lock_);
  for (const Port* port : ports_)
    if (port->process == process) report_locked(Offence::fabric_busy, "an endpoint is open");
  for (const auto& [key, region] : regions_)
    if (region.process == process) report_locked(Offence::fabric_busy, "memory is registered");
}

net::RemoteMemory Hub::add_region(Region region) {
  const net::UnseenGuard guard(lock_);
  const std::uint64_t key = ++last_number_;
  // Aligned as the memory is, and no pointer that a thread could use.
  region.address = (key << 40) + reinterpret_cast<std::uintptr_t>(region.start) % 4096;
  regions_.emplace(key, region);
  return {region.address, key};
}

void Hub::remove_region(std::uint64_t key) {
  const net::UnseenGuard guard(lock_);
  for (const auto& [serial, flight] : flights_) {
    if (flight->operation != nullptr && flight->local_key == key)
      report_locked(Offence::memory_busy, "its operation has not completed");
    if (flight->request.transfer.remote.key == key && flight->request.transfer.bytes > 0 &&
        flight->status.ok() && !flight->has_landed)
      report_locked(Offence::memory_busy, "a peer's operation is under way");
  }
  regions_.erase(key);
}

Status Hub::add_port(Port& port) {
  const net::UnseenGuard guard(lock_);
  port.bell.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!port.bell) return {Errc::kSystem, errno};
  port.number = ports_opened_++;
  ports_.push_back(&port);
  return {};
}

void Hub::remove_port(Port& port) {
  const net::UnseenGuard guard(lock_);
  for (const auto& [number, end] : ends_)
    if (end->port == &port) report_locked(Offence::endpoint_busy, "it has links");
  for (const auto& [serial, flight] : flights_)
    if (flight->target == &port) flight->target = nullptr;
  for (const Event& event : std::exchange(port.events, {})) drop_locked(*event.flight);
  for (const Part& part : std::exchange(port.door, {})) happen_locked(part, &port);
  std::erase(ports_, &port);
}

void Hub::add_end(End& end) {
  const net::UnseenGuard guard(lock_);
  end.offer = {End::kMagic, this, ++last_number_};
  ends_.emplace(end.offer.number, &end);
}

void Hub::remove_end(End& end) {
  const net::UnseenGuard guard(lock_);
  if (end.under_way_count > 0)
    report_locked(Offence::link_busy, std::to_string(end.under_way_count) + " operations");
  for (const auto& [serial, flight] : flights_) {
    if (flight->end != &end) continue;
    flight->end = nullptr;
    if (!flight->has_landed) flight->status = Errc::kPeerDown;
    if (flight->operation != nullptr) operations_.erase(flight->operation);
    flight->operation = nullptr;
  }
  ends_.erase(end.offer.number);
}

Status Hub::connect(End& end, std::span<const std::byte> offer) {
  End::Offer peer{};
  if (offer.size() != sizeof peer) return Errc::kProtocol;
  std::memcpy(&peer, offer.data(), sizeof peer);
  if (peer.magic != End::kMagic) return Errc::kProtocol;
  const net::UnseenGuard guard(lock_);
  const auto found = ends_.find(peer.number);
  if (peer.hub != this || found == ends_.end() || !found->second->port->dead.ok())
    return Errc::kUnreachable;
  end.peer = peer.number;
  return {};
}

void Hub::kill_endpoint(std::uint32_t number) {
  const net::UnseenGuard guard(lock_);
  const auto dies = std::find_if(ports_.begin(), ports_.end(),
                                 [&](const Port* port) { return port->number == number; });
  if (dies != ports_.end()) kill_locked(**dies);
}

void Hub::kill_process(std::uint32_t process) {
  const net::UnseenGuard guard(lock_);
  for (Port* const port : ports_)
    if (port->process == process) kill_locked(*port);
}

void Hub::kill_locked(Port& port) {
  port.dead = Errc::kPeerDown;
  for (const auto& [own, end] : ends_) {
    const auto peer = ends_.find(end->peer);
    const bool is_of_peer = peer != ends_.end() && peer->second->port == &port;
    if (end->port == &port || is_of_peer) break_locked(*end, Errc::kPeerDown);
  }
  ring_locked(&port);
}

// --- posts --------------------------------------------------------------------------------------

bool Hub::check_local_locked(const End& end, const net::Transfer& transfer,
                             std::uint64_t local_key) {
  const auto found = regions_.find(local_key);
  if (found == regions_.end() || found->second.process != end.port->process) {
    report_locked(Offence::foreign_memory, "of the poster");
    return false;
  }
  const Region& region = found->second;
  const std::uint64_t offset = reinterpret_cast<std::uintptr_t>(transfer.local) -
                               reinterpret_cast<std::uintptr_t>(region.start);
  if (offset <= region.bytes && transfer.bytes <= region.bytes - offset) return true;
  report_locked(Offence::outside_memory,
                "of the poster: " + range_text(offset, transfer.bytes) + " of its memory");
  return false;
}

bool Hub::check_locked(const End& end, const Request& request, std::uint64_t local_key,
                       const net::Operation& operation) {
  const std::uint64_t bytes = request.transfer.bytes;
  const std::uint64_t most = request.is_small  ? options_.limits.small_bytes_max
                             : request.is_read ? options_.limits.read_bytes_max
                                               : options_.limits.write_bytes_max;
  const auto peer = ends_.find(end.peer);
  const bool is_waiting = peer != ends_.end() && peer->second->peer != end.offer.number;
  if (operation.complete == nullptr)
    report_locked(Offence::no_callback, "a post");
  else if (operations_.contains(&operation))
    report_locked(Offence::operation_busy, "a post");
  else if (end.peer == 0 || is_waiting)
    report_locked(Offence::not_connected, is_waiting ? "the peer" : "the poster");
  else if (options_.limits.is_connected_by_use && peer != ends_.end() && peer->second->is_used &&
           !end.is_met)
    report_locked(Offence::crossed, "a post");
  else if (bytes > most)
    report_locked(Offence::too_long, std::to_string(bytes) + " bytes");
  else
    return request.is_small || bytes == 0 || check_local_locked(end, request.transfer, local_key);
  return false;
}

Result<net::Post> Hub::post(End& end, const Request& request, std::uint64_t local_key,
                            net::Operation& operation) {
  const net::UnseenGuard guard(lock_);
  if (!check_locked(end, request, local_key, operation)) return Errc::kInvalidArgument;
  // Both are legal: the poster may learn of the link's end now or later.
  if (!end.broken.ok() && choose_locked(2) == 0) return end.broken;
  if (end.under_way_count >= options_.queue_depth) {
    end.port->wakes_for_all.store(true, std::memory_order_relaxed);
    if (!end.port->events.empty()) ring_locked(end.port);
    return net::Post::retry;
  }
  Flight& flight = launch_locked(end, request, local_key);
  if (happens_at_once_locked(flight)) {
    drop_locked(flight);
    return net::Post::done;
  }
  ++end.under_way_count;
  end.is_used = true;
  flight.operation = &operation;
  operations_.insert(&operation);
  for (std::size_t i = 0; i < std::size(operation.provider_space); ++i)
    operation.provider_space[i] = mark_of(flight, i);
  if (!flight.status.ok() || !end.broken.ok()) {
    flight.status = end.broken;
    complete_locked(flight);
  } else {
    cut_locked(flight);
  }
  drop_locked(flight);
  return net::Post::posted;
}

/// With one reference, the caller's.
Flight& Hub::launch_locked(End& end, const Request& request, std::uint64_t local_key) {
  auto flight = std::make_unique<Flight>();
  flight->request = request;
  flight->small.assign(request.small.begin(), request.small.end());
  flight->end = &end;
  flight->peer = end.peer;
  const auto peer = ends_.find(end.peer);
  flight->target = peer == ends_.end() ? nullptr : peer->second->port;
  flight->local_key = request.is_small || request.transfer.bytes == 0 ? 0 : local_key;
  flight->serial = ++last_number_;
  flight->references = 1;
  Flight& launched = *flight;
  flights_.emplace(launched.serial, std::move(flight));
  const net::Seen seen;
  net::happens_before(&launched);
  return launched;
}

bool Hub::happens_at_once_locked(Flight& flight) {
  if (!flight.request.is_small || options_.limits.is_progress_manual || !flight.end->broken.ok() ||
      !chance_locked(options_.done_percent))
    return false;
  flight.pieces_left = 1;
  flight.is_completing = true;  // no thread waits for it
  move_locked(
      {.kind = Part::Kind::piece, .flight = &flight, .bytes = flight.request.transfer.bytes});
  flight.is_completing = flight.has_landed;
  return flight.has_landed;
}

void Hub::cut_locked(Flight& flight) {
  const net::Transfer& transfer = flight.request.transfer;
  std::vector<std::uint64_t> cuts{0, transfer.bytes};
  const bool is_in_order = flight.operation->is_looked_for &&
                           transfer.bytes <= options_.limits.first_word_last_bytes_max;
  if (is_in_order && !options_.limits.are_words_whole && transfer.bytes > kStreamedLast) {
    flight.is_stream = true;
    flight.end->streams.insert(flight.serial);
    flight.pieces_left = 1 + kStreamedLast;
    return add_piece_locked(flight, kStreamedLast, transfer.bytes - kStreamedLast);
  }
  if (!flight.request.is_word() && !is_in_order) {
    const std::uint64_t pieces = std::min<std::uint64_t>(options_.pieces_max, transfer.bytes);
    for (std::uint64_t more = choose_locked(pieces); more > 0; --more) {
      std::uint64_t at = choose_locked(transfer.bytes);
      // Words that a thread may be storing are read as a whole.
      if (flight.request.is_read) at -= std::min(at, (transfer.remote.address + at) % kWordBytes);
      cuts.push_back(at);
    }
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  if (cuts.size() == 1) cuts.push_back(cuts.front());  // no bytes: one piece all the same
  flight.pieces_left = static_cast<std::uint32_t>(cuts.size() - 1);
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i)
    add_piece_locked(flight, cuts[i], cuts[i + 1] - cuts[i]);
}

// --- endpoints ----------------------------------------------------------------------------------

void Hub::turn_for_poll(Port& port) {
  const net::UnseenGuard guard(lock_);
  for (const Part& part : std::exchange(port.door, {})) happen_locked(part, &port);
  for (std::uint32_t i = 0; i < options_.turns_per_poll; ++i) step_locked(&port);
}

bool Hub::take(Port& port, Delivery& delivery) {
  const net::UnseenGuard guard(lock_);
  while (!port.events.empty()) {
    const Event event = port.events.front();
    port.events.pop_front();
    Flight& flight = *event.flight;
    if (event.is_immediate) {
      --port.waiting_count;
      delivery = {nullptr, {}, *flight.request.immediate};
    } else if (flight.operation != nullptr) {
      for (std::size_t i = 0; i < std::size(flight.operation->provider_space); ++i)
        if (std::exchange(flight.operation->provider_space[i], nullptr) != mark_of(flight, i))
          report_locked(Offence::operation_touched, "word " + std::to_string(i));
      --flight.end->under_way_count;
      operations_.erase(flight.operation);
      delivery = {std::exchange(flight.operation, nullptr), flight.status, 0};
    } else {  // its link was destroyed
      if (flight.end != nullptr) report_locked(Offence::completed_twice, "in a poll");
      drop_locked(flight);
      continue;
    }
    {
      const net::Seen seen;
      net::happens_after(&flight);
    }
    drop_locked(flight);
    return true;
  }
  return false;
}

Status Hub::verdict(Port& port) {
  const net::UnseenGuard guard(lock_);
  if (port.dead.ok() || !port.events.empty()) return {};
  for (const auto& [number, end] : ends_)
    if (end->port == &port && end->under_way_count > 0) return {};
  return port.dead;
}

Status Hub::reserve(Port& port, std::uint32_t count) {
  const net::UnseenGuard guard(lock_);
  const std::uint32_t most = options_.limits.immediates_max;
  if (most != 0 && count > most - port.reserved_count) return Errc::kNoMemory;
  port.reserved_count += count;
  return {};
}

void Hub::release(Port& port, std::uint32_t count) {
  const net::UnseenGuard guard(lock_);
  if (count > port.reserved_count)
    report_locked(Offence::released_too_many,
                  std::to_string(count) + " of " + std::to_string(port.reserved_count));
  port.reserved_count -= std::min(count, port.reserved_count);
}

/// May a poll of this port get something on?
bool Hub::is_concerned_locked(const Port& port) const {
  return std::any_of(parts_.begin(), parts_.end(), [&](const Part& part) {
    const Flight& flight = *part.flight;
    return flight.target == &port || (flight.end != nullptr && flight.end->port == &port);
  });
}

bool Hub::arm(Port& port, net::Wake wake) {
  const net::UnseenGuard guard(lock_);
  std::uint64_t rung = 0;
  (void)!::read(port.bell.get(), &rung, sizeof rung);
  port.is_armed = port.events.empty() && port.door.empty() && port.dead.ok() &&
                  (options_.turns_per_poll == 0 || !is_concerned_locked(port));
  port.wakes_for_all.store(wake == net::Wake::all, std::memory_order_relaxed);
  return port.is_armed;
}

void Hub::ring_locked(Port* port) {
  if (port == nullptr || !port->is_armed) return;
  port->is_armed = false;
  const std::uint64_t once = 1;
  (void)!::write(port->bell.get(), &once, sizeof once);
}

// --- turns --------------------------------------------------------------------------------------

std::uint64_t Hub::turn(std::uint64_t most) {
  const net::UnseenGuard guard(lock_);
  std::uint64_t happened = 0;
  for (std::uint64_t i = 0; i < most; ++i) happened += step_locked(nullptr) ? 1 : 0;
  return happened;
}

std::uint64_t Hub::settle() {
  const net::UnseenGuard guard(lock_);
  std::uint64_t happened = 0;
  while (skip_wait_locked()) happened += step_locked(nullptr) ? 1 : 0;
  return happened;
}

std::size_t Hub::under_way_count() {
  const net::UnseenGuard guard(lock_);
  return flights_.size();
}

std::size_t Hub::registrations_count() {
  const net::UnseenGuard guard(lock_);
  return regions_.size();
}

bool Hub::skip_wait_locked() {
  auto first = UINT64_MAX;
  for (const Part& part : parts_)
    if (part.flight->is_its_turn()) first = std::min(first, part.not_before);
  if (first == UINT64_MAX) return false;
  now_ = std::max(now_, first);
  return true;
}

bool Hub::step_locked(Port* polling) {
  ++now_;
  const auto can = [&](const Part& part) { return part.can_happen(now_); };
  const auto count = std::count_if(parts_.begin(), parts_.end(), can);
  if (count == 0) return false;
  std::uint64_t left = choose_locked(static_cast<std::uint64_t>(count));
  auto next = std::find_if(parts_.begin(), parts_.end(), can);
  for (; left > 0; --left) next = std::find_if(next + 1, parts_.end(), can);
  const Part part = *next;
  *next = parts_.back();
  parts_.pop_back();
  happen_locked(part, polling);
  return true;
}

Port* Hub::owner_locked(const Part& part) const {
  if (part.kind != Part::Kind::completion) return part.flight->target;
  return part.flight->end == nullptr ? nullptr : part.flight->end->port;
}

void Hub::happen_locked(const Part& part, Port* polling) {
  Port* const owner = owner_locked(part);
  if (options_.limits.is_progress_manual && owner != nullptr && owner != polling) {
    owner->door.push_back(part);
    return ring_locked(owner);
  }
  switch (part.kind) {
    case Part::Kind::piece:
      if (part.flight->status.ok()) move_locked(part);
      break;
    case Part::Kind::immediate:
      give_immediate_locked(*part.flight);
      break;
    case Part::Kind::completion:
      give_completion_locked(*part.flight);
      break;
  }
  drop_locked(*part.flight);
}

void Hub::add_part_locked(Part part) {
  if (chance_locked(options_.delayed_percent))
    part.not_before = now_ + 1 + choose_locked(options_.delay_turns_max);
  ++part.flight->references;
  parts_.push_back(part);
  if (options_.turns_per_poll == 0) return;
  ring_locked(part.flight->target);
  if (part.flight->end != nullptr) ring_locked(part.flight->end->port);
}

void Hub::add_piece_locked(Flight& flight, std::uint64_t offset, std::uint64_t bytes) {
  add_part_locked({.kind = Part::Kind::piece, .flight = &flight, .offset = offset, .bytes = bytes});
}

void Hub::drop_locked(Flight& flight) {
  if (--flight.references == 0) flights_.erase(flight.serial);
}

std::byte* Hub::local_locked(Flight& flight, std::uint64_t offset) {
  if (flight.request.is_small) return flight.small.data() + offset;
  return regions_.contains(flight.local_key) ? flight.request.transfer.local + offset : nullptr;
}

std::byte* Hub::remote_locked(const Flight& flight, std::uint64_t offset, std::uint64_t bytes) {
  const net::RemoteMemory& remote = flight.request.transfer.remote;
  const auto found = regions_.find(remote.key);
  const std::uint64_t first = remote.address + offset;
  if (found == regions_.end()) {
    report_locked(Offence::outside_memory, "of the peer: no memory has this key");
    return nullptr;
  }
  const Region& region = found->second;
  if (region.process != flight.target->process) {
    report_locked(Offence::foreign_memory, "of another process than the peer's");
    return nullptr;
  }
  const std::uint64_t begin = first - region.address;
  if (begin <= region.bytes && bytes <= region.bytes - begin) return region.start + begin;
  report_locked(Offence::outside_memory,
                "of the peer: " + range_text(begin, bytes) + " of " + std::to_string(region.bytes));
  return nullptr;
}

void Hub::move_locked(const Part& part) {
  Flight& flight = *part.flight;
  if (flight.target == nullptr || !ends_.contains(flight.peer))
    return fail_locked(flight, Errc::kPeerDown);
  if (part.bytes > 0) {
    std::byte* const local = local_locked(flight, part.offset);
    std::byte* const remote =
        local == nullptr ? nullptr : remote_locked(flight, part.offset, part.bytes);
    if (remote == nullptr) return fail_locked(flight, Errc::kTransfer);
    const Piece piece{local, remote, part.bytes};
    const bool is_read = flight.request.is_read;
    const bool is_whole = flight.request.is_word() && !flight.is_stream;
    const net::Seen seen;
    net::happens_after(&flight);
    is_read ? read(piece) : is_whole ? store_word(piece) : write(piece);
    net::happens_before(&flight);
  }
  if (--flight.pieces_left == 0) return land_locked(flight);
  if (!flight.is_stream) return;
  add_piece_locked(flight, kStreamedLast - flight.pieces_left, 1);
}

void Hub::land_locked(Flight& flight) {
  flight.has_landed = true;
  if (flight.request.immediate) add_part_locked({.kind = Part::Kind::immediate, .flight = &flight});
  if (!flight.is_completing) complete_locked(flight);
}

void Hub::give_immediate_locked(Flight& flight) {
  Port* const target = flight.target;
  if (target == nullptr || !target->dead.ok()) return;
  const net::Limits& limits = options_.limits;
  // With first_word_last_bytes_max there may be more; this network takes them all.
  if (limits.immediates_max != 0 && limits.first_word_last_bytes_max == 0 &&
      target->waiting_count >= target->reserved_count) {
    report_locked(Offence::receiver_not_ready,
                  std::to_string(target->reserved_count) + " reserved");
    return fail_locked(flight, Errc::kTransfer);
  }
  ++target->waiting_count;
  ++flight.references;
  target->events.push_back({&flight, true});
  if (flight.request.is_small || target->wakes_for_all.load(std::memory_order_relaxed))
    ring_locked(target);
}

void Hub::give_completion_locked(Flight& flight) {
  if (flight.end == nullptr) return;
  ++flight.references;
  flight.end->port->events.push_back({&flight, false});
  if (flight.operation->wakes || flight.end->port->wakes_for_all.load(std::memory_order_relaxed))
    ring_locked(flight.end->port);
}

void Hub::complete_locked(Flight& flight) {
  flight.is_completing = true;
  if (flight.end != nullptr) flight.end->streams.erase(flight.serial);
  if (flight.status.ok() && flight.end != nullptr) {
    flight.end->is_met = true;
    if (const auto peer = ends_.find(flight.peer); peer != ends_.end()) peer->second->is_met = true;
  }
  add_part_locked({.kind = Part::Kind::completion, .flight = &flight});
}

/// As a queue pair does: after a failure nothing gets through any more.
void Hub::fail_locked(Flight& flight, Status status) {
  flight.status = status;
  if (flight.end != nullptr) break_locked(*flight.end, status);
}

void Hub::break_locked(End& end, Status status) {
  if (end.broken.ok()) end.broken = status;
  for (const auto& [serial, flight] : flights_) {
    if (flight->end != &end || flight->is_completing) continue;
    flight->status = status;
    complete_locked(*flight);
  }
}

}  // namespace larklane::loop
