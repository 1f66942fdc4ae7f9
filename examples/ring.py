#!/usr/bin/env python3
"""ring: each rank sends a partitioned message to the next one, in Python with mpi4py.

A rank fills and releases its partitions one by one (Pready). In between it tests whether partitions of its
predecessor have arrived (Parrived), and checks each at once. Every round has other data. Exit status 1 if a
partition held wrong data.

    mpiexec -n 2 python ring.py --partitions 8 --late-ms 5
"""

import argparse
import json
import sys
import time
from array import array

from mpi4py import MPI


class Ring:
    """One rank's place in the ring: two requests, two buffers, and a trace of events (ns of CLOCK_MONOTONIC)."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rank = MPI.COMM_WORLD.rank
        ranks = MPI.COMM_WORLD.size
        self.next, self.previous = (self.rank + 1) % ranks, (self.rank - 1) % ranks
        total = options.partitions * options.doubles
        self.outgoing, self.incoming = array("d", bytes(8 * total)), array("d", bytes(8 * total))
        self.receive = MPI.COMM_WORLD.Precv_init(
            [self.incoming, options.doubles, MPI.DOUBLE], options.partitions, self.previous, 0)
        self.send = MPI.COMM_WORLD.Psend_init(
            [self.outgoing, options.doubles, MPI.DOUBLE], options.partitions, self.next, 0)
        self.wrong = array("i", bytes(4 * options.rounds))
        self.events: list[dict] = []

    def note(self, side: str, round_: int, event: str, **more: int) -> None:
        """Appends an event to the trace; side is "send" or "receive"."""
        if self.options.trace:
            peer = self.next if side == "send" else self.previous
            self.events.append({"channel": "ring", "side": side, "peer": peer, "round": round_, "event": event, **more,
                                "t_ns": time.monotonic_ns()})

    def part(self, partition: int) -> slice:
        """The slice of a partition's elements."""
        return slice(partition * self.options.doubles, (partition + 1) * self.options.doubles)

    def expected(self, sender: int, round_: int, partition: int) -> array:
        """The data that a rank sends: exact in floating point, different for each round, partition and element."""
        first = sender + 1000 * round_ + 10_000_000 * partition
        return array("d", (first + 10**11 * i for i in range(self.options.doubles)))

    def look(self, round_: int, missing: set[int]) -> None:
        """Checks the partitions that have arrived since the last test and removes them from `missing`."""
        for partition in sorted(missing):
            if self.receive.Parrived(partition):
                self.note("receive", round_, "arrived", partition=partition)
                missing.remove(partition)
                if self.incoming[self.part(partition)] != self.expected(self.previous, round_, partition):
                    self.wrong[round_] = 1

    def exchange(self, round_: int) -> None:
        """One round: releases one partition after the other, and tests for arrivals until all have arrived."""
        missing = set(range(self.options.partitions))
        for side in "receive", "send":
            self.note(side, round_, "start")
        MPI.Prequest.Startall([self.receive, self.send])
        for partition in range(self.options.partitions):
            late = self.rank == 0 and partition == self.options.partitions - 1
            go_on = time.monotonic() + (self.options.late_ms / 1000 if late else 0)
            self.look(round_, missing)
            while time.monotonic() < go_on:
                self.look(round_, missing)
            self.outgoing[self.part(partition)] = self.expected(self.rank, round_, partition)
            self.note("send", round_, "ready", partition=partition)
            self.send.Pready(partition)
        while missing:
            self.look(round_, missing)
        for side in "receive", "send":
            self.note(side, round_, "wait")
        MPI.Prequest.Waitall([self.receive, self.send])
        for side in "receive", "send":
            self.note(side, round_, "done")

    def write_trace(self) -> None:
        """One JSON object per event, as the C examples write them."""
        with open(f"{self.options.trace}.{self.rank}", "w", encoding="utf-8") as out:
            library = MPI.Get_library_version().splitlines()[0].replace("\t", " ")
            first = {"program": "ring_python", "rank": self.rank, "mpi": library, "clock": "CLOCK_MONOTONIC"}
            for record in [first, *self.events]:
                out.write(json.dumps(record) + "\n")

    def close(self) -> None:
        """Frees the requests, before MPI is finalized."""
        self.receive.Free()
        self.send.Free()


def positive(text: str) -> int:
    """An integer of at least 1."""
    if (value := int(text)) < 1:
        raise ValueError
    return value


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description="Partitioned messages around a ring.",
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--partitions", type=positive, default=8, help="partitions of a message")
    parser.add_argument("--doubles", type=positive, default=1024, help="doubles per partition")
    parser.add_argument("--rounds", type=positive, default=20, help="messages, one after the other")
    parser.add_argument("--late-ms", type=float, default=0, help="rank 0 releases its last partition so much later")
    parser.add_argument("--trace", metavar="FILE", help="rank r writes when partitions became ready and arrived to FILE.r")
    ring = Ring(parser.parse_args())
    for round_ in range(ring.options.rounds):
        ring.exchange(round_)
    MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, [ring.wrong, MPI.INT], MPI.MAX)
    wrong, rounds = sum(ring.wrong), ring.options.rounds
    if ring.rank == 0:
        print(f"ring (Python): {'FAILED' if wrong else 'PASSED'}: {MPI.COMM_WORLD.size} ranks, "
              f"{ring.options.partitions} partitions, wrong data in {wrong} of {rounds} rounds")
    if ring.options.trace:
        ring.write_trace()
    ring.close()
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
