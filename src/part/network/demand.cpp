#include "part/network/demand.hpp"

#include <algorithm>
#include <cstring>

#include "base/clock.hpp"
#include "part/network/channel.hpp"

namespace larklane::part {

/// A Parrived has found its partition missing. MPI_Wait does not demand: the round ends with its
/// last partition, and then no group is incomplete.
void NetRecv::demand() {
  DemandWork& work = *demand_;
  const std::uint64_t round = this->round();
  // relaxed: a hint; may_demand() checks again.
  if (work.round.load(std::memory_order_relaxed) == round) return;
  const std::uint64_t moved = block_->view().header().moved_count.load(std::memory_order_relaxed);
  if (!work.silence.lasts(moved, now_ns(), match_->init.demand_after_ns)) return;
  // acquire: pairs with demand_sent()'s release; from here on only one caller at a time.
  if (work.is_busy.exchange(true, std::memory_order_acquire)) return;
  if (!may_demand(round) || !enter()) {
    work.is_busy.store(false, std::memory_order_release);  // release: as demand_sent()'s
    return;
  }
  work.round.store(round, std::memory_order_relaxed);
  work.count.fetch_add(1, std::memory_order_relaxed);
  const std::uint64_t word = net_word::make(match_->init.generation, round);
  std::memcpy(work.small, &word, sizeof(word));
  work.small_bytes = sizeof(word);
  work.kind = vci::Work::Kind::small_immediate;
  work.immediate = net::make_immediate(static_cast<std::uint16_t>(match_->init.demand_slot - 1),
                                       net::kDemandToken);
  work.transfer.remote = {match_->init.control.address + kDemandWord * sizeof(word),
                          match_->init.control.key};
  work.complete = &NetRecv::demand_sent;
  vci().post(work);
}

/// Once a round, while it is open. Only if the sender has answered the demand before, and has not
/// announced that it holds nothing back in this round.
bool NetRecv::may_demand(std::uint64_t round) const {
  const std::uint64_t last = demand_->round.load(std::memory_order_relaxed);
  if (last >= round || open_round_.load(std::memory_order_seq_cst) != round) return false;
  if (last == 0) return true;
  const std::uint64_t heard = match_->notices.read(cells_->count());
  return net_word::generation(heard) == match_->notices.generation &&
         is_called_for(round, last, static_cast<std::uint32_t>(heard));
}

void NetRecv::demand_sent(net::Operation& operation, Status status) {
  auto& work = static_cast<DemandWork&>(operation);
  NetRecv& channel = *work.channel;
  if (!status.ok()) channel.lost(status, kWrite);
  // release: pairs with demand()'s acquire.
  work.is_busy.store(false, std::memory_order_release);
  channel.leave();
}

/// The receiver may be one round ahead of the sender: then expired words wait for their Start.
void NetSend::on_demand() {
  const std::uint64_t word = net_words_.read(kDemandWord);
  if (net_word::generation(word) != net_words_.generation) return;  // of an earlier channel
  demands_heard_.fetch_add(1, std::memory_order_relaxed);           // relaxed: see has_heard_all()
  const std::uint64_t near = round();
  const auto further = static_cast<std::int32_t>(static_cast<std::uint32_t>(word) -
                                                 static_cast<std::uint32_t>(near));
  // seq_cst: store-then-look against open() and on_accept(): they see this round, or this call sees
  // the words that they have opened.
  demanded_.exchange(near + static_cast<std::uint64_t>(std::int64_t{further}),
                     std::memory_order_seq_cst);
  answer_demand();
}

/// From now on no partition of that round waits for another one.
void NetSend::answer_demand() {
  // seq_cst: as in on_demand(); acquires accept_.
  const std::uint64_t round = demanded_.load(std::memory_order_seq_cst);
  if (round == 0 || !gate_.is_open()) return;
  if (answered_.exchange(round, std::memory_order_seq_cst) == round) return;
  side_.last_comer().expire_all(round, [this](Run run) { move(run); });
  send_heard();
}

/// Answers the demand, so that the receiver may demand again. seq_cst: store-then-look against
/// heard_sent().
void NetSend::send_heard() {
  if (heard_.is_busy.exchange(true, std::memory_order_seq_cst)) return;
  if (!enter()) return;  // it stays busy: nothing is posted any more
  heard_.round = answered_.load(std::memory_order_seq_cst);
  // relaxed: an older value only costs demands
  const std::uint64_t free = nothing_held_until_.load(std::memory_order_relaxed);
  const std::uint64_t word = net_word::make(accept_.generation, std::max(heard_.round, free));
  std::memcpy(heard_.small, &word, sizeof(word));
  heard_.small_bytes = sizeof(word);
  heard_.kind = vci::Work::Kind::small;
  heard_.transfer.remote = {accept_.notices.address + cells_.count() * sizeof(word),
                            accept_.notices.key};
  heard_.complete = &NetSend::heard_sent;
  vci().post(heard_);
}

void NetSend::heard_sent(net::Operation& operation, Status status) {
  auto& work = static_cast<HeardWork&>(operation);
  NetSend& channel = *work.channel;
  const std::uint64_t round = work.round;
  if (!status.ok()) channel.lost(status);
  work.is_busy.store(false, std::memory_order_seq_cst);
  if (channel.answered_.load(std::memory_order_seq_cst) != round) channel.send_heard();
  channel.leave();
}

}  // namespace larklane::part
