#include "net/ofi/memory.hpp"

#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>

namespace larklane::ofi {
namespace {

constexpr std::uint64_t kAccess = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
/// Keys are few where a provider's are short: one that is drawn may be taken.
constexpr int kKeysTried = 64;

}  // namespace

Memory::Memory(Fid<fid_mr> region, std::unique_ptr<std::byte> nothing, const void* start) noexcept
    : nothing_(std::move(nothing)),
      region_(std::move(region)),
      remote_{reinterpret_cast<std::uintptr_t>(start), ::fi_mr_key(region_.get())},
      descriptor_(::fi_mr_desc(region_.get())) {}

Registrar::Registrar(fid_domain& domain, const fi_domain_attr& attributes,
                     FillRandom random) noexcept
    : domain_(domain),
      mode_(attributes.mr_mode),
      key_mask_(attributes.mr_key_size >= 8
                    ? ~std::uint64_t{0}
                    : (std::uint64_t{1} << (8 * attributes.mr_key_size)) - 1),
      random_(random) {}

Result<std::uint64_t> Registrar::fresh_key() noexcept {
  if ((mode_ & FI_MR_PROV_KEY) != 0) return std::uint64_t{0};  // the provider chooses
  std::uint64_t key = 0;
  LARKLANE_TRY(random_(std::as_writable_bytes(std::span(&key, 1))));
  return key & key_mask_;
}

Result<std::unique_ptr<net::Memory>> Registrar::add(void* start, std::uint64_t bytes) {
  std::unique_ptr<std::byte> nothing;
  if (bytes == 0) {  // providers refuse to register nothing
    nothing = std::make_unique<std::byte>();
    start = nothing.get();
    bytes = 1;
  }
  int error = 0;
  for (int tried = 0; tried < kKeysTried; ++tried) {
    auto key = fresh_key();
    if (!key) return key.error();
    fid_mr* region = nullptr;
    error = ::fi_mr_reg(&domain_, start, bytes, kAccess, 0, *key, 0, &region, nullptr);
    if (error == 0) {
      const void* base = (mode_ & FI_MR_VIRT_ADDR) != 0 ? start : nullptr;
      return std::unique_ptr<net::Memory>(
          std::make_unique<Memory>(Fid<fid_mr>(region), std::move(nothing), base));
    }
    if (error != -FI_ENOKEY) break;
  }
  const bool is_full = error == -FI_ENOMEM || error == -FI_EAGAIN || error == -FI_EPERM;
  return Status(is_full ? Errc::kNoMemory : Errc::kSystem, -error);
}

}  // namespace larklane::ofi
