#include "bootstrap/pmi.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/config.hpp"
#include "base/hex.hpp"
#include "base/printable.hpp"
#include "base/tcp.hpp"
#include "bootstrap/launcher.hpp"

namespace larklane::boot {
namespace {

// Every launcher takes lines of 1024 bytes; Flux takes values below 1024.
constexpr std::size_t kLineBytesMax = 1024;
constexpr std::size_t kAnswerBytesMax = 16 * 1024;
constexpr std::size_t kPieceBytes = 400;
constexpr std::size_t kPiecesMax = (kCardBytesMax + kPieceBytes - 1) / kPieceBytes;
/// Ends a piece that another piece follows.
constexpr char kMore = '+';

/// The value of a word `name=value` in an answer; empty: there is none.
std::string value_of(const std::string& answer, const std::string& name) {
  const std::string key = " " + name + "=";
  const std::size_t at = answer.find(key);
  if (at == std::string::npos) return {};
  const std::size_t begin = at + key.size();
  return answer.substr(begin, answer.find(' ', begin) - begin);
}

/// An answer without a result code counts as success.
bool is_good(const std::string& answer) {
  const std::string result = value_of(answer, "rc");
  return result.empty() || result == "0";
}

std::string key_of_piece(int rank, std::size_t piece) {
  std::string key = "larklane-" + std::to_string(rank);
  if (piece != 0) key += "." + std::to_string(piece);
  return key;
}

}  // namespace

Result<Pmi> Pmi::open(std::uint64_t deadline_ns, std::string* problem) {
  const auto fd = number_in_environment("PMI_FD");
  Pmi pmi(fd.value_or(-1));
  int type = 0;
  socklen_t length = sizeof type;
  if (::getsockopt(pmi.fd_, SOL_SOCKET, SO_TYPE, &type, &length) != 0)
    return pmi.give_up({Errc::kSystem, errno},
                       std::string("no socket of a launcher: ") + std::strerror(errno), problem);
  // Hydra and Flux answer this command again if an MPI repeats it later.
  auto begun =
      pmi.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", deadline_ns, problem);
  if (!begun) return begun.error();
  if (!is_good(*begun) || value_of(*begun, "pmi_version") != "1")
    return pmi.give_up(Errc::kProtocol, "the launcher behind it does not speak PMI-1", problem);
  auto named = pmi.ask("cmd=get_my_kvsname", "my_kvsname", deadline_ns, problem);
  if (!named) return named.error();
  pmi.job_ = value_of(*named, "kvsname");
  if (pmi.job_.empty())
    return pmi.give_up(Errc::kProtocol, "the launcher behind it has no name of the job", problem);
  return pmi;
}

Status Pmi::put(int rank, std::span<const std::byte> card, std::uint64_t deadline_ns,
                std::string* problem) {
  std::size_t piece = 0;
  do {
    const auto part = card.first(std::min(card.size(), kPieceBytes));
    card = card.subspan(part.size());
    std::string value = hex_text(part);
    if (!card.empty()) value += kMore;
    if (value.empty()) value = kMore;  // get() would take an empty value for none
    auto taken =
        ask("cmd=put kvsname=" + job_ + " key=" + key_of_piece(rank, piece++) + " value=" + value,
            "put_result", deadline_ns, problem);
    if (!taken) return taken.error();
    if (!is_good(*taken))
      return give_up(Errc::kProtocol, "the launcher behind it does not take a card", problem);
  } while (!card.empty());
  return {};
}

Result<std::optional<Card>> Pmi::get(int rank, std::uint64_t deadline_ns, std::string* problem) {
  Card card;
  for (std::size_t piece = 0; piece < kPiecesMax; ++piece) {
    auto value = word(key_of_piece(rank, piece), deadline_ns, problem);
    if (!value) return value.error();
    if (value->empty() && piece == 0) return std::optional<Card>();
    const bool has_more = value->ends_with(kMore);
    if (has_more) value->pop_back();
    const auto part = bytes_of_hex(*value);
    if (!part || part->size() > kPieceBytes) break;
    card.insert(card.end(), part->begin(), part->end());
    if (!has_more || part->empty()) return std::optional(std::move(card));
  }
  return give_up(Errc::kProtocol,
                 "the launcher behind it has changed the card of rank " + std::to_string(rank),
                 problem);
}

Result<std::string> Pmi::word(const std::string& key, std::uint64_t deadline_ns,
                              std::string* problem) {
  auto found = ask("cmd=get kvsname=" + job_ + " key=" + key, "get_result", deadline_ns, problem);
  if (!found) return found.error();
  return is_good(*found) ? value_of(*found, "value") : std::string();
}

Status Pmi::barrier(std::uint64_t deadline_ns, std::string* problem) {
  auto passed = ask("cmd=barrier_in", "barrier_out", deadline_ns, problem);
  if (!passed) return passed.error();
  if (is_good(*passed)) return {};
  return give_up(Errc::kProtocol, "the launcher behind it has failed at a barrier", problem);
}

void Pmi::finalize(std::uint64_t deadline_ns) {
  std::string problem;
  (void)ask("cmd=finalize", "finalize_ack", deadline_ns, &problem);
  (void)give_up(Errc::kPeerDown, "this process has taken its leave", &problem);
}

Result<std::string> Pmi::ask(std::string line, std::string_view wanted, std::uint64_t deadline_ns,
                             std::string* problem) {
  if (!status_.ok()) {
    *problem = why_;
    return status_;
  }
  line += '\n';
  if (line.size() > kLineBytesMax)
    return give_up(Errc::kProtocol, "the launcher's name of the job is too long", problem);
  // At most one line is in flight, so the socket has room for it.
  const ssize_t sent = ::send(fd_, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent != static_cast<ssize_t>(line.size()))
    return give_up({Errc::kSystem, sent < 0 ? errno : EIO},
                   "the launcher behind it has closed the connection, or reads nothing", problem);
  auto said = answer(deadline_ns, problem);
  if (!said) return said;
  const std::string begin = "cmd=" + std::string(wanted);
  if (*said == begin || said->starts_with(begin + " ")) return said;
  return give_up(Errc::kProtocol,
                 "the launcher behind it does not speak PMI-1; it answers \"" +
                     printable(*said, 60) + "\" where " + begin + " is due",
                 problem);
}

/// One line, without its end.
Result<std::string> Pmi::answer(std::uint64_t deadline_ns, std::string* problem) {
  std::string line;
  std::array<char, 4096> space;
  while (line.size() < kAnswerBytesMax) {
    if (!wait_by(fd_, POLLIN, deadline_ns))
      return give_up({Errc::kUnreachable, ETIMEDOUT},
                     line.empty() ? "the launcher behind it has not answered in time"
                                  : "the launcher behind it has not ended its answer in time",
                     problem);
    ssize_t got = ::recv(fd_, space.data(), space.size(), MSG_PEEK | MSG_DONTWAIT);
    if (got > 0) {
      const auto* const end =
          static_cast<char*>(std::memchr(space.data(), '\n', static_cast<std::size_t>(got)));
      const std::size_t count = end == nullptr ? static_cast<std::size_t>(got)
                                               : static_cast<std::size_t>(end - space.data()) + 1;
      got = ::recv(fd_, space.data(), count, MSG_DONTWAIT);
    }
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0)
      return give_up({Errc::kSystem, got < 0 ? errno : ECONNRESET},
                     "the launcher behind it has closed the connection", problem);
    line.append(space.data(), static_cast<std::size_t>(got));
    if (line.back() != '\n') continue;
    line.pop_back();
    return line;
  }
  return give_up(Errc::kProtocol, "the launcher behind it does not speak PMI-1: lines without end",
                 problem);
}

Status Pmi::give_up(Status status, const std::string& why, std::string* problem) {
  why_ = "PMI_FD is " + printable(environment("PMI_FD"), 20) + ", but " + why;
  *problem = why_;
  return status_ = status;
}

}  // namespace larklane::boot
