#include "control/plane/incoming.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "control/remote/remote_wire.hpp"

namespace larklane::control {
namespace {

constexpr std::size_t kBufferBytes = 16384;
/// Until they have been filled: most peers send a few short records. A job has many peers.
constexpr std::size_t kFirstBytes = 1024;
/// A stranger may cost no more memory.
constexpr std::size_t kHelloBytes = std::max(sizeof(Hello), sizeof(RemoteHello));
static_assert(kBufferBytes >= record_bytes(kRecordBytesMax));
static_assert(kFirstBytes > kHelloBytes);
static_assert(sizeof(Hello) % kRecordAlign == 0);

constexpr const char* kFdsLost = "descriptors lost (too many, or too many open files here)";

/// The socket is empty, or memory is short: the helper reads again while there is data.
bool is_passing(int error) noexcept {
  return error == EAGAIN || error == ENOMEM || error == ENOBUFS;
}

}  // namespace

Incoming::Incoming(UniqueFd fd, const Credentials& credentials)
    : fd_(std::move(fd)),
      identity_(fd_.get()),
      credentials_(credentials),
      buffer_(new std::byte[kHelloBytes]),
      buffer_bytes_(kHelloBytes) {}

void Incoming::grow() { grow_to(kFirstBytes); }

void Incoming::grow_to(std::size_t bytes) {
  std::unique_ptr<std::byte[]> larger(new std::byte[bytes]);
  std::memcpy(larger.get(), buffer_.get() + begin_, end_ - begin_);
  buffer_ = std::move(larger);
  buffer_bytes_ = bytes;
  was_filled_ = false;
  end_ -= begin_;
  begin_ = 0;
}

Incoming::Read Incoming::read() {
  if (begin_ > 0) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (buffer_bytes_ == kFirstBytes && was_filled_) grow_to(kBufferBytes);
  if (!identity_.is_at(fd_.get())) return Read::nothing;  // closed by the program
  bool fds_lost = false;
  const ssize_t received = receive_some(
      fd_.get(), std::span(buffer_.get() + end_, buffer_bytes_ - end_), &fds_, &fds_lost);
  fds_lost_ = fds_lost_ || fds_lost;
  if (received < 0 && is_passing(static_cast<int>(-received))) return Read::nothing;
  if (received <= 0) {
    end_error_ = static_cast<int>(-received);
    return Read::end;
  }
  end_ += static_cast<std::size_t>(received);
  was_filled_ = end_ == buffer_bytes_;
  return Read::data;
}

Incoming::Parsed LocalIncoming::parse_hello(Introduction* introduction) {
  const auto bytes = unparsed();
  Hello hello;
  // magic first: another program may never send as many bytes as a hello
  if (bytes.size() < sizeof hello.magic) return Parsed::incomplete;
  std::memcpy(&hello.magic, bytes.data(), sizeof hello.magic);
  if (hello.magic != kWireMagic) return broken("unknown magic in the hello");
  if (bytes.size() < kHelloPrefixBytes) return Parsed::incomplete;
  std::memcpy(static_cast<void*>(&hello), bytes.data(), kHelloPrefixBytes);
  if (hello.nonce == 0) return broken("hello without a nonce");
  const bool is_ours = hello.version == kProtocolVersion;
  if (is_ours) {
    if (bytes.size() < sizeof hello) return Parsed::incomplete;
    std::memcpy(&hello, bytes.data(), sizeof hello);
    skip(sizeof hello);
    if (hello.address_count < 1 || hello.address_count > kAddressesMax) {
      return broken("hello with an impossible number of addresses");
    }
  }
  *introduction = {hello.version, hello.nonce, {}, false};
  for (std::size_t i = 0; i < (is_ours ? hello.address_count : 1); ++i) {
    const WireAddress& address = hello.addresses[i];
    if (address.back() != '\0' || !is_local_address(address.data())) {
      return broken("hello with an impossible address");
    }
    introduction->addresses.emplace_back(address.data());
  }
  return Parsed::complete;
}

Incoming::Parsed Incoming::parse_record(Record* record) {
  record_fds_.clear();
  const auto bytes = unparsed();
  // descriptors come with the first byte of their record, so those left without a byte have no
  // record
  if (bytes.empty() && fds_lost_) return broken(kFdsLost);
  if (bytes.empty() && !fds_.empty()) return broken("descriptors without a record");
  if (bytes.size() < sizeof(RecordHeader)) return Parsed::incomplete;
  RecordHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kWireMagic || header.zero != 0) return broken("unknown magic in a record");
  if (header.payload_bytes > kRecordBytesMax) return broken("record of an impossible length");
  if (header.fd_count > kRecordFdsMax) {
    return broken("record with an impossible number of descriptors");
  }
  if (header.fd_count > fds_.size()) {
    return broken(fds_lost_ ? kFdsLost : "fewer descriptors than announced");
  }
  const std::size_t total = record_bytes(header.payload_bytes);
  if (bytes.size() < total) {
    return fds_.size() > header.fd_count ? broken("more descriptors than announced")
                                         : Parsed::incomplete;
  }
  const auto fds_end = fds_.begin() + header.fd_count;
  record_fds_.assign(std::make_move_iterator(fds_.begin()), std::make_move_iterator(fds_end));
  fds_.erase(fds_.begin(), fds_end);
  begin_ += total;
  *record = {header.kind, bytes.subspan(sizeof header, header.payload_bytes), record_fds_};
  return Parsed::complete;
}

bool Incoming::has_record() const noexcept {
  const auto bytes = unparsed();
  if (bytes.size() < sizeof(RecordHeader)) return false;
  RecordHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  return header.magic == kWireMagic && header.payload_bytes <= kRecordBytesMax &&
         bytes.size() >= record_bytes(header.payload_bytes);
}

Incoming::Parsed Incoming::broken(const char* complaint) noexcept {
  complaint_ = complaint;
  return Parsed::broken;
}

void Incoming::close() {
  if (!identity_.is_at(fd_.get())) (void)fd_.release();
  fd_.reset();
  fds_.clear();
  record_fds_.clear();
}

}  // namespace larklane::control
