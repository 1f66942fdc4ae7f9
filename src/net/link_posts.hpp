#pragma once
// The posts of net::Link that each provider's link defines, for its declaration.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.hpp"
#include "net/provider.hpp"

#define LARKLANE_NET_LINK_POSTS                                                                   \
  Result<net::Post> write(const net::Transfer& transfer, net::Operation& operation) override;     \
  Result<net::Post> write_immediate(const net::Transfer& transfer, std::uint32_t immediate,       \
                                    net::Operation& operation) override;                          \
  Result<net::Post> write_small(std::span<const std::byte> bytes, net::RemoteMemory to,           \
                                net::Operation& operation) override;                              \
  Result<net::Post> write_small_immediate(std::span<const std::byte> bytes, net::RemoteMemory to, \
                                          std::uint32_t immediate, net::Operation& operation)     \
      override;                                                                                   \
  Result<net::Post> read(const net::Transfer& transfer, net::Operation& operation) override
