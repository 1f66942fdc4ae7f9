#!/usr/bin/env python3
"""Messages between native processes.

  messages_test.py --build DIR CASE [PROVIDER]    one case
  messages_test.py --list                         `CASE` or `CASE PROVIDER` of every case, one a line

Exit status: 0 passed, 1 failed, 77 something that the case needs is not there.
"""

import re
import sys

import stub_test
from stub_test import Skip, expect, system

PROVIDERS = {"shm": "shm", "tcp": "ofi:tcp"}


class Bench:
    def __init__(self, build, scratch, provider):
        self.provider = PROVIDERS.get(provider)
        self.command = build / "bin/larklane"
        self.folder = build / "tests/mp/messages"
        self.scratch = scratch

    def launched(self, count, program, *words, status=0):
        env = {"LARKLANE_MESSAGE_PROVIDER": self.provider, "LARKLANE_VCI_COUNT_MAX": "2"}
        output = system(self.command, "launch", "-n", count, self.folder / program, *words, status=status, env=env)
        if "no module" in output:
            raise Skip(output)
        return output


def exchange(bench):
    """4 processes of 4 threads: every byte and every completion once."""
    output = bench.launched(4, "exchange", 4, 1_000_000 if bench.provider == "shm" else 100_000)
    expect(re.search(r"exchange: \d+ messages", output), "no end", output)


def leaves(bench):
    """A peer that has left, or has ended without a word: what is posted to it ends with an error, over a new lane, too."""
    for how in ("orderly", "sudden"):
        output = bench.launched(2, "leaver", how)
        expect("leaver: all has ended" in output, how, output)
        expect("warn" not in output, f"a warning, {how}", output)


def scatters(bench):
    """Who is at the fence is connected all the same, to peers who wait for that."""
    output = bench.launched(4, "scatterer")
    expect("scatterer: all have heard" in output, "no end", output)


def cases():
    return [(case, name) for case in (exchange, leaves, scatters) for name in PROVIDERS]


if __name__ == "__main__":
    sys.exit(stub_test.main(cases, Bench, __doc__))
