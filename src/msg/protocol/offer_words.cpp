#include "msg/protocol/offer_words.hpp"

namespace larklane::msg {

net::RemoteMemory OfferWords::remote() noexcept {
  if (!fabric_.limits().has_mapped_memory) return {0, 0};
  const std::scoped_lock lock(making_);
  if (memory_ == nullptr) {
    auto allocated = fabric_.allocate_mapped(kBytes);
    if (!allocated) return {0, 0};
    memory_ = std::move(allocated).value();
    // release: of the zeroed words; pairs with of().
    words_.store(reinterpret_cast<std::uint32_t*>(memory_->start()), std::memory_order_release);
  }
  return memory_->remote();
}

Result<std::uint32_t*> map_offer_words(net::Link& link, net::RemoteMemory words) noexcept {
  if (words.key == 0) return static_cast<std::uint32_t*>(nullptr);
  if ((words.key & net::Mapping::kKeyBit) == 0) return Errc::kProtocol;
  auto mapping = link.map(words.key);
  if (!mapping) return mapping.error();
  const std::uint64_t offset = words.address - mapping->address;
  if (mapping->start == nullptr || offset > mapping->bytes ||
      OfferWords::kBytes > mapping->bytes - offset || offset % sizeof(std::uint32_t) != 0)
    return Errc::kProtocol;
  return reinterpret_cast<std::uint32_t*>(mapping->start + offset);
}

}  // namespace larklane::msg
