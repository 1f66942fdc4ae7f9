#include "msg/memory/bounce_buffers.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace larklane::msg {

/// The buffer of one copy; the destructor gives it back. Thread safety: single-owner.
struct BounceBuffers::Buffer final : net::Memory {
  Buffer(BounceBuffers& of_, Size& size_, std::byte* start_) noexcept
      : of(of_), size(size_), start(start_) {}
  ~Buffer() override {
    if (!is_abandoned) of.give_back(size, start);
  }
  net::RemoteMemory remote() const noexcept override {
    net::RemoteMemory remote = size.memory->remote();
    remote.address += static_cast<std::uint64_t>(start - size.memory->start());
    return remote;
  }

  BounceBuffers& of;
  Size& size;
  std::byte* const start;
  bool is_abandoned = false;
};

void BounceBuffers::abandon(net::Memory& memory) noexcept {
  static_cast<Buffer&>(memory).is_abandoned = true;
}

BounceBuffers::Copy BounceBuffers::copy_of(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() > bytes_max_) return {};
  const auto size = std::ranges::lower_bound(sizes_, bytes.size(), {}, &Size::bytes);
  if (size == sizes_.end()) return {};
  std::byte* const start = take(*size);
  if (start == nullptr) return {};
  std::unique_ptr<net::Memory> memory(new (std::nothrow) Buffer(*this, *size, start));
  if (memory == nullptr) {
    give_back(*size, start);
    return {};
  }
  std::memcpy(start, bytes.data(), bytes.size());
  return {std::move(memory), start};
}

std::byte* BounceBuffers::take(Size& size) noexcept {
  for (;;) {
    {
      const SpinGuard guard(lock_);
      if (!size.free.empty()) {
        std::byte* const start = size.free.back();
        size.free.pop_back();
        return start;
      }
      if (size.is_made) return nullptr;
    }
    make_slow(size);
  }
}

void BounceBuffers::give_back(Size& size, std::byte* start) noexcept {
  const SpinGuard guard(lock_);
  size.free.push_back(start);  // no growth: capacity is that of all buffers
}

/// Tries once: if this allocation fails, the size stays without buffers.
void BounceBuffers::make_slow(Size& size) noexcept {
  const std::scoped_lock making(making_);
  if (size.memory != nullptr) return;
  std::vector<std::byte*> free;
  std::unique_ptr<net::AllocatedMemory> memory;
  try {
    free.reserve(size.count);
    if (auto made = fabric_.allocate_memory(size.count * size.bytes))
      memory = std::move(made).value();
  } catch (const std::bad_alloc&) {
    memory = nullptr;
  }
  for (std::uint32_t i = size.count; memory != nullptr && i-- > 0;)
    free.push_back(memory->start() + i * size.bytes);
  const SpinGuard guard(lock_);
  if (size.is_made) return;
  size.is_made = true;
  size.memory = std::move(memory);
  size.free = std::move(free);
}

}  // namespace larklane::msg
