#include "peer_library.hpp"

#include <dlfcn.h>

#include <cstddef>

namespace larklane::bench {

std::string open_peer_library(const std::string& file, std::span<const char* const> names,
                              std::span<void*> functions) {
  // A name without a slash would be searched for in the system's folders.
  const std::string path = file.find('/') == std::string::npos ? "./" + file : file;
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    return std::string(why != nullptr ? why : "it can't be opened") +
           "; remedy: the path of the shared library, built with the MPI that is measured";
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    functions[i] = dlsym(library, names[i]);
    if (functions[i] == nullptr)
      return path + " has no function " + names[i] + "; remedy: another library, or version";
  }
  return {};
}

}  // namespace larklane::bench
