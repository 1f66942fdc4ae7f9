#include "mpi/p2p/message_request.hpp"

#include <algorithm>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "mpi/partitioned/carrier.hpp"
#include "mpi/requests/error.hpp"
#include "mpi/requests/status.hpp"
#include "mpi/world/communicator.hpp"
#include "mpi/world/process.hpp"

namespace larklane::mpi::p2p {

namespace detail {
constinit std::atomic<std::size_t> freed_count{0};
constinit std::atomic<bool> has_completed_send{false};
MPI_Request completed_send{};
}  // namespace detail

/// Returns the thread's list when the thread ends.
struct SparePool::Returner {
  ~Returner() { return_own(0); }
};

[[gnu::noinline]] MessageRequest* SparePool::take_slow() noexcept {
  static thread_local const Returner returner;
  static_cast<void>(&returner);
  const std::scoped_lock lock(mutex_);
  for (; first_ != nullptr && own_.count < kOwnMax / 4; ++own_.count) {
    MessageRequest* const moved = std::exchange(first_, first_->next_spare_);
    moved->next_spare_ = own_.first;
    own_.first = moved;
  }
  if (own_.first == nullptr) return nullptr;
  --own_.count;
  return std::exchange(own_.first, own_.first->next_spare_);
}

[[gnu::noinline]] void SparePool::return_own(std::uint32_t keep) noexcept {
  const std::scoped_lock lock(mutex_);
  for (; own_.count > keep; --own_.count) {
    MessageRequest* const moved = std::exchange(own_.first, own_.first->next_spare_);
    moved->next_spare_ = first_;
    first_ = moved;
  }
}

std::vector<MessageRequest*> SparePool::take_all() noexcept {
  return_own(0);
  const std::scoped_lock lock(mutex_);
  std::vector<MessageRequest*> all;
  while (first_ != nullptr) all.push_back(std::exchange(first_, first_->next_spare_));
  return all;
}

namespace {

/// Transfers without a request. Never destroyed. Thread safety: thread-safe through its mutex.
struct Freed {
  std::mutex mutex;
  std::vector<FreedMessage*> messages;

  static Freed& get() {
    static Freed* const freed = new Freed;
    return *freed;
  }
};

/// False: no memory.
bool add_freed(FreedMessage& message) noexcept try {
  Freed& freed = Freed::get();
  const std::scoped_lock lock(freed.mutex);
  freed.messages.push_back(&message);
  detail::freed_count.store(freed.messages.size(), std::memory_order_relaxed);
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

int refuse_free(const Request& request) {
  return raise_at(request.error_target(), MPI_ERR_NO_MEM,
                  "MPI_Request_free on " + request.description() + ": no memory");
}

/// A send that is complete from the start; one for all of them. Thread safety: immutable.
class CompletedSend final : public Request {
 public:
  CompletedSend() noexcept : Request(Kind::message) {}
  bool is_active() const noexcept override { return true; }
  Completion poll(Pass&) override { return Completion::complete; }
  void fill(MPI_Status* status) const override { set_empty(status); }
  Completion try_end(Pass&, MPI_Request* handle, MPI_Status* status) override {
    end(handle, status);
    return Completion::complete;
  }
  void end(MPI_Request* handle, MPI_Status* status) override {
    fill(status);
    finish(handle);
  }
  int failure_code() const override { return MPI_SUCCESS; }
  void finish(MPI_Request* handle) override { *handle = handles().request_null; }
  Status start() override { return Errc::kWrongKind; }
  int cancel() override { return MPI_SUCCESS; }
  int free(MPI_Request* handle) override {
    finish(handle);
    return MPI_SUCCESS;
  }
  MPI_Comm error_target() const noexcept override { return handles().comm_world; }
  std::string description() const override { return "send"; }
};

CompletedSend completed_send;
MessageRequest* make_request(const Call& call, int* code) {
  try {
    auto made = std::make_unique<MessageRequest>();
    return made.release();
  } catch (const std::bad_alloc&) {
    *code = call.refuse(MPI_ERR_NO_MEM, "no memory for a request");
    return nullptr;
  }
}

}  // namespace

MessageRequest* MessageRequest::make_slow(const Call& call, int* code) {
  MessageRequest* const made = make_request(call, code);
  if (made == nullptr) return nullptr;
  const int result = make_carrier(0, handles().byte, &made->carrier_);
  if (result != MPI_SUCCESS) {
    delete made;
    *code = raise_code_at(call.comm, result);
    return nullptr;
  }
  add_carrier(made->carrier_, made);
  return made;
}

Transfer& MessageRequest::second(std::unique_ptr<std::byte[]> copy) {
  second_.emplace();
  second_->copy = std::move(copy);
  return second_->transfer;
}

Completion MessageRequest::poll_pending(Pass& pass, MPI_Request* handle, MPI_Status* status) {
  return transfer_.poll_pending(pass) ? try_end_slow(pass, handle, status) : Completion::pending;
}

Completion MessageRequest::try_end_slow(Pass& pass, MPI_Request* handle, MPI_Status* status) {
  const Completion completion = poll_all(pass);
  if (completion == Completion::complete) end(handle, status);
  return completion;
}

void MessageRequest::forget_record() noexcept {
  // relaxed: the program orders the end of a communicator and of its requests
  record_->request_count.fetch_sub(1, std::memory_order_relaxed);
  record_.reset();
}

int MessageRequest::failure_code() const {
  return (transfer_.has_failed() ? transfer_ : second_->transfer).failure_code(description());
}

int MessageRequest::cancel() {
  if (!second_) static_cast<void>(transfer_.cancel());
  return MPI_SUCCESS;
}

int MessageRequest::free(MPI_Request* handle) {
  Pass pass;
  if (is_over(poll(pass))) {
    finish(handle);
    return MPI_SUCCESS;
  }
  if (!add_freed(*this)) return refuse_free(*this);
  *handle = handles().request_null;
  return MPI_SUCCESS;
}

bool MessageRequest::end_if_done() {
  Pass pass;
  if (!is_over(poll_own(pass))) return false;
  give_back();
  return true;
}

int free_incomplete(Request& request, FreedMessage& message, MPI_Request carrier,
                    MPI_Request* handle) {
  // Remove it from the table first: another thread may end the message at once.
  remove_carrier(carrier);
  if (!add_freed(message)) {
    add_carrier(carrier, &request);
    return refuse_free(request);
  }
  return next_pmpi().Request_free(handle);
}

std::string describe_message(bool is_receive, int peer, int tag) {
  const std::string named_peer = peer == MPI_ANY_SOURCE  ? "any rank"
                                 : peer == MPI_PROC_NULL ? "MPI_PROC_NULL"
                                                         : "rank " + std::to_string(peer);
  const std::string named_tag = tag == MPI_ANY_TAG ? "any tag" : "tag " + std::to_string(tag);
  return (is_receive ? "receive from " : "send to ") + named_peer + ", " + named_tag;
}

MPI_Comm MessageRequest::error_target() const noexcept {
  return record_ != nullptr ? record_->error_target() : comm_.load(std::memory_order_relaxed);
}

void MessageRequest::keep_target(MPI_Comm freed, const std::shared_ptr<Communicator>& record) {
  if (comm_.load(std::memory_order_relaxed) != freed || record_ != nullptr) return;
  record_ = record;
  record->request_count.fetch_add(1, std::memory_order_relaxed);  // relaxed: as in give_back()
}

void look_at_freed() {
  Freed& freed = Freed::get();
  const std::unique_lock lock(freed.mutex, std::try_to_lock);
  if (!lock) return;
  std::erase_if(freed.messages, [](FreedMessage* message) { return message->end_if_done(); });
  detail::freed_count.store(freed.messages.size(), std::memory_order_relaxed);
}

void free_spare_carriers() {
  look_at_freed();
  for (MessageRequest* const spare : SparePool::take_all()) spare->free_carrier();
}

void MessageRequest::free_carrier() noexcept {
  remove_carrier(carrier_);
  next_pmpi().Request_free(&carrier_);
  delete this;
}

void find_completed_send() {
  const Next& real = next_pmpi();
  const auto begin = [&](MPI_Request* handle) {
    return real.Isend(nullptr, 0, handles().byte, MPI_PROC_NULL, 0, Process::get().private_comm(),
                      handle) == MPI_SUCCESS;
  };
  MPI_Request first, second;
  if (!begin(&first)) return;
  if (!begin(&second)) return static_cast<void>(real.Wait(&first, MPI_STATUS_IGNORE));
  const bool is_shared = first == second && first != handles().request_null;
  detail::completed_send = first;
  real.Wait(&first, MPI_STATUS_IGNORE);
  real.Wait(&second, MPI_STATUS_IGNORE);
  if (!is_shared) return;
  // The handle stays good after both waits.
  for (int round = 0; round < 3; ++round) {
    MPI_Request handle = detail::completed_send;
    int flag = 0;
    if (real.Test(&handle, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS || flag == 0) return;
  }
  // Open MPI gives it for a receive from MPI_PROC_NULL, too, with another status: then its own
  // calls complete it.
  MPI_Request receive;
  if (real.Irecv(nullptr, 0, handles().byte, MPI_PROC_NULL, 0, Process::get().private_comm(),
                 &receive) != MPI_SUCCESS)
    return;
  if (receive != detail::completed_send) add_carrier(detail::completed_send, &completed_send);
  real.Wait(&receive, MPI_STATUS_IGNORE);
  detail::has_completed_send.store(true, std::memory_order_relaxed);
}

}  // namespace larklane::mpi::p2p
