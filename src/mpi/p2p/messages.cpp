#include "mpi/p2p/messages.hpp"

#include <sched.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <utility>

#include "mpi/world/identity.hpp"
#include "net/registry.hpp"

namespace larklane::mpi::p2p {
namespace {

/// Rings, and so full rings, are common: only a peer that is outside the library does nothing for
/// so long. A ring costs a system call here and a wake-up there.
constexpr std::uint64_t kStallNs = 50'000;

}  // namespace

Result<std::unique_ptr<Messages>> Messages::create(const Config& config, control::Plane& plane,
                                                   const Job& job, int rank, int size,
                                                   std::uint16_t first_kind, std::string* problem) {
  if (config.shm_attach == "off") {
    *problem = "option shm_attach is off";
    return Errc::kUnreachable;
  }
  auto lanes = vci::VciPool::Options::of(config);
  if (!lanes) return lanes.error();
  std::unique_ptr<Messages> made(new Messages(plane, job, rank, size, first_kind));
  auto fabric = net::open_fabric_named(config, "shm", problem);
  if (!fabric) return fabric.error();
  made->fabric_ = std::move(fabric).value();
  const msg::Engine::Options options{
      .rank = rank,
      .size = size,
      .lanes = *lanes,
      .lane = {.packets = {.has_growing_rings = true},
               .bounce_bytes_max = config.message_bounce_max},
      .eager_bytes_max = static_cast<std::uint32_t>(config.message_eager_max),
      .stall_ns = kStallNs};
  msg::Connector& connector = *made;
  made->engine_ = std::make_unique<msg::Engine>(*made->fabric_, made->domain_, connector, options);
  msg::SharedPlane& shared = *made;
  auto mesh = msg::Mesh::create(shared, *made, problem);
  if (!mesh) return mesh.error();
  made->mesh_ = std::move(mesh).value();
  Status watched = made->turns_.open();
  if (watched.ok()) watched = plane.watch(made->turns_);
  made->is_watched_ = watched.ok();
  if (watched.ok()) {
    made->turns_.turn_on();
    return made;
  }
  made->close();
  return watched;
}

Status Messages::Turns::open() {
  never_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  return never_ ? Status() : Status(Errc::kSystem, errno);
}

void Messages::Turns::ask() noexcept {
  is_asked_.store(true, std::memory_order_release);  // pairs with before_sleep()
  look_again();
}

void Messages::Turns::poll() noexcept {
  does_poll_.store(true, std::memory_order_relaxed);  // as in next_time_ns()
  look_again();
}

void Messages::Turns::serve() {
  constexpr int kTurnsMost = 64;  // then the helper looks at its other sources
  // Before the turns: a later arrival asks anew. acq_rel: as ask(), and as before_sleep()
  is_asked_.exchange(false, std::memory_order_acq_rel);
  for (int turn = 0; turn < kTurnsMost; ++turn)
    if (messages_.engine_->serve_all() == 0) return;
  is_asked_.store(true, std::memory_order_release);
}

void Messages::Turns::on_time(std::uint64_t now_ns) {
  constexpr std::uint64_t kTurnNs = 1'000'000;
  next_turn_ns_ = now_ns + kTurnNs;
  while (messages_.engine_->progress_all() != 0) {
  }
}

void Messages::drain(const std::function<void()>& poke) {
  while (!engine_->is_quiet()) {
    if (engine_->progress_all() != 0) continue;
    engine_->look_for_stalls();
    poke();
    ::sched_yield();
  }
}

void Messages::close() {
  drain([] {});
  if (std::exchange(is_watched_, false)) {
    turns_.turn_off();
    plane_.unwatch(turns_);
  }
  mesh_->close([this] { (void)engine_->progress_all(); });
}

Result<control::Address> Messages::address_of(int rank, std::string*) {
  return mpi::address_of({job_, rank});
}

Result<msg::PacketLane*> Messages::lane_of(std::uint32_t number) {
  auto lane = engine_->lane_of(number);
  if (!lane) return lane.error();
  return &(*lane)->packets();
}

msg::PacketListener* Messages::listener_of(int rank, std::uint32_t number) {
  return engine_->connection_of_link(rank, number);
}

std::string Messages::explain(Status status) {
  std::string text = fabric_->explain(status);
  return text.empty() ? errc_name(status.code()) : text;
}

void Messages::on_ready(int rank, std::uint32_t number, msg::PacketLink& link) {
  engine_->connection_of_link(rank, number)->begin(link);
}

void Messages::on_unreachable(int rank, std::uint32_t number, Status status) {
  engine_->refuse(rank, number, status);
}

void Messages::on_peer_down(int rank, Status status) { engine_->lose(rank, status); }

}  // namespace larklane::mpi::p2p
