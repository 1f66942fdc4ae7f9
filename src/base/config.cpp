#include "base/config.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "base/choice.hpp"
#include "base/input_file.hpp"
#include "base/parse.hpp"
#include "base/printable.hpp"

namespace larklane {
namespace {

constexpr std::string_view kPrefix = "LARKLANE_";

/// A line of a file that is longer is none of ours: 46 options fit in far less.
constexpr std::size_t kLineBytesMax = 4096;
/// Problems that are told one by one; of the others the number.
constexpr std::size_t kProblemsMax = 10;
/// Longer names are compared with no other: the comparison takes the product of both lengths.
constexpr std::size_t kComparedBytesMax = 64;

/// Variables that carry facts from the launching command to the process; not options.
constexpr std::string_view kInternalVariables[] = {
    "LARKLANE_CONFIG", "LARKLANE_SEED", "LARKLANE_MPI", "LARKLANE_FAMILY_DIR", "LARKLANE_SPAWNED",
};

struct Option {
  std::string_view name, type, default_text, range, since, doc;
};

// Of option `policy`, from the registry of policies. Forms and texts begin with a separator each.
constexpr std::string_view kPolicyDefault =
#define LARKLANE_POLICIES(default_name, doc) #default_name
#include "part/policy/policies.def"
    ;
constexpr std::string_view kPolicyForms =
#define LARKLANE_POLICY(name, argument, doc) " | " #name argument
#include "part/policy/policies.def"
    ;
constexpr std::string_view kPolicyDoc =
#define LARKLANE_POLICIES(default_name, doc) doc
#define LARKLANE_POLICY(name, argument, doc) "; `" #name argument "`: " doc
#include "part/policy/policies.def"
    ".";
#define LARKLANE_POLICY_DEFAULT kPolicyDefault
#define LARKLANE_POLICY_FORMS kPolicyForms.substr(3)
#define LARKLANE_POLICY_DOC kPolicyDoc

constexpr Option kOptions[] = {
#define LARKLANE_OPTION(name, type, default_value, range, since, doc) \
  {#name, #type, default_value, range, since, doc},
#include "base/options.def"
#undef LARKLANE_OPTION
};
constexpr std::size_t kOptionCount = std::size(kOptions);

/// @param range  "a..b", with the units of the type
std::optional<std::uint64_t> parse_in_range(std::string_view text, const Option& option) {
  const auto units = units_of(option.type);
  const auto value = number_of(text, units);
  const std::size_t dots = option.range.find("..");
  const auto low = number_of(option.range.substr(0, dots), units);
  const auto high = number_of(option.range.substr(dots + 2), units);
  if (!value || *value < low.value() || *value > high.value()) return std::nullopt;
  return value;
}

/// Marks a form that may stand beside others, behind a comma.
constexpr std::string_view kListed = ",...";

/// The range without the marks of listed forms; of a list, without the other forms.
std::string listed_forms(std::string_view range, bool is_list) {
  std::string forms;
  while (!range.empty()) {
    const std::size_t bar = std::min(range.find('|'), range.size());
    std::string_view form = trimmed(range.substr(0, bar));
    const bool may_be_listed = form.ends_with(kListed);
    if (may_be_listed) form.remove_suffix(kListed.size());
    if (may_be_listed || !is_list) (forms += forms.empty() ? "" : "|") += form;
    range.remove_prefix(std::min(bar + 1, range.size()));
  }
  return forms;
}

/// @param range  alternatives, "x | y | z:N"; of "x,... | y,... | z" all but z may follow each
/// other
bool matches_range(std::string_view text, std::string_view range) {
  if (range.find(kListed) == std::string_view::npos) return read_choice(text, range).has_value();
  const std::string forms = listed_forms(range, text.find(',') != std::string_view::npos);
  for (;;) {
    const std::size_t comma = text.find(',');
    if (!read_choice(text.substr(0, comma), forms)) return false;
    if (comma == std::string_view::npos) return true;
    text.remove_prefix(comma + 1);
  }
}

/// One parser per type of the table; each validates against the option's range and leaves `value`
/// alone on failure.
bool parse_text(std::string_view text, const Option& option, Config::text* value) {
  if (!matches_range(text, option.range)) return false;
  *value = text;
  return true;
}
bool parse_path(std::string_view text, const Option&, Config::path* value) {
  *value = text;
  return true;
}
bool parse_secret(std::string_view text, const Option&, Config::secret* value) {
  *value = text;
  return true;
}
bool parse_flag(std::string_view text, const Option& option, Config::flag* value) {
  if (!matches_range(text, option.range)) return false;
  *value = text == "on" || text == "1";
  return true;
}
template <class Number>
bool parse_unsigned(std::string_view text, const Option& option, Number* value) {
  const auto number = parse_in_range(text, option);
  if (!number || *number > std::numeric_limits<Number>::max()) return false;
  *value = static_cast<Number>(*number);
  return true;
}
bool parse_bytes(std::string_view text, const Option& option, Config::bytes* value) {
  return parse_unsigned(text, option, value);
}
bool parse_count(std::string_view text, const Option& option, Config::count* value) {
  return parse_unsigned(text, option, value);
}
bool parse_nanos(std::string_view text, const Option& option, Config::nanos* value) {
  return parse_unsigned(text, option, value);
}

bool parse_option(std::size_t index, std::string_view text, Config* config) {
  std::size_t i = 0;
#define LARKLANE_OPTION(name, type, default_value, range, since, doc) \
  if (i++ == index) return parse_##type(text, kOptions[index], &config->name);
#include "base/options.def"
#undef LARKLANE_OPTION
  return false;
}

bool is_secret(const Option& option) noexcept { return option.type == "secret"; }
std::string length_text(std::string_view secret) {
  return "(" + std::to_string(secret.size()) + " characters)";
}

std::string value_text(const Config::text& value, const Option& option) {
  return is_secret(option) && !value.empty() ? length_text(value) : value;
}
std::string value_text(Config::flag value, const Option&) { return value ? "on" : "off"; }
std::string value_text(Config::count value, const Option&) { return std::to_string(value); }
std::string value_text(std::uint64_t value, const Option& option) {
  return number_text(value, units_of(option.type));
}

std::string environment_name(std::string_view option_name) {
  std::string name(kPrefix);
  for (const char letter : option_name) {
    name += letter >= 'a' && letter <= 'z' ? static_cast<char>(letter - 'a' + 'A') : letter;
  }
  return name;
}

std::optional<std::size_t> find_option(std::string_view name) {
  for (std::size_t i = 0; i < kOptionCount; ++i) {
    if (kOptions[i].name == name) return i;
  }
  return std::nullopt;
}

std::optional<std::size_t> find_option_of_variable(std::string_view variable) {
  if (!variable.starts_with(kPrefix)) return std::nullopt;
  for (std::size_t i = 0; i < kOptionCount; ++i) {
    if (environment_name(kOptions[i].name) == variable) return i;
  }
  return std::nullopt;
}

/// Levenshtein.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replace = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replace, row[j] + 1, diagonal + 1});
    }
  }
  return row[b.size()];
}

std::string nearest(std::string_view name, const std::vector<std::string>& known) {
  return *std::min_element(known.begin(), known.end(), [&](const auto& a, const auto& b) {
    return edit_distance(name, a) < edit_distance(name, b);
  });
}

std::vector<std::string> option_names() {
  std::vector<std::string> names;
  for (const Option& option : kOptions) names.emplace_back(option.name);
  return names;
}

std::vector<std::string> variable_names() {
  std::vector<std::string> names(std::begin(kInternalVariables), std::end(kInternalVariables));
  for (const Option& option : kOptions) names.push_back(environment_name(option.name));
  return names;
}

// By steps: GCC 12 sees an overlap in a sum of strings at -O3 that there is not.
std::string quoted(std::string_view text) {
  std::string out(1, '"');
  out += printable(text);
  out += '"';
  return out;
}

std::string accepted_form(const Option& option) {
  std::string form = "accepted: " + std::string(option.range);
  if (option.type == "bytes") form += " (bytes; units K, M, G, T)";
  if (option.type == "nanos") form += " (nanoseconds; units ns, us, ms, s)";
  return form;
}

std::string unknown_text(std::string_view what, std::string_view name,
                         const std::vector<std::string>& known) {
  std::string text = std::string(what) + " " + quoted(name) + " is not known";
  if (name.size() <= kComparedBytesMax) text += "; nearest is " + nearest(name, known);
  return text;
}

/// Counts problems; makes and keeps the text of the first ones only.
class Problems {
 public:
  explicit Problems(std::vector<Config::Problem>* found) : found_(found) {}
  template <class Text>
  void add(bool fatal, Text&& text) {
    if (told_ == kProblemsMax) {
      ++more_;
      is_more_fatal_ |= fatal;
      return;
    }
    ++told_;
    found_->push_back({fatal, text()});
  }
  /// @param where  they are
  void end(const std::string& where) {
    if (more_ == 0) return;
    found_->push_back({is_more_fatal_, where + ": ... and " + std::to_string(more_) +
                                           (more_ == 1 ? " more problem" : " more problems")});
  }

 private:
  std::vector<Config::Problem>* found_;
  std::size_t told_ = 0, more_ = 0;
  bool is_more_fatal_ = false;
};

/// A line of a file. One that begins with a secret's name may hold the secret.
std::string shown(std::string_view entry) {
  const std::string_view name =
      entry.substr(0, entry.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789"));
  return is_secret_option(name) ? quoted(name) + " and more" : quoted(entry);
}

}  // namespace

Config::Config() : sources_(kOptionCount, Source::default_value) {
  for (std::size_t i = 0; i < kOptionCount; ++i) {
    if (!parse_option(i, kOptions[i].default_text, this)) std::abort();  // a bug in options.def
  }
}

bool Config::assign(std::size_t index, std::string_view value, Source source,
                    std::string_view where, std::string* problem) {
  value = trimmed(value);
  if (!parse_option(index, value, this)) {
    *problem = std::string(where) + " is " +
               (is_secret(kOptions[index]) ? length_text(value) : quoted(value)) + "; " +
               accepted_form(kOptions[index]);
    return false;
  }
  sources_[index] = source;
  return true;
}

Status Config::set(std::string_view name, std::string_view value, std::string* problem) {
  const auto index = find_option(name);
  if (!index) {
    *problem = unknown_text("option", name, option_names());
    return Errc::kBadOption;
  }
  return assign(*index, value, Source::program, name, problem) ? Status{} : Errc::kBadOption;
}

template <class Place, class Found>
void Config::read_line(std::string_view line, const Place& place, Found* found) {
  const std::string_view entry = trimmed(line.substr(0, line.find('#')));
  if (entry.empty()) return;
  const std::size_t equals = entry.find('=');
  if (equals == std::string_view::npos) {
    found->add(true, [&] { return place() + shown(entry) + "; accepted: name = value"; });
    return;
  }
  const std::string_view name = trimmed(entry.substr(0, equals));
  const auto index = find_option(name);
  std::string problem;
  if (!index) {
    found->add(false, [&] { return place() + unknown_text("option", name, option_names()); });
  } else if (!assign(*index, entry.substr(equals + 1), Source::file, name, &problem)) {
    found->add(true, [&] { return place() + problem; });
  }
}

void Config::read_file(const std::string& file_path, std::vector<Problem>* problems) {
  std::string contents;
  const std::string file = printable(file_path);
  if (const int error = read_input_file(file_path, kTextFileBytesMax, &contents); error != 0) {
    problems->push_back({true, "LARKLANE_CONFIG is " + quoted(file_path) + ": " +
                                   input_file_problem(error, kTextFileBytesMax) +
                                   "; accepted: the path of a file that can be read"});
    return;
  }
  Problems found(problems);
  std::string_view rest = contents;
  for (std::size_t number = 1; !rest.empty(); ++number) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const auto place = [&] { return file + ":" + std::to_string(number) + ": "; };
    if (line.size() > kLineBytesMax) {
      found.add(true, [&] {
        return place() + "a line of " + std::to_string(line.size()) +
               " bytes; accepted: " + std::to_string(kLineBytesMax) + " at most";
      });
      continue;
    }
    read_line(line, place, &found);
  }
  found.end(file);
}

void Config::read_environment(std::vector<Problem>* problems) {
  Problems found(problems);
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view entry = *variable;
    if (!entry.starts_with(kPrefix)) continue;
    const std::size_t equals = std::min(entry.find('='), entry.size() - 1);
    const std::string_view name = entry.substr(0, equals);
    const auto index = find_option_of_variable(name);
    std::string problem;
    if (index) {
      if (!assign(*index, entry.substr(equals + 1), Source::environment, name, &problem))
        found.add(true, [&] { return problem; });
    } else if (std::find(std::begin(kInternalVariables), std::end(kInternalVariables), name) ==
               std::end(kInternalVariables)) {
      found.add(false, [&] { return unknown_text("variable", name, variable_names()); });
    }
  }
  found.end("the environment");
}

Result<Config> Config::load(std::vector<Problem>* problems) {
  Config config;
  if (const char* path = std::getenv("LARKLANE_CONFIG")) config.read_file(path, problems);
  config.read_environment(problems);
  if (config.wait_sleep_ns_min > config.wait_sleep_ns_max) {
    problems->push_back({true, "wait_sleep_ns_min is " + std::to_string(config.wait_sleep_ns_min) +
                                   " ns; accepted: at most wait_sleep_ns_max, which is " +
                                   std::to_string(config.wait_sleep_ns_max) + " ns"});
  }
  const bool fatal = std::any_of(problems->begin(), problems->end(),
                                 [](const Problem& problem) { return problem.fatal; });
  if (fatal) return Errc::kBadOption;
  return config;
}

std::vector<Config::Row> Config::rows() const {
  std::vector<Row> rows;
  rows.reserve(kOptionCount);
  for (const Option& option : kOptions) {
    rows.push_back({option.name, option.type, option.default_text, option.range, option.since,
                    option.doc, "", sources_[rows.size()]});
  }
  std::size_t i = 0;
#define LARKLANE_OPTION(name, type, default_value, range, since, doc) \
  rows[i].value_text = value_text(name, kOptions[i]);                 \
  ++i;
#include "base/options.def"
#undef LARKLANE_OPTION
  return rows;
}

bool is_secret_option(std::string_view name) noexcept {
  const auto index = find_option(name);
  return index && is_secret(kOptions[*index]);
}

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

std::vector<char*> environment_without_secrets() {
  std::vector<char*> kept;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view entry = *variable;
    const auto index = find_option_of_variable(entry.substr(0, entry.find('=')));
    if (!index || !is_secret(kOptions[*index])) kept.push_back(*variable);
  }
  kept.push_back(nullptr);
  return kept;
}

std::string take_environment(const char* name) {
  std::string value = environment(name);
  ::unsetenv(name);
  return value;
}

}  // namespace larklane
