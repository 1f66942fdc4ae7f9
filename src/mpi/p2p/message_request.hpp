#pragma once
// Requests of ordinary messages that are not persistent, and the pool of their carriers.
//
// A carrier is a persistent receive of the MPI that is never started (mpi/partitioned/carrier.hpp).
// It keeps its request, so the table of requests does not change for a message.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "mpi/p2p/transfer.hpp"

namespace larklane::mpi::p2p {

namespace detail {
extern constinit std::atomic<std::size_t> freed_count;
}
/// A message completes also after the program has freed its request. Calls that complete messages
/// look at these, if there are any.
inline bool any_freed() noexcept {
  return detail::freed_count.load(std::memory_order_relaxed) != 0;  // a hint
}
void look_at_freed();

/// A message that completes without its request. Thread safety: single-owner.
class FreedMessage {
 public:
  /// True: it is complete, and the object must not be used again.
  virtual bool end_if_done() = 0;

 protected:
  ~FreedMessage() = default;
};
/// MPI_Request_free of an incomplete request: also frees its carrier, which stands for no other.
/// @return an MPI error code, noted for settle()
int free_incomplete(Request& request, FreedMessage& message, MPI_Request carrier,
                    MPI_Request* handle);

/// "receive from rank 3, tag 7"
std::string describe_message(bool is_receive, int peer, int tag);

/// One message, or the two of MPI_Isendrecv. Thread safety: as Request.
class MessageRequest final : public Request, public FreedMessage {
 public:
  MessageRequest() noexcept : Request(Kind::message) {}

  /// A request of the pool, inactive; null: the MPI makes no carrier, and `code` is noted.
  static MessageRequest* take(const Call& call, int* code);  // below
  /// The message to post, before activate().
  Transfer& transfer() noexcept { return transfer_; }
  /// The send of MPI_Isendrecv, beside the receive in transfer(); `copy` is kept until the end.
  Transfer& second(std::unique_ptr<std::byte[]> copy);
  /// After the post: the program gets the handle. @param peer  for people
  void activate(MPI_Comm comm, const Peer& peer, MPI_Request* handle) noexcept {
    comm_.store(comm, std::memory_order_relaxed);
    peer_ = peer.rank;
    tag_ = peer.tag;
    is_active_ = true;
    *handle = carrier_;
  }
  /// Without activate(): the post has failed.
  void give_back() noexcept;  // below

  bool is_active() const noexcept override { return is_active_; }
  Completion poll(Pass& pass) override { return poll_all(pass); }
  void fill(MPI_Status* status) const override { transfer_.fill(status); }
  Completion try_end(Pass& pass, MPI_Request* handle, MPI_Status* status) override {
    if (transfer_.is_pending() && !second_) [[unlikely]]
      return poll_pending(pass, handle, status);
    if (second_ || any_freed() || !transfer_.is_done() || !transfer_.has_received()) [[unlikely]]
      return try_end_slow(pass, handle, status);
    transfer_.fill(status);
    *handle = handles().request_null;
    give_back_single();
    return Completion::complete;
  }
  void end(MPI_Request* handle, MPI_Status* status) override {
    fill(status);
    finish(handle);
  }
  int failure_code() const override;
  void finish(MPI_Request* handle) override {
    *handle = handles().request_null;
    give_back();
  }
  Status start() override { return Errc::kWrongKind; }
  int cancel() override;
  int free(MPI_Request* handle) override;
  MPI_Comm error_target() const noexcept override;
  std::string description() const override {
    return describe_message(transfer_.is_receive(), peer_, tag_);
  }
  bool end_if_done() override;

  void keep_target(MPI_Comm freed, const std::shared_ptr<Communicator>& record) override;
  /// At the end, of an inactive request: it is gone afterwards.
  void free_carrier() noexcept;

 private:
  friend class SparePool;
  [[gnu::always_inline]] Completion poll_own(Pass& pass) {
    bool is_done = transfer_.poll(pass);
    if (second_) [[unlikely]]
      is_done = second_->transfer.poll(pass) && is_done;
    if (!is_done) return Completion::pending;
    const bool has_failed = transfer_.has_failed() || (second_ && second_->transfer.has_failed());
    return has_failed ? Completion::failed : Completion::complete;
  }
  [[gnu::always_inline]] Completion poll_all(Pass& pass) {
    const Completion completion = poll_own(pass);
    if (is_over(completion) && any_freed()) [[unlikely]]
      look_at_freed();
    return completion;
  }
  [[gnu::noinline]] Completion try_end_slow(Pass& pass, MPI_Request* handle, MPI_Status* status);
  static MessageRequest* make_slow(const Call& call, int* code);
  void forget_record() noexcept;
  /// @pre it has one message
  void give_back_single() noexcept;
  [[gnu::noinline]] Completion poll_pending(Pass& pass, MPI_Request* handle, MPI_Status* status);
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

/// Inactive requests: a list of each thread, and one of all threads. Thread safety: thread-safe.
class SparePool {
 public:
  /// Null: none is spare.
  static MessageRequest* take() noexcept {
    MessageRequest* const first = own_.first;
    if (first == nullptr) [[unlikely]]
      return take_slow();
    own_.first = first->next_spare_;
    --own_.count;
    return first;
  }
  static void give(MessageRequest& request) noexcept {
    if (own_.count >= kOwnMax) [[unlikely]]
      return_own(kOwnMax / 2);
    request.next_spare_ = own_.first;
    own_.first = &request;
    ++own_.count;
  }
  /// Of all threads that have ended, and of this one.
  static std::vector<MessageRequest*> take_all() noexcept;

 private:
  static constexpr std::uint32_t kOwnMax = 256;
  struct Own {
    MessageRequest* first;
    std::uint32_t count;
  };
  struct Returner;

  static MessageRequest* take_slow() noexcept;
  /// Down to `keep`.
  static void return_own(std::uint32_t keep) noexcept;

  static inline thread_local constinit Own own_{nullptr, 0};
  static inline constinit std::mutex mutex_;
  static inline MessageRequest* first_ = nullptr;  // guarded by mutex_
};

inline MessageRequest* MessageRequest::take(const Call& call, int* code) {
  MessageRequest* const spare = SparePool::take();
  return spare != nullptr ? spare : make_slow(call, code);
}

inline void MessageRequest::give_back() noexcept {
  if (second_) [[unlikely]]
    second_.reset();
  give_back_single();
}

inline void MessageRequest::give_back_single() noexcept {
  transfer_.reset();
  if (record_ != nullptr) [[unlikely]]
    forget_record();
  is_active_ = false;
  comm_.store(handles().comm_null, std::memory_order_relaxed);
  SparePool::give(*this);
}

namespace detail {
extern constinit std::atomic<bool> has_completed_send;  // relaxed: set in MPI_Init
extern MPI_Request completed_send;
}  // namespace detail

/// The handle for a send that is complete already; the MPI returns one shared handle for these
/// (Isend to MPI_PROC_NULL). False: the loaded MPI does not, and a MessageRequest stands for it.
inline bool give_completed_send(MPI_Request* handle) noexcept {
  if (!detail::has_completed_send.load(std::memory_order_relaxed)) return false;
  *handle = detail::completed_send;
  return true;
}
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
    request->activate(call.comm, peer, handle);
  return MPI_SUCCESS;
}

/// Before the MPI's finalisation: frees the carriers of inactive requests.
void free_spare_carriers();

/// Once in MPI_Init: looks whether the MPI has that handle.
void find_completed_send();

}  // namespace larklane::mpi::p2p
