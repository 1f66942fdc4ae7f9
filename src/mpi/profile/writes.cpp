#include "mpi/profile/writes.hpp"

#include <cstring>
#include <memory>

#include "base/log.hpp"
#include "mpi/profile/tracer.hpp"

namespace larklane::mpi {

namespace detail {
constinit std::atomic<profile::WriteWatch*> write_watch{nullptr};
}  // namespace detail

namespace {

using profile::Kind;
using profile::WriteWatch;

void record_writes(profile::Recorder& recorder, WriteWatch& watch) {
  const auto page_bytes = static_cast<std::int32_t>(watch.page_bytes());
  watch.take([&](const WriteWatch::Write& write) {
    recorder.write({.begin_ns = write.time_ns,
                    .end_ns = write.time_ns,
                    .value = write.page,
                    .a = page_bytes,
                    .b = static_cast<std::int32_t>(recorder.number_of_thread(write.thread)),
                    .kind = Kind::write});
  });
}

}  // namespace

bool begin_tracing_writes() {
  auto made = WriteWatch::create();
  if (!made) {
    log_error("profile: writes can't be traced: userfaultfd: %s; %s",
              std::strerror(made.error().detail()), WriteWatch::kRemedy);
    return false;
  }
  // release: pairs with traces_writes() acquire
  detail::write_watch.store(made->release(), std::memory_order_release);
  return true;
}

void end_tracing_writes(profile::Recorder* recorder) noexcept {
  const std::unique_ptr<WriteWatch> watch(
      detail::write_watch.exchange(nullptr, std::memory_order_acq_rel));
  if (!watch || recorder == nullptr) return;
  record_writes(*recorder, *watch);
  if (watch->dropped_count() != 0) {
    log_warn("profile: %llu writes are missing: too many pages between two sends",
             static_cast<unsigned long long>(watch->dropped_count()));
  }
}

SendBuffer send_buffer_of(const void* buffer, std::int64_t count, MPI_Datatype datatype) noexcept {
  if (!traces_writes()) return {};
  MPI_Count size = 0, low = 0, extent = 0, true_low = 0, true_extent = 0;
  const Next& real = next_pmpi();
  if (real.Type_size_x(datatype, &size) != MPI_SUCCESS ||
      real.Type_get_extent_x(datatype, &low, &extent) != MPI_SUCCESS ||
      real.Type_get_true_extent_x(datatype, &true_low, &true_extent) != MPI_SUCCESS)
    return {};
  const bool has_gaps = size != extent || size != true_extent || true_low != 0;
  if (has_gaps || size <= 0 || count <= 0) return {};
  return {reinterpret_cast<std::uintptr_t>(buffer),
          static_cast<std::uint64_t>(count) * static_cast<std::uint64_t>(size)};
}

void watch_writes(profile::Recorder& recorder, const SendBuffer& buffer) noexcept {
  // acquire: as in traces_writes()
  WriteWatch* const watch = detail::write_watch.load(std::memory_order_acquire);
  if (watch == nullptr || buffer.bytes == 0) return;
  record_writes(recorder, *watch);
  const Status status = watch->watch(buffer.address, buffer.bytes);
  if (!status.ok()) {
    log_warn_once("unwatched",
                  "profile: a buffer of %llu bytes can't be watched: %s; its writes, and perhaps "
                  "those of others, are missing",
                  static_cast<unsigned long long>(buffer.bytes), std::strerror(status.detail()));
  }
}

}  // namespace larklane::mpi
