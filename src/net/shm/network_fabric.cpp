#include "net/shm/network_fabric.hpp"

#include <cerrno>
#include <utility>

#include "base/status_text.hpp"
#include "net/shm/network_catalogue.hpp"
#include "net/shm/network_endpoint.hpp"
#include "shm/copy.hpp"

namespace larklane::shm {
namespace {

/// Record `message-bounce`. Two copies would win above, too, at a price in memory.
constexpr std::uint64_t kBounceBytesMax = 1u << 18;

net::Limits own_limits() {
  net::Limits limits{};
  // Longer ones are cut, so that threads that wait for the lane are served between.
  limits.write_bytes_max = limits.read_bytes_max = std::uint64_t{1} << 26;
  limits.small_bytes_max = 8192;  // the longest record of packets, by default
  limits.immediates_max = NetworkEndpoint::kImmediatesMax;
  limits.is_progress_manual = false;
  limits.provider = "shm";
  // No kernel promises that of attach. In allocated memory they are.
  limits.are_words_whole = false;
  limits.bounce_bytes_max = kBounceBytesMax;
  limits.are_small_writes_done = true;
  limits.first_word_last_bytes_max = UINT64_MAX;
  limits.is_local_memory_registered = false;
  limits.unanswered_ns = 1'000'000;
  limits.has_unreadable_memory = true;
  limits.has_mapped_memory = true;
  return limits;
}

/// Thread safety: immutable.
class RegisteredMemory final : public net::Memory {
 public:
  RegisteredMemory(Catalogue& catalogue, net::RemoteMemory remote) noexcept
      : catalogue_(catalogue), remote_(remote) {}
  ~RegisteredMemory() override { catalogue_.remove(remote_.key); }
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;
  net::RemoteMemory remote() const noexcept override { return remote_; }

 private:
  Catalogue& catalogue_;
  const net::RemoteMemory remote_;
};

/// Thread safety: immutable.
class MappedMemory final : public net::AllocatedMemory {
 public:
  MappedMemory(Catalogue& catalogue, const Catalogue::Piece& piece, std::uint64_t key) noexcept
      : catalogue_(catalogue), piece_(piece), key_(key) {}
  ~MappedMemory() override {
    catalogue_.remove(key_);
    catalogue_.release(piece_);
  }
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;
  std::byte* start() const noexcept override { return piece_.start; }
  net::RemoteMemory remote() const noexcept override {
    return {reinterpret_cast<std::uintptr_t>(piece_.start), key_};
  }

 private:
  Catalogue& catalogue_;
  const Catalogue::Piece piece_;
  const std::uint64_t key_;
};

/// Thread safety: thread-safe.
class NetworkFabric final : public net::Fabric {
 public:
  NetworkFabric(std::unique_ptr<Catalogue> catalogue, const ProcessIdentity& own,
                bool is_attach_allowed)
      : domain_{std::move(catalogue), Peers(own), is_attach_allowed}, limits_(own_limits()) {}

  const net::Limits& limits() const noexcept override { return limits_; }
  Result<std::unique_ptr<net::Memory>> register_memory(void* start, std::uint64_t bytes) override {
    auto key = domain_.catalogue->add(start, bytes);
    if (!key) return key.error();
    return std::unique_ptr<net::Memory>(std::make_unique<RegisteredMemory>(
        *domain_.catalogue, net::RemoteMemory{reinterpret_cast<std::uintptr_t>(start), *key}));
  }
  Result<std::unique_ptr<net::AllocatedMemory>> allocate_memory(std::uint64_t bytes) override {
    return allocate(bytes, Catalogue::Use::library);
  }
  Result<std::unique_ptr<net::AllocatedMemory>> allocate_mapped(std::uint64_t bytes) override {
    return allocate(bytes, Catalogue::Use::program);
  }
  Result<std::unique_ptr<net::Endpoint>> open_endpoint(net::Receiver& receiver) override {
    return NetworkEndpoint::open(domain_, receiver);
  }
  std::string explain(Status status) const override;

 private:
  Result<std::unique_ptr<net::AllocatedMemory>> allocate(std::uint64_t bytes, Catalogue::Use use);

  NetworkDomain domain_;
  const net::Limits limits_;
};

Result<std::unique_ptr<net::AllocatedMemory>> NetworkFabric::allocate(std::uint64_t bytes,
                                                                      Catalogue::Use use) {
  Catalogue& catalogue = *domain_.catalogue;
  auto piece = catalogue.allocate(bytes, use);
  if (!piece) return piece.error();
  auto key = catalogue.add(piece->start, bytes, piece->place, use);
  if (!key) {
    catalogue.release(*piece);
    return key.error();
  }
  return std::unique_ptr<net::AllocatedMemory>(
      std::make_unique<MappedMemory>(catalogue, *piece, *key));
}

std::string NetworkFabric::explain(Status status) const {
  if (status.code() != Errc::kUnreachable) return {};
  switch (status.detail()) {
    case EXDEV:
      return "it runs on another host, or in another pid namespace (containers: start them with "
             "the host's, --pid=host)";
    case EPERM:
    case EACCES:
    case ENOSYS:
      return "the kernel does not let one process attach to the other (process_vm_readv): a "
             "container needs the capability SYS_PTRACE, a host kernel.yama.ptrace_scope at most 1";
    case ECANCELED:
      return "option shm_attach is off";
    default:
      return {};
  }
}

}  // namespace

Result<std::unique_ptr<net::Fabric>> open_network(const net::FabricOptions& options,
                                                  std::string* reason) {
  auto own = ProcessIdentity::own();
  if (!own) {
    *reason = "provider shm: there is no /proc of this process";
    return Status(Errc::kUnreachable, own.error().detail());
  }
  auto catalogue = Catalogue::create();
  if (!catalogue) {
    *reason = "provider shm: no shared memory: " + status_text(catalogue.error());
    return Status(Errc::kUnreachable, catalogue.error().detail());
  }
  if (options.is_attach_allowed) let_peers_attach();
  return std::unique_ptr<net::Fabric>(std::make_unique<NetworkFabric>(
      std::move(catalogue).value(), *own, options.is_attach_allowed));
}

}  // namespace larklane::shm
