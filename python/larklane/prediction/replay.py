"""Replays threads that compute, wait for each other and for messages: pure functions on made-up or recorded programs.

A thread is a list of operations. It sleeps, computes, comes to an operation and gives its signals. Then it waits for the signals that it needs,
stays for the operation's own time, and goes on. Threads of one host share its cores evenly (docs/user/prediction.md).
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import enum
import functools
import heapq
from collections.abc import Hashable, Iterable, Mapping, Sequence

Signal = Hashable


class Waiting(enum.Enum):
    """The behaviour of a waiting thread: it takes no core; it yields its core again and again; it takes a core."""

    SLEEPS, YIELDS, POLLS = range(3)


@dataclasses.dataclass(frozen=True)
class Operation:
    """`work_ns`: compute time before it, alone on a core; `sleep_ns`: sleep before that. `gives`: signals, each with its time in transit.
    `own_ns`: from the last needed signal, or from coming, to going on. `waiting`: behaviour while it waits for the signals."""

    work_ns: float
    gives: tuple[tuple[Signal, float], ...] = ()
    needs: tuple[Signal, ...] = ()
    own_ns: float = 0.0
    sleep_ns: float = 0.0
    waiting: Waiting = Waiting.SLEEPS


@dataclasses.dataclass(frozen=True)
class Thread:
    """`begin_ns`: time at which the thread begins to compute."""

    host: int
    begin_ns: float
    operations: tuple[Operation, ...]


@dataclasses.dataclass(frozen=True)
class Times:
    """Times [threads][operations]. The list of a thread that waits forever ends there."""

    came_ns: list[list[float]]
    went_ns: list[list[float]]


@functools.cache
def rate(cores: float, taking: int, yielding: int) -> float:
    """@return the share of a core that each of `taking` threads gets. A yielding thread does not delay others on its core. But systems
    spread yielding threads evenly over cores, too, and a core with only yielding threads is lost. Their places are assumed random."""
    threads = taking + yielding
    if threads <= cores:
        return 1.0
    lost = 1.0  # probability that a core has no taking thread
    for at in range(taking if yielding else 0):
        lost *= max(0.0, 1 - threads / cores / (threads - at))
    return min(1.0, cores * (1 - (lost if yielding else 0.0)) / taking)


class _Host:
    """Computing threads advance together: `level` is the work of a thread that computed from the begin."""

    def __init__(self, cores: float) -> None:
        self.cores, self.level, self.at_ns = cores, 0.0, 0.0
        self.computing: list[tuple[float, int]] = []  # (level at the end of its work, thread)
        self.waiting = dict.fromkeys(Waiting, 0)

    @property
    def rate(self) -> float:
        return rate(self.cores, len(self.computing) + self.waiting[Waiting.POLLS], self.waiting[Waiting.YIELDS]) if self.computing else 1.0

    def advance(self, now_ns: float) -> None:
        self.level += (now_ns - self.at_ns) * self.rate if self.computing else 0.0
        self.at_ns = now_ns

    def next_ns(self) -> float:
        return self.at_ns + max(0.0, self.computing[0][0] - self.level) / self.rate if self.computing else float("inf")


class _Run:
    def __init__(self, threads: Sequence[Thread], cores: Mapping[int, int], gathers: Mapping[Signal, int]) -> None:
        self.threads = threads
        self.hosts = {thread.host: _Host(cores.get(thread.host, float("inf"))) for thread in threads}
        self.missing = dict(gathers)  # signal -> number of threads that must still give it
        self.late: dict[Signal, float] = {}  # of a gathered signal: the longest time in transit
        self.there: set[Signal] = set()
        self.waiting: dict[Signal, list[int]] = collections.defaultdict(list)
        self.lacks = [0] * len(threads)
        self.at = [0] * len(threads)
        self.timed: list[tuple[float, int, str, object]] = []
        self.number = 0
        self.times = Times([[] for _ in threads], [[] for _ in threads])

    def plan(self, time_ns: float, what: str, which: object) -> None:
        self.number += 1
        heapq.heappush(self.timed, (time_ns, self.number, what, which))

    def sleep(self, index: int, now_ns: float) -> None:
        thread = self.threads[index]
        if self.at[index] < len(thread.operations):
            sleep_ns = thread.operations[self.at[index]].sleep_ns
            if sleep_ns > 0:
                self.plan(now_ns + sleep_ns, "compute", index)
            else:
                self.compute(index)

    def compute(self, index: int) -> None:
        host = self.hosts[self.threads[index].host]
        heapq.heappush(host.computing, (host.level + self.threads[index].operations[self.at[index]].work_ns, index))

    def come(self, index: int, now_ns: float) -> None:
        operation = self.threads[index].operations[self.at[index]]
        self.times.came_ns[index].append(now_ns)
        for signal, way_ns in operation.gives:
            self.late[signal] = max(way_ns, self.late.get(signal, 0.0))
            self.missing[signal] = self.missing.get(signal, 1) - 1
            if self.missing[signal] == 0:
                self.plan(now_ns + self.late[signal], "signal", signal)
        lacking = [signal for signal in operation.needs if signal not in self.there]
        for signal in lacking:
            self.waiting[signal].append(index)
        self.lacks[index] = len(lacking)
        if not lacking:
            self.plan(now_ns + operation.own_ns, "go", index)
        else:
            self.hosts[self.threads[index].host].waiting[operation.waiting] += 1

    def arrive(self, signal: Signal, now_ns: float) -> None:
        self.there.add(signal)
        for index in self.waiting.pop(signal, ()):
            self.lacks[index] -= 1
            if self.lacks[index] == 0:
                operation = self.threads[index].operations[self.at[index]]
                self.hosts[self.threads[index].host].waiting[operation.waiting] -= 1
                self.plan(now_ns + operation.own_ns, "go", index)

    def step(self) -> bool:
        """Process the next event. @return False without one"""
        host = min(self.hosts.values(), key=_Host.next_ns)
        timed_ns = self.timed[0][0] if self.timed else float("inf")
        now_ns = min(timed_ns, host.next_ns())
        if now_ns == float("inf"):
            return False
        for each in self.hosts.values():
            each.advance(now_ns)
        if timed_ns <= now_ns:
            _, _, what, which = heapq.heappop(self.timed)
            if what == "signal":
                self.arrive(which, now_ns)
            else:
                assert isinstance(which, int)
                if what == "go":
                    self.times.went_ns[which].append(now_ns)
                    self.at[which] += 1
                self.compute(which) if what == "compute" else self.sleep(which, now_ns)
        else:
            self.come(heapq.heappop(host.computing)[1], now_ns)
        return True


def replay(threads: Sequence[Thread], cores: Mapping[int, int], gathers: Mapping[Signal, int]) -> Times:
    """@param cores    by host; without an entry every thread has its own core
    @param gathers  signal -> number of threads that must give it
    """
    run = _Run(threads, cores, gathers)
    for index, thread in enumerate(threads):
        run.plan(thread.begin_ns, "begin", index)
    while run.step():
        pass
    return run.times


class Shares:
    """The work of threads that computed at known times: each had a core, or its share of all cores.

    An interval is (begin, end, share of its time in which the thread had a core, 1 if unknown). A polling thread takes its share, too.
    """

    def __init__(self, intervals: Iterable[tuple[float, float, float]], cores: float) -> None:
        changes: dict[float, float] = collections.defaultdict(float)
        for begin, end, load in intervals:
            if end > begin:
                changes[begin] += load
                changes[end] -= load
        self.times = sorted(changes)
        self.done: list[float] = []  # work until each time, of a thread that always computed
        self.rates: list[float] = []
        done, running = 0.0, 0.0
        for at, time in enumerate(self.times):
            if at:
                done += (time - self.times[at - 1]) * self.rates[-1]
            running += changes[time]
            self.done.append(done)
            self.rates.append(min(1.0, cores / running) if running > 0 else 1.0)

    def _until(self, time: float) -> float:
        at = bisect.bisect_right(self.times, time) - 1
        return self.done[at] + (time - self.times[at]) * self.rates[at]

    def work_ns(self, begin: float, end: float) -> float:
        """@return the work of an interval"""
        return self._until(end) - self._until(begin) if end > begin else 0.0
