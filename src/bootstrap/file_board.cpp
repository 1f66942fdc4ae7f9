// A board of files in a folder that all processes see. Each job has its own subfolder, named by a
// keyed hash of its secret, so no process sees files of earlier jobs. Its files:
//   rank.R     process R has come
//   card.R     its card; written under another name, then renamed: it is there or not
//   card.R     its card; written under another name, then renamed, so it appears as a whole
//   fence.K.R  process R is at fence K
//   passed.K   rank 0 has found all processes at fence K
//
// No process knows when the last reader has finished, so only the user removes the folder.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/clock.hpp"
#include "base/input_file.hpp"
#include "base/ranks_text.hpp"
#include "base/secret.hpp"
#include "base/unique_fd.hpp"
#include "bootstrap/boards.hpp"
#include "bootstrap/wait_text.hpp"
#include "bootstrap/wire.hpp"

namespace larklane::boot {
namespace {

constexpr std::uint64_t kLookNsMin = 1'000'000, kLookNsMax = 50'000'000;

struct FileHeader {
  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::uint64_t bytes = 0;
  std::uint64_t proof = 0;  ///< of the other fields and the card
};
static_assert(sizeof(FileHeader) == 32);

std::uint64_t proof_of(const Secret& secret, FileHeader header, std::span<const std::byte> card) {
  header.proof = 0;
  std::vector<std::byte> text(sizeof header + card.size());
  std::memcpy(text.data(), &header, sizeof header);
  std::ranges::copy(card, text.begin() + sizeof header);
  return siphash(secret, text);
}

/// Calls `is_there` until it returns true. @return false: not by `deadline_ns`
template <class IsThere>
bool wait_until(std::uint64_t deadline_ns, IsThere is_there) {
  for (std::uint64_t look_ns = kLookNsMin; !is_there();
       look_ns = std::min(2 * look_ns, kLookNsMax)) {
    if (now_ns() >= deadline_ns) return false;
    const timespec pause{0, static_cast<long>(look_ns)};
    ::nanosleep(&pause, nullptr);
  }
  return true;
}

bool write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return true;
}

class FileBoard final : public Board {
 public:
  FileBoard(const Member& member, std::string folder)
      : Board(member.rank, member.size),
        folder_(std::move(folder)),
        secret_(key_of("card " + member.job)),
        wait_ns_(member.wait_ns) {}

  /// @errors kSystem; EEXIST: a process of this rank has come before
  Status come() const { return make_empty("rank." + std::to_string(rank())); }
  const std::string& folder() const noexcept { return folder_; }

 private:
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  bool is_there(const std::string& name) const { return ::access(path(name).c_str(), F_OK) == 0; }
  Status make_empty(const std::string& name) const {
    const UniqueFd fd(::open(path(name).c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600));
    return fd ? Status() : Status(Errc::kSystem, errno);
  }
  Status refuse(const std::string& what, int error, std::string* problem) const {
    *problem = path(what) + ": " + std::strerror(error);
    return Status(Errc::kSystem, error);
  }

  Status publish_locked(std::span<const std::byte> card, std::string* problem) override {
    FileHeader header;
    header.rank = static_cast<std::uint32_t>(rank());
    header.size = static_cast<std::uint32_t>(size());
    header.bytes = card.size();
    header.proof = proof_of(secret_, header, card);
    const std::string name = "card." + std::to_string(rank());
    const std::string unfinished = "." + name;
    const UniqueFd fd(
        ::open(path(unfinished).c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600));
    if (!fd || !write_all(fd.get(), std::as_bytes(std::span(&header, 1))) ||
        !write_all(fd.get(), card) || ::fsync(fd.get()) != 0 ||
        ::rename(path(unfinished).c_str(), path(name).c_str()) != 0)
      return refuse(unfinished, errno, problem);
    return {};
  }

  Result<Card> fetch_locked(int rank, std::string* problem) override {
    const std::string name = "card." + std::to_string(rank);
    std::string text;
    int error = 0;
    const bool is_found = wait_until(now_ns() + wait_ns_, [&] {
      error = read_input_file(path(name), sizeof(FileHeader) + kCardBytesMax, &text);
      return error != ENOENT;
    });
    if (!is_found) {
      *problem = unpublished_text(rank, wait_ns_);
      return Status(Errc::kUnreachable, ETIMEDOUT);
    }
    if (error != 0 && error != EFBIG && error != EINVAL) return refuse(name, error, problem);
    return read_card(std::as_bytes(std::span(text)), rank, name, problem);
  }

  /// @param all  the whole file; empty: it is too long, or not a regular file
  Result<Card> read_card(std::span<const std::byte> all, int rank, const std::string& name,
                         std::string* problem) const {
    FileHeader header;
    const std::size_t had = all.size();
    if (had >= sizeof header) std::memcpy(&header, all.data(), sizeof header);
    const std::span<const std::byte> card =
        had >= sizeof header ? all.subspan(sizeof header) : std::span<const std::byte>();
    if (had < sizeof header || header.magic != kMagic || header.version != kVersion ||
        header.rank != static_cast<std::uint32_t>(rank) || header.bytes != card.size() ||
        header.proof != proof_of(secret_, header, card)) {
      *problem = path(name) + " is no card of this job and this version of Larklane";
      return Errc::kProtocol;
    }
    if (header.size != static_cast<std::uint32_t>(size())) {
      *problem = "LARKLANE_SIZE is " + std::to_string(size()) + " here, but " +
                 std::to_string(header.size) + " for rank " + std::to_string(rank);
      return Errc::kProtocol;
    }
    return Card(card.begin(), card.end());
  }

  std::string at_fence(int rank) const {
    return "fence." + std::to_string(fences_) + "." + std::to_string(rank);
  }

  /// The board can't know which hosts see the folder.
  Result<bool> is_one_host_locked(std::string*) override { return false; }

  Status fence_locked(std::string* problem) override {
    ++fences_;
    const std::string passed = "passed." + std::to_string(fences_);
    const std::uint64_t deadline_ns = now_ns() + wait_ns_;
    if (rank() != 0) {
      const Status status = make_empty(at_fence(rank()));
      if (!status.ok()) return refuse(at_fence(rank()), status.detail(), problem);
      if (!wait_until(deadline_ns, [&] { return is_there(passed); })) return name_absent(problem);
      ::unlink(path(at_fence(rank())).c_str());
      return {};
    }
    for (int other = 1; other < size(); ++other)
      if (!wait_until(deadline_ns, [&] { return is_there(at_fence(other)); }))
        return name_absent(problem);
    const Status status = make_empty(passed);
    if (!status.ok()) return refuse(passed, status.detail(), problem);
    // All processes are at this fence, so all have left the previous one.
    ::unlink(path("passed." + std::to_string(fences_ - 1)).c_str());
    return {};
  }

  Status name_absent(std::string* problem) const {
    std::vector<int> absent;
    for (int other = 1; other < size(); ++other)
      if (!is_there(at_fence(other))) absent.push_back(other);
    if (absent.empty()) absent.push_back(0);  // rank 0 writes `passed` once all others are there
    *problem = absent_text(ranks_text(absent), wait_ns_);
    return Status(Errc::kUnreachable, ETIMEDOUT);
  }

  const std::string folder_;
  const Secret secret_;
  const std::uint64_t wait_ns_;
  std::uint64_t fences_ = 0;
};

/// @return an errno; EPERM: another user owns the folder or may write to it
int make_own_folder(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return errno;
  struct stat found;
  if (::lstat(folder.c_str(), &found) != 0) return errno;
  if (!S_ISDIR(found.st_mode)) return ENOTDIR;
  return found.st_uid == ::geteuid() && (found.st_mode & 0022) == 0 ? 0 : EPERM;
}

}  // namespace

Result<std::unique_ptr<Board>> open_file_board(const Member& member, std::string* problem) {
  auto board = std::make_unique<FileBoard>(
      member, member.folder + "/larklane-" + public_name(member.job, "larklane folder"));
  const std::string variable = "LARKLANE_BOARD is \"" + member.folder + "\": ";
  if (const int error = make_own_folder(board->folder()); error != 0) {
    *problem = variable + board->folder() + ": " + std::strerror(error) +
               "; accepted: a folder in which this user may make others";
    return Status(Errc::kSystem, error);
  }
  const Status status = board->come();
  if (status.detail() == EEXIST) {
    *problem = variable + "rank " + std::to_string(member.rank) +
               " has come before: LARKLANE_RANK is another for each process, LARKLANE_JOB for each "
               "job";
    return Errc::kProtocol;
  }
  if (!status.ok()) {
    *problem = variable + std::strerror(status.detail());
    return status;
  }
  return std::unique_ptr<Board>(std::move(board));
}

}  // namespace larklane::boot
