"""What a trace says: when partitions became ready and when they arrived. Pure functions, no MPI, no plotting.

A trace is what the examples write with --trace: one file per rank, one JSON object per line, times in nanoseconds of
a clock that all ranks of a host share.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median


@dataclass(frozen=True)
class Round:
    """One round of one channel; times in ms after the first partition became ready, one per partition."""

    ready_ms: tuple[float, ...]
    arrived_ms: tuple[float, ...]

    @property
    def exposed_ms(self) -> float:
        """Last arrival - last ready: the communication that computation did not hide."""
        return max(self.arrived_ms) - max(self.ready_ms)

    @property
    def early(self) -> int:
        """How many partitions were seen by the receiver before the last one was ready at the sender."""
        return sum(arrived < max(self.ready_ms) for arrived in self.arrived_ms)


def load(path: Path) -> tuple[dict, list[dict]]:
    """Returns (description of the run, events) of one rank's file."""
    with open(path, encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    return records[0], records[1:]


def rounds(sent: list[dict], received: list[dict], channel: str, sender: int, receiver: int, skip: int) -> list[Round]:
    """The rounds of a channel that are complete in both ranks' events; the first `skip` (warm-up) are left out."""
    ready: dict[int, dict[int, int]] = {}
    arrived: dict[int, dict[int, int]] = {}
    for events, side, peer, name, into in ((sent, "send", receiver, "ready", ready),
                                           (received, "receive", sender, "arrived", arrived)):
        for event in events:
            if (event["channel"], event["side"], event["peer"], event["event"]) == (channel, side, peer, name):
                into.setdefault(event["round"], {})[event["partition"]] = event["t_ns"]
    partitions = max((len(times) for times in ready.values()), default=0)
    result = []
    for number in sorted(ready):
        if number < skip or len(ready[number]) < partitions or len(arrived.get(number, {})) < partitions:
            continue
        start_ns = min(ready[number].values())
        result.append(Round(*(tuple((times[i] - start_ns) / 1e6 for i in range(partitions))
                              for times in (ready[number], arrived[number]))))
    return result


def typical(times: list[tuple[float, ...]]) -> list[float]:
    """Median over rounds, per partition."""
    return [median(column) for column in zip(*times)]
