#pragma once
// A table of peers' addresses. libfabric's own table holds each address once, however many links
// lead there: some providers remove it with the first link that ends. Thread safety: vci-serial.

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "net/ofi/handles.hpp"

namespace larklane::ofi {

class Addresses {
 public:
  /// @return errno of libfabric, positive
  int open(fid_domain& domain) {
    fi_av_attr attributes{};
    attributes.type = FI_AV_TABLE;
    fid_av* table = nullptr;
    const int error = ::fi_av_open(&domain, &attributes, &table, nullptr);
    if (error == 0) table_.reset(table);
    return -error;
  }
  fid_av& table() const noexcept { return *table_; }

  /// @return FI_ADDR_UNSPEC: libfabric refuses it
  fi_addr_t add(const std::vector<std::byte>& address) {
    const auto known = std::ranges::find(rows_, address, &Row::address);
    if (known != rows_.end()) {
      ++known->links;
      return known->peer;
    }
    fi_addr_t peer = FI_ADDR_UNSPEC;
    if (::fi_av_insert(table_.get(), address.data(), 1, &peer, 0, nullptr) != 1)
      return FI_ADDR_UNSPEC;
    rows_.push_back({address, peer, 1});
    return peer;
  }
  void remove(fi_addr_t peer) {
    const auto row = std::ranges::find(rows_, peer, &Row::peer);
    if (row == rows_.end() || --row->links > 0) return;
    (void)::fi_av_remove(table_.get(), &peer, 1, 0);
    rows_.erase(row);
  }

 private:
  struct Row {
    std::vector<std::byte> address;
    fi_addr_t peer;
    std::uint32_t links;
  };
  Fid<fid_av> table_;
  std::vector<Row> rows_;
};

}  // namespace larklane::ofi
