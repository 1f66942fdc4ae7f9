#pragma once
// Requests to or from MPI_PROC_NULL (rule I12). Every call accepts them; they complete at once and
// move no data.

#include "part/request.hpp"

namespace larklane::mpi {

/// The members that both kinds share. Thread safety: as part::Request.
template <class Base>
class NullProcessRequest : public Base {
 public:
  NullProcessRequest(part::Kind kind, std::int32_t partitions) : Base(kind, partitions, 0) {}

  Status start() override {
    if (this->active()) return Errc::kAlreadyActive;
    this->active_.store(
        true, std::memory_order_relaxed);  // relaxed: the program orders a request's calls
    return {};
  }
  part::Completion poll() override { return part::Completion::complete; }
  void finish() override {
    this->active_.store(false, std::memory_order_relaxed);
  }  // relaxed: as in start()
  Status error() const noexcept override { return {}; }
  std::string error_text() const override { return {}; }

 protected:
  bool in_range(std::int32_t first, std::int32_t count) const noexcept {
    return first >= 0 && count >= 0 && first < this->partitions() &&
           count <= this->partitions() - first;
  }
};

class NullProcessSend final : public NullProcessRequest<part::SendRequest> {
 public:
  explicit NullProcessSend(std::int32_t partitions)
      : NullProcessRequest(part::Kind::send, partitions) {}
  Status pready(std::int32_t first, std::int32_t count) override {
    if (!active()) return Errc::kNotActive;
    return in_range(first, count) ? Status() : Status(Errc::kInvalidArgument);
  }
  Status look_for_receiver(bool* is_ready) override {
    *is_ready = true;
    return active() ? Status() : Status(Errc::kNotActive);
  }

 private:
  void mark_further(const part::Cell&, std::size_t, std::uint64_t) override {}  // it has no words
};

class NullProcessReceive final : public NullProcessRequest<part::RecvRequest> {
 public:
  explicit NullProcessReceive(std::int32_t partitions)
      : NullProcessRequest(part::Kind::receive, partitions) {}
  Status look(std::int32_t partition, bool* arrived) override {
    *arrived = true;
    return in_range(partition, 1) ? Status() : Status(Errc::kInvalidArgument);
  }
};

}  // namespace larklane::mpi
