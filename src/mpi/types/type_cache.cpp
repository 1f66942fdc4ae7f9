#include "mpi/types/type_cache.hpp"

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mpi/abi/next.hpp"
#include "mpi/partitioned/carrier.hpp"

namespace larklane::mpi {

namespace detail {
constinit std::atomic<std::uint64_t> type_epoch{1};
}
namespace {

/// A typemap is an attribute of its datatype, so both have the same lifetime. The MPI calls
/// forget() when it frees the object behind the handle, before the handle can name another object.
/// A duplicate has no attribute. A lookup therefore compares neither handles nor contents. The
/// attribute is a number. It can outlive this table, if the program never frees the datatype, or
/// frees it after the MPI was closed and opened again. The lookup then finds no entry, which is
/// harmless.
///
/// Thread safety: thread-safe. Threads hold flatten_mutex across MPI calls, and never map_mutex:
/// the MPI takes map_mutex, through forget(), under its own locks.
struct Cache {
  std::mutex flatten_mutex;
  int keyval = MPI_KEYVAL_INVALID;  // guarded by flatten_mutex

  std::mutex map_mutex;
  // guarded by map_mutex
  std::uintptr_t last_number = 0;
  std::unordered_map<std::uintptr_t, FlatType> types;
  /// A predefined type keeps its handle until the MPI is closed. These are few.
  std::vector<std::pair<MPI_Datatype, FlatType>> predefined;
};

Cache& cache() noexcept {
  static Cache* const made = new Cache;  // datatypes are freed even while statics are destroyed
  return *made;
}

int copy_nothing(MPI_Datatype, int, void*, void*, void*, int* flag) {
  *flag = 0;
  return MPI_SUCCESS;
}

int forget(MPI_Datatype, int, void* number, void*) {
  detail::type_epoch.fetch_add(1, std::memory_order_relaxed);  // see type_epoch
  FlatType dropped;
  const std::scoped_lock lock(cache().map_mutex);
  auto& types = cache().types;
  if (const auto found = types.find(reinterpret_cast<std::uintptr_t>(number));
      found != types.end()) {
    dropped = std::move(found->second);
    types.erase(found);
  }
  return MPI_SUCCESS;
}

/// Has no map if the datatype has not been flattened.
FlatType find_locked(MPI_Datatype datatype) {
  void* number = nullptr;
  int flag = 0;
  if (next_pmpi().Type_get_attr(datatype, cache().keyval, &number, &flag) != MPI_SUCCESS ||
      flag == 0)
    return {};
  const std::scoped_lock lock(cache().map_mutex);
  const auto found = cache().types.find(reinterpret_cast<std::uintptr_t>(number));
  return found == cache().types.end() ? FlatType{} : found->second;
}

void keep_locked(MPI_Datatype datatype, const FlatType& type) {
  std::uintptr_t number = 0;
  {
    const std::scoped_lock lock(cache().map_mutex);
    number = ++cache().last_number;
    cache().types.emplace(number, type);
  }
  void* const value = reinterpret_cast<void*>(number);
  if (next_pmpi().Type_set_attr(datatype, cache().keyval, value) != MPI_SUCCESS)
    forget(datatype, cache().keyval, value, nullptr);  // the next request flattens it again
}

bool has_keyval_locked() {
  int& keyval = cache().keyval;
  return keyval != MPI_KEYVAL_INVALID ||
         next_pmpi().Type_create_keyval(copy_nothing, forget, &keyval, nullptr) == MPI_SUCCESS;
}

/// Has no map if the datatype is not predefined, or has not been flattened.
FlatType find_predefined(MPI_Datatype datatype) {
  const std::scoped_lock lock(cache().map_mutex);
  const auto& known = cache().predefined;
  const auto found = std::ranges::find(known, datatype, [](const auto& one) { return one.first; });
  return found == known.end() ? FlatType{} : found->second;
}

Result<FlatType> flatten_predefined(MPI_Datatype datatype, std::string* problem) {
  auto flat = flatten(datatype, problem);
  if (!flat) return flat;
  const std::scoped_lock lock(cache().map_mutex);
  cache().predefined.emplace_back(datatype, *flat);
  return flat;
}

bool is_kept(MPI_Datatype datatype) {
  if (find_predefined(datatype).map) return true;
  const std::scoped_lock lock(cache().flatten_mutex);
  return has_keyval_locked() && find_locked(datatype).map;
}

}  // namespace

Result<FlatType> flatten_once(MPI_Datatype datatype, std::string* problem) {
  if (FlatType known = find_predefined(datatype); known.map) return known;
  if (is_predefined(combiner_of(datatype))) return flatten_predefined(datatype, problem);
  const std::scoped_lock lock(cache().flatten_mutex);
  if (!has_keyval_locked()) return flatten(datatype, problem);
  if (FlatType known = find_locked(datatype); known.map) return known;
  auto flat = flatten(datatype, problem);
  if (flat) keep_locked(datatype, *flat);
  return flat;
}

const PlainType* detail::plain_type_slow(MPI_Datatype datatype, std::string* problem) {
  // Before the look-up: a change meanwhile makes the entry stale. relaxed: see type_epoch
  const std::uint64_t epoch = type_epoch.load(std::memory_order_relaxed);
  MPI_Request carrier;
  if (make_carrier(0, datatype, &carrier) != MPI_SUCCESS) {
    *problem = "the datatype is not committed";
    return nullptr;
  }
  mpi::next_pmpi().Request_free(&carrier);
  auto flat = flatten_once(datatype, problem);
  if (!flat) return nullptr;
  const Typemap& map = *flat->map;
  const std::uint64_t bits = handle_bits(datatype);
  LastType& last = last_types[(bits ^ bits >> 6) % kLastTypes];
  // Of a type that the cache does not keep it would not learn the end: no later look-up hits.
  last = {is_kept(datatype) ? epoch : 0,
          datatype,
          {map.size_bytes(), flat->first_byte, map.root().node == kDense, map.is_dense()}};
  return &last.type;
}

void forget_datatypes() noexcept {
  detail::type_epoch.fetch_add(1, std::memory_order_relaxed);  // see type_epoch
  const std::scoped_lock lock(cache().flatten_mutex, cache().map_mutex);
  cache().types.clear();
  cache().predefined.clear();
  cache().keyval = MPI_KEYVAL_INVALID;
}

}  // namespace larklane::mpi
