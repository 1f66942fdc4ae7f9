#include "bootstrap/member.hpp"

#include <algorithm>
#include <string_view>

#include "base/parse.hpp"
#include "bootstrap/launcher.hpp"

namespace larklane::boot {
namespace {

constexpr int kSizeMax = 1 << 20;
constexpr const char* kMeetForm = "HOST:PORT, where rank 0 or the launcher is reached";

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

std::optional<int> number_between(std::string_view text, int least, int most) {
  const auto number = number_of<int>(text);
  return number && *number >= least && *number <= most ? number : std::nullopt;
}

/// `node1:4711`, `[::1]:4711`
bool parse_meet(std::string_view text, Member* member) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']'))
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string_view::npos)
    return false;
  member->host = host;
  member->port = text.substr(colon + 1);
  return !host.empty() && number_between(member->port, 1, 65535);
}

bool is_job(std::string_view text) {
  return !text.empty() && text.size() <= kJobBytesMax &&
         std::ranges::all_of(text, [](char letter) { return letter > ' ' && letter <= '~'; });
}

/// Under a launcher, either all processes find each other or none begins.
std::optional<Member> of_launcher(Member member, std::string* problem) {
  const Launcher launcher = Launcher::of_environment();
  if (launcher.speech == Launcher::Speech::pmix) {
    member.way = Member::Way::pmix;
    return member;
  }
  if (launcher.size <= 1) return member;
  if (launcher.speech == Launcher::Speech::none) {
    *problem = launcher.size_variable + " is " + std::to_string(launcher.size) +
               ": this process is one of several of " + launcher.title +
               ", which does not say where the others are" + kJoinRemedy;
    return std::nullopt;
  }
  if (launcher.rank < 0 || launcher.rank >= launcher.size) {
    *problem = "PMI_RANK is " + quoted(environment("PMI_RANK")) + "; accepted: 0.." +
               std::to_string(launcher.size - 1) + " (" + launcher.size_variable + " is " +
               std::to_string(launcher.size) + ")" + kJoinRemedy;
    return std::nullopt;
  }
  member.way = Member::Way::pmi;
  member.rank = launcher.rank;
  member.size = launcher.size;
  member.is_one_host = launcher.spans_hosts == false;
  return member;
}

}  // namespace

std::optional<Member> Member::of(const Config& config, std::string* problem) {
  Member member;
  member.wait_ns = config.boot_wait_ns;
  if (config.rank.empty() && config.size.empty() && config.meet.empty() && config.board.empty())
    return of_launcher(member, problem);

  if (config.size.empty())
    return refuse("LARKLANE_SIZE", "not set", "the number of processes, the same for all", problem);
  const auto size = number_between(config.size, 1, kSizeMax);
  if (!size)
    return refuse("LARKLANE_SIZE", quoted(config.size), "1.." + std::to_string(kSizeMax), problem);
  const std::string ranks = "0.." + std::to_string(*size - 1);
  if (config.rank.empty() && *size > 1)
    return refuse("LARKLANE_RANK", "not set", ranks + ", another for each process", problem);
  const auto rank =
      config.rank.empty() ? std::optional(0) : number_between(config.rank, 0, *size - 1);
  if (!rank)
    return refuse("LARKLANE_RANK", quoted(config.rank),
                  ranks + " (LARKLANE_SIZE is " + config.size + ")", problem);
  member.rank = *rank;
  member.size = *size;
  if (config.meet.empty() && config.board.empty()) {
    if (member.size == 1) return member;
    return refuse("LARKLANE_MEET", "not set",
                  std::string(kMeetForm) + "; or a folder of all processes in LARKLANE_BOARD",
                  problem);
  }
  if (!config.meet.empty() && !config.board.empty())
    return refuse("LARKLANE_BOARD", quoted(config.board),
                  "nothing, since LARKLANE_MEET is " + quoted(config.meet), problem);
  if (!is_job(config.job))
    return refuse("LARKLANE_JOB",  // its value may be secret
                  config.job.empty() ? "not set"
                                     : "a text of " + std::to_string(config.job.size()) + " bytes",
                  "up to 64 characters without blanks, the same for all processes of this job "
                  "and of no other, and hard to guess",
                  problem);
  member.job = config.job;
  member.folder = config.board;
  member.way = config.meet.empty() ? Way::folder : Way::served;
  if (member.way == Way::served && !parse_meet(config.meet, &member))
    return refuse("LARKLANE_MEET", quoted(config.meet), kMeetForm, problem);
  return member;
}

}  // namespace larklane::boot
