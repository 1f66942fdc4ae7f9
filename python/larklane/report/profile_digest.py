"""The contents of a report on a profile, for text and page alike."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from larklane.comparison.projection import project
from larklane.figures.charts import Figure
from larklane.figures.patterns import finished_of, partitioned_of, patterns, ready_of, smallest_delta_ns, whole_of
from larklane.numbers import wording
from larklane.numbers.stats import bootstrap, median
from larklane.prediction.aggregation import aggregation
from larklane.prediction.costs import Costs
from larklane.prediction.forecast import Forecast, forecast
from larklane.prediction.predictor import WORTH, Saving, Written
from larklane.profile.ordinary import accounts_of
from larklane.profile.phases import Message
from larklane.profile.profile import NATIVE, Profile, load
from larklane.profile.profile_file import NOBODY
from larklane.profile.rounds import Request, early_bytes_share, exposed_ns, traces_of
from larklane.profile.traffic import calls_share
from larklane.profile.team import UNKNOWN, Team
from larklane.profile.writes import check_same, is_traced, sends_of, writers_of
from larklane.report.digest import Table
from larklane.report.ordinary_digest import account_table, ordinary_sentences

MEASURE = "measure it with `larklane bench latency --out DIR` and give --costs DIR/bench.json"
MANY = 0.5  # of the messages
SLOW = ("recorded with --trace-writes, which is slow: its times, and what is predicted from them, are not those of the program; "
        "profile it without, and give this one as --writes")
UNSURE = " The interval holds 0: it may as well save nothing. Try it."


class Titled(NamedTuple):
    """A table and its title."""

    title: str
    table: Table


@dataclass(frozen=True)
class ProfileDigest:
    """One folder. `ordinary`: sentences on ordinary messages and option p2p; `savings`: on savings by early sends; `problems`: on missing data."""

    name: str
    subject: str
    problems: tuple[str, ...]
    ordinary: tuple[str, ...]
    savings: tuple[str, ...]
    tables: tuple[Titled, ...]
    figures: tuple[Figure, ...]


def _middle(values: Iterable[float], text: Callable[[float], str] = wording.duration) -> str:
    values = list(values)
    return text(median(values)) if values else "-"


def _delta(value_ns: float | None) -> str:
    return "-" if value_ns is None else wording.duration(value_ns)


def _sends(groups: dict[tuple[int, ...], list[Request]]) -> Table:
    rows = []
    for (rank, peer, partitions, size), sends in groups.items():
        traces = [trace for send in sends for trace in traces_of(send)]
        others = {send.other.partitions for send in sends if send.other}
        exposed = [exposed_ns(trace) for trace in traces]
        interval = " to ".join(wording.duration(bound) for bound in bootstrap(float, exposed)) if exposed else "-"
        rows.append((str(rank), str(peer), f"{partitions} / {', '.join(map(str, sorted(others))) or '?'}", wording.size(size), str(len(traces)),
                     _middle(exposed), interval, _middle((100 * early_bytes_share(trace) for trace in traces), lambda share: f"{share:.0f} %"),
                     _delta(smallest_delta_ns(each for send in sends for each in ready_of(send)))))
    return Table(("rank", "to", "partitions here / there", "bytes", "rounds", "exposed time", "95 %", "early bytes", "smallest timer"), tuple(rows))


def _messages(groups: dict[tuple[int, ...], list[Message]]) -> Table:
    rows = []
    for (rank, peer, threads, size), messages in groups.items():
        phases = [message.phase for message in messages if message.phase]
        rows.append((str(rank), str(peer), wording.size(size), str(len(messages)), str(threads),
                     _middle(phase.last_ns - min(phase.finished_ns.values()) for phase in phases),
                     _middle(gap for gap in (message.after_phase_ns for message in messages) if gap is not None),
                     _delta(smallest_delta_ns(map(finished_of, phases)))))
    return Table(("rank", "to", "bytes", "sends", "threads", "first to last thread", "last thread to send", "smallest timer"), tuple(rows))


def _writers(profile: Profile) -> Table:
    """A table of the threads that wrote the sent pages, from a run with --trace-writes."""
    groups: dict[tuple[int, int], list[list[int]]] = collections.defaultdict(list)
    for rank, records in profile.records.items():
        team = Team(records)
        for sent in sends_of(records):
            if sent.writes:
                writes = sorted(sent.writes)
                numbers = [team.number(write.thread, write.time_ns) for write in writes]
                groups[rank, sent.bytes].append([write.thread for write in writes if write.thread != NOBODY] if UNKNOWN in numbers else numbers)
    rows = []
    for (rank, size), sends in sorted(groups.items()):
        shares = (sum(len(set(threads)) > 1 for threads in sends), sum(threads == sorted(threads) for threads in sends))
        rows.append((str(rank), wording.size(size), str(len(sends)), f"{median([len(set(threads)) for threads in sends]):g}",
                     *(f"{100 * share / len(sends):.0f} %" for share in shares)))
    return Table(("rank", "bytes", "sends", "threads", "written by several", "in the order of the threads"), tuple(rows))


# --- savings of early sends -------------------------------------------------------------------------------------------


def _range(saving: Saving) -> str:
    return " to ".join(wording.duration(bound) for bound in saving.interval_ns)


def _verdict(found: Forecast) -> list[str]:
    """@return sentences on the saving, the answer first"""
    prediction = found.prediction
    if found.is_nothing:
        return [f"Sending early would save nothing: {found.why}."]
    if prediction is None:
        return [f"What sending early would save can't be said: {found.why}."]
    best, step = prediction.best, prediction.step_ns
    of = f"a step of {wording.duration(step)} ({wording.count(prediction.steps, 'step')})"
    if best.is_nothing:
        return [f"Sending early would save nothing of {of}: predicted {wording.duration(best.ns)} with {wording.count(best.parts, 'partition')}, "
                f"in {_range(best)}; less than {100 * WORTH:.0f} % of a step is nothing."]
    sure = UNSURE if best.is_unsure else ""
    return [f"Sending early {'may' if sure else 'would'} save {wording.duration(best.ns)} ({_range(best)}) of {of}, that is {100 * best.ns / step:.0f} %, with "
            f"{wording.count(best.parts, 'partition')} a message.{sure}",
            f"If receives stay as they are, and only sends are split: {wording.duration(prediction.sending_only_ns)}." + (
                "" if prediction.written.known else f" If the last thread to finish writes everything: {wording.duration(prediction.last_wrote_ns)}.")]


def _share(part: float) -> str:
    return f"{100 * part:.0f} %"


def _measured(written: Written, writes: Path) -> str:
    if not written.known:
        return f"{writes} says of no part of a message which thread wrote it (docs/user/prediction.md says why): it is assumed."
    rest = "" if written.known == 1 else " For the rest it is assumed."
    return (f"Measured ({writes}): which threads write {_share(written.known)} of what is sent; {_share(written.in_order / written.known)} of it in the "
            f"order of the threads, {_share(written.after / written.known)} at least in part by the sender after the join.{rest}")


def _assumed(found: Forecast, writes: Path | None) -> list[str]:
    said = []
    if found.prediction and found.costs:
        shared = " or ".join(wording.count(cores, "core") for cores in found.prediction.cores)
        cores = f"threads share {shared}" if shared else "every thread has a core of its own"
        known = ", and sleep when they use none" if found.prediction.knows_loads else ""
        said += [_measured(found.prediction.written, writes)] if writes else []
        in_order = "threads read a message's parts in order" if found.prediction.written.known == 1 else "threads write and read a message's parts in order"
        said.append(f"Assumed: {in_order}, each goes on when its own part is there and sleeps until then, "
                    f"{cores}{known}. The interval holds the opposite of {'the first three' if known else 'each'}, too, and how far the replay of the "
                    f"recorded run is off ({wording.duration(found.prediction.misfit_ns)} a step). Costs of messages: {found.costs.source}. How often such "
                    "predictions hold is in docs/user/prediction.md.")
        if found.costs.part is None:
            said.append(f"What a partition costs is not known, so these are bounds between nothing and what a message costs: {MEASURE}.")
    if found.packed_share >= MANY:
        said.append(f"Before {100 * found.packed_share:.0f} % of the messages the sending thread is busy after the join, for as long as a copy takes: they are "
                    "probably packed. To be sent early they must be sent from where they are written.")
    if found.left_out:
        said.append(f"Left out: {found.left_out} receives from any source or of any tag, and messages that these may have taken.")
    waits = ", ".join(f"rank {rank} {wording.duration(waited)}" for rank, waited in found.waited_ns.items())
    return said + ([f"Waiting in receives, per step: {waits}."] if waits else [])


def _calls(profile: Profile, speedup: float | None) -> str:
    share = calls_share(profile.files)
    rule = (f" If they were {speedup:.3g} times as fast, the program would be {project(share, speedup):.3g} times as fast (the rule of ICPP'22, section 4.8)."
            if speedup else "")
    return f"Calls that send, receive and complete messages take {100 * share:.3g} % of the ranks' time.{rule}"


def _aggregations(profile: Profile, costs: Costs | None) -> tuple[list[str], Table]:
    """Savings by groups of partitions, by shape of the messages: the answer as sentences, and a table."""
    shapes: dict[tuple[int, int], list[Request]] = collections.defaultdict(list)
    for send in profile.sends:
        shapes[send.partitions, send.partition_bytes].append(send)
    header = ("partitions", "bytes of one", "rounds", "partitions in a group", "saved per round", "between", "of a round of")
    if not any(partitions > 1 for partitions, _ in shapes):
        return [], Table(header, ())
    if not costs or not costs.part:
        return [f"What aggregation would save can't be said: what a partition costs is not known; {MEASURE}."], Table(header, ())
    found = {shape: made for shape, sends in sorted(shapes.items()) if (made := aggregation(sends, costs.part))}
    rows = tuple((str(partitions), wording.size(size), str(made.rounds), str(-(-partitions // made.best.parts)), wording.duration(made.best.ns), _range(made.best),
                  wording.duration(made.best.of_ns)) for (partitions, size), made in found.items())
    if all(made.best.is_nothing for made in found.values()):
        said = "Aggregation would save nothing" if found else "What aggregation would save can't be said: no round was recorded whole"
        return [f"{said}."], Table(header, rows)
    partitions, best = max(((partitions, made.best) for (partitions, _), made in found.items()), key=lambda each: each[1].ns / each[1].of_ns)
    return [f"Aggregation {'may' if best.is_unsure else 'would'} save {wording.duration(best.ns)} ({_range(best)}) of a round of {wording.duration(best.of_ns)}, with "
            f"groups of {wording.count(-(-partitions // best.parts), 'partition')}: make so many one partition, or, if they are too large for slots, try "
            f"LARKLANE_POLICY=static:{best.parts}.{UNSURE if best.is_unsure else ''}"], Table(header, rows)


def _choices(found: Forecast) -> Table:
    savings: Sequence[Saving] = found.prediction.savings if found.prediction else ()
    return Table(("partitions", "saved per step", "between"), tuple(
        (str(saving.parts), wording.duration(saving.ns), _range(saving)) for saving in sorted(savings, key=lambda saving: saving.parts)))


def _subject(profile: Profile) -> str:
    first = profile.files[0]
    clocks = f"; {len(profile.clocks)} hosts' clocks, aligned to {wording.duration(profile.clock_error_ns)}" if len(profile.clocks) > 1 else ""
    return (f"{Path(first.program).name}: {len(profile.files)} of {wording.count(first.size, 'rank')}, {' '.join(first.mpi.split())}, Larklane {first.larklane}"
            f"{NATIVE if first.is_native and profile.sends else ''}{clocks}")


def digest_profile(folder: Path, number: int, costs: Costs | None, writes: Path | None, speedup: float | None = None) -> ProfileDigest:
    """@param writes   folder of a run with --trace-writes of the same program
    @param speedup  assumed of the calls for messages
    @raises ProfileError
    """
    profile = load(folder)
    traced = load(writes) if writes else profile
    if writes:
        check_same(profile, traced)
    slow = [SLOW] if is_traced(profile) else []
    partitioned, whole = partitioned_of(profile), whole_of(profile)
    picture = patterns(profile, "profile" if number == 1 else f"profile-{number}")
    found = forecast(profile, costs, writers_of(traced) if writes else None)
    savings = [] if partitioned and not profile.messages else [*_verdict(found), *_assumed(found, writes)]
    aggregated, groups = _aggregations(profile, costs)
    accounts = accounts_of(profile)
    tables = (Titled("Ordinary messages, by thread", account_table(profile, accounts)), Titled("Partitioned messages (medians)", _sends(partitioned)), Titled("What aggregation saves: the best groups", groups), Titled("Messages after a join (medians)", _messages(whole)),
              Titled("Who wrote what was sent (whole pages, first writes)", _writers(traced)),
              Titled("What early sending saves, by number of partitions", _choices(found)))
    return ProfileDigest(str(folder), _subject(profile), (*profile.problems, *slow), tuple(ordinary_sentences(profile, accounts)), (*savings, *aggregated, _calls(profile, speedup)),
                         tuple(titled for titled in tables if titled.table.rows), (picture,) if picture else ())
