#include <algorithm>
#include <cstring>

#include "base/log.hpp"
#include "model/plan.hpp"
#include "net/immediate.hpp"
#include "part/network/cells.hpp"
#include "part/network/channel.hpp"

namespace larklane::part {

namespace {

/// May move() get a part of a cell?
bool counts_cells(std::uint32_t partitions, const GroupRules& rules) noexcept {
  return partitions > net::kCellsMax * (rules.take_demands() ? 1 : kGroupPartitionsMax);
}

}  // namespace

NetSend::NetSend(Parts parts)
    : SendRequest(Kind::send, parts.args.partitions,
                  parts.shape.partition_bytes * static_cast<std::uint64_t>(parts.args.partitions)),
      NetHalf(parts.path, std::move(parts.args), Kind::send, std::move(parts.buffer)),
      partition_bytes_(parts.shape.partition_bytes),
      net_words_(parts.words),
      counters_(*parts.counters),
      cells_(parts.shape.partitions),
      block_(std::move(parts.block)),
      side_(block_.view(), parts.shape),
      works_(std::make_unique<CellWork[]>(cells_.count())),
      lane_(path_.link->vci),
      groups_(std::move(parts.boundaries)),
      rules_(parts.rules),
      demand_slot_(parts.demand_slot),
      ready_works_(std::make_unique<CellWork*[]>(parts.shape.partitions)) {
  channel_.store(parts.id, std::memory_order_relaxed);
  (void)side_.choose(groups_);  // the block was made for these
  take_link(*path_.link);
  tell_key();
  for (std::uint32_t cell = 0; cell < cells_.count(); ++cell) {
    works_[cell].channel = this;
    works_[cell].link = path_.link->link.get();
  }
  if (counts_cells(parts.shape.partitions, rules_))
    parts_ = std::make_unique<std::atomic<std::uint32_t>[]>(cells_.count());
  heard_.channel = this;
  heard_.link = path_.link->link.get();
  if (const std::uint64_t after = rules_.deadline_ns; after != 0)
    timed_ = std::make_unique<Timed<RealPlatform>>(block_.view(), parts.shape.words_max, after);
  planning_ = parts.plans.make(Planning::Medium::network,
                               {parts.shape.partitions, partition_bytes_, groups_, parts.id});
}

record::NetInit NetSend::init_record() const {
  return {channel(),
          args_.context.high,
          args_.context.low,
          args_.source,
          args_.tag,
          partition_bytes_,
          static_cast<std::uint32_t>(partitions_),
          net_words_.generation,
          buffer_->memory()->remote(),
          net_words_.remote,
          link().number_there(),
          demand_slot_ ? *demand_slot_ + 1u : 0u,
          rules_.demand_after_ns};
}

Status NetSend::start() {
  if (active()) return Errc::kAlreadyActive;
  if (has_failed()) return failure_.status();
  const std::uint64_t next = round() + 1;
  if (next == 1) peer_->peer->flush_later();  // the INIT
  // relaxed, here and below: the caller orders its own calls.
  round_.store(next, std::memory_order_relaxed);
  credit_ = net_word::make(net_words_.generation, next);
  sent_last_ = static_cast<std::uint32_t>(next) * cells_.count();
  if (planning_) plan_ahead();
  last_of_several_ = groups_.size() > 1 ? sent_last_ : sent_last_ + 1;
  if (timed_) timed_->start(next);
  side_.start(next);
  words_ = side_.word_window(next);
  fast_credit_ = watch_ == nullptr ? credit_ : kNoCredit;
  // With deadlines every Pready takes the slow path, by the clock.
  open_words(timed_ ? 0 : static_cast<std::uint32_t>(partitions_));
  active_.store(true, std::memory_order_relaxed);
  begin_watch();
  if (watch_ != nullptr) watch_->warm();
  if (gate_.start()) open(next);
  return {};
}

/// Chooses the groups of the rounds after this one. The receiver need not learn them: each push and
/// notice names its partitions.
void NetSend::plan_ahead() {
  if (do_groups_change_) {
    groups_.swap(next_groups_);
    remember({0, static_cast<std::uint32_t>(partitions_)}, nullptr);
  }
  const auto wanted = wanted_groups();
  do_groups_change_ = wanted.has_value();
  if (!wanted) return;
  next_groups_ = cell_boundaries(static_cast<std::uint32_t>(partitions_), *wanted);
  (void)side_.choose(next_groups_);  // the block was made for any
  log_info("%s to %s: %zu groups after round %llu", describe(args_, Kind::send).c_str(),
           args_.peer.c_str(), next_groups_.size(), static_cast<unsigned long long>(round()));
}

/// @return nullopt: as before. While the receiver habitually demands, rounds teach the planner
/// nothing.
std::optional<std::vector<std::uint32_t>> NetSend::wanted_groups() {
  const bool held_nothing = holds_nothing_;
  // relaxed: of a round that is over. The receiver may be one round ahead.
  const std::uint64_t demanded = answered_.load(std::memory_order_relaxed);
  holds_nothing_ = asking_.see(demanded != 0 && demanded >= round() - 1);
  // Also in this round: its groups were chosen in the Start before. relaxed: see send_heard().
  nothing_held_until_.store(held_nothing && holds_nothing_ ? round() + asking_.rounds_left() : 0,
                            std::memory_order_relaxed);
  watch_ = nullptr;
  const auto partitions = static_cast<std::uint32_t>(partitions_);
  if (holds_nothing_)
    return held_nothing ? std::nullopt : std::optional(model::equal_groups(partitions, partitions));
  if (held_nothing) return planning_->groups();
  if (planning_->on_start()) watch_ = &planning_->watch();
  return planning_->changed_groups();
}

/// Ready partitions may travel from now on. Each run checks for the receiver's credit.
void NetSend::open(std::uint64_t round) {
  const auto mover = [this](Run run) { move(run); };
  side_.last_comer().open(round, mover);
  // seq_cst: store-then-look, after the words, against on_demand(). The round may be over.
  if (rules_.take_demands() && demanded_.load(std::memory_order_seq_cst) == round)
    side_.last_comer().expire_all(round, mover);
}

void NetSend::on_accept(const record::NetAccept& accept) {
  if (gate_.is_open()) return;  // only the helper opens it
  if (gate_.accept([&](bool) { accept_ = accept; })) open(round());
  answer_demand();
}

Status NetSend::pready(std::int32_t first, std::int32_t count) {
  if (!active()) return Errc::kNotActive;
  if (first < 0 || count < 0 || first > partitions_ - count) return Errc::kInvalidArgument;
  if (count == 0) return {};
  Run run{static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(count)};
  auto mover = [this](Run moved) { move(moved); };
  if (watch_ != nullptr) watch_->ready(run);
  if (timed_)
    return timed_->marks.mark(side_.last_comer(), round(), run, now_ns(),
                              this_timed_thread.copied_in(timed_.get(), round()), [&](Run moved) {
                                const std::uint64_t began = now_ns();
                                mover(moved);
                                this_timed_thread.copied += now_ns() - began;  // see send()
                              });
  return side_.last_comer().mark(round(), run.first, run.count, mover);
}

/// The receiver has accepted the channel, and has given this round's credit.
bool NetSend::may_push_all() const noexcept {
  return has_credit() && gate_.is_open();  // the words are open, or are being opened
}

Status NetSend::look_for_receiver(bool* is_ready) {
  if (!active()) return Errc::kNotActive;
  *is_ready = may_push_all();
  if (*is_ready) [[likely]]
    return {};
  // The receiver may have completed the round: it may be one ahead, or gone.
  const Completion now = poll();
  *is_ready = now == Completion::complete || (now == Completion::pending && may_push_all());
  return now == Completion::failed ? failure_.status() : Status{};
}

/// Sends whole cells. Runs may hold parts of cells that are larger than a group, or that an expired
/// word releases.
void NetSend::move(Run run) {
  const std::uint32_t first = cells_.cell_of(run.first);
  const std::uint32_t last = cells_.cell_of(run.first + run.count - 1);
  if (!parts_) return send({first, last - first + 1});
  Run complete{first, 0};
  for (std::uint32_t cell = first; cell <= last; ++cell) {
    if (completes_cell(cell, run)) {
      if (complete.count++ == 0) complete.first = cell;
    } else if (complete.count != 0) {
      send(std::exchange(complete, {0, 0}));
    }
  }
  if (complete.count != 0) send(complete);
}

/// Does `run` make the cell complete? If not, this was the last touch of the channel.
bool NetSend::completes_cell(std::uint32_t cell, Run run) noexcept {
  const Run whole = cells_.partitions({cell, 1});
  const std::uint32_t begin = std::max(run.first, whole.first);
  const std::uint32_t end = std::min(run.first + run.count, whole.first + whole.count);
  if (end - begin == whole.count) return true;
  // acq_rel: the thread that completes the cell acquires the others' partitions.
  const std::uint32_t before = parts_[cell].fetch_add(end - begin, std::memory_order_acq_rel);
  if (before + (end - begin) != whole.count) return false;
  parts_[cell].store(0, std::memory_order_relaxed);  // relaxed: the next round comes after the send
  return true;
}

/// The common case: the mark completes its group, the receiver has given credit, and an earlier
/// round has prepared the group's Work.
void NetSend::mark_further(const Cell& cell, std::size_t partition, std::uint64_t old) {
  CellWork* const work = ready_works_[partition];
  if (work == nullptr || net_words_.read(0) != fast_credit_) [[unlikely]]
    return mark_further_slow(cell, old);
  if (cell.leaf_mask != 0) {
    const LeafMark leaf = words_.mark_leaf(work->leaves, cell.leaf_mask);
    if (leaf != LeafMark::completes) [[unlikely]]
      return leaf == LeafMark::expired ? mark_further_slow(cell, old) : void();
  } else if ((old & word_state::kExpired) != 0) [[unlikely]] {
    return mark_further_slow(cell, old);
  }
  const auto entry = in_use_.enter(work->entry);
  if (!entry.may_move) [[unlikely]]
    return leave();
  // Noted now: at its completion the rest may have been posted, though these bytes arrived earlier.
  work->posted_by_then = entry.cargo;
  work->is_last = entry.cargo == last_of_several_;
  lane_.post(*work);
}

void NetSend::mark_further_slow(const Cell& cell, std::uint64_t old) {
  side_.last_comer().mark_further(round(), cell, old, [this](Run run) { move(run); });
}

void NetSend::remember(Run run, CellWork* work) noexcept {
  for (std::uint32_t p = run.first; p < run.first + run.count; ++p) ready_works_[p] = work;
}

std::uint32_t NetSend::group_partitions(std::uint32_t first) const noexcept {
  const auto next = std::upper_bound(groups_.begin(), groups_.end(), first);
  return (next == groups_.end() ? static_cast<std::uint32_t>(partitions_) : *next) - first;
}

bool NetSend::is_group(Run run) const noexcept {
  return std::binary_search(groups_.begin(), groups_.end(), run.first) &&
         group_partitions(run.first) == run.count;
}

/// Can the next round's mark_further() post the run exactly as now?
bool NetSend::is_made_again(Run run) const noexcept {
  if (watch_ != nullptr || timed_ || buffer_->is_packed()) return false;
  // A layout splits larger groups.
  return run.count <= kGroupPartitionsMax && is_group(run);
}

void NetSend::send(Run cells) {
  CellWork& work = works_[cells.first];
  work.entry = InUse::one_with(cells.count);
  const auto entry = in_use_.enter(work.entry);
  if (!entry.may_move) return leave();
  work.cells = cells;
  work.posted_by_then = entry.cargo;
  work.is_last = entry.cargo == sent_last_ && cells.count != cells_.count();
  const Run run = cells_.partitions(cells);
  const bool is_watched = watch_ != nullptr;
  const std::uint64_t began = is_watched ? watch_->began(run) : 0;
  const std::uint64_t began_ns = is_watched ? now_ns() : 0;
  // The channel may be gone once its last run has been posted.
  const std::shared_ptr<GivingTimes> giving = is_watched ? planning_->giving() : nullptr;
  buffer_->pack(run.first * partition_bytes_, run.count * partition_bytes_);
  bool may_push = has_credit();
  if (!may_push && path_.is_progress_manual) {
    (void)vci().progress();
    may_push = has_credit();
  }
  if (may_push)
    push(work, run);
  else
    leave_notice(work);
  const bool is_again = may_push && is_made_again(run);
  work.post_prepared = is_again ? work.link->prepare(work.transfer, work.immediate, work) : nullptr;
  if (is_again) work.leaves = side_.last_comer().leaf_group(round(), run.first);
  remember(run, is_again ? &work : nullptr);
  vci().post(work);
  if (!is_watched) return;
  // With some providers a post is a system call. It delays the partitions that this thread makes
  // ready next, independent of the program. It is a cost of the message, not of the partition.
  RoundWatch::left(began);
  giving->add(now_ns() - began_ns);
}

void NetSend::push(CellWork& work, Run run) {
  const std::uint64_t offset = run.first * partition_bytes_;
  work.kind = vci::Work::Kind::write_immediate;
  work.immediate =
      net::make_immediate(static_cast<std::uint16_t>(accept_.slot), net::run_token(work.cells));
  work.transfer = {buffer_->at(offset),
                   buffer_->memory(),
                   {accept_.data.address + offset, accept_.data.key},
                   run.count * partition_bytes_};
  work.complete = watch_ != nullptr ? &NetSend::pushed_in_watched_round : &NetSend::pushed;
  work.wakes = watch_ != nullptr;  // otherwise it can wait for the thread that completes the round
}

/// From now on the receiver owns the run and pulls it.
void NetSend::leave_notice(CellWork& work) {
  const std::uint64_t word = net_word::make(accept_.generation, round(), work.cells.count);
  std::memcpy(work.small, &word, sizeof(word));
  work.small_bytes = sizeof(word);
  work.kind = vci::Work::Kind::small_immediate;
  work.immediate = net::make_immediate(static_cast<std::uint16_t>(accept_.slot),
                                       net::notice_token(work.cells.first));
  work.transfer.remote = {accept_.notices.address + work.cells.first * sizeof(word),
                          accept_.notices.key};
  work.complete = &NetSend::noticed;
  work.wakes = false;
  awaited_.add(work.cells.first);
}

void NetSend::pushed(net::Operation& operation, Status status) {
  auto& work = static_cast<CellWork&>(operation);
  NetSend& channel = *work.channel;
  if (status.ok()) {
    const Run run = channel.cells_.partitions(work.cells);
    channel.counters_.add_moved(MovedBy::sender, run, run.count * channel.partition_bytes_,
                                work.posted_by_then != channel.sent_last_);
    publish_moved(channel.block_.view(), channel.round(), run);
  } else {
    channel.lost(status);
  }
  channel.leave();
}

void NetSend::pushed_in_watched_round(net::Operation& operation, Status status) {
  const auto& work = static_cast<CellWork&>(operation);
  if (status.ok()) work.channel->watch_->ended(work.channel->cells_.partitions(work.cells));
  pushed(operation, status);
}

void NetSend::noticed(net::Operation& operation, Status status) {
  NetSend& channel = *static_cast<CellWork&>(operation).channel;
  if (!status.ok()) channel.lost(status);
  channel.leave();
}

void NetSend::lost(Status status) {
  // The caller holds a place: the last to leave sends FAIL.
  give_up(status, own_half() + ": the network could not write into the receiver's memory: " +
                      cause_of(path_.lanes->fabric(), status));
}

/// Counts the runs that have their FIN: the receiver has pulled them.
void NetSend::look_for_fins() {
  awaited_.for_each([this](std::uint32_t cell) {
    if (net_words_.read(kFinWords + cell) != net_word::make(net_words_.generation, round())) return;
    const Run cells = works_[cell].cells;  // read before another thread may take the cell for the
                                           // next round
    if (awaited_.take(cell)) publish_moved(block_.view(), round(), cells_.partitions(cells));
  });
}

Completion NetSend::poll() {
  if (!active()) return Completion::complete;
  if (complete()) return Completion::complete;
  if (has_failed()) return failed_once_quiet();
  if (timed_)
    timed_->watch.look(side_.last_comer(), round(), now_ns(), [this](Run run) { move(run); });
  progress();
  look_for_fins();
  if (complete()) return Completion::complete;
  if (!lacks_peer(round())) return Completion::pending;
  vci().drain();  // bytes that a lost peer has sent still count
  look_for_fins();
  if (complete()) return Completion::complete;
  give_up_on_peer();
  return failed_once_quiet();
}

/// Has everything been moved, and is no Work of the round in flight?
bool NetSend::complete() const {
  return rounds_moved(block_.view(), static_cast<std::uint32_t>(partitions_), round()) && is_idle();
}

void NetSend::finish() {
  // A round that is not complete has failed.
  if (watch_ != nullptr && active() && complete()) planning_->on_round_done();
  // relaxed: the caller orders its own calls.
  open_words(0);
  active_.store(false, std::memory_order_relaxed);
  end_watch();
}

}  // namespace larklane::part
