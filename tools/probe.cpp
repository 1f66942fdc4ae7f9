#include "probe.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <new>
#include <utility>

#include "base/kernel_calls.hpp"
#include "net/registry.hpp"
#include "vci/vci_pool.hpp"

namespace larklane::tools {
namespace {

/// "name: Operation not permitted"
std::string failure(const char* call) { return std::string(call) + ": " + std::strerror(errno); }

Ability probe_calls() {
  const auto refused = rehearse_kernel_calls(CallsFor::records_and_memory);
  if (refused) return {"shm slots", false, refused->text()};
  return {"shm slots", true, "sealed memory segments"};
}

Ability probe_pidfd() {
  Ability ability{"death notice", false, ""};
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0U));
  ability.available = fd >= 0;
  ability.note = fd >= 0 ? "pidfd" : failure("pidfd_open") + "; by hang-up of the socket only";
  if (fd >= 0) ::close(fd);
  return ability;
}

/// Results of two forked processes. In shared memory; the pipes order the accesses.
struct AttachResult {
  int read_errno = 0, write_errno = 0;  ///< 0: the bytes went over
};

constexpr std::uint64_t kReadNonce = 0x6c61726b6c616e65, kWriteNonce = 0x656e616c6b72616c;

/// A stands for one rank, B for another one on the same host: siblings, neither may trace the other
/// by descent.
class AttachProbe {
 public:
  AttachResult run() {
    AttachResult failed{errno, errno};
    void* page = ::mmap(nullptr, sizeof(AttachResult), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return failed;
    result_ = new (page) AttachResult{EIO, EIO};
    if (::pipe2(to_b_, O_CLOEXEC) != 0 || ::pipe2(from_b_, O_CLOEXEC) != 0) return {errno, errno};
    const pid_t b = ::fork();
    if (b == 0) target();
    ::close(to_b_[0]);
    ::close(from_b_[1]);
    char ready = 0;
    if (b > 0 && ::read(from_b_[0], &ready, 1) == 1) {
      const pid_t a = ::fork();
      if (a == 0) attacher(b);
      if (a > 0) ::waitpid(a, nullptr, 0);
    }
    ::close(to_b_[1]);  // B sees the end of file, looks at its memory and ends
    ::close(from_b_[0]);
    if (b > 0) ::waitpid(b, nullptr, 0);
    const AttachResult result = *result_;
    ::munmap(page, sizeof(AttachResult));
    return result;
  }

 private:
  [[noreturn]] void target() {
    ::close(to_b_[1]);
    words_[0] = kReadNonce;
    char byte = 1;
    if (::write(from_b_[1], &byte, 1) != 1) ::_exit(1);
    while (::read(to_b_[0], &byte, 1) > 0) {
    }
    if (result_->write_errno == 0 && words_[1] != kWriteNonce) result_->write_errno = EIO;
    ::_exit(0);
  }

  [[noreturn]] void attacher(pid_t b) {
    std::uint64_t word = 0;
    const iovec local{&word, sizeof word};
    const iovec remote_read{&words_[0], sizeof word}, remote_write{&words_[1], sizeof word};
    const bool read = ::process_vm_readv(b, &local, 1, &remote_read, 1, 0) == sizeof word;
    result_->read_errno = read ? (word == kReadNonce ? 0 : EIO) : errno;
    word = kWriteNonce;
    const bool wrote = ::process_vm_writev(b, &local, 1, &remote_write, 1, 0) == sizeof word;
    result_->write_errno = wrote ? 0 : errno;
    ::_exit(0);
  }

  AttachResult* result_ = nullptr;
  std::uint64_t words_[2] = {0, 0};  // each process has its own, at the same address
  int to_b_[2], from_b_[2];
};

std::string attach_note(int error) {
  if (error == 0) return "one copy between two processes, whichever moves it";
  std::string scope;
  std::getline(std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> std::ws, scope);
  std::string note = std::strerror(error);
  if (error == EPERM && !scope.empty() && scope != "0") {
    note += "; /proc/sys/kernel/yama/ptrace_scope is " + scope + ", with 0 it works";
  } else if (error == EPERM || error == ENOSYS) {
    note +=
        "; forbidden by the container (seccomp): it needs CAP_SYS_PTRACE or a profile with "
        "process_vm_readv and process_vm_writev";
  }
  return note + "; large partitions take slots too";
}

/// With the first device that option `provider` names of this one.
Ability probe_network(const std::string& name, const std::string& folder, const Config& config) {
  const auto wanted = net::wanted_providers(config.provider);
  const auto found = std::find_if(wanted.begin(), wanted.end(), [&](const std::string& one) {
    return one == name || one.starts_with(name + ':');
  });
  const std::string option = found == wanted.end() ? name : *found;
  std::string reason;
  auto fabric = net::open_fabric_named(config, option, &reason, folder);
  if (!fabric) return {name, false, reason};
  const net::Limits& limits = fabric.value()->limits();
  return {name, true,
          limits.provider + "; with LARKLANE_PROVIDER=" + option +
              (limits.choices.empty() ? "" : "; " + limits.choices)};
}

}  // namespace

std::vector<Ability> probe(const std::string& folder, const Config& config) {
  const AttachResult attach = AttachProbe().run();
  return {
      probe_calls(),
      {"shm attach read", attach.read_errno == 0, attach_note(attach.read_errno)},
      {"shm attach write", attach.write_errno == 0, attach_note(attach.write_errno)},
      probe_pidfd(),
      probe_network("ofi", folder, config),
      probe_network("verbs", folder, config),
  };
}

std::string describe_lanes(const Config& config) {
  auto lanes = vci::VciPool::Options::of(config);
  if (!lanes) return "vci_mapping " + config.vci_mapping + ": no such policy";
  const char* why = config.vci_mapping == "one" ? "vci_mapping one"
                    : config.vci_count_max == 0 ? "as many as cores, at most 16"
                                                : "vci_count_max";
  return "on a network at most " + std::to_string(lanes->count_max) + " (" + why +
         "), made when channels want them; channels by policy " + config.vci_mapping +
         "; a thread that waits polls all after " + std::to_string(lanes->misses_max) +
         " turns that found nothing";
}

}  // namespace larklane::tools
