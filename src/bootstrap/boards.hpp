#pragma once
// The ways in which processes meet.

#include <memory>
#include <string>

#include "bootstrap/board.hpp"
#include "bootstrap/member.hpp"

namespace larklane::boot {

/// Somebody at `meet` has the cards, and serves them by TCP: the launcher, or else rank 0.
Result<std::unique_ptr<Board>> open_served_board(const Member& member, std::string* problem);
/// Cards are files in a folder that all processes see.
Result<std::unique_ptr<Board>> open_file_board(const Member& member, std::string* problem);
/// The launcher speaks PMI-1.
Result<std::unique_ptr<Board>> open_pmi_board(const Member& member, std::string* problem);
/// The launcher speaks PMIx. @param member  of it `wait_ns` counts
Result<std::unique_ptr<Board>> open_pmix_board(const Member& member, std::string* problem);
/// All cards go around once.
std::unique_ptr<Board> make_gathered_board(Peers peers);

}  // namespace larklane::boot
