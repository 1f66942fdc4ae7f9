#include "boot/member.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace larklane::boot {
namespace {

constexpr const char* kRootForm = "HOST:PORT, where rank 0 or the launcher is reached";

std::optional<Member> refuse(const std::string& variable, const std::string& state,
                             const std::string& accepted, std::string* problem) {
  *problem = variable;
  *problem += " is " + state;
  *problem += "; accepted: " + accepted;
  return std::nullopt;
}

std::string quoted(std::string_view text) {
  std::string out(1, '"');
  out += text;
  out += '"';
  return out;
}

bool is_port(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc{} && end == text.data() + text.size() && port != 0;
}

/// `node1:4711`, `[::1]:4711`
bool parse_root(std::string_view root, Member* member) {
  const std::size_t colon = root.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  std::string_view host = root.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']'))
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string_view::npos)
    return false;
  member->host = host;
  member->port = root.substr(colon + 1);
  return !host.empty() && is_port(member->port);
}

bool is_job(std::string_view text) {
  return !text.empty() && text.size() <= kJobBytesMax &&
         std::ranges::all_of(text, [](char letter) { return letter > ' ' && letter <= '~'; });
}

}  // namespace

std::optional<Member> Member::of(const Config& config, std::string* problem) {
  Member member;
  member.wait_ns = config.boot_wait_ns;
  const bool has_rank = config.is_given("rank"), has_size = config.is_given("size");
  if (!has_rank && !has_size && config.root.empty() && config.board.empty()) {
    if (!environment("PMIX_NAMESPACE").empty()) member.way = Way::pmix;
    return member;
  }

  if (!has_size)
    return refuse("LARKLANE_SIZE", "not set", "the number of processes, the same for all", problem);
  const std::string ranks = "0.." + std::to_string(config.size - 1);
  if (!has_rank)
    return refuse("LARKLANE_RANK", "not set", ranks + ", another for each process", problem);
  if (config.rank >= config.size)
    return refuse("LARKLANE_RANK", quoted(std::to_string(config.rank)),
                  ranks + " (LARKLANE_SIZE is " + std::to_string(config.size) + ")", problem);
  member.rank = static_cast<int>(config.rank);
  member.size = static_cast<int>(config.size);
  if (config.root.empty() && config.board.empty()) {
    if (config.size == 1) return member;
    return refuse("LARKLANE_ROOT", "not set",
                  std::string(kRootForm) + "; or a folder of all processes in LARKLANE_BOARD",
                  problem);
  }
  if (!config.root.empty() && !config.board.empty())
    return refuse("LARKLANE_BOARD", quoted(config.board),
                  "nothing, since LARKLANE_ROOT is " + quoted(config.root), problem);
  if (!is_job(config.job))
    return refuse("LARKLANE_JOB", config.job.empty() ? "not set" : quoted(config.job),
                  "up to 64 characters without blanks, the same for all processes of this job "
                  "and of no other, and hard to guess",
                  problem);
  member.job = config.job;
  member.folder = config.board;
  member.way = config.root.empty() ? Way::folder : Way::served;
  if (member.way == Way::served && !parse_root(config.root, &member))
    return refuse("LARKLANE_ROOT", quoted(config.root), kRootForm, problem);
  return member;
}

}  // namespace larklane::boot
