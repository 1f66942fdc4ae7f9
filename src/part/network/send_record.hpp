#pragma once
// How a network's control records are sent.

#include <cstdint>
#include <span>

#include "base/status.hpp"
#include "part/network/records.hpp"
#include "part/peer_state.hpp"

namespace larklane::part {

template <class T>
void send_record(PeerState& peer, record::NetType type, const T& record) {
  // If send() fails the peer is gone, and the engine detects that by itself.
  (void)peer.peer->send(static_cast<std::uint16_t>(type), std::as_bytes(std::span(&record, 1)));
}

/// For records that can wait for the next Start: making and freeing requests makes no system call.
template <class T>
Status send_record_later(PeerState& peer, record::NetType type, const T& record) {
  return peer.peer->send_later(static_cast<std::uint16_t>(type),
                               std::as_bytes(std::span(&record, 1)));
}

/// If it fails the peer is gone: on_peer_down() ends the channel.
inline void send_close(PeerState& peer, const record::NetClose& close) {
  (void)send_record_later(peer, record::NetType::close, close);
}

}  // namespace larklane::part
