"""Forecast from a profile: the saving of early sends, or the reason why there is none."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Sequence

from larklane.prediction import costs as costs_of
from larklane.prediction.costs import Costs
from larklane.prediction.predictor import Prediction, Predictor, StuckError
from larklane.prediction.program import Program, hosts_of, program_of
from larklane.profile.phases import Message
from larklane.profile.profile import Profile
from larklane.profile.profile_file import Kind
from larklane.profile.traffic import Matched, matched, receives_of, steps_of, waited_ns
from larklane.profile.writes import KnownWriters, Writers, kinds_of

STEPS_MAX = 200  # most steps to replay: more make it slow, not better
STEPS_FEW = 25  # enough steps, if the profile has no processor times for more
STEPS_MIN = 4
PACKED_NS = 5000.0  # shorter copies do not matter


@dataclasses.dataclass(frozen=True)
class Forecast:
    """`prediction`: None if there is none; then `why` is the reason, and `is_nothing` states that nothing could be saved.
    `waited_ns`: time per rank and step in calls that complete receives.
    `packed_share`: share of the messages that were probably packed between the join and the send."""

    prediction: Prediction | None
    why: str
    costs: Costs | None
    threads: int
    waited_ns: dict[int, float]
    packed_share: float
    left_out: int
    is_nothing: bool = False


def _packed(program: Program, costs: Costs) -> float:
    """The share of messages before which their thread was busy, after the join, for at least as long as a copy takes."""
    packed = 0
    for events in program.threads.values():
        for before, event in itertools.pairwise(events):
            size = sum(program.deliveries[number].send.bytes for number in event.sends)
            copy_ns = costs.whole.ns(size) - (costs.whole.ns(0) if len(costs.whole.points) > 1 else 0)
            is_long = event.begin_ns - before.end_ns > max(PACKED_NS, copy_ns)
            packed += len(event.sends) if before.let_go_by and is_long else 0
    return packed / max(len(program.deliveries), 1)


def _steps(profile: Profile) -> list[tuple[Message, ...]]:
    """@return the steps of the rank with the most steps"""
    by_rank: dict[int, list[Message]] = collections.defaultdict(list)
    for message in profile.messages:
        by_rank[message.rank].append(message)
    return max(map(steps_of, by_rank.values()), key=len, default=[])


def _predictor(profile: Profile, found: Matched, steps: Sequence[tuple[Message, ...]], costs: Costs) -> Predictor:
    """A predictor of as many steps as have processor times. If threads meet very often in a step, only the first steps have them."""
    most = of_first = _predictor_of_first(STEPS_MAX, profile, found, steps, costs)
    count = min(STEPS_MAX, len(steps)) // 2
    while not of_first.models[0].knows_loads and count >= STEPS_FEW:
        of_first = _predictor_of_first(count, profile, found, steps, costs)
        count //= 2
    return of_first if of_first.models[0].knows_loads else most


def _predictor_of_first(count: int, profile: Profile, found: Matched, steps: Sequence[tuple[Message, ...]], costs: Costs) -> Predictor:
    """A predictor of the `count` steps after the first."""
    end_ns = steps[min(count + 1, len(steps) - 1)][0].begin_ns
    program = program_of(profile.records, found.deliveries, hosts_of(profile.files), end_ns)
    marks = []
    for step in steps[1:count + 2]:
        place = (step[0].rank, step[0].thread)
        for number, event in enumerate(program.threads.get(place, ())):
            if event.sends and program.deliveries[event.sends[0]].send.begin_ns == step[0].begin_ns:
                marks.append((place, number))
    return Predictor(program, marks, costs)


def _writers(program: Program, messages: Sequence[Message], known: KnownWriters) -> dict[int, Writers]:
    """@return the writers of messages, by number of the delivery"""
    kinds = kinds_of(messages)
    sent = enumerate(kinds[delivery.send.rank, delivery.send.begin_ns] for delivery in program.deliveries)
    return {number: known[kind] for number, kind in sent if kind in known}


def _has_more_threads(profile: Profile) -> bool:
    """Whether a rank has, or had, more than one thread."""
    return any(len({record.thread for record in records}) > 1 or any(record.kind == Kind.THREAD for record in records)
               for records in profile.records.values())


def forecast(profile: Profile, costs: Costs | None = None, writers: KnownWriters | None = None) -> Forecast:
    """@param costs    measured costs; without them, the costs of whole messages in the profile
    @param writers  writers of messages, from another run; those of other messages are assumed
    """
    receives = [receive for rank, of_rank in profile.records.items()
                for receive in receives_of(rank, of_rank, (request for request in profile.requests if request.rank == rank))]
    found = matched(profile.messages, receives)
    steps = _steps(profile)
    costs = costs or costs_of.seen(found.deliveries)
    threads = max((len(message.phase.finished_ns) for message in profile.messages if message.phase), default=1)
    count = max(len(steps), 1)
    waited = {rank: total / count for rank, total in sorted(waited_ns(receives).items())}
    said = Forecast(None, "", costs, threads, waited, 0.0, found.left_out)

    def no(why: str) -> Forecast:
        return dataclasses.replace(said, why=why)

    if not profile.messages:
        return no("no messages that are not partitioned")
    own = sum(message.is_own for message in profile.messages) / len(profile.messages)
    if own > 0.5:
        share = "" if own == 1 else f" ({100 * own:.0f} % of all)"
        return dataclasses.replace(no(f"the threads send messages of their own{share}, so none of these waits for a join"), is_nothing=True, waited_ns={})
    if threads < 2 and _has_more_threads(profile):
        return no("the program has several threads, and they meet nowhere that can be seen before the messages")
    if threads < 2:
        return dataclasses.replace(no(
            "no threads meet before the messages, each is ready at once. That threads meet is seen where OpenMP or pthreads make them wait: at "
            "barriers, joins, and the ends of regions"), is_nothing=True)
    if len(steps) < STEPS_MIN:
        return no("the messages do not repeat: no steps")
    if not found.deliveries:
        return no("no message could be matched with its receive")
    if any(delivery.receive.by_test for delivery in found.deliveries):
        return no("receives are completed by tests: how long the program waits for them is not in the profile")
    if costs is None:
        return no("what a message costs is not known: no wait ended after its send; measure it (larklane bench latency) and give --costs FILE")
    predictor = _predictor(profile, found, steps, costs)
    if len(predictor.marks) < STEPS_MIN:
        return no("too few of the messages could be matched with their receives")
    predictor.program.writers = _writers(predictor.program, profile.messages, writers or {})
    try:
        prediction = predictor.predict(threads)
    except StuckError as error:
        return no(str(error))
    return dataclasses.replace(said, prediction=prediction, packed_share=_packed(predictor.program, costs))

