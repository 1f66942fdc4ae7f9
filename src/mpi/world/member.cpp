#include "mpi/world/member.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace larklane::mpi {
namespace {

constexpr std::size_t kMembersMax = 1'000'000;
constexpr std::size_t kHexDigits = 16;

template <class Number>
bool take_number(std::string_view* text, Number* value, int base = 10) {
  const auto [end, error] =
      std::from_chars(text->data(), text->data() + text->size(), *value, base);
  if (error != std::errc{}) return false;
  text->remove_prefix(static_cast<std::size_t>(end - text->data()));
  return true;
}

bool take(std::string_view* text, char wanted) {
  if (text->empty() || text->front() != wanted) return false;
  text->remove_prefix(1);
  return true;
}

/// Takes the text before the next `end`, and `end` itself; the whole text if there is none.
std::string_view take_until(std::string_view* text, char end) {
  const std::string_view word = text->substr(0, text->find(end));
  text->remove_prefix(std::min(text->size(), word.size() + 1));
  return word;
}

/// `0-3,7`
bool append_ranks(std::string_view ranks, const Job& job, std::vector<Member>* members) {
  do {
    int first = 0;
    if (!take_number(&ranks, &first) || first < 0) return false;
    int last = first;
    if (take(&ranks, '-') && (!take_number(&ranks, &last) || last < first)) return false;
    if (static_cast<std::size_t>(last - first) >= kMembersMax - members->size()) return false;
    for (int rank = first; rank <= last; ++rank) members->push_back({job, rank});
  } while (take(&ranks, ','));
  return ranks.empty();
}

std::string hex(std::uint64_t value) {
  char digits[kHexDigits];
  const auto [end, error] = std::to_chars(digits, digits + kHexDigits, value, 16);
  const auto used = static_cast<std::size_t>(end - digits);
  return std::string(kHexDigits - used, '0') + std::string(digits, used);
}

}  // namespace

bool all_known(std::span<const Member> members) noexcept {
  return std::all_of(members.begin(), members.end(),
                     [](const Member& member) { return member.is_known(); });
}

std::string text_of(std::span<const Member> members) {
  std::string text;
  for (std::size_t i = 0; i < members.size();) {
    std::size_t last = i;
    while (last + 1 < members.size() && *members[last + 1].job == *members[i].job &&
           members[last + 1].rank == members[last].rank + 1) {
      ++last;
    }
    const bool new_job = i == 0 || *members[i].job != *members[i - 1].job;
    if (i != 0) text += new_job ? "@" + *members[i - 1].job + "+" : ",";
    text += std::to_string(members[i].rank);
    if (last > i) text += "-" + std::to_string(members[last].rank);
    i = last + 1;
  }
  return members.empty() ? text : text + "@" + *members.back().job;
}

std::optional<std::vector<Member>> members_of_text(std::string_view text) {
  std::vector<Member> members;
  while (!text.empty()) {
    std::string_view job = take_until(&text, '+');
    const std::string_view ranks = take_until(&job, '@');
    if (job.empty()) return std::nullopt;
    if (!append_ranks(ranks, std::make_shared<const std::string>(job), &members)) {
      return std::nullopt;
    }
  }
  return members;
}

std::string Meeting::text() const {
  return text_of(recipe) + ":" + text_of(std::span<const Member>(others));
}

std::optional<Meeting> Meeting::of_text(std::string_view text) {
  Meeting meeting;
  const std::string_view recipe = take_until(&text, ':');
  if (recipe.size() != 2 * kHexDigits) return std::nullopt;
  std::string_view high = recipe.substr(0, kHexDigits), low = recipe.substr(kHexDigits);
  if (!take_number(&high, &meeting.recipe.high, 16) || !high.empty() ||
      !take_number(&low, &meeting.recipe.low, 16) || !low.empty()) {
    return std::nullopt;
  }
  auto others = members_of_text(text);
  if (!others || others->empty()) return std::nullopt;
  meeting.others = std::move(*others);
  return meeting;
}

std::string Birth::text() const { return *job + ":" + with_parents.text(); }

std::optional<Birth> Birth::of_text(std::string_view text) {
  const std::string_view job = take_until(&text, ':');
  auto meeting = Meeting::of_text(text);
  if (job.empty() || !meeting) return std::nullopt;
  return Birth{std::make_shared<const std::string>(job), std::move(*meeting)};
}

std::string text_of(const ContextId& id) { return hex(id.high) + hex(id.low); }

}  // namespace larklane::mpi
