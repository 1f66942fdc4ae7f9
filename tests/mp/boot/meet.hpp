#pragma once
// What processes do that have met.

#include <cstdio>
#include <string>

#include "bootstrap/board.hpp"

namespace larklane::boot {

constexpr int kWrong = 1, kFailed = 3;

inline int fail(const std::string& problem) {
  std::fprintf(stderr, "native: %s\n", problem.c_str());
  return kFailed;
}

/// Each process of a job is given the same word: a card of another job would show.
inline int meet(Board& board, const std::string& word) {
  const auto card_of = [&word](int rank) { return word + " " + std::to_string(rank); };
  std::string problem;
  const std::string own = card_of(board.rank());
  if (!board.publish(std::as_bytes(std::span(own)), &problem).ok()) return fail(problem);
  for (const int step : {1, 2, board.size() - 1}) {
    const int peer = (board.rank() + step) % board.size();
    auto card = board.card_of(peer, &problem);
    if (!card) return fail(problem);
    const std::string text(reinterpret_cast<const char*>(card->data()), card->size());
    if (text != card_of(peer)) {
      std::fprintf(stderr, "native: rank %d says: %s\n", peer, text.c_str());
      return kWrong;
    }
  }
  for (int fence = 0; fence < 2; ++fence)
    if (!board.fence(&problem).ok()) return fail(problem);
  std::printf("rank %d of %d ok\n", board.rank(), board.size());
  std::fflush(stdout);
  return 0;
}

}  // namespace larklane::boot
