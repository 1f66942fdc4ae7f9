// The child that a case runs in, stepped by ptrace, and the counts of its instructions.

#include "steps.hpp"

#include <capstone/capstone.h>
#include <dlfcn.h>
#include <errno.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string_view>

namespace larklane::cost {
namespace {

constexpr std::uint64_t kLine = 64;
constexpr std::uint8_t kBreakpoint = 0xcc;
constexpr std::size_t kInstructionMost = 15;

/// Name of the stepped segment: the child writes, the parent reads.
char* name_area() {
  static constexpr std::size_t kBytes = 4096;
  static char* const area = static_cast<char*>(
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  return area;
}

/// Code of the child that is, or is not, counted; code in neither (the C library) counts as its
/// caller's. Thread safety: single-owner.
class Owners {
 public:
  Owners(pid_t child, const std::string& foreign) {
    if (foreign.empty()) return;
    std::ifstream maps("/proc/" + std::to_string(child) + "/maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.find(" r-xp ") == std::string::npos) continue;
      const std::string file = line.substr(line.find_last_of('/') + 1);
      const bool is_foreign = file.starts_with(foreign);
      if (!is_foreign && !file.starts_with("liblarklane") && file != program_invocation_short_name)
        continue;
      const std::size_t dash = line.find('-');
      ranges_.push_back({std::stoull(line.substr(0, dash), nullptr, 16),
                         std::stoull(line.substr(dash + 1), nullptr, 16), is_foreign});
    }
  }
  bool is_foreign(std::uint64_t at) {
    for (const Range& range : ranges_)
      if (at >= range.begin && at < range.end) is_foreign_ = range.is_foreign;
    return is_foreign_;
  }

 private:
  struct Range {
    std::uint64_t begin, end;
    bool is_foreign;
  };
  std::vector<Range> ranges_;
  bool is_foreign_ = false;
};

/// Memory of the child that others may map, too. Thread safety: single-owner.
class SharedMemory {
 public:
  explicit SharedMemory(pid_t child) {
    std::ifstream maps("/proc/" + std::to_string(child) + "/maps");
    for (std::string line; std::getline(maps, line);) {
      std::istringstream fields(line);
      std::string range, access, device;
      std::uint64_t offset = 0, inode = 0;
      fields >> range >> access >> std::hex >> offset >> device >> std::dec >> inode;
      if (access.size() != 4 || access[3] != 's') continue;
      const std::size_t dash = range.find('-');
      ranges_.push_back({std::stoull(range.substr(0, dash), nullptr, 16),
                         std::stoull(range.substr(dash + 1), nullptr, 16), offset, inode});
    }
  }
  void note(std::uint64_t start, std::uint64_t bytes, std::set<Steps::Line>& lines) const {
    for (const Range& range : ranges_) {
      if (start < range.begin || start >= range.end) continue;
      const std::uint64_t first = start - range.begin + range.offset;
      for (std::uint64_t at = first / kLine; at <= (first + bytes - 1) / kLine; ++at)
        lines.emplace(range.inode, at);
    }
  }

 private:
  struct Range {
    std::uint64_t begin, end, offset, inode;
  };
  std::vector<Range> ranges_;
};

/// Thread safety: single-owner.
class Decoder {
 public:
  Decoder() {
    if (cs_open(CS_ARCH_X86, CS_MODE_64, &handle_) != CS_ERR_OK) std::abort();
    cs_option(handle_, CS_OPT_DETAIL, CS_OPT_ON);
    instruction_ = cs_malloc(handle_);
    for (const char* name : {"malloc", "calloc", "realloc", "aligned_alloc", "free"})
      allocators_.insert(reinterpret_cast<std::uint64_t>(::dlsym(RTLD_DEFAULT, name)));
  }
  ~Decoder() {
    cs_free(instruction_, 1);
    cs_close(&handle_);
  }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  void note(const user_regs_struct& regs, const std::uint8_t* code, const SharedMemory& shared,
            Steps& steps) {
    std::size_t size = kInstructionMost;
    std::uint64_t address = regs.rip;
    if (!cs_disasm_iter(handle_, &code, &size, &address, instruction_)) {
      std::fprintf(stderr, "steps: an instruction at %#llx is not known\n", regs.rip);
      std::abort();
    }
    const cs_x86& x86 = instruction_->detail->x86;
    ++steps.instructions;
    steps.allocations += allocators_.count(regs.rip);
    steps.system_calls += instruction_->id == X86_INS_SYSCALL;
    bool is_atomic = x86.prefix[0] == X86_PREFIX_LOCK;
    for (std::uint8_t i = 0; i < x86.op_count; ++i) {
      const cs_x86_op& operand = x86.operands[i];
      if (operand.type != X86_OP_MEM || instruction_->id == X86_INS_LEA ||
          instruction_->id == X86_INS_NOP)
        continue;
      is_atomic |= instruction_->id == X86_INS_XCHG;
      std::uint64_t bytes = std::max<std::uint64_t>(operand.size, 1);
      if (x86.prefix[0] == X86_PREFIX_REP) bytes *= std::max<std::uint64_t>(regs.rcx, 1);
      const std::uint64_t start = address_of(regs, operand.mem);
      const bool is_stored = i == 0 && is_move();
      if (is_stored || (operand.access & CS_AC_WRITE) != 0)
        shared.note(start, bytes, steps.lines_written);
      if (!is_stored && (operand.access & CS_AC_READ) != 0)
        shared.note(start, bytes, steps.lines_read);
    }
    steps.atomics += is_atomic;
  }

 private:
  /// Its first operand is the target of a store: capstone 4 takes most vector stores for loads.
  bool is_move() const {
    const std::string_view name = instruction_->mnemonic;
    return name.starts_with("mov") || name.starts_with("vmov");
  }
  std::uint64_t address_of(const user_regs_struct& regs, const x86_op_mem& memory) const {
    std::uint64_t address = static_cast<std::uint64_t>(memory.disp);
    if (memory.segment == X86_REG_FS) address += regs.fs_base;
    if (memory.base == X86_REG_RIP) address += regs.rip + instruction_->size;
    address += value_of(regs, memory.base) +
               value_of(regs, memory.index) * static_cast<std::uint64_t>(memory.scale);
    return address;
  }
  static std::uint64_t value_of(const user_regs_struct& regs, x86_reg name) {
    switch (name) {
      case X86_REG_RAX:
        return regs.rax;
      case X86_REG_RBX:
        return regs.rbx;
      case X86_REG_RCX:
        return regs.rcx;
      case X86_REG_RDX:
        return regs.rdx;
      case X86_REG_RSI:
        return regs.rsi;
      case X86_REG_RDI:
        return regs.rdi;
      case X86_REG_RBP:
        return regs.rbp;
      case X86_REG_RSP:
        return regs.rsp;
      case X86_REG_R8:
        return regs.r8;
      case X86_REG_R9:
        return regs.r9;
      case X86_REG_R10:
        return regs.r10;
      case X86_REG_R11:
        return regs.r11;
      case X86_REG_R12:
        return regs.r12;
      case X86_REG_R13:
        return regs.r13;
      case X86_REG_R14:
        return regs.r14;
      case X86_REG_R15:
        return regs.r15;
      default:
        return 0;  // none, or RIP, which address_of() has added
    }
  }

  csh handle_ = 0;
  cs_insn* instruction_ = nullptr;
  std::set<std::uint64_t> allocators_;
};

/// Thread safety: single-owner.
class Follower {
 public:
  Follower(pid_t child, const std::string& foreign) : child_(child), foreign_(foreign) {}

  /// @return whether the child has ended well
  bool follow(std::map<std::string, std::vector<Steps>>& all) {
    int status = 0;
    if (::waitpid(child_, &status, 0) != child_ || !WIFSTOPPED(status)) return false;
    ::ptrace(PTRACE_SETOPTIONS, child_, nullptr, PTRACE_O_EXITKILL);
    while (::ptrace(PTRACE_CONT, child_, nullptr, 0) == 0) {
      if (::waitpid(child_, &status, 0) != child_) return false;
      if (!WIFSTOPPED(status)) return WIFEXITED(status) && WEXITSTATUS(status) == 0;
      if (WSTOPSIG(status) != SIGTRAP) {
        std::fprintf(stderr, "steps: the program was stopped by signal %d\n", WSTOPSIG(status));
        return false;
      }
      if (!step(all[name_area()].emplace_back())) return false;
    }
    return false;
  }

 private:
  /// To the next breakpoint, and over it.
  bool step(Steps& steps) {
    const SharedMemory shared(child_);
    Owners owners(child_, foreign_);
    for (;;) {
      user_regs_struct regs{};
      if (::ptrace(PTRACE_GETREGS, child_, nullptr, &regs) != 0) return false;
      std::array<std::uint8_t, kInstructionMost> code{};
      const iovec here{code.data(), code.size()};
      const iovec there{reinterpret_cast<void*>(regs.rip), code.size()};
      if (::process_vm_readv(child_, &here, 1, &there, 1, 0) <= 0) return false;
      if (code[0] == kBreakpoint) {
        ++regs.rip;
        return ::ptrace(PTRACE_SETREGS, child_, nullptr, &regs) == 0;
      }
      if (!owners.is_foreign(regs.rip)) decoder_.note(regs, code.data(), shared, steps);
      int status = 0;
      if (::ptrace(PTRACE_SINGLESTEP, child_, nullptr, 0) != 0 ||
          ::waitpid(child_, &status, 0) != child_ || !WIFSTOPPED(status))
        return false;
    }
  }

  const pid_t child_;
  const std::string& foreign_;
  Decoder decoder_;
};

}  // namespace

void begin_steps(const char* name) {
  std::snprintf(name_area(), 100, "%s", name);
  asm volatile("int3" ::: "memory");
}
void end_steps() { asm volatile("int3" ::: "memory"); }

std::map<std::string, std::vector<Steps>> steps_of(const std::function<bool()>& program,
                                                   const std::string& foreign) {
  (void)name_area();
  const pid_t child = ::fork();
  if (child == 0) {
    ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    ::raise(SIGSTOP);
    ::_exit(program() ? 0 : 1);
  }
  std::map<std::string, std::vector<Steps>> all;
  if (child > 0 && Follower(child, foreign).follow(all)) return all;
  std::fprintf(stderr, "steps: the program has not ended well\n");
  return {};
}

}  // namespace larklane::cost
