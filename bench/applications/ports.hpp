#pragma once
// Lanes of Larklane, and memory that peers may access, for applications.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "application.hpp"
#include "messages/heard.hpp"
#include "messages/world.hpp"

namespace larklane::bench {

/// A thread's calls. Thread safety: single-owner.
class NativePort {
 public:
  NativePort(NativeWorld& world, Vci& vci, const Options& options,
             const std::vector<RemoteRegion>& open, const Region& local);

  void get(int rank, std::uint64_t offset, void* to, std::uint64_t bytes);
  void accumulate(int rank, std::uint64_t offset, const double* values, std::uint32_t count);
  std::uint64_t count_up(int rank, std::uint64_t offset);
  void receive(const Stream& stream, void* to, std::uint64_t bytes);
  void send(const Stream& stream, const void* from, std::uint64_t bytes);
  void wait();

 private:
  template <class Call>
  void post(Call&& call);
  const RemoteRegion& of(int rank) const { return open_[static_cast<std::size_t>(rank)]; }

  const std::vector<RemoteRegion>& open_;
  Waiter waiter_;
  std::unique_ptr<Heard> heard_;
  PostOptions options_, of_local_;
  std::uint64_t posted_ = 0;  ///< operations whose completion is signaled
};

/// Creating it is collective.
class NativePorts {
 public:
  NativePorts(NativeWorld& world, const PortsShape& shape);
  NativePorts(const NativePorts&) = delete;
  NativePorts& operator=(const NativePorts&) = delete;

  NativePort& port(std::uint32_t thread) { return *ports_[thread]; }
  void begin_round();  ///< shows a copy of the open memory to peers
  void end_round();    ///< copies it back

 private:
  const std::span<std::byte> shown_;
  Region mine_, local_;
  std::vector<RemoteRegion> open_;  ///< by rank
  std::vector<std::unique_ptr<NativePort>> ports_;
};

struct Native {
  using World = NativeWorld;
  using Ports = NativePorts;
};

}  // namespace larklane::bench
