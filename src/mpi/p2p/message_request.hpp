#pragma once
// Requests of ordinary messages that are not persistent, and the pool of their carriers.
//
// A carrier is a persistent receive of the MPI that is never started (mpi/partitioned/carrier.hpp).
// It keeps its request, so the table of requests does not change for a message.

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "mpi/p2p/transfer.hpp"

namespace larklane::mpi::p2p {

namespace detail {
extern constinit std::atomic<std::size_t> freed_count;
}
/// Messages whose requests the program has freed complete without it. Calls that complete messages
/// look at them, if there are any.
inline bool any_freed() noexcept {
  return detail::freed_count.load(std::memory_order_relaxed) != 0;  // a hint
}
void look_at_freed() noexcept;

/// One message, or the two of MPI_Isendrecv. Thread safety: as Request.
class MessageRequest final : public Request {
 public:
  MessageRequest() noexcept : Request(Kind::message) {}

  /// A request of the pool, inactive; null: the MPI makes no carrier, and `code` is noted.
  static MessageRequest* take(const Call& call, int* code);
  /// The message to post, before activate().
  Transfer& transfer() noexcept { return transfer_; }
  /// The send of MPI_Isendrecv, beside the receive in transfer(); `copy` is kept until the end.
  Transfer& second(std::unique_ptr<std::byte[]> copy);
  /// After the post: the program gets the handle. @param call, peer  for people
  void activate(const Call& call, const Peer& peer, MPI_Request* handle) noexcept;
  /// Without activate(): the post has failed.
  void give_back() noexcept;

  bool is_active() const noexcept override { return is_active_; }
  Completion poll(Pass& pass) override {
    const Completion completion = poll_own(pass);
    if (is_over(completion) && any_freed()) [[unlikely]]
      look_at_freed();
    return completion;
  }
  void fill(MPI_Status* status) const override { transfer_.fill(status); }
  int failure_code() const override;
  void finish(MPI_Request* handle) override;
  Status start() override { return Errc::kWrongKind; }
  int cancel() override;
  int free(MPI_Request* handle) override;
  MPI_Comm error_target() const noexcept override;
  std::string description() const override;

  void keep_target(MPI_Comm freed, const std::shared_ptr<Communicator>& record) override;
  /// At the end, of an inactive request: it is gone afterwards.
  void free_carrier() noexcept;

 private:
  friend class SparePool;
  friend void look_at_freed() noexcept;
  Completion poll_own(Pass& pass);
  struct Second {
    Transfer transfer;
    std::unique_ptr<std::byte[]> copy;
  };

  Transfer transfer_;
  std::optional<Second> second_;
  MPI_Request carrier_{};
  // relaxed: keep_target() of another thread reads it; the program orders its own calls
  std::atomic<MPI_Comm> comm_{};
  std::shared_ptr<Communicator> record_;  ///< of a freed communicator
  int peer_ = 0, tag_ = 0;
  bool is_active_ = false;
  MessageRequest* next_spare_ = nullptr;
};

/// The handle for a send that is complete already; the MPI returns one shared handle for these
/// (Isend to MPI_PROC_NULL). False: the loaded MPI does not, and a MessageRequest stands for it.
bool give_completed_send(MPI_Request* handle) noexcept;
/// Posts a message and gives the program its request. @param begin  (Transfer&) -> error code
template <class Begin>
int post(const Call& call, const Peer& peer, MPI_Request* handle, Begin&& begin) {
  int code = MPI_SUCCESS;
  MessageRequest* const request = MessageRequest::take(call, &code);
  if (request == nullptr) return code;
  code = begin(request->transfer());
  if (code != MPI_SUCCESS) [[unlikely]] {
    request->give_back();
    return code;
  }
  Transfer& transfer = request->transfer();
  if (!transfer.is_receive() && transfer.is_done() && give_completed_send(handle))
    request->give_back();
  else
    request->activate(call, peer, handle);
  return MPI_SUCCESS;
}

/// Before the MPI's finalisation: frees the carriers of inactive requests.
void free_spare_carriers() noexcept;

/// Once in MPI_Init: looks whether the MPI has that handle.
void find_completed_send();

}  // namespace larklane::mpi::p2p
