#include "mpi/world/communicator.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "mpi/abi/next.hpp"
#include "mpi/p2p/buffered.hpp"
#include "mpi/requests/request.hpp"
#include "mpi/world/process.hpp"
#include "msg/protocol/communicator.hpp"

namespace larklane::mpi {
namespace {

/// Thread safety: thread-safe through its mutex.
struct Registry {
  std::mutex mutex;
  std::unordered_map<std::uint64_t, std::shared_ptr<Communicator>> by_handle;
  /// Inside the MPI's MPI_Comm_free, with ordinary messages of ours. Another communicator may get
  /// the handle meanwhile, and then takes precedence.
  std::unordered_map<std::uint64_t, std::shared_ptr<Communicator>> closing;
  std::map<ContextId, std::uint64_t> uses;

  static Registry& get() noexcept {
    static Registry* const registry = new Registry;
    return *registry;
  }
  std::shared_ptr<Communicator> find_locked(MPI_Comm comm);
};

std::shared_ptr<Communicator> Registry::find_locked(MPI_Comm comm) {
  if (const auto found = by_handle.find(handle_bits(comm)); found != by_handle.end()) {
    return found->second;
  }
  if (const auto found = closing.find(handle_bits(comm)); found != closing.end())
    return found->second;
  if (!Process::get().has_world()) return nullptr;
  Origin origin;
  if (comm == handles().comm_world) {
    origin = Origin::world;
  } else if (comm == handles().comm_self) {
    origin = Origin::self;
  } else {
    return nullptr;
  }
  return by_handle[handle_bits(comm)] =
             std::make_shared<Communicator>(comm, ContextHash(origin).id(), nullptr);
}

/// The rank in `other` of each member of the group, MPI_UNDEFINED outside. Empty if the MPI does
/// not report them.
std::vector<int> ranks_in(MPI_Group other, MPI_Group group) {
  const Next& real = next_pmpi();
  int size = 0;
  if (real.Group_size(group, &size) != MPI_SUCCESS) return {};
  std::vector<int> ranks(static_cast<std::size_t>(size)), found(ranks.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  const int code = real.Group_translate_ranks(group, size, ranks.data(), other, found.data());
  return code == MPI_SUCCESS ? found : std::vector<int>();
}

std::vector<int> ranks_in_own_world(MPI_Group group) {
  MPI_Group world = Process::get().world_group();
  if (world == handles().group_null) return {};
  std::vector<int> ranks = ranks_in(world, group);
  next_pmpi().Group_free(&world);
  return ranks;
}

/// The members of a group, from the own world and from `foreigners`. Empty if the MPI does not
/// report them.
std::vector<Member> members_of(MPI_Group group, const Foreigners* foreigners) {
  const std::vector<int> own = ranks_in_own_world(group);
  std::vector<Member> members(own.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (own[i] != MPI_UNDEFINED) members[i] = {Process::get().identity().job, own[i]};
  }
  for (; foreigners != nullptr; foreigners = foreigners->others.get()) {
    const std::vector<int> ranks = ranks_in(foreigners->group, group);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (own[i] != MPI_UNDEFINED || ranks[i] == MPI_UNDEFINED) continue;
      members[i] = foreigners->members[static_cast<std::size_t>(ranks[i])];
    }
  }
  return members;
}

}  // namespace

namespace detail {
constinit LastingHandleTable ordinary_carriers;  // changes with the registry's mutex held
}

Foreigners::~Foreigners() {
  MPI_Group freed = group;
  if (Process::get().is_open()) next_pmpi().Group_free(&freed);
}

Communicator::~Communicator() {
  MPI_Comm comm = error_target();
  if (stand_in_ && Process::get().is_open()) next_pmpi().Comm_free(&comm);
}

ContextId Communicator::child(Origin origin) noexcept {
  const std::uint64_t ordinal = children_.fetch_add(1, std::memory_order_relaxed);
  ContextId id = ContextHash(origin).add(recipe_).add(ordinal).id();
  // Siblings take lanes in turn: msg::Hints::kByIdentity reads the upper half.
  const std::uint64_t turn = (recipe_.low >> 32) + ordinal + 1;
  id.low = turn << 32 | (id.low & UINT32_MAX);
  return id;
}

MPI_Comm Communicator::error_target() const noexcept {
  return handle_.load(std::memory_order_relaxed);
}

void Communicator::detach() {
  const Next& real = next_pmpi();
  MPI_Comm stand_in = handles().comm_null;
  MPI_Errhandler handler;
  if (real.Comm_get_errhandler(error_target(), &handler) == MPI_SUCCESS) {
    if (real.Comm_split(Process::get().private_comm(), 0, 0, &stand_in) == MPI_SUCCESS) {
      real.Comm_set_errhandler(stand_in, handler);
      stand_in_ = true;
    }
    real.Errhandler_free(&handler);
  }
  handle_.store(stand_in, std::memory_order_relaxed);
}

void Communicator::reattach(MPI_Comm handle) {
  MPI_Comm stand_in = error_target();
  if (std::exchange(stand_in_, false)) next_pmpi().Comm_free(&stand_in);
  handle_.store(handle, std::memory_order_relaxed);
}

const Communicator::Members& Communicator::members() {
  const std::scoped_lock lock(mutex_);
  if (!resolved_) {
    resolve_locked();
    resolved_ = true;
  }
  return members_;
}

std::vector<int> Communicator::ranks_of(MPI_Group group) const {
  MPI_Group own;
  if (next_pmpi().Comm_group(error_target(), &own) != MPI_SUCCESS) return {};
  std::vector<int> ranks = ranks_in(own, group);
  next_pmpi().Group_free(&own);
  return ranks;
}

void Communicator::resolve_locked() {
  const Next& real = next_pmpi();
  const MPI_Comm comm = error_target();
  int inter = 0;
  MPI_Group named;
  if (real.Comm_test_inter(comm, &inter) != MPI_SUCCESS ||
      real.Comm_rank(comm, &members_.rank) != MPI_SUCCESS ||
      (inter != 0 ? real.Comm_remote_group : real.Comm_group)(comm, &named) != MPI_SUCCESS) {
    return;
  }
  members_.inter = inter != 0;
  members_.peers = members_of(named, foreigners_.get());
  real.Group_free(&named);
  members_.known = !members_.peers.empty();
  int* tag_max = nullptr;
  int found = 0;
  const MPI_Comm attribute_of = Process::get().has_world() ? handles().comm_world : comm;
  if (real.Comm_get_attr(attribute_of, MPI_TAG_UB, static_cast<void*>(&tag_max), &found) ==
          MPI_SUCCESS &&
      found != 0) {
    members_.tag_max = *tag_max;
  }
}

std::vector<int> world_ranks(MPI_Group group) {
  std::vector<int> ranks = ranks_in_own_world(group);
  const bool all_own = std::find(ranks.begin(), ranks.end(), MPI_UNDEFINED) == ranks.end();
  return all_own ? ranks : std::vector<int>();
}

std::shared_ptr<Communicator> find_communicator(MPI_Comm comm) {
  Registry& registry = Registry::get();
  const std::scoped_lock lock(registry.mutex);
  return registry.find_locked(comm);
}

std::uint64_t next_use(const ContextId& key) {
  Registry& registry = Registry::get();
  const std::scoped_lock lock(registry.mutex);
  return registry.uses[key]++;
}

std::shared_ptr<Communicator> remember_communicator(MPI_Comm comm, const ContextId& recipe,
                                                    ForeignersPtr foreigners) {
  if (comm == handles().comm_null) return nullptr;
  auto communicator = std::make_shared<Communicator>(comm, recipe, std::move(foreigners));
  Registry& registry = Registry::get();
  const std::scoped_lock lock(registry.mutex);
  registry.by_handle[handle_bits(comm)] = communicator;
  detail::ordinary_carriers.table.remove(handle_bits(comm));  // of one in `closing`
  return communicator;
}

void open_ordinary(Communicator& made, msg::Communicator& carrier) {
  const std::scoped_lock lock(Registry::get().mutex);
  // relaxed: see `ordinary`
  made.ordinary.store(&carrier, std::memory_order_relaxed);
  detail::ordinary_carriers.table.insert(handle_bits(made.error_target()), &carrier);
}

void remember_meeting(MPI_Comm intercomm, const Meeting& meeting, ForeignersPtr others) {
  const Next& real = next_pmpi();
  int size = 0;
  MPI_Group group;
  if (intercomm == handles().comm_null || real.Comm_remote_size(intercomm, &size) != MPI_SUCCESS ||
      static_cast<std::size_t>(size) != meeting.others.size() ||
      real.Comm_remote_group(intercomm, &group) != MPI_SUCCESS) {
    return;
  }
  remember_communicator(
      intercomm, meeting.recipe,
      std::make_shared<const Foreigners>(group, meeting.others, std::move(others)));
}

std::shared_ptr<Communicator> forget_communicator(MPI_Comm comm) {
  std::shared_ptr<Communicator> forgotten;  // outlives the lock: its destructor may call the MPI
  Registry& registry = Registry::get();
  {
    const std::scoped_lock lock(registry.mutex);
    const auto found = registry.by_handle.find(handle_bits(comm));
    if (found == registry.by_handle.end()) return nullptr;
    forgotten = std::move(found->second);
    registry.by_handle.erase(found);
    // relaxed: see `ordinary`
    if (forgotten->ordinary.load(std::memory_order_relaxed) != nullptr)
      registry.closing[handle_bits(comm)] = forgotten;
  }
  // relaxed: see `ordinary`
  if (forgotten->ordinary.load(std::memory_order_relaxed) != nullptr) {
    for (Request* const each : all_carriers()) each->keep_target(comm, forgotten);
  }
  // relaxed: the program orders the init and the free of a communicator
  if (forgotten->request_count.load(std::memory_order_relaxed) > 0) forgotten->detach();
  return forgotten;
}

void restore_communicator(MPI_Comm comm, std::shared_ptr<Communicator> forgotten) {
  if (!forgotten) return;
  forgotten->reattach(comm);
  Registry& registry = Registry::get();
  const std::scoped_lock lock(registry.mutex);
  registry.closing.erase(handle_bits(comm));
  registry.by_handle[handle_bits(comm)].swap(forgotten);
}

void end_communicator(MPI_Comm comm, const std::shared_ptr<Communicator>& forgotten) {
  if (!forgotten) return;
  // relaxed: see `ordinary`
  msg::Communicator* const ordinary =
      forgotten->ordinary.exchange(nullptr, std::memory_order_relaxed);
  if (ordinary == nullptr) return;
  Registry& registry = Registry::get();
  {
    const std::scoped_lock lock(registry.mutex);
    const auto found = registry.closing.find(handle_bits(comm));
    if (found != registry.closing.end() && found->second == forgotten)
      registry.closing.erase(found);
    HandleTable& carriers = detail::ordinary_carriers.table;
    if (carriers.find(handle_bits(comm)) == ordinary) carriers.remove(handle_bits(comm));
  }
  p2p::forget_buffer(*ordinary);
  ordinary->close();
}

void close_all_communicators() {
  std::vector<std::shared_ptr<Communicator>> all;
  {
    Registry& registry = Registry::get();
    const std::scoped_lock lock(registry.mutex);
    for (const auto* const records : {&registry.by_handle, &registry.closing})
      for (const auto& [handle, record] : *records) {
        all.push_back(record);
        detail::ordinary_carriers.table.remove(handle);
      }
  }
  for (const auto& record : all)
    // relaxed: see `ordinary`
    if (auto* const ordinary = record->ordinary.exchange(nullptr, std::memory_order_relaxed))
      ordinary->close();
}

void forget_all_communicators() {
  Registry& registry = Registry::get();
  const std::scoped_lock lock(registry.mutex);
  registry.by_handle.clear();
  registry.closing.clear();
  registry.uses.clear();
}

}  // namespace larklane::mpi
