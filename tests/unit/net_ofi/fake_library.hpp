#pragma once
// Tables of libfabric's calls that are a test's own.

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "net/ofi/domain.hpp"

namespace larklane::ofi {

/// A libfabric that does only the steps of the test. Thread safety: single-owner.
class FakeLibrary {
 public:
  explicit FakeLibrary(const char* provider) {
    current_ = this;
    fid_ops_ = {sizeof fid_ops_, &close, &bind, &control, nullptr, nullptr, nullptr};
    fabric_ops_.trywait = [](fid_fabric*, fid**, int) { return 0; };
    domain_ops_.cq_open = &open_queue;
    domain_ops_.av_open = &open_table;
    domain_ops_.endpoint = &open_endpoint;
    memory_ops_.reg = &register_memory;
    queue_ops_.read = &read_queue;
    queue_ops_.readerr = &read_error;
    table_ops_.insert = [](fid_av*, const void*, std::size_t, fi_addr_t* peer, std::uint64_t,
                           void*) {
      *peer = 0;
      return 1;
    };
    table_ops_.remove = [](fid_av*, fi_addr_t*, std::size_t, std::uint64_t) { return 0; };
    cm_ops_.getname = &name;
    rma_ops_.writemsg = [](fid_ep*, const fi_msg_rma* message, std::uint64_t flags) {
      current_->write_flags.push_back(flags);
      current_->parts.clear();
      for (std::size_t i = 0; i < message->iov_count; ++i)
        current_->parts.push_back({message->msg_iov[i].iov_base, message->msg_iov[i].iov_len,
                                   message->rma_iov[i].addr, message->rma_iov[i].len});
      return current_->post(message->context);
    };
    rma_ops_.read = [](fid_ep*, void*, std::size_t, void*, fi_addr_t, std::uint64_t, std::uint64_t,
                       void* context) { return current_->post(context); };
    fabric_ = {{0, nullptr, &fid_ops_}, &fabric_ops_, 0};
    domain_ = {{0, nullptr, &fid_ops_}, &domain_ops_, &memory_ops_};
    queue_ = {{0, nullptr, &fid_ops_}, &queue_ops_};
    table_ = {{0, nullptr, &fid_ops_}, &table_ops_};
    endpoint_ = {};
    endpoint_.fid.ops = &fid_ops_;
    endpoint_.cm = &cm_ops_;
    endpoint_.rma = &rma_ops_;
    region = {{0, nullptr, &fid_ops_}, nullptr, 7};
    domain.choice.info.reset(::fi_allocinfo());
    domain.choice.info->addr_format = FI_SOCKADDR_IN;
    domain.choice.info->fabric_attr->prov_name = ::strdup(provider);
    domain.choice.finish = Finish::ordered;
    domain.fabric.reset(&fabric_);
    domain.domain.reset(&domain_);
  }
  ~FakeLibrary() {
    domain = {};
    current_ = nullptr;
  }
  FakeLibrary(const FakeLibrary&) = delete;
  FakeLibrary& operator=(const FakeLibrary&) = delete;

  enum Step { queue, table, endpoint, bind_queue, bind_table, enable, get_name, kSteps };
  std::array<int, kSteps> errors{};  ///< of calls that open
  int queues_with_wait_error = 0;
  ssize_t post_error = 0;
  std::vector<void*> posted;  ///< contexts, until the test takes them
  struct Part {
    const void* from;
    std::size_t length;
    std::uint64_t to;
    std::size_t length_there;
    bool operator==(const Part&) const = default;
  };
  std::vector<Part> parts;                 ///< of the last write
  std::vector<std::uint64_t> write_flags;  ///< of each write
  std::deque<fi_cq_data_entry> done;
  std::deque<fi_cq_err_entry> failed;
  ssize_t read_error_code = 0;       ///< of fi_cq_read
  bool is_error_lost = false;        ///< there is one, and fi_cq_readerr has none
  std::vector<int> register_errors;  ///< of the next calls
  std::vector<std::uint64_t> keys;   ///< that were asked for
  std::uint32_t registers = 0, reads = 0;
  fid_mr region{};
  Domain domain;

  void finish(void* context) { done.push_back({context, 0, 0, nullptr, 0}); }
  void fail(void* context, int error) {
    fi_cq_err_entry entry{};
    entry.op_context = context;
    entry.err = error;
    failed.push_back(entry);
  }

 private:
  static int close(fid*) { return 0; }
  static int bind(fid*, fid* to, std::uint64_t) {
    return -current_->errors[to == &current_->queue_.fid ? bind_queue : bind_table];
  }
  static int control(fid*, int command, void* argument) {
    if (command == FI_ENABLE) return -current_->errors[enable];
    *static_cast<int*>(argument) = 0;  // FI_GETWAIT
    return 0;
  }
  static int open_queue(fid_domain*, fi_cq_attr* attributes, fid_cq** made, void*) {
    *made = &current_->queue_;
    if (attributes->wait_obj == FI_WAIT_FD && current_->queues_with_wait_error != 0)
      return -current_->queues_with_wait_error;
    return -current_->errors[queue];
  }
  static int open_table(fid_domain*, fi_av_attr*, fid_av** made, void*) {
    *made = &current_->table_;
    return -current_->errors[table];
  }
  static int open_endpoint(fid_domain*, fi_info*, fid_ep** made, void*) {
    *made = &current_->endpoint_;
    return -current_->errors[endpoint];
  }
  static int register_memory(fid*, const void*, std::size_t, std::uint64_t, std::uint64_t,
                             std::uint64_t key, std::uint64_t, fid_mr** made, void*) {
    *made = &current_->region;
    current_->keys.push_back(key);
    const std::uint32_t number = current_->registers++;
    return number < current_->register_errors.size() ? -current_->register_errors[number] : 0;
  }
  static int name(fid_t, void* address, std::size_t* bytes) {
    *bytes = 16;
    std::memset(address, 1, *bytes);
    return -current_->errors[get_name];
  }
  static ssize_t read_queue(fid_cq*, void* entries, std::size_t most) {
    ++current_->reads;
    if (current_->read_error_code != 0) return -current_->read_error_code;
    if (!current_->failed.empty() || current_->is_error_lost) return -FI_EAVAIL;
    const std::size_t count = std::min(most, current_->done.size());
    if (count == 0) return -FI_EAGAIN;
    std::copy_n(current_->done.begin(), count, static_cast<fi_cq_data_entry*>(entries));
    current_->done.erase(current_->done.begin(),
                         current_->done.begin() + static_cast<std::ptrdiff_t>(count));
    return static_cast<ssize_t>(count);
  }
  static ssize_t read_error(fid_cq*, fi_cq_err_entry* entry, std::uint64_t) {
    if (current_->failed.empty()) return -FI_EAGAIN;
    *entry = current_->failed.front();
    current_->failed.pop_front();
    return 1;
  }
  ssize_t post(void* context) {
    if (post_error != 0) return -post_error;
    posted.push_back(context);
    return 0;
  }

  static inline FakeLibrary* current_ = nullptr;
  fi_ops fid_ops_{};
  fi_ops_fabric fabric_ops_{};
  fi_ops_domain domain_ops_{};
  fi_ops_mr memory_ops_{};
  fi_ops_cq queue_ops_{};
  fi_ops_av table_ops_{};
  fi_ops_cm cm_ops_{};
  fi_ops_rma rma_ops_{};
  fid_fabric fabric_{};
  fid_domain domain_{};
  fid_cq queue_{};
  fid_av table_{};
  fid_ep endpoint_{};
};

}  // namespace larklane::ofi
