#include "net/ofi/connections.hpp"

#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.hpp"
#include "net/ofi/link.hpp"
#include "net/ofi/own_sockets.hpp"

namespace larklane::ofi {
namespace {

/// With a request or its answer: more than any provider carries (tcp: 256).
constexpr std::size_t kWordsBytesMax = 1024;
/// Of one queue, in one look.
constexpr int kEventsAtOnce = 64;
/// After a request that has failed.
constexpr std::uint64_t kRequestAgainNs = 20'000'000;
/// Processes that connect and say nothing take descriptors: so many may, between two looks.
constexpr std::size_t kStrangersMost = 64;
constexpr std::uint64_t kSweepNs = 1'000'000'000;
/// Sweeps until libfabric has closed the ended sockets.
constexpr int kSweepsMost = 16;

/// Constant time for any bytes. @pre as many of both
bool is_same(std::span<const std::byte> a, std::span<const std::byte> b) noexcept {
  std::byte differs{};
  for (std::size_t i = 0; i < a.size(); ++i) differs |= a[i] ^ b[i];
  return differs == std::byte{};
}

bool is_same_word(std::span<const std::byte> heard, const Ticket::Word& word) noexcept {
  return heard.size() == word.size() && is_same(heard, word);
}

sockaddr_storage name_of(std::span<const std::byte> address) noexcept {
  sockaddr_storage name{};
  std::memcpy(&name, address.data(), std::min(sizeof name, address.size()));
  return name;
}

}  // namespace

Connections::~Connections() {
  if (listener_) stop_listening();
}

Fid<fid_eq> Connections::make_queue(int* error) {
  fi_eq_attr attributes{};
  attributes.wait_obj = waiter_ ? FI_WAIT_FD : FI_WAIT_NONE;
  fid_eq* queue = nullptr;
  *error = -::fi_eq_open(domain_.fabric.get(), &attributes, &queue, nullptr);
  return Fid<fid_eq>(*error == 0 ? queue : nullptr);
}

int Connections::open(bool does_sleep) {
  if (does_sleep) waiter_.reset(::epoll_create1(EPOLL_CLOEXEC));
  int completions = -1;
  if (waiter_ && ::fi_control(&queue_.fid, FI_GETWAIT, &completions) == 0) {
    epoll_event readable{EPOLLIN, {}};
    if (::epoll_ctl(waiter_.get(), EPOLL_CTL_ADD, completions, &readable) != 0) waiter_.reset();
  } else {
    waiter_.reset();
  }
  int error = 0;
  events_ = make_queue(&error);
  if (error != 0) return error;
  if (waiter_ && watch(*events_, true) != 0) waiter_.reset();
  return 0;
}

int Connections::watch(fid_eq& queue, bool is_watched) {
  int descriptor = -1;
  const int error = ::fi_control(&queue.fid, FI_GETWAIT, &descriptor);
  if (error != 0) return -error;
  epoll_event readable{EPOLLIN, {}};
  const int operation = is_watched ? EPOLL_CTL_ADD : EPOLL_CTL_DEL;
  return ::epoll_ctl(waiter_.get(), operation, descriptor, &readable) == 0 ? 0 : errno;
}

bool Connections::can_sleep() {
  fid* waited[] = {&queue_.fid, &events_->fid, requests_ ? &requests_->fid : nullptr};
  return waiter_ && ::fi_trywait(domain_.fabric.get(), waited, requests_ ? 3 : 2) == 0;
}

// --- the listener -------------------------------------------------------------------------------

/// With a queue of its own: events that strangers leave in it go with it.
int Connections::listen() {
  if (listener_) return 0;
  int error = 0;
  auto requests = make_queue(&error);
  if (error != 0) return error;
  fid_pep* listener = nullptr;
  error = ::fi_passive_ep(domain_.fabric.get(), domain_.choice.info.get(), &listener, nullptr);
  if (error != 0) return -error;
  Fid<fid_pep> owned(listener);
  std::array<std::byte, net::kOfferBytesMax / 2> name{};
  std::size_t length = name.size();
  error = ::fi_pep_bind(listener, &requests->fid, 0);
  if (error == 0) error = ::fi_listen(listener);
  if (error == 0) error = ::fi_getname(&listener->fid, name.data(), &length);
  if (error == 0 && length > name.size()) error = -FI_ETOOSMALL;
  if (error == 0 && waiter_) error = -watch(*requests, true);
  if (error != 0) return -error;
  address_.assign(name.begin(), name.begin() + static_cast<std::ptrdiff_t>(length));
  requests_ = std::move(requests);
  listener_ = std::move(owned);
  next_sweep_ns_ = now_ns() + kSweepNs;
  return 0;
}

/// libfabric forgets peers that have connected and requested nothing, and keeps their descriptors:
/// these end first, and libfabric closes them. One that stays keeps the listener, which takes no
/// other.
void Connections::stop_listening() {
  const sockaddr_storage name = name_of(address_);
  end_listening(name);
  for (int i = 0; i < kSweepsMost; ++i) {
    const std::size_t count = end_strangers(name, known_names(), 1);
    serve(*requests_);
    if (count == 0) break;
  }
  if (waiter_) (void)watch(*requests_, false);
  listener_.reset();
  requests_.reset();
}

std::vector<sockaddr_storage> Connections::known_names() const {
  std::vector<sockaddr_storage> known;
  for (const Connection* each : all_)
    if (each->accepted_from.ss_family != AF_UNSPEC) known.push_back(each->accepted_from);
  return known;
}

void Connections::end_strangers_slow() {
  const std::uint64_t now = now_ns();
  if (now < next_sweep_ns_) return;
  next_sweep_ns_ = now + kSweepNs;
  (void)end_strangers(name_of(address_), known_names(), kStrangersMost);
}

int Connections::await(Connection& connection) {
  if (const int error = listen(); error != 0) return error;
  all_.push_back(&connection);
  return 0;
}

// --- both sides ---------------------------------------------------------------------------------

int Connections::make_endpoint(fi_info& info, Fid<fid_ep>* made) {
  fid_ep* endpoint = nullptr;
  int error = ::fi_endpoint(domain_.domain.get(), &info, &endpoint, nullptr);
  if (error != 0) return -error;
  made->reset(endpoint);
  error = ::fi_ep_bind(endpoint, &queue_.fid, FI_TRANSMIT | FI_RECV);
  if (error == 0) error = ::fi_ep_bind(endpoint, &events_->fid, 0);
  if (error == 0) error = ::fi_enable(endpoint);
  return -error;
}

void Connections::request(Connection& connection) {
  const Ticket::Word& word = connection.peer_ticket.request;
  int error = make_endpoint(*domain_.choice.info, &connection.endpoint);
  if (error == 0)
    error = -::fi_connect(connection.endpoint.get(), connection.peer_address.data(), word.data(),
                          word.size());
  connection.stage = Connection::Stage::requesting;
  if (error != 0) on_end(connection, error);
}

void Connections::close(Connection& connection) {
  connection.stage = Connection::Stage::over;
  connection.endpoint.reset();
}

void Connections::remove(Connection& connection) {
  close(connection);
  std::erase(all_, &connection);
}

Connection* Connections::find(fid_t of) const noexcept {
  const auto found = std::ranges::find_if(
      all_, [&](const Connection* each) { return each->endpoint && &each->endpoint->fid == of; });
  return found == all_.end() ? nullptr : *found;
}

/// A request that no link awaits is refused, and nothing is said of why.
void Connections::on_request(const Event& event) {
  const Info info(event.info);
  if (info == nullptr) return;
  for (Connection* each : all_) {
    if (each->stage != Connection::Stage::offered || each->is_ours_to_request ||
        !is_same_word(event.words, each->ticket.request))
      continue;
    if (accept(*each, *info)) return;
  }
  if (listener_) (void)::fi_reject(listener_.get(), info->handle, nullptr, 0);
}

bool Connections::accept(Connection& connection, fi_info& info) {
  const Ticket::Word& word = connection.ticket.answer;
  Fid<fid_ep> endpoint;
  int error = make_endpoint(info, &endpoint);
  if (error == 0) error = -::fi_accept(endpoint.get(), word.data(), word.size());
  if (error != 0) {
    connection.last_error = error;
    return false;
  }
  connection.endpoint = std::move(endpoint);
  connection.stage = Connection::Stage::accepting;
  connection.accepted_from = {};
  std::memcpy(&connection.accepted_from, info.dest_addr,
              std::min(sizeof connection.accepted_from, info.dest_addrlen));
  return true;
}

void Connections::on_connected(Connection& connection, std::span<const std::byte> words) {
  if (connection.stage == Connection::Stage::requesting &&
      !is_same_word(words, connection.peer_ticket.answer))
    return on_end(connection, FI_EACCES);
  if (!connection.is_awaited()) return;
  connection.stage = Connection::Stage::open;
  connection.link.on_connected(*connection.endpoint);
}

/// One that has never been open is tried again.
void Connections::on_end(Connection& connection, int error) {
  const bool was_open = connection.stage == Connection::Stage::open;
  close(connection);
  connection.last_error = error;
  connection.accepted_from = {};
  if (was_open) return connection.link.on_disconnected(error);
  connection.stage = Connection::Stage::offered;
  connection.next_request_ns = now_ns() + kRequestAgainNs;
}

// --- events -------------------------------------------------------------------------------------

void Connections::serve(const Event& event) {
  if (event.kind == FI_CONNREQ) return on_request(event);
  Connection* const connection = find(event.of);
  if (connection == nullptr) return;
  if (event.kind == FI_CONNECTED)
    on_connected(*connection, event.words);
  else if (event.kind == FI_SHUTDOWN)
    on_end(*connection, event.error != 0 ? event.error : FI_ECONNRESET);
}

void Connections::serve(fid_eq& queue) {
  struct alignas(fi_eq_cm_entry) {
    std::byte bytes[sizeof(fi_eq_cm_entry) + kWordsBytesMax];
  } space;
  for (int i = 0; i < kEventsAtOnce; ++i) {
    std::uint32_t kind = 0;
    const ssize_t length = ::fi_eq_read(&queue, &kind, &space, sizeof space, 0);
    if (length == -FI_EAVAIL) {
      fi_eq_err_entry failed{};
      if (::fi_eq_readerr(&queue, &failed, 0) <= 0) return;
      serve({FI_SHUTDOWN, failed.err, failed.fid, nullptr, {}});
    } else if (length >= static_cast<ssize_t>(sizeof(fi_eq_cm_entry))) {
      fi_eq_cm_entry entry;
      std::memcpy(&entry, &space, sizeof entry);
      const std::span words(space.bytes + sizeof entry,
                            static_cast<std::size_t>(length) - sizeof entry);
      serve({kind, 0, entry.fid, kind == FI_CONNREQ ? entry.info : nullptr, words});
    } else {
      return;
    }
  }
}

bool Connections::look_slow() {
  serve(*events_);
  if (requests_) serve(*requests_);
  const std::uint64_t now = now_ns();
  bool is_any_awaited = false;
  for (Connection* each : all_) {
    const bool is_due = each->is_ours_to_request && now >= each->next_request_ns;
    if (is_due && each->stage == Connection::Stage::offered) request(*each);
    is_any_awaited |= each->is_awaited();
  }
  if (listener_ && !is_any_awaited) stop_listening();
  if (listener_) end_strangers_slow();
  return is_any_awaited;
}

}  // namespace larklane::ofi
