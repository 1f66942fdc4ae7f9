#include "model/tuning.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/parse.hpp"

namespace larklane::model {
namespace {

constexpr std::string_view kTitle = "larklane tuning ";
constexpr std::string_view kVersion = "1";
constexpr std::string_view kBlanks = " \t\r";
constexpr std::size_t kLineBytesMax = 4096;
constexpr std::uint64_t kMostNs = 1'000'000'000'000;
constexpr std::size_t kDecimals = 6;
constexpr std::uint64_t kMillion = 1'000'000;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 62;
constexpr std::uint64_t kMostPartitions = std::numeric_limits<std::int32_t>::max();

/// The word before the first blank; `text` becomes the rest behind it.
std::string_view take_word(std::string_view* text) {
  const std::size_t end = std::min(text->find_first_of(kBlanks), text->size());
  const std::string_view word = text->substr(0, end);
  *text = trimmed(text->substr(end));
  return word;
}

bool read_count(std::string_view* text, std::uint64_t most, std::uint64_t* count) {
  const auto read = number_of<std::uint64_t>(take_word(text));
  *count = read.value_or(0);
  return read && *count <= most;
}

/// Digits, and a point with up to 6 more. Not from_chars: for a double it needs libm and 300 KB;
/// nor strtod: its point is the locale's.
bool read_time(std::string_view* text, double* ns) {
  std::string_view word = take_word(text);
  const std::size_t point = word.find('.');
  std::uint64_t whole = 0, millionths = 0;
  std::string_view digits = word.substr(0, point);
  if (!read_count(&digits, kMostNs, &whole)) return false;
  if (point != std::string_view::npos) {
    digits = word.substr(point + 1);
    if (digits.size() > kDecimals) return false;
    const std::size_t missing = kDecimals - digits.size();
    if (!read_count(&digits, kMillion, &millionths)) return false;
    for (std::size_t i = 0; i < missing; ++i) millionths *= 10;
  }
  *ns = static_cast<double>(whole * kMillion + millionths) / kMillion;
  return true;
}

/// Lines of a text, without comments and empty ones.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}
  bool next() {
    while (!rest_.empty()) {
      const std::size_t end = std::min(rest_.find('\n'), rest_.size());
      line_ = trimmed(rest_.substr(0, end));
      rest_.remove_prefix(std::min(end + 1, rest_.size()));
      ++number_;
      if (!line_.empty() && line_.front() != '#') return true;
    }
    return false;
  }
  std::string_view line() const noexcept { return line_; }
  std::size_t number() const noexcept { return number_; }

 private:
  std::string_view rest_, line_;
  std::size_t number_ = 0;
};

/// Each reads the rest of a line behind its key. @return the problem; empty: none
std::string_view read_range(std::string_view text, Tuning* tuning) {
  Tuning::Range range;
  LogGP& network = range.network;
  bool is_read = read_count(&text, kMostBytes, &range.first_bytes) &&
                 read_count(&text, kMostBytes, &range.last_bytes);
  for (double* const value :
       {&network.latency_ns, &network.send_overhead_ns, &network.recv_overhead_ns, &network.gap_ns,
        &network.gap_per_byte_ns, &network.send_overhead_per_byte_ns,
        &network.recv_overhead_per_byte_ns})
    is_read = is_read && read_time(&text, value);
  if (!is_read || !text.empty())
    return "wanted: 2 sizes and 7 times of 0 to 1e12 ns, with up to 6 decimals";
  if (range.first_bytes > range.last_bytes) return "the first size is above the last";
  if (!tuning->ranges.empty() && tuning->ranges.back().last_bytes >= range.first_bytes)
    return "not above the range before it";
  tuning->ranges.push_back(range);
  return {};
}

std::string_view read_entry(std::string_view text, Tuning* tuning) {
  std::uint64_t partitions = 0, bytes = 0, groups = 0, queues = 0;
  bool is_read = read_count(&text, kMostPartitions, &partitions) &&
                 read_count(&text, kMostBytes, &bytes) &&
                 read_count(&text, kMostPartitions, &groups);
  const bool has_queues = is_read && !text.empty();
  if (has_queues) is_read = read_count(&text, kMostPartitions, &queues);
  if (!is_read || !text.empty()) return "wanted: partitions, bytes, groups, and maybe queue pairs";
  if (groups < 1 || groups > partitions) return "groups are 1 to as many as there are partitions";
  if (has_queues && (queues < 1 || queues > Tuning::kQueuesMax)) return "queue pairs are 1 to 16";
  const Tuning::Entry entry{static_cast<std::uint32_t>(partitions), bytes,
                            static_cast<std::uint32_t>(groups), static_cast<std::uint32_t>(queues)};
  const auto place = [](const Tuning::Entry& e) { return std::pair(e.partitions, e.bytes); };
  if (!tuning->entries.empty() && place(tuning->entries.back()) >= place(entry))
    return "not after the entry before it, by partitions and bytes";
  tuning->entries.push_back(entry);
  return {};
}

std::string_view read_text(std::string_view text, std::string* value) {
  if (text.empty()) return "nothing follows";
  if (!value->empty()) return "a second one";
  *value = text;
  return {};
}

std::string_view read_line(std::string_view line, Tuning* tuning) {
  const std::string_view key = take_word(&line);
  if (key == "fabric") return read_text(line, &tuning->fabric);
  if (key == "cpu") return read_text(line, &tuning->host.cpu);
  if (key == "measured") return read_text(line, &tuning->measured);
  if (key == "searched") return read_text(line, &tuning->searched);
  if (key == "loggp") return read_range(line, tuning);
  if (key == "groups") return read_entry(line, tuning);
  if (key != "cores") return "no such key";
  if (tuning->host.cores != 0) return "a second one";
  std::uint64_t cores = 0;
  if (!read_count(&line, kMostPartitions, &cores) || cores == 0 || !line.empty())
    return "wanted: a number from 1";
  tuning->host.cores = static_cast<std::uint32_t>(cores);
  return {};
}

/// @return the missing line; empty: none
std::string_view missing_in(const Tuning& tuning) {
  if (tuning.fabric.empty() || tuning.host.cpu.empty() || tuning.host.cores == 0)
    return "fabric, cpu or cores are missing";
  if (tuning.measured.empty() != tuning.ranges.empty()) return "'measured' and 'loggp' go together";
  if (tuning.searched.empty() != tuning.entries.empty())
    return "'searched' and 'groups' go together";
  if (tuning.ranges.empty() && tuning.entries.empty()) return "neither 'loggp' nor 'groups'";
  return {};
}

std::string named(std::size_t line, std::string_view what) {
  std::string text = "line ";
  text += std::to_string(line);
  text += ": ";
  text += what;
  return text;
}

/// A text that read_time() reads; of too large a time, one that it refuses.
void append(std::string* out, double ns) {
  const auto millionths = static_cast<std::uint64_t>(std::min(2.0 * kMostNs, ns) * kMillion + 0.5);
  *out += ' ';
  *out += std::to_string(millionths / kMillion);
  if (millionths % kMillion == 0) return;
  std::string decimals = std::to_string(kMillion + millionths % kMillion);
  decimals.erase(decimals.find_last_not_of('0') + 1);
  decimals.front() = '.';
  *out += decimals;
}

/// The rest of the line behind `key` and a colon; empty: there is no such line.
std::string_view value_in(std::string_view cpuinfo, std::string_view key) {
  for (Lines lines(cpuinfo); lines.next();) {
    const std::size_t colon = lines.line().find(':');
    if (colon != std::string_view::npos && trimmed(lines.line().substr(0, colon)) == key)
      return trimmed(lines.line().substr(colon + 1));
  }
  return {};
}

}  // namespace

std::string HostType::key() const {
  std::string made;
  for (const char c : cpu) {
    const bool is_upper = c >= 'A' && c <= 'Z';
    const char lower = is_upper ? static_cast<char>(c - 'A' + 'a') : c;
    const bool is_kept = (lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9');
    if (is_kept)
      made += lower;
    else if (!made.empty() && made.back() != '-')
      made += '-';
  }
  if (!made.empty() && made.back() != '-') made += '-';
  return made += std::to_string(cores);
}

HostType host_type_of(std::string_view cpuinfo, std::string_view machine) {
  HostType host;
  host.cpu = value_in(cpuinfo, "model name");
  if (host.cpu.empty()) {
    host.cpu = machine;
    for (const char* const key : {"cpu", "CPU implementer", "CPU part"})  // POWER; Arm
      if (const std::string_view value = value_in(cpuinfo, key); !value.empty())
        (host.cpu += ' ') += value;
  }
  for (Lines lines(cpuinfo); lines.next();)
    host.cores += trimmed(lines.line().substr(0, lines.line().find(':'))) == "processor";
  host.cores = std::max(host.cores, 1u);
  return host;
}

Result<Tuning> Tuning::parse(std::string_view text, std::string* problem) {
  const auto refuse = [problem](std::size_t line, std::string_view what) {
    *problem = named(line, what);
    return Errc::kInvalidArgument;
  };
  Lines lines(text);
  if (!lines.next() || lines.number() != 1 || !is_tuning(lines.line()))
    return refuse(1, "not a tuning file");
  if (lines.line().substr(kTitle.size()) != kVersion) return refuse(1, "of another version than 1");
  Tuning tuning;
  while (lines.next()) {
    if (lines.line() == "end") {
      const std::size_t end = lines.number();
      if (lines.next()) return refuse(lines.number(), "more after the end");
      const std::string_view missing = missing_in(tuning);
      if (!missing.empty()) return refuse(end, missing);
      return tuning;
    }
    const std::string_view wrong = lines.line().size() > kLineBytesMax
                                       ? "longer than 4096 bytes"
                                       : read_line(lines.line(), &tuning);
    if (!wrong.empty()) return refuse(lines.number(), wrong);
  }
  return refuse(lines.number(), "cut off: the last line is not 'end'");
}

std::string Tuning::print() const {
  std::string out(kTitle);
  out.append(kVersion).append("\nfabric ").append(fabric).append("\ncpu ").append(host.cpu);
  out.append("\ncores ").append(std::to_string(host.cores)).append("\n");
  if (!ranges.empty()) {
    out.append("\nmeasured ").append(measured);
    out += "\n#     bytes from, to, L, o_s, o_r, g in ns, then ns a byte: G, of o_s, of o_r\n";
    for (const Range& range : ranges) {
      out += "loggp " + std::to_string(range.first_bytes) + " " + std::to_string(range.last_bytes);
      const LogGP& network = range.network;
      for (const double value :
           {network.latency_ns, network.send_overhead_ns, network.recv_overhead_ns, network.gap_ns,
            network.gap_per_byte_ns, network.send_overhead_per_byte_ns,
            network.recv_overhead_per_byte_ns})
        append(&out, value);
      out += '\n';
    }
  }
  if (!entries.empty()) {
    out.append("\nsearched ").append(searched);
    out += "\n#      partitions, bytes of the message, best number of groups";
    const bool has_queues =
        std::any_of(entries.begin(), entries.end(), [](const Entry& e) { return e.queues != 0; });
    out += has_queues ? ", of queue pairs\n" : "\n";
    for (const Entry& entry : entries) {
      out += "groups " + std::to_string(entry.partitions) + " " + std::to_string(entry.bytes) +
             " " + std::to_string(entry.groups);
      if (entry.queues != 0) out += " " + std::to_string(entry.queues);
      out += "\n";
    }
  }
  return out += "end\n";
}

const LogGP* Tuning::network_of(std::uint64_t bytes) const noexcept {
  const Range* nearest = nullptr;
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (const Range& range : ranges) {
    const std::uint64_t distance = bytes < range.first_bytes  ? range.first_bytes - bytes
                                   : bytes > range.last_bytes ? bytes - range.last_bytes
                                                              : 0;
    if (distance >= least) continue;
    least = distance;
    nearest = &range;
  }
  return nearest == nullptr ? nullptr : &nearest->network;
}

const Tuning::Entry* Tuning::entry_of(std::uint32_t partitions,
                                      std::uint64_t bytes) const noexcept {
  const Entry* found = nullptr;
  for (const Entry& entry : entries)  // ascending
    if (entry.partitions == partitions && entry.bytes <= bytes) found = &entry;
  return found;
}

std::optional<std::uint32_t> Tuning::groups_of(std::uint32_t partitions,
                                               std::uint64_t bytes) const noexcept {
  const Entry* const found = entry_of(partitions, bytes);
  return found != nullptr ? std::optional(found->groups) : std::nullopt;
}

bool is_tuning(std::string_view text) noexcept { return text.starts_with(kTitle); }

}  // namespace larklane::model
