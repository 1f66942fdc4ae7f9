#pragma once
// One factory for each kind of board.

#include <memory>
#include <string>

#include "bootstrap/board.hpp"
#include "bootstrap/member.hpp"

namespace larklane::boot {

/// A server at `meet` holds the cards and serves them by TCP: the launcher, or else rank 0.
Result<std::unique_ptr<Board>> open_served_board(const Member& member, std::string* problem);
/// Cards are files in a folder that all processes see.
Result<std::unique_ptr<Board>> open_file_board(const Member& member, std::string* problem);
/// The launcher speaks PMI-1.
Result<std::unique_ptr<Board>> open_pmi_board(const Member& member, std::string* problem);
/// The launcher speaks PMIx. @param member  only `wait_ns` counts
Result<std::unique_ptr<Board>> open_pmix_board(const Member& member, std::string* problem);
/// The program's all-gather carries all cards at once.
std::unique_ptr<Board> make_gathered_board(Peers peers);

}  // namespace larklane::boot
