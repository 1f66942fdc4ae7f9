// Tests of the kernel-call checks: a seccomp filter refuses each call that communication needs, and
// the check names it.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "base/kernel_calls.hpp"
#include "base/unique_fd.hpp"
#include "control_process.hpp"
#include "mp/fault/refuse.h"

namespace larklane {
namespace {

using control::Process;

constexpr int kNoFilters = 77;

struct Refused {
  const char* calls;  // of refuse.h
  int error;
  const char* expected;  // as it is named; null: a substitute is taken
};
constexpr Refused kRefused[] = {
    {"getrandom", ENOSYS, "getrandom"},
    {"memfd_create", EPERM, "memfd_create"},
    {"memfd_create", ENOSYS, "memfd_create"},
    {"fallocate,pwrite", EPERM, "fallocate, pwrite"},
    {"fallocate", EOPNOTSUPP, nullptr},
    {"fallocate", ENOSYS, nullptr},
    {"fallocate", EPERM, nullptr},
    {"F_ADD_SEALS", EPERM, "fcntl(F_ADD_SEALS)"},
    {"socket", EACCES, "socket(AF_UNIX)"},
    {"bind", EACCES, "bind"},
    {"listen", EPERM, "listen"},
    {"connect", EACCES, "connect"},
    {"accept4,accept", EPERM, "accept4, accept"},
    {"accept4", ENOSYS, nullptr},
    {"accept4", EPERM, nullptr},
    {"getsockopt", EPERM, "getsockopt(SO_PEERCRED)"},
    {"sendmsg", EPERM, "sendmsg(SCM_RIGHTS)"},
    {"recvmsg", ENOSYS, "recvmsg(SCM_RIGHTS)"},
    {"epoll_create1", ENOSYS, "epoll_create1"},
    {"epoll_ctl", EPERM, "epoll_ctl"},
    {"epoll_wait", EPERM, "epoll_wait"},
    {"eventfd2", ENOSYS, "eventfd2"},
    {"timerfd_create", EPERM, "timerfd_create, timerfd_settime"},
    {"timerfd_settime", EPERM, "timerfd_create, timerfd_settime"},
    {"clone3,clone", EPERM, "clone3, clone"},
    {"clone3", EPERM, "clone3, clone"},  // the C library then makes no thread either
    {"clone3", ENOSYS, nullptr},
    {"pidfd_open,membarrier,process_vm_readv,process_vm_writev,epoll_pwait2,prctl", EPERM, nullptr},
};

TEST(KernelCalls, ARefusedCallIsNamed) {
  for (const Refused& refused : kRefused) {
    Process child([&](const Process::Tell&) {
      if (refuse_calls(refused.calls, refused.error) != 0) return kNoFilters;
      const auto found = rehearse_kernel_calls(CallsFor::records_and_memory);
      if (refused.expected == nullptr) return found ? 1 : 0;
      return found && std::string(found->call) == refused.expected && found->error == refused.error
                 ? 0
                 : 2;
    });
    const int status = child.wait();
    if (status == kNoFilters) GTEST_SKIP() << "seccomp filters are not to be had here";
    EXPECT_EQ(status, 0) << refused.calls << ": errno " << refused.error;
  }
}

TEST(KernelCalls, RecordsNeedNoMemory) {
  Process child([](const Process::Tell&) {
    if (refuse_calls("memfd_create,fallocate,pwrite,F_ADD_SEALS", EPERM) != 0) return kNoFilters;
    return rehearse_kernel_calls(CallsFor::records) ? 1 : 0;
  });
  const int status = child.wait();
  if (status == kNoFilters) GTEST_SKIP() << "seccomp filters are not to be had here";
  EXPECT_EQ(status, 0);
}

TEST(KernelCalls, ARehearsalLeavesNothing) {
  const auto open_files = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const auto before = open_files();
  EXPECT_FALSE(rehearse_kernel_calls(CallsFor::records_and_memory));
  EXPECT_EQ(open_files(), before);
}

TEST(KernelCalls, TextHasCallErrnoPurposeAndRemedy) {
  const RefusedCall refused{"memfd_create", EPERM, "shared memory of a pair"};
  const std::string text = refused.text();
  for (const char* part :
       {"memfd_create: Operation not permitted", "shared memory of a pair", "remedy: ", "seccomp"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(KernelCalls, ZerosAreWrittenToTheEnd) {
  const UniqueFd file(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_TRUE(file);
  ASSERT_EQ(fill_with_zeros(file.get(), 4096, 200'001), 0);
  struct stat info {};
  ASSERT_EQ(::fstat(file.get(), &info), 0);
  EXPECT_EQ(info.st_size, 200'001);
}

TEST(KernelCalls, NoRoomIsAnErrorNotASignal) {
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  if (!full) GTEST_SKIP() << "no /dev/full";
  EXPECT_EQ(fill_with_zeros(full.get(), 0, 4096), ENOSPC);
}

}  // namespace
}  // namespace larklane
