#include "elf_file.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <span>
#include <utility>

namespace larklane::tools {
namespace {

// The symbols by which an MPI library and its ABI are told; src/mpi/preload/resolve.c judges by the
// same.
// Then those by which a sanitizer's runtime is told.
constexpr std::string_view kSymbols[] = {
    "PMPI_Init",    "ompi_mpi_comm_world", "MPIR_Dup_fn",          "MPI_Abi_get_version",
    "__asan_init",  "__tsan_init",         "__lsan_do_leak_check", "__ubsan_handle_add_overflow",
    "__hwasan_init"};

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#else
#error "larklane run knows x86-64 and aarch64"
#endif

// Bounds of a file's claims: a damaged one makes them as often, and as long, as it likes.
constexpr std::size_t kTextBytesMax = 4096;  // a path; no symbol that matters is longer
constexpr std::size_t kNeededMax = 4096;     // ten times the needs of large programs

/// A file in memory, read only. Thread safety: single-owner.
class Mapping {
 public:
  explicit Mapping(const std::filesystem::path& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return;
    struct stat status;
    if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
      const auto size = static_cast<std::size_t>(status.st_size);
      void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
      if (address != MAP_FAILED) bytes_ = {static_cast<const std::byte*>(address), size};
    }
    ::close(fd);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace

/// Reads with every offset checked: the file may be damaged.
class ElfFile::Reader {
 public:
  Reader(std::span<const std::byte> bytes, ElfFile* file) : bytes_(bytes), file_(file) {}

  bool read(Parts parts) {
    const auto ident = at<std::array<unsigned char, EI_NIDENT>>(0);
    if (!ident || std::memcmp(ident->data(), ELFMAG, SELFMAG) != 0) return false;
    if ((*ident)[EI_CLASS] != ELFCLASS64) {
      file_->machine_ = Machine::other_width;
      return true;
    }
    const auto header = at<Elf64_Ehdr>(0);
    if (!header) return false;
    if (header->e_machine != kMachine || (*ident)[EI_DATA] != ELFDATA2LSB) {
      file_->machine_ = Machine::other_machine;
      return true;
    }
    read_segments(*header);
    if (parts == Parts::all) read_sections(*header);
    return true;
  }

 private:
  /// A copy: a damaged offset need not be aligned.
  template <class T>
  std::optional<T> at(std::size_t offset) const {
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }

  std::string_view text(std::size_t offset) const {
    if (offset >= bytes_.size()) return {};
    const auto* start = reinterpret_cast<const char*>(bytes_.data()) + offset;
    return {start, ::strnlen(start, std::min(bytes_.size() - offset, kTextBytesMax))};
  }

  /// File offset of a virtual address.
  std::size_t offset_of(const Elf64_Ehdr& header, Elf64_Addr address) const {
    for (std::size_t i = 0; i < header.e_phnum; ++i) {
      const auto segment = at<Elf64_Phdr>(header.e_phoff + i * sizeof(Elf64_Phdr));
      if (segment && segment->p_type == PT_LOAD && address >= segment->p_vaddr &&
          address - segment->p_vaddr < segment->p_filesz) {
        return segment->p_offset + (address - segment->p_vaddr);
      }
    }
    return bytes_.size();
  }

  void read_segments(const Elf64_Ehdr& header) {
    for (std::size_t i = 0; i < header.e_phnum; ++i) {
      const auto segment = at<Elf64_Phdr>(header.e_phoff + i * sizeof(Elf64_Phdr));
      if (!segment) {
        file_->problem_ = "program header " + std::to_string(i) + " of " +
                          std::to_string(header.e_phnum) + " is behind the end of the file";
        return;
      }
      if (segment->p_type == PT_INTERP) file_->interpreter_ = text(segment->p_offset);
      // The first one counts, as for the dynamic linker.
      if (segment->p_type == PT_DYNAMIC && !std::exchange(has_dynamic_, true))
        read_dynamic(header, *segment);
    }
  }

  void read_dynamic(const Elf64_Ehdr& header, const Elf64_Phdr& segment) {
    const std::size_t count = segment.p_filesz / sizeof(Elf64_Dyn);
    std::size_t strings = bytes_.size();
    for (const bool names : {false, true}) {
      for (std::size_t i = 0; i < count; ++i) {
        const auto entry = at<Elf64_Dyn>(segment.p_offset + i * sizeof(Elf64_Dyn));
        if (!entry || entry->d_tag == DT_NULL) break;
        if (!names && entry->d_tag == DT_STRTAB) strings = offset_of(header, entry->d_un.d_ptr);
        if (names) take_name(*entry, strings);
      }
    }
  }

  void take_name(const Elf64_Dyn& entry, std::size_t strings) {
    const auto name = [&] { return text(strings + entry.d_un.d_val); };
    if (entry.d_tag == DT_NEEDED && file_->needed_.size() < kNeededMax)
      file_->needed_.emplace_back(name());
    else if (entry.d_tag == DT_SONAME)
      file_->soname_ = name();
    else if (entry.d_tag == DT_RPATH)
      file_->rpath_ = name();
    else if (entry.d_tag == DT_RUNPATH)
      file_->runpath_ = name();
    else if (entry.d_tag == DT_FLAGS_1)
      file_->has_no_default_folders_ = (entry.d_un.d_val & DF_1_NODEFLIB) != 0;
  }

  void read_sections(const Elf64_Ehdr& header) {
    for (std::size_t i = 0; i < header.e_shnum; ++i) {
      const auto section = at<Elf64_Shdr>(header.e_shoff + i * sizeof(Elf64_Shdr));
      if (!section) return;
      if (section->sh_type == SHT_SYMTAB) file_->stripped_ = false;
      if (section->sh_type != SHT_SYMTAB && section->sh_type != SHT_DYNSYM) continue;
      // There is one of each kind (System V ABI).
      if (std::exchange(has_symbols_[section->sh_type == SHT_DYNSYM ? 1 : 0], true)) continue;
      const auto strings = at<Elf64_Shdr>(header.e_shoff + section->sh_link * sizeof(Elf64_Shdr));
      if (strings) read_symbols(*section, *strings);
    }
  }

  void read_symbols(const Elf64_Shdr& section, const Elf64_Shdr& strings) {
    const std::size_t count = section.sh_size / sizeof(Elf64_Sym);
    for (std::size_t i = 0; i < count; ++i) {
      const auto symbol = at<Elf64_Sym>(section.sh_offset + i * sizeof(Elf64_Sym));
      if (!symbol) return;
      if (symbol->st_shndx == SHN_UNDEF || ELF64_ST_BIND(symbol->st_info) == STB_LOCAL) continue;
      const std::string_view name = text(strings.sh_offset + symbol->st_name);
      if (std::find(std::begin(kSymbols), std::end(kSymbols), name) != std::end(kSymbols)) {
        file_->defined_.emplace(name);
      }
    }
  }

  std::span<const std::byte> bytes_;
  ElfFile* file_;
  bool has_dynamic_ = false;
  bool has_symbols_[2] = {};  ///< of SHT_SYMTAB, SHT_DYNSYM
};

std::optional<ElfFile> ElfFile::read(const std::filesystem::path& path, Parts parts) {
  const Mapping mapping(path);
  ElfFile file;
  if (!Reader(mapping.bytes(), &file).read(parts)) return std::nullopt;
  return file;
}

}  // namespace larklane::tools
