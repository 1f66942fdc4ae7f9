// The context: combines the board (peers), the provider (network), the mesh (links) and the engine
// (operations).

#include "larklane/context.hpp"

#include <sched.h>

#include <atomic>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/config.hpp"
#include "base/kernel_calls.hpp"
#include "base/log.hpp"
#include "bootstrap/board.hpp"
#include "msg/mesh.hpp"
#include "msg/protocol/engine.hpp"
#include "net/registry.hpp"

namespace larklane {
namespace {

/// Longest wait of the destructor for operations that are still in flight.
constexpr std::uint64_t kOutNs = 2'000'000'000;

/// Nothing: `problem` says why.
std::optional<Config> config_of_environment(std::string* problem) {
  std::vector<Config::Problem> problems;
  auto config = Config::load(&problems);
  for (const Config::Problem& one : problems)
    if (one.fatal)
      *problem = one.text;
    else
      log_warn("%s", one.text.c_str());
  if (!config) return std::nullopt;
  set_log_level(log_level_named(config->log_level));
  return std::move(config).value();
}

/// @errors kSystem: the kernel refuses a call that the library needs
Status rehearse(CallsFor use, std::string* problem) {
  const auto refused = rehearse_kernel_calls(use);
  if (!refused) return {};
  *problem = refused->text();
  return {Errc::kSystem, refused->error};
}

/// By default, processes of one host use its memory.
Result<std::string> provider_of(const Config& config, boot::Board& board, std::string* problem) {
  auto is_one_host = board.is_one_host(problem);  // always: the answer may need a call by all ranks
  if (!is_one_host) return is_one_host.error();
  if (config.message_provider != "auto") return config.message_provider;
  const bool is_by_memory = *is_one_host && config.shm_attach != "off";
  return is_by_memory ? std::string("shm") : std::string(net::wanted_providers("auto").front());
}

/// Nothing: `problem` says why.
std::optional<msg::Engine::Rendezvous> rendezvous_of(const Config& config,
                                                     const net::Limits& network,
                                                     std::string* problem) {
  using Rendezvous = msg::Engine::Rendezvous;
  if (config.message_rendezvous == "auto") return Rendezvous::chosen;
  if (config.message_rendezvous == "read") return Rendezvous::read;
  if (msg::Engine::can_ask_for_writes(network)) return Rendezvous::write;
  *problem = "LARKLANE_MESSAGE_RENDEZVOUS=write: over " + network.provider +
             " long messages can only be read (a write's immediate needs a reserve there); remedy: "
             "`auto` or `read`, or a provider `ofi`";
  return std::nullopt;
}

}  // namespace

// Thread safety: thread-safe after open().
struct Context::Inside final : msg::MeshUser, msg::Connector {
  static Result<std::unique_ptr<Inside>> open(const Config& config,
                                              std::unique_ptr<boot::Board> board,
                                              std::string* problem);
  ~Inside() override;

  // msg::Connector
  void want(int rank, std::uint32_t number) override { mesh->want(rank, number); }
  void look_at_descriptors() override {
    if (mesh != nullptr) mesh->look_at_descriptors();
  }

  // msg::MeshUser
  Result<msg::PacketLane*> lane_of(std::uint32_t number) override {
    auto lane = engine->lane_of(number);
    if (!lane) return lane.error();
    return &(*lane)->packets();
  }
  msg::PacketListener* listener_of(int rank, std::uint32_t number) override {
    return engine->connection_of_link(rank, number);
  }
  std::string explain(Status status) override {
    std::string text = fabric->explain(status);
    if (text.empty()) text = errc_name(status.code());
    if (fabric->limits().network.empty())
      text +=
          "; remedy where processes of a host can't reach each other's memory: "
          "LARKLANE_MESSAGE_PROVIDER=ofi";
    return text;
  }
  void on_ready(int rank, std::uint32_t number, msg::PacketLink& link) override {
    engine->connection_of_link(rank, number)->begin(link);
  }
  void on_unreachable(int rank, std::uint32_t number, Status status) override {
    engine->refuse(rank, number, status);
  }
  void on_peer_down(int rank, Status status) override { engine->lose(rank, status); }

  std::unique_ptr<boot::Board> board;
  std::unique_ptr<net::Fabric> fabric;
  CompletionDomain domain;
  std::unique_ptr<msg::Engine> engine;
  std::unique_ptr<msg::Mesh> mesh;
};

Result<std::unique_ptr<Context::Inside>> Context::Inside::open(const Config& config,
                                                               std::unique_ptr<boot::Board> board,
                                                               std::string* problem) {
  auto lanes = vci::VciPool::Options::of(config);
  if (!lanes) return lanes.error();
  auto provider = provider_of(config, *board, problem);
  if (!provider) return provider.error();
  if (*provider == "shm") {
    const Status status = rehearse(CallsFor::records_and_memory, problem);
    if (!status.ok()) *problem += "; or take a network: LARKLANE_MESSAGE_PROVIDER=ofi";
    LARKLANE_TRY(status);
  }
  auto fabric = net::open_fabric_named(config, *provider, problem);
  if (!fabric) return fabric.error();
  log_info("rank %d of %d: messages by %s", board->rank(), board->size(),
           (*fabric)->limits().provider.c_str());
  const auto rendezvous = rendezvous_of(config, (*fabric)->limits(), problem);
  if (!rendezvous) return Errc::kBadOption;
  auto inside = std::make_unique<Inside>();
  inside->board = std::move(board);
  inside->fabric = std::move(fabric).value();
  const msg::Engine::Options options{
      .rank = inside->board->rank(),
      .size = inside->board->size(),
      .lanes = *lanes,
      .lane = {.bounce_bytes_max = config.message_bounce_max},
      .eager_bytes_max = static_cast<std::uint32_t>(config.message_eager_max),
      .rendezvous = *rendezvous};
  inside->engine = std::make_unique<msg::Engine>(*inside->fabric, inside->domain, *inside, options);
  auto mesh = msg::Mesh::create(config, *inside->board, *inside, problem);
  if (!mesh) return mesh.error();
  inside->mesh = std::move(mesh).value();
  return inside;
}

Context::Inside::~Inside() {
  if (mesh == nullptr) return;
  const std::uint64_t deadline_ns = now_ns() + kOutNs;
  while (!engine->is_quiet() && now_ns() < deadline_ns)
    if (engine->progress_all() == 0) ::sched_yield();
  mesh->close([this] { (void)engine->progress_all(); });
}

Context::Context(std::unique_ptr<Inside> inside) noexcept : inside_(std::move(inside)) {}
Context::~Context() {
  // In a forked child's exit(): leak. The parent still uses the context, and its threads do not
  // exist here.
  if (!inside_->engine->is_made_here()) (void)inside_.release();
}

Result<std::unique_ptr<Context>> Context::create(std::string* problem) {
  const auto config = config_of_environment(problem);
  if (!config) return Errc::kBadOption;
  LARKLANE_TRY(rehearse(CallsFor::records, problem));
  auto board = boot::Board::open(*config, problem);
  if (!board) return board.error();
  auto inside = Inside::open(*config, std::move(board).value(), problem);
  if (!inside) return inside.error();
  return std::unique_ptr<Context>(new Context(std::move(inside).value()));
}

Result<std::unique_ptr<Context>> Context::create(boot::Peers peers, std::string* problem) {
  const auto config = config_of_environment(problem);
  if (!config) return Errc::kBadOption;
  LARKLANE_TRY(rehearse(CallsFor::records, problem));
  auto board = boot::Board::open(std::move(peers), problem);
  if (!board) return board.error();
  auto inside = Inside::open(*config, std::move(board).value(), problem);
  if (!inside) return inside.error();
  return std::unique_ptr<Context>(new Context(std::move(inside).value()));
}

int Context::rank() const noexcept { return inside_->engine->rank(); }
int Context::size() const noexcept { return inside_->engine->size(); }
CompletionDomain& Context::completions() noexcept { return inside_->domain; }
msg::Engine& Context::inside() noexcept { return *inside_->engine; }

Status Context::fence(std::string* problem) {
  Status status;
  std::atomic<bool> is_over{false};
  // A separate thread waits: another rank may need this process's progress before it reaches the
  // fence.
  std::thread waiting([&] {
    status = inside_->board->fence(problem);
    is_over.store(true, std::memory_order_release);  // pairs with the acquire below
  });
  while (!is_over.load(std::memory_order_acquire))
    if (inside_->engine->progress_all() == 0) ::sched_yield();
  waiting.join();
  return status;
}

Result<Vci> Context::create_vci(const VciOptions& options) {
  using Use = msg::Engine::Use;
  auto lane =
      inside_->engine->take_lane(options.is_single_threaded ? Use::own_thread : Use::shared);
  if (!lane) return lane.error();
  return Vci(**lane);
}

Result<Region> Context::register_region(void* start, std::uint64_t bytes) {
  if (start == nullptr && bytes != 0) return Errc::kInvalidArgument;
  auto region = inside_->engine->add_region(start, bytes);
  if (!region) return region.error();
  return Region(**region);
}

Result<Region> Context::allocate_region(std::uint64_t bytes) {
  auto region = inside_->engine->allocate_region(bytes);
  if (!region) return region.error();
  return Region(**region);
}

}  // namespace larklane
