#include "linked_libraries.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/config.hpp"
#include "base/input_file.hpp"

namespace larklane::tools {
namespace {

namespace fs = std::filesystem;

#if defined(__x86_64__)
constexpr std::string_view kLinker = "/lib64/ld-linux-x86-64.so.2";
constexpr std::int32_t kCacheFlags = 0x0303;
#else
constexpr std::string_view kLinker = "/lib/ld-linux-aarch64.so.1";
constexpr std::int32_t kCacheFlags = 0x0a03;
#endif

constexpr std::size_t kCacheBytesMax = std::size_t{16} << 20;
constexpr std::size_t kObjectsMax = 4096;

/// The file /etc/ld.so.cache, in the format of glibc 2.2 and later (sysdeps/generic/dl-cache.h).
/// Thread safety: immutable.
class LinkerCache {
 public:
  LinkerCache() {
    if (read_input_file("/etc/ld.so.cache", kCacheBytesMax, &bytes_) != 0 ||
        !bytes_.starts_with(kMagic))
      bytes_.clear();
  }

  /// Empty: it has no plain library of this name.
  std::string find(std::string_view name) const {
    const auto count = at<std::uint32_t>(kMagic.size());
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto entry = at<Entry>(kHeaderBytes + i * sizeof(Entry));
      if (entry.flags == kCacheFlags && entry.hwcap == 0 && text(entry.key) == name)
        return std::string(text(entry.value));
    }
    return {};
  }

 private:
  static constexpr std::string_view kMagic = "glibc-ld.so.cache1.1";
  static constexpr std::size_t kHeaderBytes = 48;
  struct Entry {
    std::int32_t flags;
    std::uint32_t key, value;  // offsets of texts
    std::uint32_t unused;
    std::uint64_t hwcap;  // 0: for any processor
  };
  static_assert(sizeof(Entry) == 24);

  /// Zeros behind the end.
  template <class T>
  T at(std::size_t offset) const noexcept {
    T value{};
    if (offset <= bytes_.size() && bytes_.size() - offset >= sizeof value)
      std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }
  std::string_view text(std::size_t offset) const noexcept {
    return offset < bytes_.size() ? std::string_view(bytes_.c_str() + offset) : std::string_view();
  }

  std::string bytes_;
};

/// The folders of a search path. Nothing: the linker knows a word there that this code does not.
/// @param origin  of the object that has the path; empty: the environment's
std::optional<std::vector<fs::path>> folders_of(std::string_view path, const fs::path& origin) {
  std::vector<fs::path> folders;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find_first_of(origin.empty() ? ":;" : ":"), path.size());
    std::string folder(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
    for (const std::string_view word : {"${ORIGIN}", "$ORIGIN"})
      if (const std::size_t at = folder.find(word); at != std::string::npos && !origin.empty())
        folder.replace(at, word.size(), origin.string());
    if (folder.find('$') != std::string::npos) return std::nullopt;
    folders.emplace_back(folder.empty() ? "." : folder);
  }
  return folders;
}

/// Thread safety: single-owner.
class Search {
 public:
  /// False: the linker has to be asked.
  bool run(const fs::path& program, const ElfFile& elf) {
    std::error_code error;
    objects_.push_back({fs::canonical(program, error), elf, {}, {}, 0});
    if (error) return false;
    for (std::size_t next = 0; next < objects_.size(); ++next) {
      const std::vector<std::string> needed = objects_[next].elf.needed();
      for (const std::string& name : needed)
        if (!is_loaded(name) && !load(name, next)) return false;
    }
    return true;
  }

  std::vector<fs::path> found() const {
    std::vector<fs::path> paths;
    for (std::size_t i = 1; i < objects_.size(); ++i) paths.push_back(objects_[i].path);
    return paths;
  }

 private:
  using File = std::pair<dev_t, ino_t>;
  struct Object {
    fs::path path;
    ElfFile elf;
    File file;
    std::vector<std::string> names;  // by which others need it
    std::size_t loader;              // the first of them
  };

  bool is_loaded(const std::string& name) const {
    if (kLinker.ends_with("/" + name)) return true;
    return std::ranges::any_of(objects_, [&](const Object& object) {
      return object.elf.soname() == name || std::ranges::count(object.names, name) != 0;
    });
  }

  bool load(const std::string& name, std::size_t loader) {
    if (objects_.size() >= kObjectsMax) return false;
    if (name.find('$') != std::string::npos) return false;
    if (name.find('/') != std::string::npos) return open(name, name, loader);
    const auto folders = search_path(loader);
    if (!folders) return false;
    for (const fs::path& folder : *folders)
      if (::access((folder / name).c_str(), F_OK) == 0) return open(folder / name, name, loader);
    if (!cache_) cache_.emplace();
    const std::string cached = cache_->find(name);
    return !cached.empty() && !objects_[loader].elf.has_no_default_folders() &&
           open(cached, name, loader);
  }

  /// DT_RPATH of the object that needs the library, of the one that needs that, and so on; then
  /// LD_LIBRARY_PATH; then DT_RUNPATH.
  std::optional<std::vector<fs::path>> search_path(std::size_t loader) const {
    std::vector<fs::path> all;
    const auto add = [&](const std::string& path, const fs::path& origin) {
      const auto folders = folders_of(path, origin);
      if (folders) all.insert(all.end(), folders->begin(), folders->end());
      return folders.has_value();
    };
    const Object& needing = objects_[loader];
    for (std::size_t i = loader; needing.elf.runpath().empty(); i = objects_[i].loader) {
      const Object& object = objects_[i];
      if (object.elf.runpath().empty() && !add(object.elf.rpath(), object.path.parent_path()))
        return std::nullopt;
      if (i == 0) break;
    }
    if (!add(environment("LD_LIBRARY_PATH"), {}) ||
        !add(needing.elf.runpath(), needing.path.parent_path()))
      return std::nullopt;
    return all;
  }

  bool open(const fs::path& path, const std::string& name, std::size_t loader) {
    struct stat status;
    if (::stat(path.c_str(), &status) != 0) return false;
    const File file{status.st_dev, status.st_ino};
    const auto same =
        std::ranges::find_if(objects_, [&](const Object& object) { return object.file == file; });
    if (same != objects_.end()) {
      same->names.push_back(name);
      return true;
    }
    auto elf = ElfFile::read(path, ElfFile::Parts::needs);
    if (!elf || elf->machine() != ElfFile::Machine::native || !elf->problem().empty()) return false;
    std::error_code error;
    objects_.push_back({fs::absolute(path, error), std::move(*elf), file, {name}, loader});
    return !error;
  }

  std::vector<Object> objects_;  // the program, then libraries in the linker's order
  std::optional<LinkerCache> cache_;
};

}  // namespace

std::optional<std::vector<fs::path>> linked_libraries(const fs::path& path,
                                                      const ElfFile& program) {
  const bool has_preloads = !environment("LD_PRELOAD").empty() ||
                            !environment("LD_AUDIT").empty() ||
                            ::access("/etc/ld.so.preload", F_OK) == 0;
  Search search;
  if (program.interpreter() != kLinker || has_preloads || !search.run(path, program))
    return std::nullopt;
  return search.found();
}

}  // namespace larklane::tools
