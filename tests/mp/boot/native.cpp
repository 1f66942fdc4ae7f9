// A native program: it meets its peers, looks at some of their cards, and fences.
//
//   native [WORD]             publishes a card with WORD, sees that of three peers, and two fences
//   native early RANK STATUS  RANK ends with STATUS before it has published; the others ask for its
//   card native wait               meets, says so, and waits for its end
//
// Exit status: 0; 1 what was expected is not so; 3 a call has failed, as standard error says.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "bootstrap/board.hpp"
#include "meet.hpp"

namespace {

using larklane::boot::Board;
using larklane::boot::fail;
using larklane::boot::kWrong;

int lose(Board& board, int dying, int status) {
  if (board.rank() == dying) ::_exit(status);
  std::string problem;
  if (!board.publish({}, &problem).ok()) return fail(problem);
  if (!board.card_of(dying, &problem)) return fail(problem);
  return kWrong;
}

/// Rank 0 asks for the card of `late`, others fence: neither has an answer in time.
int give_up(Board& board, int late) {
  std::string problem;
  if (board.rank() == late) return board.fence(&problem).ok() ? kWrong : 0;
  if (!board.publish({}, &problem).ok()) return fail(problem);
  if (board.rank() == 0) {
    if (board.card_of(late, &problem).error().code() != larklane::Errc::kUnreachable)
      return fail(problem);
    std::printf("native: %s\n", problem.c_str());
    std::fflush(stdout);
    ::sleep(3);  // PMIx does not wait at a fence for who has ended
    return 0;
  }
  const auto code = board.fence(&problem).code();  // `late` may have ended meanwhile
  if (code != larklane::Errc::kUnreachable && code != larklane::Errc::kPeerDown)
    return fail(problem);
  std::printf("native: %s\n", problem.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  std::vector<larklane::Config::Problem> problems;
  auto config = larklane::Config::load(&problems);
  for (const auto& problem : problems) std::fprintf(stderr, "native: %s\n", problem.text.c_str());
  if (!config) return larklane::boot::kFailed;
  std::string problem;
  auto board = Board::open(*config, &problem);
  if (!board) return fail(problem);
  if (words.size() == 3 && words[0] == "early")
    return lose(**board, std::atoi(words[1].c_str()), std::atoi(words[2].c_str()));
  if (words.size() == 2 && words[0] == "late") return give_up(**board, std::atoi(words[1].c_str()));
  if (!words.empty() && words[0] == "wait") {
    std::printf("pid %d\n", ::getpid());
    std::fflush(stdout);
    for (;;) ::pause();
  }
  return larklane::boot::meet(**board, words.empty() ? "card" : words[0]);
}
