#pragma once
// The libraries that a program will be linked with, by the rules of the dynamic linker (ld.so(8)).
// Asking the linker itself takes a process, which costs more than the rest of `larklane run`.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "elf_file.hpp"

namespace larklane::tools {

/// In the linker's order: breadth first. The program and the linker are not among them. Variants
/// for a processor (glibc-hwcaps) count as the plain library. Nothing: the linker has to be asked,
/// since it is not glibc's, preloads other libraries, or would not find one of them here.
/// @param program  of `path`
std::optional<std::vector<std::filesystem::path>> linked_libraries(
    const std::filesystem::path& path, const ElfFile& program);

}  // namespace larklane::tools
