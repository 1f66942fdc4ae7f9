#pragma once
// A connection in from another host: a stranger, until it has proven that it is of the job.

#include "control/plane/incoming.hpp"
#include "control/remote/remote_dial.hpp"

namespace larklane::control {

/// Thread safety: single-owner (the helper).
class RemoteIncoming final : public Incoming {
 public:
  /// @param terms  outlive this object
  RemoteIncoming(UniqueFd fd, const RemoteTerms& terms);

  /// Sends the first message on the connection. @errors kSystem: the connection is of no use
  Status challenge();
  /// Also sends the answer.
  Parsed parse_hello(Introduction* introduction) override;
  bool is_remote() const noexcept override { return true; }
  std::string origin() const override { return host_ + " port " + std::to_string(port_); }

 private:
  const RemoteTerms& terms_;
  const std::string host_;
  const std::uint16_t port_;
  Challenge challenge_;
};

}  // namespace larklane::control
