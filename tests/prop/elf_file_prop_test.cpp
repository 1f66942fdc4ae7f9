// Damaged programs and libraries: the reader reports the intact parts, in time and in few bytes.

#include <elf.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "../../tools/elf_file.hpp"
#include "msg_seeds.hpp"
#include "mutations.hpp"

namespace larklane::tools {
namespace {

constexpr std::uint64_t kMutations = 1000;
constexpr std::size_t kNeededMax = 4096, kTextBytesMax = 4096;

template <class T>
void put(std::string* file, std::size_t offset, const T& value) {
  if (file->size() < offset + sizeof value) file->resize(offset + sizeof value);
  std::memcpy(file->data() + offset, &value, sizeof value);
}

/// An entry of the dynamic section at `section`.
void put_entry(std::string* file, std::size_t section, std::size_t index, Elf64_Sxword tag,
               std::uint64_t value) {
  Elf64_Dyn entry{};
  entry.d_tag = tag;
  entry.d_un.d_val = value;
  put(file, section + index * sizeof entry, entry);
}

constexpr std::size_t kSegments = sizeof(Elf64_Ehdr), kStrings = 1024, kDynamic = 2048;
constexpr std::size_t kSections = 4096, kSymbols = 8192;

/// A program: interpreter, two libraries, PMPI_Init defined.
std::string program(std::uint16_t segments = 3, std::uint16_t sections = 2, std::size_t count = 2) {
  static constexpr std::string_view kText("\0/lib/ld.so\0libmpi.so\0libc.so\0PMPI_Init\0", 40);
  std::string file;
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
#if defined(__x86_64__)
  header.e_machine = EM_X86_64;
#else
  header.e_machine = EM_AARCH64;
#endif
  header.e_phoff = kSegments;
  header.e_phnum = segments;
  header.e_shoff = kSections;
  header.e_shnum = sections;
  put(&file, 0, header);
  for (std::uint16_t i = 0; i < segments; ++i) {
    Elf64_Phdr segment{};
    segment.p_type = i == 0 ? PT_LOAD : i == 1 ? PT_INTERP : PT_DYNAMIC;
    segment.p_offset = i == 0 ? 0 : i == 1 ? kStrings + 1 : kDynamic;
    segment.p_vaddr = i == 0 ? 0x400000 : 0;
    segment.p_filesz = i == 0 ? 1 << 30 : count * sizeof(Elf64_Dyn) + 2 * sizeof(Elf64_Dyn);
    put(&file, kSegments + i * sizeof segment, segment);
  }
  if (segments > 16) return file;  // of a file that states so: without the rest
  put(&file, kStrings, std::string(kText).data()[0]);
  file.resize(kDynamic);
  kText.copy(file.data() + kStrings, kText.size());
  put_entry(&file, kDynamic, 0, DT_STRTAB, 0x400000 + kStrings);
  for (std::size_t i = 0; i < 2; ++i)
    put_entry(&file, kDynamic, i + 1, DT_NEEDED, i == 0 ? 12 : 22);
  for (std::uint16_t i = 0; i < sections; ++i) {
    Elf64_Shdr section{};
    section.sh_type = i == 0 ? SHT_STRTAB : SHT_DYNSYM;
    section.sh_offset = i == 0 ? kStrings : kSymbols;
    section.sh_size = sizeof(Elf64_Sym);
    put(&file, kSections + i * sizeof section, section);
  }
  Elf64_Sym symbol{};
  symbol.st_name = 30;
  symbol.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
  symbol.st_shndx = 1;
  put(&file, kSymbols, symbol);
  return file;
}

class ElfFiles : public testing::Test {
 protected:
  void SetUp() override {
    const std::string above = access("/dev/shm", W_OK) == 0 ? "/dev/shm/" : testing::TempDir();
    path_ = above + "larklane_elf_file_" + std::to_string(getpid());
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::optional<ElfFile> read(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
    return ElfFile::read(path_);
  }
  std::string path_;
};

void expect_bounded(const ElfFile& file) {
  EXPECT_LE(file.needed().size(), kNeededMax);
  EXPECT_LE(file.interpreter().size(), kTextBytesMax);
  for (const std::string& name : file.needed()) EXPECT_LE(name.size(), kTextBytesMax);
}

TEST_F(ElfFiles, AWholeProgramIsRead) {
  const auto file = read(program());
  ASSERT_TRUE(file);
  EXPECT_EQ(file->interpreter(), "/lib/ld.so");
  EXPECT_EQ(file->needed(), (std::vector<std::string>{"libmpi.so", "libc.so"}));
  EXPECT_TRUE(file->defines("PMPI_Init"));
  EXPECT_EQ(file->problem(), "");
}

TEST_F(ElfFiles, ADamagedProgramIsReadInBounds) {
  const std::string whole = program();
  // Damage where it matters: the headers, the dynamic section, the symbols.
  const std::size_t parts[] = {0, kSegments, kStrings, kDynamic, kSections, kSymbols};
  msg::for_seeds(kMutations, [&](std::uint64_t seed) {
    const std::size_t at = parts[seed % std::size(parts)];
    std::string piece = mutated(whole.substr(at, 256), seed);
    if (seed / std::size(parts) % 4 != 0)
      piece.resize(std::min<std::size_t>(256, whole.size() - at));
    std::string damaged = whole.substr(0, at) + piece;
    if (at + 256 < whole.size()) damaged += whole.substr(at + 256);
    if (const auto file = read(damaged)) expect_bounded(*file);
  });
}

TEST_F(ElfFiles, HeadersBehindTheEndAreNamed) {
  const auto file = read(program().substr(0, kSegments + sizeof(Elf64_Phdr) + 3));
  ASSERT_TRUE(file);
  EXPECT_EQ(file->problem(), "program header 1 of 3 is behind the end of the file");
}

/// 65,535 segments that all claim the whole file as their dynamic section: read one by one, that
/// takes minutes and all memory.
TEST_F(ElfFiles, ADynamicSectionIsReadOnce) {
  std::string file = program(0xffff);
  const std::size_t begin = file.size();
  put_entry(&file, begin, 0, DT_STRTAB, 0x400000 + begin);
  for (std::size_t i = 1; i < 65536; ++i) put_entry(&file, begin, i, DT_NEEDED, 1);
  for (std::size_t i = 2; i < 0xffff; ++i) {
    Elf64_Phdr segment{};
    segment.p_type = PT_DYNAMIC;
    segment.p_offset = begin;
    segment.p_filesz = 65536 * sizeof(Elf64_Dyn);
    put(&file, kSegments + i * sizeof segment, segment);
  }
  const auto found = read(file);
  ASSERT_TRUE(found);
  expect_bounded(*found);
  EXPECT_EQ(found->needed().size(), kNeededMax);
}

TEST_F(ElfFiles, APipeIsNotWaitedFor) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_FALSE(ElfFile::read(path_));
}

}  // namespace
}  // namespace larklane::tools
