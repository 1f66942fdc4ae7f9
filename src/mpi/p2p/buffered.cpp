// MPI_Bsend and MPI_Ibsend; MPI_Buffer_attach, detach, flush and iflush, and those of
// communicators. An MPI before 4.1 lacks some of these, but a program that looks a call up finds
// the stub's symbol: owned communicators have buffers of their own there, too, and a flush detaches
// the MPI's buffer and attaches it again.

#include "mpi/p2p/buffered.hpp"

#include <sched.h>

#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mpi/p2p/message_request.hpp"
#include "mpi/p2p/target.hpp"
#include "mpi/partitioned/carrier.hpp"
#include "mpi/requests/error.hpp"
#include "mpi/requests/status.hpp"
#include "mpi/requests/waiting.hpp"
#include "msg/protocol/engine.hpp"

namespace larklane::mpi::p2p {
namespace {

using Owner = msg::Communicator;

constexpr std::uint64_t kAllMessages = UINT64_MAX;

/// An attached buffer. Thread safety: guarded by the mutex of Buffers.
class Space {
 public:
  /// @param bytes  kUnlimited: automatic
  Space(void* start, std::uint64_t bytes) noexcept : start_(start), bytes_(bytes) {}

  static constexpr std::uint64_t kUnlimited = UINT64_MAX;

  /// As the program attached it.
  void* start() const noexcept { return start_; }
  MPI_Count size() const noexcept {
    return bytes_ != kUnlimited ? static_cast<MPI_Count>(bytes_) : 0;
  }

  bool fits(std::uint64_t needed) const noexcept {
    return needed <= bytes_ && used_ <= bytes_ - needed;
  }
  /// True: it may fit once messages are complete.
  bool may_fit(std::uint64_t needed) const noexcept { return needed <= bytes_ && used_ > 0; }
  void take(std::uint64_t needed) noexcept { used_ += needed; }
  void give_back(std::uint64_t needed) noexcept { used_ -= needed; }
  /// Of complete messages.
  void reclaim() {
    std::erase_if(messages_, [this](const std::unique_ptr<Message>& message) {
      if (!message->transfer.is_done()) return false;
      used_ -= message->counted;
      return true;
    });
  }
  /// The number of the next message.
  std::uint64_t end() const noexcept { return next_; }
  /// No message with a lower number is incomplete.
  bool is_out(std::uint64_t before) {
    reclaim();
    return messages_.empty() || messages_.front()->number >= before;
  }
  std::string text() const {
    return "the attached buffer has " + std::to_string(bytes_) + " bytes, of which " +
           std::to_string(used_) + " are in use";
  }

  /// A message that the peer has not got yet, and its bytes.
  struct Message {
    Transfer transfer;
    std::unique_ptr<std::byte[]> bytes;
    std::uint64_t counted = 0;
    std::uint64_t number = 0;
  };
  void keep(std::unique_ptr<Message> message) {
    message->number = next_++;
    messages_.push_back(std::move(message));
  }

 private:
  void* const start_;
  const std::uint64_t bytes_;
  std::uint64_t used_ = 0;
  std::uint64_t next_ = 0;
  std::deque<std::unique_ptr<Message>> messages_;  // by number
};
using SpacePtr = std::shared_ptr<Space>;

/// The attached buffers. Never destroyed. Thread safety: thread-safe through its mutex, under which
/// no progress is made.
class Buffers {
 public:
  static Buffers& get() {
    static Buffers* const buffers = new Buffers;
    return *buffers;
  }

  // `owner`: of the communicator; null: the buffer of the process.
  void attach(const Owner* owner, void* start, std::uint64_t bytes) {
    const std::scoped_lock lock(mutex_);
    spaces_[owner] = std::make_shared<Space>(start, bytes);
  }
  SpacePtr find(const Owner* owner) {
    const std::scoped_lock lock(mutex_);
    return find_locked(owner);
  }
  void detach(const Owner* owner) {
    const std::scoped_lock lock(mutex_);
    spaces_.erase(owner);
  }
  void forget(const Owner* owner) {
    const std::scoped_lock lock(mutex_);
    const auto found = spaces_.find(owner);
    if (found == spaces_.end()) return;
    if (!found->second->is_out(kAllMessages)) forgotten_.push_back(std::move(found->second));
    spaces_.erase(found);
  }
  std::vector<SpacePtr> all() {
    const std::scoped_lock lock(mutex_);
    std::vector<SpacePtr> found = forgotten_;
    for (const auto& [owner, space] : spaces_) found.push_back(space);
    return found;
  }
  void detach_all() {
    const std::scoped_lock lock(mutex_);
    forgotten_.clear();
    spaces_.clear();
  }

  Status send(const Peer& to, msg::UserBytes from, std::unique_ptr<std::byte[]> copy,
              std::string* problem);
  std::uint64_t end(Space& space) {
    const std::scoped_lock lock(mutex_);
    return space.end();
  }
  bool is_out(Space& space, std::uint64_t before) {
    const std::scoped_lock lock(mutex_);
    return space.is_out(before);
  }

 private:
  SpacePtr find_locked(const Owner* owner) {
    const auto found = spaces_.find(owner);
    return found != spaces_.end() ? found->second : nullptr;
  }
  /// Counts a message. Null: it does not fit.
  SpacePtr reserve(const Owner& owner, std::uint64_t needed, std::string* problem);

  std::mutex mutex_;
  std::unordered_map<const Owner*, SpacePtr> spaces_;
  std::vector<SpacePtr> forgotten_;  // with incomplete messages
};

SpacePtr Buffers::reserve(const Owner& owner, std::uint64_t needed, std::string* problem) {
  for (bool has_looked = false;; has_looked = true) {
    {
      const std::scoped_lock lock(mutex_);
      SpacePtr space = find_locked(&owner);
      if (space == nullptr) space = find_locked(nullptr);
      if (space == nullptr) {
        *problem = "no buffer is attached";
        return nullptr;
      }
      space->reclaim();
      if (space->fits(needed)) {
        space->take(needed);
        return space;
      }
      if (has_looked || !space->may_fit(needed)) {
        *problem = space->text() + ": expected " + std::to_string(needed) + " free ones";
        return nullptr;
      }
    }
    // Peers may have answered.
    constexpr int kTurns = 16;
    for (int turn = 0; turn < kTurns && engine().progress_all() != 0; ++turn) {
    }
  }
}

Status Buffers::send(const Peer& to, msg::UserBytes from, std::unique_ptr<std::byte[]> copy,
                     std::string* problem) {
  const std::uint64_t needed = from.bytes + MPI_BSEND_OVERHEAD;
  const SpacePtr space = reserve(to.communicator, needed, problem);
  if (space == nullptr) return Errc::kUnsupportedBuffer;
  auto message = std::unique_ptr<Space::Message>(new (std::nothrow) Space::Message);
  Status posted = message != nullptr ? Status() : Errc::kNoMemory;
  // A message of up to eager_bytes_max() bytes is complete at once.
  if (posted.ok() && copy == nullptr && from.bytes > engine().eager_bytes_max()) {
    copy.reset(new (std::nothrow) std::byte[from.bytes]);
    if (copy == nullptr)
      posted = Errc::kNoMemory;
    else
      std::memcpy(copy.get(), from.start, from.bytes);
  }
  if (posted.ok()) {
    if (copy != nullptr) from.start = copy.get();
    posted = message->transfer.post_send(to, msg::Communicator::Mode::standard, from);
  }
  const std::scoped_lock lock(mutex_);
  if (!posted.ok() || message->transfer.is_done()) {
    space->give_back(needed);
    return posted;
  }
  message->bytes = std::move(copy);
  message->counted = needed;
  space->keep(std::move(message));
  return {};
}

/// Waits for the messages with lower numbers.
void await(Space& space, std::uint64_t before) {
  Waiting waiting;
  while (!Buffers::get().is_out(space, before)) {
    const Pass pass{.moved = engine().progress_all() != 0};
    waiting.idle(pass);
  }
}

int bsend(const Call& call, msg::Communicator& owner, const SendArguments& message) {
  const Peer to{owner, message.dest, message.tag};
  int code = check_send(call, to);
  Payload payload;
  if (code == MPI_SUCCESS)
    code = find_payload(call, message.buffer, message.count, message.datatype, &payload);
  if (code != MPI_SUCCESS) return code;
  std::unique_ptr<std::byte[]> copy;
  if (payload.is_scattered) {
    const auto packed = make_packed(call, payload, message.datatype, &code);
    if (packed == nullptr) return code;
    packed->pack(payload.bytes);
    copy = std::move(packed->bytes);
    payload.start = copy.get();
  }
  std::string problem;
  const Status sent = send_buffered(to, payload.user_bytes(), std::move(copy), &problem);
  if (sent.ok()) return MPI_SUCCESS;
  return sent.code() == Errc::kUnsupportedBuffer ? call.refuse(MPI_ERR_BUFFER, problem)
                                                 : call.refuse(sent, message.dest);
}

int ibsend(const Call& call, msg::Communicator& owner, const SendArguments& message,
           MPI_Request* request) {
  if (request == nullptr) [[unlikely]]
    return call.refuse(MPI_ERR_ARG, "request is a null pointer");
  // Complete at once: the copy is not the request's.
  return post(call, {owner, message.dest, message.tag}, request,
              [&](Transfer&) { return bsend(call, owner, message); });
}

/// After the MPI has attached the buffer, if it can. @param owner  null: of the process
int attach(const Owner* owner, void* buffer, MPI_Count size) {
#ifdef MPI_BUFFER_AUTOMATIC
  const bool is_automatic = buffer == MPI_BUFFER_AUTOMATIC;
#else
  const bool is_automatic = buffer == nullptr && size < 0;  // no such buffer
#endif
  Buffers::get().attach(owner, buffer,
                        is_automatic ? Space::kUnlimited : static_cast<std::uint64_t>(size));
  return MPI_SUCCESS;
}

/// A communicator's buffer of which the MPI knows nothing.
int attach_alone(const Call& call, const Owner& owner, void* buffer, MPI_Count size) {
  if (size < 0)
    return call.refuse(MPI_ERR_ARG, "size is " + std::to_string(size) + ": expected 0 or more");
  if (Buffers::get().find(&owner) != nullptr)
    return call.refuse(MPI_ERR_BUFFER, "a buffer is already attached");
  return attach(&owner, buffer, size);
}

void flush(const Owner* owner) {
  if (const SpacePtr space = Buffers::get().find(owner)) await(*space, Buffers::get().end(*space));
}

void detach(const Owner* owner) {
  if (const SpacePtr space = Buffers::get().find(owner)) await(*space, kAllMessages);
  Buffers::get().detach(owner);
}

/// @param buffer_addr  void**
template <class Count>
int detach_alone(const Call& call, const Owner& owner, void* buffer_addr, Count* size) {
  const SpacePtr space = Buffers::get().find(&owner);
  if (space == nullptr) return call.refuse(MPI_ERR_BUFFER, "no buffer is attached");
  detach(&owner);
  *static_cast<void**>(buffer_addr) = space->start();
  *size = static_cast<Count>(space->size());
  return MPI_SUCCESS;
}

/// MPI_Buffer_flush of the MPI, or what has its effect: detaching waits for the messages, too.
int flush_native(const Next& next) {
  if (next.Buffer_flush != nullptr) return next.Buffer_flush();
  void* start = nullptr;
  int size = 0;
  const int code = next.Buffer_detach(&start, &size);
  return code == MPI_SUCCESS ? next.Buffer_attach(start, size) : code;
}

/// A request that is complete.
int give_complete(MPI_Request* request) {
  return next_pmpi().Irecv(nullptr, 0, handles().byte, MPI_PROC_NULL, 0, handles().comm_self,
                           request);
}

/// MPI_Buffer_iflush of the MPI. One that lacks it flushes at once.
int iflush_native(const Next& next, MPI_Request* request) {
  if (next.Buffer_iflush != nullptr) return next.Buffer_iflush(request);
  const int code = flush_native(next);
  return code == MPI_SUCCESS ? give_complete(request) : code;
}

/// The request of an iflush: the MPI's, and our messages of before. Thread safety: as Request.
class FlushRequest final : public Request, public FreedMessage {
 public:
  FlushRequest(SpacePtr space, std::uint64_t before, MPI_Comm comm) noexcept
      : Request(Kind::message), space_(std::move(space)), before_(before) {
    target_.set(comm);
  }
  /// MPI_SUCCESS, or the MPI's error code.
  int make_carrier() { return mpi::make_carrier(0, handles().byte, &carrier_); }
  void free_carrier() noexcept { next_pmpi().Request_free(&carrier_); }
  /// The program gets the handle. @param native  the MPI's request
  void begin(MPI_Request native, MPI_Request* handle) {
    native_ = native;
    add_carrier(carrier_, this);
    *handle = carrier_;
  }

  bool is_active() const noexcept override { return true; }
  Completion poll(Pass& pass) override;
  void fill(MPI_Status* status) const override { set_empty(status); }
  int failure_code() const override { return code_; }
  void finish(MPI_Request* handle) override;
  Status start() override { return Errc::kWrongKind; }
  int cancel() override { return MPI_SUCCESS; }
  int free(MPI_Request* handle) override;
  MPI_Comm error_target() const noexcept override { return target_.get(); }
  std::string description() const override { return "flush of an attached buffer"; }
  void keep_target(MPI_Comm freed, const std::shared_ptr<Communicator>& record) override {
    target_.keep(freed, record);
  }
  bool end_if_done() override;

 private:
  const SpacePtr space_;
  const std::uint64_t before_;  // number of the first message that it does not wait for
  Target target_;
  MPI_Request carrier_{}, native_{};
  int code_ = MPI_SUCCESS;
};

Completion FlushRequest::poll(Pass& pass) {
  bool is_out = Buffers::get().is_out(*space_, before_);
  if (!is_out) {
    pass.moved |= engine().progress_all() != 0;
    is_out = Buffers::get().is_out(*space_, before_);
  }
  if (native_ != handles().request_null && code_ == MPI_SUCCESS) {
    int flag = 0;
    code_ = next_pmpi().Test(&native_, &flag, MPI_STATUS_IGNORE);
  }
  if (code_ != MPI_SUCCESS) return Completion::failed;
  return is_out && native_ == handles().request_null ? Completion::complete : Completion::pending;
}

void FlushRequest::finish(MPI_Request* handle) {
  // Remove it from the table first: once freed, the handle may at once belong to another thread.
  remove_carrier(carrier_);
  next_pmpi().Request_free(handle);
  delete this;
}

int FlushRequest::free(MPI_Request* handle) {
  Pass pass;
  if (!is_over(poll(pass))) return free_incomplete(*this, *this, carrier_, handle);
  finish(handle);
  return MPI_SUCCESS;
}

bool FlushRequest::end_if_done() {
  Pass pass;
  if (!is_over(poll(pass))) return false;
  delete this;
  return true;
}

/// @param owner  null: of the process @param begin_native  (MPI_Request*) -> error code
template <class BeginNative>
int iflush(const Call& call, const Owner* owner, MPI_Request* request, BeginNative&& begin_native) {
  const SpacePtr space = request != nullptr ? Buffers::get().find(owner) : nullptr;
  const std::uint64_t before = space != nullptr ? Buffers::get().end(*space) : 0;
  if (space == nullptr || Buffers::get().is_out(*space, before)) return begin_native(request);
  std::unique_ptr<FlushRequest> made(new (std::nothrow) FlushRequest(space, before, call.comm));
  if (made == nullptr) return call.refuse(MPI_ERR_NO_MEM, "no memory for a request");
  int code = made->make_carrier();
  if (code != MPI_SUCCESS) return raise_code_at(call.comm, code);
  MPI_Request native;
  code = begin_native(&native);
  if (code == MPI_SUCCESS)
    made.release()->begin(native, request);
  else
    made->free_carrier();
  return code;
}

}  // namespace

Status send_buffered(const Peer& to, msg::UserBytes from, std::unique_ptr<std::byte[]> copy,
                     std::string* problem) {
  return Buffers::get().send(to, from, std::move(copy), problem);
}

void forget_buffer(const msg::Communicator& owner) noexcept { Buffers::get().forget(&owner); }

void end_buffers() {
  for (const SpacePtr& space : Buffers::get().all()) {
    while (!Buffers::get().is_out(*space, kAllMessages)) {
      if (engine().progress_all() == 0) ::sched_yield();
    }
  }
  Buffers::get().detach_all();
}

}  // namespace larklane::mpi::p2p

namespace larklane::mpi::face {

#define LARKLANE_BUFFERED(Count, suffix)                                                        \
  int Bsend##suffix(const Next& next, const void* buf, Count count, MPI_Datatype datatype,      \
                    int dest, int tag, MPI_Comm comm) {                                         \
    msg::Communicator* const owner = p2p::owner_of(comm, dest);                                 \
    if (owner == nullptr)                                                                       \
      return p2p::forward(next.Bsend##suffix, buf, count, datatype, dest, tag, comm);           \
    return p2p::bsend({"MPI_Bsend" #suffix, comm}, *owner, {buf, count, datatype, dest, tag});  \
  }                                                                                             \
  int Ibsend##suffix(const Next& next, const void* buf, Count count, MPI_Datatype datatype,     \
                     int dest, int tag, MPI_Comm comm, MPI_Request* request) {                  \
    msg::Communicator* const owner = p2p::owner_of(comm, dest);                                 \
    if (owner == nullptr)                                                                       \
      return p2p::forward(next.Ibsend##suffix, buf, count, datatype, dest, tag, comm, request); \
    return p2p::ibsend({"MPI_Ibsend" #suffix, comm}, *owner, {buf, count, datatype, dest, tag}, \
                       request);                                                                \
  }                                                                                             \
  int Buffer_attach##suffix(const Next& next, void* buffer, Count size) {                       \
    const int code = p2p::forward(next.Buffer_attach##suffix, buffer, size);                    \
    if (code != MPI_SUCCESS || !p2p::is_owned()) return code;                                   \
    return p2p::attach(nullptr, buffer, size);                                                  \
  }                                                                                             \
  int Buffer_detach##suffix(const Next& next, void* buffer_addr, Count* size) {                 \
    if (p2p::is_owned()) p2p::detach(nullptr);                                                  \
    return p2p::forward(next.Buffer_detach##suffix, buffer_addr, size);                         \
  }                                                                                             \
  int Comm_attach_buffer##suffix(const Next& next, MPI_Comm comm, void* buffer, Count size) {   \
    const msg::Communicator* const owner = find_ordinary(comm);                                 \
    if (next.Comm_attach_buffer##suffix == nullptr && owner != nullptr)                         \
      return p2p::attach_alone({"MPI_Comm_attach_buffer" #suffix, comm}, *owner, buffer, size); \
    const int code = p2p::forward(next.Comm_attach_buffer##suffix, comm, buffer, size);         \
    if (code != MPI_SUCCESS || owner == nullptr) return code;                                   \
    return p2p::attach(owner, buffer, size);                                                    \
  }                                                                                             \
  int Comm_detach_buffer##suffix(const Next& next, MPI_Comm comm, void* buffer_addr,            \
                                 Count* size) {                                                 \
    const msg::Communicator* const owner = find_ordinary(comm);                                 \
    if (next.Comm_detach_buffer##suffix == nullptr && owner != nullptr)                         \
      return p2p::detach_alone({"MPI_Comm_detach_buffer" #suffix, comm}, *owner, buffer_addr,   \
                               size);                                                           \
    if (owner != nullptr) p2p::detach(owner);                                                   \
    return p2p::forward(next.Comm_detach_buffer##suffix, comm, buffer_addr, size);              \
  }

LARKLANE_BUFFERED(int, )
LARKLANE_BUFFERED(MPI_Count, _c)

int Buffer_flush(const Next& next) {
  if (p2p::is_owned()) p2p::flush(nullptr);
  return p2p::flush_native(next);
}

int Comm_flush_buffer(const Next& next, MPI_Comm comm) {
  const msg::Communicator* const owner = find_ordinary(comm);
  if (owner != nullptr) p2p::flush(owner);
  if (next.Comm_flush_buffer == nullptr && owner != nullptr) return MPI_SUCCESS;
  return p2p::forward(next.Comm_flush_buffer, comm);
}

int Buffer_iflush(const Next& next, MPI_Request* request) {
  const auto begin = [&](MPI_Request* native) { return p2p::iflush_native(next, native); };
  if (!p2p::is_owned()) return begin(request);
  return p2p::iflush({"MPI_Buffer_iflush", handles().comm_world}, nullptr, request, begin);
}

int Comm_iflush_buffer(const Next& next, MPI_Comm comm, MPI_Request* request) {
  const msg::Communicator* const owner = find_ordinary(comm);
  const auto begin = [&](MPI_Request* native) {
    if (next.Comm_iflush_buffer == nullptr && owner != nullptr) return p2p::give_complete(native);
    return p2p::forward(next.Comm_iflush_buffer, comm, native);
  };
  if (owner == nullptr) return begin(request);
  return p2p::iflush({"MPI_Comm_iflush_buffer", comm}, owner, request, begin);
}

}  // namespace larklane::mpi::face
