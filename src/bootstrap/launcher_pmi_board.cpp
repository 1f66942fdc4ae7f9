// Hydra's PMI-1: lines of text on a descriptor that the process has inherited. What is put before
// the MPI's barrier is everywhere after it. (MPICH, Intel MPI; PMI-1 in MPICH's src/pmi.)

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "base/config.hpp"
#include "base/log.hpp"
#include "bootstrap/launcher_board.hpp"

namespace larklane::mpi {
namespace {

constexpr std::size_t kLineBytesMax = 1024;
constexpr int kAnswerMs = 10'000;

/// The value of a word `name=value` in an answer; empty: there is none.
std::string value_of(const std::string& answer, const std::string& name) {
  const std::string key = " " + name + "=";
  const std::size_t at = answer.find(key);
  if (at == std::string::npos) return {};
  const std::size_t begin = at + key.size();
  return answer.substr(begin, answer.find_first_of(" \n", begin) - begin);
}

class PmiBoard final : public LauncherBoard {
 public:
  PmiBoard(int fd, std::string rank) : fd_(fd), rank_(std::move(rank)) {}

  /// @return false: nobody who speaks PMI-1 is at the other end
  bool begin() {
    // Once more than the MPI, which does it again: the launcher answers every time.
    if (!is_good(ask("cmd=init pmi_version=1 pmi_subversion=1"))) return false;
    world_ = value_of(ask("cmd=get_my_kvsname"), "kvsname");
    return !world_.empty();
  }
  std::string world() const override { return "hydra-" + world_; }

  bool put(const std::string& text) override {
    return is_good(ask("cmd=put kvsname=" + world_ + " key=larklane-" + rank_ + " value=" + text));
  }

  bool meet() override { return ask("cmd=barrier_in").starts_with("cmd=barrier_out"); }

  std::vector<std::string> get_all(int ranks, std::uint64_t) override {
    std::vector<std::string> texts(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks && !is_broken_; ++rank) {
      const std::string answer =
          ask("cmd=get kvsname=" + world_ + " key=larklane-" + std::to_string(rank));
      if (is_good(answer)) texts[static_cast<std::size_t>(rank)] = value_of(answer, "value");
    }
    return texts;
  }

 private:
  static bool is_good(const std::string& answer) { return value_of(answer, "rc") == "0"; }

  std::string ask(std::string line) {
    line += '\n';
    if (is_broken_ || line.size() > kLineBytesMax) return {};
    for (std::size_t sent = 0; sent < line.size();) {
      const ssize_t count = ::write(fd_, line.data() + sent, line.size() - sent);
      if (count <= 0 && errno != EINTR) return give_up();
      if (count > 0) sent += static_cast<std::size_t>(count);
    }
    std::string answer;
    while (answer.empty() || answer.back() != '\n') {
      pollfd polled{fd_, POLLIN, 0};
      const int ready = ::poll(&polled, 1, kAnswerMs);
      if (ready < 0 && errno == EINTR) continue;  // a rest would be the MPI's next answer
      if (ready <= 0 || answer.size() > 2 * kLineBytesMax) return give_up();
      char letter = 0;  // no more than the line: what follows is the MPI's
      const ssize_t got = ::read(fd_, &letter, 1);
      if (got < 0 && errno == EINTR) continue;
      if (got != 1) return give_up();
      answer += letter;
    }
    return answer;
  }

  std::string give_up() {
    is_broken_ = true;
    log_warn("the launcher does not answer on PMI_FD");
    return {};
  }

  const int fd_;
  const std::string rank_;
  std::string world_;
  bool is_broken_ = false;
};

}  // namespace

std::unique_ptr<LauncherBoard> open_pmi_board() {
  const std::string text = environment("PMI_FD");
  int fd = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), fd);
  if (error != std::errc{} || end != text.data() + text.size()) return nullptr;
  auto board = std::make_unique<PmiBoard>(fd, environment("PMI_RANK"));
  if (!board->begin()) return nullptr;
  return board;
}

}  // namespace larklane::mpi
