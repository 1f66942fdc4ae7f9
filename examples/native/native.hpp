// Shared code of the native examples: their command line, errors that end the program, and the two
// loops of every program on Larklane: post until done or posted, make progress until a condition
// holds.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "larklane/context.hpp"
#include "larklane/message.hpp"

namespace native {

/// `--name NUMBER` of the command line, else `value`. `--help` and each word that is no option of
/// the table end the program.
struct Option {
  const char* name;
  long* value;
  long low, high;
  const char* help;
};

template <std::size_t count>
void read_options(int argc, char** argv, const char* what, const Option (&table)[count]) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--help") == 0) {
      std::printf("%s\n\n", what);
      for (const Option& row : table)
        std::printf("  %-10s %s [%ld]\n", row.name, row.help, *row.value);
      std::exit(0);
    }
    const Option* row = table;
    while (row != table + count && std::strcmp(argv[i], row->name) != 0) ++row;
    char* end = nullptr;
    const long number = i + 1 < argc ? std::strtol(argv[i + 1], &end, 10) : 0;
    if (row == table + count || end == nullptr || *end != '\0' || number < row->low ||
        number > row->high) {
      std::fprintf(stderr, "%s: what is %s? (--help lists all options)\n", argv[0], argv[i]);
      std::exit(2);
    }
    *row->value = number;
    ++i;
  }
}

[[noreturn]] inline void give_up(const char* what, larklane::Status status) {
  std::fprintf(stderr, "%s: %s\n", what, larklane::errc_name(status.code()));
  std::exit(1);
}
inline void must(larklane::Status status, const char* what) {
  if (!status.ok()) give_up(what, status);
}
template <class T>
T must(larklane::Result<T> result, const char* what) {
  if (!result) give_up(what, result.error());
  return std::move(result).value();
}

/// The context of this process's job: `larklane launch -n 4 ./program`.
inline std::unique_ptr<larklane::Context> join_job() {
  std::string problem;
  auto context = larklane::Context::create(&problem);
  if (!context) give_up(problem.c_str(), context.error());
  return std::move(context).value();
}
/// Waits for all other processes.
inline void meet(larklane::Context& context) {
  std::string problem;
  const larklane::Status status = context.fence(&problem);
  if (!status.ok()) give_up(problem.c_str(), status);
}

/// Calls `post()` until the operation is done or posted.
template <class Call>
larklane::Post until_posted(larklane::Vci& vci, Call&& post) {
  for (;;) {
    const larklane::Post answer = must(post(), "post");
    if (answer != larklane::Post::retry) return answer;
    vci.progress();
  }
}
/// Makes progress until `is_so()`.
template <class Call>
void progress_until(larklane::Vci& vci, Call&& is_so) {
  while (!is_so()) vci.progress();
}

}  // namespace native
