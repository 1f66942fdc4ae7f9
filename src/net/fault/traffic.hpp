#pragma once
// The operations and immediates of one endpoint, between the layers above and the network below.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "net/fault/chance.hpp"
#include "net/provider.hpp"

namespace larklane::fault {

class Traffic;

struct LinkState {
  net::Link* inner = nullptr;
  Status dead;
  std::uint32_t under_way_count = 0;
};

struct Request {
  Call call;
  net::Transfer transfer{};  ///< of a small write: `remote` alone
  std::span<const std::byte> small{};
  std::uint32_t immediate = 0;
};

/// The operation that the network below knows.
struct Posted final : net::Operation {
  Request request;
  std::vector<std::byte> small;
  Traffic* traffic = nullptr;
  LinkState* link = nullptr;
  net::Operation* outer = nullptr;
  Status verdict;  ///< not ok: it completes with this
};

/// Thread safety: vci-serial.
/// Invariants:
/// 1. A posted operation is at one place: held, below, or due.
/// 2. Nothing of a dead link is held, but the operation that killed it.
class Traffic final : public net::Receiver {
 public:
  Traffic(Score& score, std::uint32_t endpoint, net::Receiver& receiver)
      : plan_(score.plan()), chance_(score.hits(), endpoint), receiver_(receiver) {
    sleeps = receiver.sleeps;
  }

  Chance& chance() noexcept { return chance_; }
  Result<net::Post> post(LinkState& link, const Request& request, net::Operation& outer);
  Result<std::uint32_t> poll(net::Endpoint& inner, std::uint32_t most);
  /// As net::Link's: also where the network below does nothing.
  void end(LinkState& link, Status status);
  /// Does a poll find something, independently of the network below?
  bool has_work() const noexcept { return !held_.empty() || !due_.empty() || !dead_.ok(); }

  void on_immediate(std::uint32_t immediate) override;

 private:
  struct Held {
    std::unique_ptr<Posted> posted;
    std::uint64_t not_before;
  };
  struct Due {
    std::unique_ptr<Posted> posted;  ///< null: an immediate
    Status status;
    std::uint32_t immediate;
    std::uint64_t not_before;
  };

  static void completed(net::Operation& operation, Status status);
  static void halve(Posted& posted);
  void garble(Posted& posted);
  static Result<net::Post> forward(Posted& posted);

  std::unique_ptr<Posted> make(LinkState& link, const Request& request, net::Operation& outer);
  Result<net::Post> pass(std::unique_ptr<Posted> posted, bool is_known);
  void hold(std::unique_ptr<Posted> posted, std::uint64_t polls);
  void add_due(std::unique_ptr<Posted> posted, Status status, bool may_be_late);
  void drop_held(const LinkState* link, Status status);
  void pass_held();
  std::uint64_t lateness();
  bool serve_one();

  const Plan& plan_;
  Chance chance_;
  net::Receiver& receiver_;
  Status dead_;
  std::uint64_t polls_ = 0;
  std::uint32_t heard_count_ = 0;  ///< immediates that went through in this poll
  std::vector<Held> held_;
  std::unordered_map<const Posted*, std::unique_ptr<Posted>> below_;
  std::vector<Due> due_;
};

}  // namespace larklane::fault
