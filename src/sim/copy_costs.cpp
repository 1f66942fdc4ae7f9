#include "sim/copy_costs.hpp"

#include <algorithm>
#include <cmath>
#include <istream>
#include <map>
#include <sstream>
#include <string_view>
#include <tuple>

#include "base/printable.hpp"

namespace larklane::sim {
namespace {

constexpr std::string_view kFirstLine = "larklane copy costs 1";
constexpr double kNsMax = 1e12;
constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 40;
constexpr std::uint32_t kCoresMax = 1024;

double of(const CallCost& call, Beside beside, bool is_near) {
  const CallCost::Pair& pair = call.by_beside[static_cast<int>(beside)];
  return static_cast<double>(is_near ? pair.near_ps : pair.far_ps);
}

/// How many times as large as the other, 1 at least.
double apart(std::uint64_t a, std::uint64_t b) {
  return static_cast<double>(std::max(a, b)) / static_cast<double>(std::min(a, b));
}

bool take_ns(std::istream& words, std::uint64_t& ps) {
  double ns = -1;
  if (!(words >> ns) || !(ns >= 0 && ns <= kNsMax)) return false;
  ps = static_cast<std::uint64_t>(std::llround(ns * 1e3));
  return true;
}

bool take_bytes(std::istream& words, std::uint64_t& bytes) {
  return words >> bytes && bytes != 0 && bytes <= kBytesMax;
}

bool take_call(std::istream& words, std::vector<CallCost>& calls) {
  CallCost call;
  if (!take_bytes(words, call.message_bytes) || !take_bytes(words, call.bytes)) return false;
  for (CallCost::Pair& pair : call.by_beside)
    if (!take_ns(words, pair.far_ps) || !take_ns(words, pair.near_ps)) return false;
  const auto place = [](const CallCost& each) { return std::tie(each.message_bytes, each.bytes); };
  if (!calls.empty() && place(calls.back()) >= place(call)) return false;
  calls.push_back(call);
  return true;
}

/// @return false: no such word, or a value that can't be
bool take(const std::string& word, std::istream& words, CopyCosts& costs) {
  if (word == "copy") return take_call(words, costs.calls);
  if (word == "pready") return take_ns(words, costs.pready_ps);
  if (word == "move") return take_ns(words, costs.move_ps);
  if (word == "first") return take_ns(words, costs.first_ps);
  if (word == "line") return take_ns(words, costs.line_ps);
  if (word == "turn") return take_ns(words, costs.turn_ps);
  if (word == "switch") return take_ns(words, costs.switch_ps);
  if (word == "piece_bytes") return take_bytes(words, costs.piece_bytes);
  if (word == "cores") return words >> costs.cores && costs.cores != 0 && costs.cores <= kCoresMax;
  return false;
}

}  // namespace

std::uint64_t CopyCosts::call_ps(std::uint64_t message_bytes, std::uint64_t bytes, Beside beside,
                                 bool is_near) const {
  const auto nearest = std::ranges::min_element(
      calls, {}, [&](const CallCost& each) { return apart(each.message_bytes, message_bytes); });
  const auto end = std::find_if_not(nearest, calls.end(), [&](const CallCost& each) {
    return each.message_bytes == nearest->message_bytes;
  });
  const auto length = static_cast<double>(bytes);
  const auto length_of = [](const CallCost& call) { return static_cast<double>(call.bytes); };
  const auto rounded = [](double ps) { return static_cast<std::uint64_t>(std::llround(ps)); };
  if (end - nearest == 1)
    return rounded(of(*nearest, beside, is_near) * length / length_of(*nearest));
  // The two on either side, or the two at the end that is passed.
  auto above = std::find_if(nearest, end, [&](const auto& each) { return each.bytes >= bytes; });
  if (above == end) --above;
  if (above == nearest) ++above;
  const CallCost& below = *(above - 1);
  const double from = of(below, beside, is_near);
  const double slope =
      (of(*above, beside, is_near) - from) / (length_of(*above) - length_of(below));
  return rounded(std::max(from + slope * (length - length_of(below)), 0.0));
}

CopyCosts read_copy_costs(std::istream& text, std::string* problem) {
  CopyCosts costs;
  std::map<std::string, int> seen;
  std::string line;
  *problem = "the first line is not '" + std::string(kFirstLine) + "'";
  if (!std::getline(text, line) || line != kFirstLine) return costs;
  for (int number = 2; std::getline(text, line); ++number) {
    std::istringstream words(line);
    std::string word, more;
    if (!(words >> word) || word.front() == '#') continue;
    *problem = "line " + std::to_string(number) + ": '" + printable(line) + "' ";
    if (seen["end"] != 0) return *problem += "follows 'end'", costs;
    if (++seen[word] != 1 && word != "copy") return *problem += "is there twice", costs;
    if (word == "end") continue;
    if (!take(word, words, costs)) return *problem += "is no cost, or one that can't be", costs;
    if (words >> more) return *problem += "has too many words", costs;
  }
  problem->clear();
  for (const char* name :
       {"copy", "pready", "move", "first", "line", "turn", "switch", "piece_bytes", "cores", "end"})
    if (problem->empty() && seen[name] == 0)
      *problem = "there is no line '" + std::string(name) + "'";
  return costs;
}

}  // namespace larklane::sim
