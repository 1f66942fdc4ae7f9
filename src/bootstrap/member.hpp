#pragma once
// A process's place in its job, as the environment describes it. Thread safety: immutable.

#include <cstdint>
#include <optional>
#include <string>

#include "base/config.hpp"

namespace larklane::boot {

inline constexpr std::size_t kJobBytesMax = 64;

struct Member {
  enum class Way : std::uint8_t { alone, served, folder, pmi, pmix };
  Way way = Way::alone;  ///< pmix: the library knows rank and size
  int rank = 0;
  int size = 1;
  std::string job;         ///< the same for all processes of the job; a secret
  std::string host, port;  ///< of `meet`; a host's name or number, without brackets
  std::string folder;
  std::uint64_t wait_ns = 0;
  bool is_one_host = false;  ///< pmi: the launcher states it

  /// Nothing on failure: `*problem` names variable, value and accepted form.
  static std::optional<Member> of(const Config& config, std::string* problem);
};

}  // namespace larklane::boot
