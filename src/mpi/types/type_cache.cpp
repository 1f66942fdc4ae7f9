#include "mpi/types/type_cache.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mpi/abi/next.hpp"
#include "mpi/partitioned/carrier.hpp"

namespace larklane::mpi {

namespace detail {
constinit LastingHandleTable plain_types;  // changes with map_mutex held
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
  /// The object of a datatype. Its destructor runs before the handle can name another one.
  struct Kept {
    MPI_Datatype datatype;
    FlatType type;
    std::unique_ptr<PlainType> plain;  // null: not in plain_types

    Kept(MPI_Datatype handle, FlatType flat) noexcept : datatype(handle), type(std::move(flat)) {}
    Kept(Kept&&) noexcept = default;
    Kept& operator=(Kept&&) = delete;
    ~Kept() {
      if (plain != nullptr) detail::plain_types.table.remove(handle_bits(datatype));
    }
  };
  // guarded by map_mutex
  std::uintptr_t last_number = 0;
  std::unordered_map<std::uintptr_t, Kept> types;
  /// A predefined type keeps its handle until the MPI is closed. These are few.
  std::vector<Kept> predefined;
};

Cache& cache() {
  static Cache* const made = new Cache;  // datatypes are freed even while statics are destroyed
  return *made;
}

int copy_nothing(MPI_Datatype, int, void*, void*, void*, int* flag) {
  *flag = 0;
  return MPI_SUCCESS;
}

int forget(MPI_Datatype, int, void* number, void*) {
  const std::scoped_lock lock(cache().map_mutex);
  cache().types.erase(reinterpret_cast<std::uintptr_t>(number));
  return MPI_SUCCESS;
}

/// use(Kept&), with map_mutex held, if the datatype has been flattened.
template <class Use>
void with_flattened_locked(MPI_Datatype datatype, Use&& use) {
  void* number = nullptr;
  int flag = 0;
  if (next_pmpi().Type_get_attr(datatype, cache().keyval, &number, &flag) != MPI_SUCCESS ||
      flag == 0)
    return;
  const std::scoped_lock lock(cache().map_mutex);
  const auto found = cache().types.find(reinterpret_cast<std::uintptr_t>(number));
  if (found != cache().types.end()) use(found->second);
}

void keep_locked(MPI_Datatype datatype, const FlatType& type) {
  std::uintptr_t number = 0;
  {
    const std::scoped_lock lock(cache().map_mutex);
    number = ++cache().last_number;
    cache().types.try_emplace(number, datatype, type);
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

/// use(Kept&), with map_mutex held. False: the datatype is not predefined, or not yet flattened.
template <class Use>
bool with_predefined(MPI_Datatype datatype, Use&& use) {
  const std::scoped_lock lock(cache().map_mutex);
  const auto found = std::ranges::find(cache().predefined, datatype, &Cache::Kept::datatype);
  if (found == cache().predefined.end()) return false;
  use(*found);
  return true;
}

Result<FlatType> flatten_predefined(MPI_Datatype datatype, std::string* problem) {
  auto flat = flatten(datatype, problem);
  if (!flat) return flat;
  const std::scoped_lock lock(cache().map_mutex);
  cache().predefined.emplace_back(datatype, *flat);
  return flat;
}

/// use(Kept&), with map_mutex held, if the cache keeps the datatype.
template <class Use>
void with_kept(MPI_Datatype datatype, Use&& use) {
  if (with_predefined(datatype, use)) return;
  const std::scoped_lock lock(cache().flatten_mutex);
  if (has_keyval_locked()) with_flattened_locked(datatype, use);
}

}  // namespace

Result<FlatType> flatten_once(MPI_Datatype datatype, std::string* problem) {
  FlatType known;
  const auto copy = [&known](const Cache::Kept& kept) { known = kept.type; };
  if (with_predefined(datatype, copy)) return known;
  if (is_predefined(combiner_of(datatype))) return flatten_predefined(datatype, problem);
  const std::scoped_lock lock(cache().flatten_mutex);
  if (!has_keyval_locked()) return flatten(datatype, problem);
  with_flattened_locked(datatype, copy);
  if (known.map) return known;
  auto flat = flatten(datatype, problem);
  if (flat) keep_locked(datatype, *flat);
  return flat;
}

std::optional<PlainType> make_plain_type(MPI_Datatype datatype, std::string* problem) {
  MPI_Request carrier;
  if (make_carrier(0, datatype, &carrier) != MPI_SUCCESS) {
    *problem = "the datatype is not committed";
    return std::nullopt;
  }
  next_pmpi().Request_free(&carrier);
  auto flat = flatten_once(datatype, problem);
  if (!flat) return std::nullopt;
  const Typemap& map = *flat->map;
  const PlainType made{static_cast<std::int64_t>(map.size_bytes()), flat->first_byte,
                       map.root().node == kDense, map.is_dense()};
  with_kept(datatype, [&made](Cache::Kept& kept) {
    if (kept.plain != nullptr) return;
    kept.plain = std::make_unique<PlainType>(made);
    detail::plain_types.table.insert(handle_bits(kept.datatype), kept.plain.get());
  });
  return made;
}

void forget_datatypes() noexcept {
  const std::scoped_lock lock(cache().flatten_mutex, cache().map_mutex);
  cache().types.clear();
  cache().predefined.clear();
  cache().keyval = MPI_KEYVAL_INVALID;
}

}  // namespace larklane::mpi
