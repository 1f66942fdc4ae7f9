#include "net/shm/network_offer.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

#include "base/unique_fd.hpp"

namespace larklane::shm {
namespace {

/// FNV-1a.
std::uint64_t hash(std::span<const std::byte> bytes) noexcept {
  std::uint64_t value = 0xcbf29ce484222325;
  for (const std::byte byte : bytes)
    value = (value ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3;
  return value;
}

std::uint32_t checksum_of(NetworkOffer offer) noexcept {
  offer.checksum = 0;
  const std::uint64_t all = hash(std::as_bytes(std::span(&offer, 1)));
  return static_cast<std::uint32_t>(all ^ all >> 32);
}

/// The first bytes of a small file; empty: it can't be read, as errno says.
std::string_view read_file(const std::string& path, std::span<char> space) noexcept {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const ssize_t count = file ? ::read(file.get(), space.data(), space.size()) : -1;
  return {space.data(), count > 0 ? static_cast<std::size_t>(count) : 0};
}

}  // namespace

Result<std::uint64_t> process_start(pid_t process) {
  constexpr Status kGone{Errc::kPeerDown, ESRCH};
  constexpr int kStateField = 3, kThreadsField = 20, kStartField = 22;
  bool has_first_ended = false;
  std::array<char, 1024> space;
  std::string_view text = read_file("/proc/" + std::to_string(process) + "/stat", space);
  if (text.empty() && errno != ENOENT && errno != ESRCH) return Status(Errc::kUnreachable, errno);
  const std::size_t name_ends = text.rfind(')');  // a name may hold anything
  if (name_ends == std::string_view::npos) return kGone;
  text.remove_prefix(name_ends + 1);
  for (int field = kStateField; !text.empty(); ++field) {
    text.remove_prefix(1);
    const std::string_view value = text.substr(0, text.find(' '));
    if (field == kStateField) has_first_ended = value == "Z" || value == "X";
    // Its other threads may live on.
    if (field == kThreadsField && has_first_ended && (value == "0" || value == "1")) return kGone;
    if (field == kStartField)
      return std::uint64_t{std::strtoull(std::string(value).c_str(), nullptr, 10)};
    text.remove_prefix(value.size());
  }
  return kGone;
}

Result<ProcessIdentity> ProcessIdentity::own() {
  std::array<char, 64> space;
  const std::string_view boot = read_file("/proc/sys/kernel/random/boot_id", space);
  struct stat info {};
  if (boot.empty() || ::stat("/proc/self/ns/pid", &info) != 0) return Status(Errc::kSystem, ENOSYS);
  const pid_t process = ::getpid();
  auto start = process_start(process);
  if (!start) return Status(Errc::kSystem, ENOSYS);
  return ProcessIdentity{hash(std::as_bytes(std::span(boot))), info.st_ino, *start, process};
}

NetworkOfferBytes write_network_offer(NetworkOffer offer) noexcept {
  offer.checksum = checksum_of(offer);
  NetworkOfferBytes bytes;
  std::memcpy(bytes.data(), &offer, sizeof offer);
  return bytes;
}

Result<NetworkOffer> parse_network_offer(std::span<const std::byte> bytes) noexcept {
  NetworkOffer offer{};
  if (bytes.size() != sizeof offer) return Errc::kProtocol;
  std::memcpy(&offer, bytes.data(), sizeof offer);
  if (offer.magic != NetworkOffer::kMagic) return Errc::kProtocol;
  if (offer.version != NetworkOffer::kVersion) return Errc::kVersion;
  if (offer.checksum != checksum_of(offer)) return Errc::kProtocol;
  return offer;
}

}  // namespace larklane::shm
