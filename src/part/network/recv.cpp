#include <cstring>
#include <utility>

#include "part/network/channel.hpp"

namespace larklane::part {

NetRecv::NetRecv(InitArgs args, NetBuffer buffer, NetPath path, Counters* counters)
    : RecvRequest(
          Kind::receive, args.partitions,
          static_cast<std::uint64_t>(args.partitions) * args.count * args.type->size_bytes()),
      NetHalf(path, std::move(args), Kind::receive, std::move(buffer)),
      counters_(*counters),
      unpacks_(buffer_->is_packed()) {
  credit_.channel = this;
  credit_.wakes = false;
}

Result<record::NetAccept> NetRecv::match(const Match& match) {
  NetLink& link = this->link();
  const BlockShape shape{
      Mode::direct, match.init.partitions, 0, 0, 0, 0, match.init.partition_bytes};
  const net::Cells cells(shape.partitions);
  auto block = PrivateBlock::make(shape);
  std::unique_ptr<CellWork[]> reads(new (std::nothrow) CellWork[cells.count()]);
  std::unique_ptr<FinWork[]> fins(new (std::nothrow) FinWork[cells.count()]);
  const bool may_demand = match.init.demand_slot != 0;
  std::unique_ptr<DemandWork> demand(may_demand ? new (std::nothrow) DemandWork : nullptr);
  if (!block || !reads || !fins || (may_demand && !demand)) return Errc::kNoMemory;
  channel_.store(match.init.channel, std::memory_order_relaxed);
  cells_ = cells;
  block_.emplace(std::move(block).value());
  arrival_.emplace(block_->view(), shape.partitions, static_cast<std::uint32_t>(partitions_));
  cell_count_ = cells.count();
  is_plain_ = cells.count() == shape.partitions && !unpacks_;
  unmarked_count_ = arrival_->marks() == nullptr ? cell_count_ : 0;
  arrived_ = block_->view().arrived();
  moved_count_ = &block_->view().header().moved_count;
  reads_ = std::move(reads);
  fins_ = std::move(fins);
  for (std::uint32_t cell = 0; cell < cells_->count(); ++cell) {
    reads_[cell].channel = this;
    reads_[cell].link = link.link.get();
    fins_[cell].channel = this;
    fins_[cell].link = link.link.get();
  }
  credit_.link = link.link.get();
  demand_ = std::move(demand);
  if (demand_) {
    demand_->channel = this;
    demand_->link = link.link.get();
  }
  const record::NetAccept accept{match.init.channel, match.notices.generation, match.slot,
                                 buffer_->memory()->remote(), match.notices.remote};
  match_.emplace(match);
  tell_key();
  // release: pairs with usable()'s acquire.
  usable_.store(true, std::memory_order_release);
  arrival_marks_ = arrival_->marks();
  // release: `arrival_marks_`; pairs with parrived()'s acquire.
  if (arrival_marks_ != nullptr)
    marks_count_.store(static_cast<std::uint32_t>(partitions_), std::memory_order_release);
  // release: pairs with matched()'s acquire.
  matched_.store(true, std::memory_order_release);
  return accept;
}

void NetRecv::fail_unmatched(std::uint64_t channel, Status status, std::string text) {
  channel_.store(channel, std::memory_order_relaxed);
  fail(status, std::move(text));
  // release: pairs with matched()'s acquire.
  matched_.store(true, std::memory_order_release);
}

void NetRecv::accept() {
  (void)gate_.accept([this](bool start_waits) {
    if (!start_waits) return;
    // Before the gate is open: else the next round's Start could give its credit before this one's.
    begin_watch();
    open(1);
  });
}

Status NetRecv::start() {
  if (active()) return Errc::kAlreadyActive;
  if (has_failed()) return failure_.status();
  const std::uint64_t next = round() + 1;
  // relaxed, here and below: the caller orders its own calls.
  round_.store(next, std::memory_order_relaxed);
  round_mark_.store(mark_of(next), std::memory_order_relaxed);
  active_.store(true, std::memory_order_relaxed);
  if (!gate_.start()) return {};
  begin_watch();
  open(next);
  return {};
}

/// The buffer may be written. seq_cst: store-then-look against on_notice(): of a concurrent notice,
/// one of the two sees the other.
void NetRecv::open(std::uint64_t round) {
  open_round_.store(round, std::memory_order_seq_cst);
  if (demand_) demand_->silence.begin();
  give_credit(round);
  noticed_.for_each([this](std::uint32_t cell) { claim(cell); });
}

/// Without credit the sender leaves notices. But a sender that waits for its credit leaves none, so
/// the last round's credit always goes: now, or when the one before it has completed.
void NetRecv::give_credit(std::uint64_t round) {
  std::uint64_t state = CreditWork::kIdle;
  // acquire: pairs with credit_sent()'s release.
  if (credit_.state.compare_exchange_strong(state, CreditWork::kBusy, std::memory_order_acquire))
      [[likely]]
    return post_credit(round);
  // Most have completed, but no thread has polled since. If not, the completion wakes the helper.
  NetLane& lane = link().lane;
  (void)vci().progress();
  lane.want_all();
  std::uint64_t next = 0;
  do {
    next = state == CreditWork::kIdle ? CreditWork::kBusy : CreditWork::owing(round);
    // acq_rel: as above; releases the wish to credit_sent(), which undoes it.
  } while (!credit_.state.compare_exchange_weak(state, next, std::memory_order_acq_rel,
                                                std::memory_order_acquire));
  if (state != CreditWork::kBusy) lane.want_needed();  // none is to be undone, or there are two
  if (state == CreditWork::kIdle) post_credit(round);
}

/// @pre the caller has made the credit busy
void NetRecv::post_credit(std::uint64_t round) {
  if (!enter()) return;  // it stays busy: nothing is posted any more
  const std::uint64_t word = net_word::make(match_->init.generation, round);
  std::memcpy(credit_.small, &word, sizeof(word));
  credit_.small_bytes = sizeof(word);
  credit_.kind = vci::Work::Kind::small;
  credit_.transfer.remote = match_->init.control;
  credit_.complete = &NetRecv::credit_sent;
  vci().post(credit_);
}

void NetRecv::credit_sent(net::Operation& operation, Status status) {
  NetRecv& channel = *static_cast<CreditWork&>(operation).channel;
  if (!status.ok()) channel.lost(status, kWrite);
  // release: pairs with give_credit()'s acquire.
  std::uint64_t state = CreditWork::kBusy;
  if (!channel.credit_.state.compare_exchange_strong(state, CreditWork::kIdle,
                                                     std::memory_order_acq_rel)) {
    // acq_rel: another Start may have named a later round meanwhile.
    state = channel.credit_.state.exchange(CreditWork::kBusy, std::memory_order_acq_rel);
    channel.link().lane.want_needed();
    channel.post_credit(CreditWork::owed_round(state));
  }
  channel.leave();
}

/// A push of cells with several partitions each, or of bytes to unpack.
void NetRecv::push_slow(Run cells) {
  if (!enter()) return;
  const Run run = cells_->partitions(cells);
  const std::uint64_t bytes = match_->init.partition_bytes;
  buffer_->unpack(run.first * bytes, run.count * bytes);
  publish_moved(block_->view(), open_round_.load(std::memory_order_relaxed), run);
  leave();
}

void NetRecv::on_other(std::uint16_t token) {
  const auto decoded = net::decode_token(token);
  if (decoded && decoded->is_notice)
    on_notice(decoded->run.first);
  else
    break_off();
}

/// A notice of this round, or of the next one: that waits for its Start.
void NetRecv::on_notice(std::uint32_t cell) {
  if (!usable() || cell >= cells_->count()) return break_off();
  // seq_cst: store-then-look against open().
  noticed_.add(cell);
  claim(cell);
}

/// Start, the helper and waiting threads: one of them pulls. A thread that stalled between its look
/// and its take may have taken another round's notice. It then puts the cell back and looks again.
void NetRecv::claim(std::uint32_t cell) {
  std::uint64_t word = 0;
  while (true) {
    word = match_->notices.read(cell);  // copied: the sender can write there
    const std::uint64_t round = open_round_.load(std::memory_order_seq_cst);
    if (round == 0 || !net_word::of_round(word, round) || !noticed_.take(cell)) return;
    if (match_->notices.read(cell) == word && open_round_.load(std::memory_order_seq_cst) == round)
      break;
    noticed_.add(cell);
  }
  if (net_word::generation(word) != match_->notices.generation ||
      cell + net_word::cells(word) > cells_->count())
    return break_off();
  pull({cell, net_word::cells(word)});
}

void NetRecv::pull(Run cells) {
  CellWork& work = reads_[cells.first];
  // acquire: pairs with pulled()'s release. A second notice of one run is invalid.
  if (work.is_busy.exchange(true, std::memory_order_acquire)) return break_off();
  if (!enter()) return;
  work.cells = cells;
  const Run run = cells_->partitions(cells);
  const std::uint64_t offset = run.first * match_->init.partition_bytes;
  work.kind = vci::Work::Kind::read;
  work.transfer = {buffer_->at(offset),
                   buffer_->memory(),
                   {match_->init.data.address + offset, match_->init.data.key},
                   run.count * match_->init.partition_bytes};
  work.complete = &NetRecv::pulled;
  vci().post(work);
}

void NetRecv::pulled(net::Operation& operation, Status status) {
  auto& work = static_cast<CellWork&>(operation);
  NetRecv& channel = *work.channel;
  const Run cells = work.cells;
  // release: pairs with pull()'s acquire. The run's next notice follows the FIN.
  work.is_busy.store(false, std::memory_order_release);
  if (status.ok()) {
    // Before the round can end and the next one begin.
    const std::uint64_t round = channel.open_round_.load(std::memory_order_relaxed);
    channel.send_fin(cells.first, net_word::make(channel.match_->init.generation, round));
    channel.pulled_in(cells);
  } else {
    channel.lost(status, "read");
  }
  channel.leave();
}

/// The sender may fill the run again. Runs with the lane's lock held, as fin_sent() does.
void NetRecv::send_fin(std::uint32_t cell, std::uint64_t word) {
  FinWork& work = fins_[cell];
  if (work.is_busy)
    work.again = word;
  else
    post_fin(work, cell, word);
}

void NetRecv::post_fin(FinWork& work, std::uint32_t cell, std::uint64_t word) {
  if (!enter()) return;
  work.is_busy = true;
  std::memcpy(work.small, &word, sizeof(word));
  work.small_bytes = sizeof(word);
  work.kind = vci::Work::Kind::small;
  work.transfer.remote = {match_->init.control.address + (kFinWords + cell) * sizeof(word),
                          match_->init.control.key};
  work.complete = &NetRecv::fin_sent;
  vci().post(work);
}

void NetRecv::fin_sent(net::Operation& operation, Status status) {
  auto& work = static_cast<FinWork&>(operation);
  NetRecv& channel = *work.channel;
  work.is_busy = false;
  if (!status.ok())
    channel.lost(status, kWrite);
  else if (const std::uint64_t word = std::exchange(work.again, 0); word != 0)
    channel.post_fin(work, static_cast<std::uint32_t>(&work - channel.fins_.get()), word);
  channel.leave();
}

/// @param could_not  verb of the failed operation
void NetRecv::lost(Status status, const char* could_not) {
  // The caller holds a place: the last to leave sends FAIL.
  give_up(status, own_half() + ": the network could not " + could_not +
                      " the sender's memory: " + cause_of(path_.lanes->fabric(), status));
}

void NetRecv::break_off() {
  give_up(Errc::kProtocol, own_half() + ": the sender's immediate makes no sense");
}

void NetRecv::pulled_in(Run cells) {
  const Run run = cells_->partitions(cells);
  const std::uint64_t bytes = match_->init.partition_bytes;
  buffer_->unpack(run.first * bytes, run.count * bytes);
  const std::uint64_t round = open_round_.load(std::memory_order_relaxed);
  // relaxed: statistics.
  const std::uint64_t moved =
      block_->view().header().moved_count.load(std::memory_order_relaxed) + run.count;
  counters_.add_moved(MovedBy::receiver, run, run.count * bytes,
                      moved < round * match_->init.partitions);
  publish_moved(block_->view(), round, run);
}

inline bool NetRecv::has_moved_all() const {
  return rounds_moved(*moved_count_, match_->init.partitions, round());
}
inline bool NetRecv::complete() const { return usable() && has_moved_all(); }

Status NetRecv::look(std::int32_t partition, bool* arrived) {
  if (partition < 0 || partition >= partitions_) return Errc::kInvalidArgument;
  const auto index = static_cast<std::uint32_t>(partition);
  // The count is loaded only if no marks answer: a thread that polls Parrived must leave the
  // count's line to the threads that add to it. relaxed: a hint, either value is right.
  const bool has_marks = marks_count_.load(std::memory_order_relaxed) != 0;
  const auto is_there = [&] {
    return usable() && ((!has_marks && has_moved_all()) || arrival_->arrived(round(), index));
  };
  *arrived = !active() || is_there();
  if (*arrived) return {};
  if (has_failed() || lacks_peer(round()))
    return poll() == Completion::failed ? failure_.status() : Status{};
  progress();
  *arrived = has_marks ? has_mark(index) : is_there();
  if (!*arrived && usable() && demand_) demand();
  return {};
}

Completion NetRecv::poll() {
  if (!active()) return Completion::complete;
  if (complete()) return Completion::complete;
  if (has_failed()) return usable() ? failed_once_quiet() : Completion::failed;
  progress();
  if (complete()) return Completion::complete;
  if (!lacks_peer(round())) return Completion::pending;
  vci().drain();  // bytes that a lost peer has sent still count
  if (complete()) return Completion::complete;
  give_up_on_peer();
  return usable() ? failed_once_quiet() : Completion::failed;
}

void NetRecv::finish() {
  // seq_cst: as in open(). The buffer is the program's again.
  open_round_.store(0, std::memory_order_seq_cst);
  active_.store(false, std::memory_order_relaxed);  // relaxed: the caller orders its own calls
  end_watch();
}

}  // namespace larklane::part
