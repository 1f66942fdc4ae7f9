#!/usr/bin/env python3
"""The calls of a program under Larklane as a PMPI tool sees them, before it and after it in the order of preloading.

  tool_test.py --build DIR CASE MPI     one case, on one MPI of launch.py
  tool_test.py --list                   `CASE MPI` of every case, one a line

Exit status: 0 passed, 1 failed, 77 something that the case needs is not there.
"""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import launch  # noqa: E402
from checks import expect  # noqa: E402
from stub_test import INCLUDE, Bench, main  # noqa: E402


def handed_on(bench):
    """The calls on requests that a tool sees (docs/user/guide.md): before us all that the program calls; after us the MPI's requests and never ours."""
    counter = bench.compile("counter.so", "counter.c", "counter_entries.S", flags=("-shared", "-fPIC", "-DCOUNT_CALLS_ONLY"))
    program = bench.compile("handed_on", "handed_on.c", compiler=bench.mpi.wrapper)
    names = ("Start", "Startall", "Wait", "Waitall", "Waitany", "Waitsome", "Test", "Testall", "Testany", "Testsome", "Request_free",
             "Request_get_status", "Psend_init", "Precv_init", "Pready", "Pready_range")

    def counted(which, *preload):
        file = bench.scratch / "counts"
        file.unlink(missing_ok=True)
        env = {"COUNTER_FILE": str(file), "LD_PRELOAD": ":".join(str(library) for library in preload)}
        outcome = launch.launch(bench.mpi, 1, [str(program), which], 60, env)
        expect(outcome.status == 0 and "handed_on: ok" in outcome.output and outcome.output.count("handed_on") == 1, f"{which}: not well",
               outcome.output)
        counts = dict(line.split() for line in file.read_text().splitlines())
        return {name: int(counts.get(f"MPI_{name}", 0)) for name in names}

    natively = counted("natives", counter)
    for which in "natives", "ours", "mixed":
        before, after = counted(which, counter, bench.preload), counted(which, bench.preload, counter)
        print(which, "before", before, "after", after)
        expect(before["Startall"] == 6 and before["Waitall"] == 2 and before["Request_free"] == (4 if which == "mixed" else 2),
               f"{which}: before us not what the program calls", str(before))
        if which == "ours":
            expect(not any(after.values()), "a call on our requests is handed on", str(after))
        elif which == "natives":  # tests are as many as it takes
            stable = [name for name in names if not name.startswith("Test")]
            expect(all(after[name] == natively[name] for name in stable), f"not once each: natively {natively}", str(after))
        else:
            # Half of the single requests are ours. A wait for ours tests the MPI's, too.
            wanted = {"Start": before["Start"] // 2, "Startall": 6, "Waitall": 2, "Request_free": 2, "Request_get_status": 1, "Psend_init": 0,
                      "Precv_init": 0, "Pready": 0, "Pready_range": 0}
            expect(all(after[name] == count for name, count in wanted.items()), f"mixed: expected {wanted}", str(after))
    guide = (HERE.parents[1] / "docs/user/guide.md").read_text()
    section = guide[guide.index("## PMPI tools"):]
    told = set(re.findall(r"`MPI_([A-Z][a-z]\w*)`", section[: section.find("\n## ", 1)]))
    calls = set(re.findall(r"^LARKLANE_\w*CALL\(int, (\w+),", (INCLUDE / "mpi/abi/calls.def").read_text(), re.M))
    expect(calls == told, f"docs/user/guide.md, PMPI tools: missing {calls - told}, too many {told - calls}")


def placed(bench):
    """The commands of docs/user/guide.md put a tool after us, or before us, in the order of preloading."""
    counter = bench.compile("counter.so", "counter.c", "counter_entries.S", flags=("-shared", "-fPIC", "-DCOUNT_CALLS_ONLY"))
    program = bench.compile("handed_on", "handed_on.c", compiler=bench.mpi.wrapper)
    guide = (HERE.parents[1] / "docs/user/guide.md").read_text()
    commands = re.findall(r"`mpirun -n 4 ([^`]*LD_PRELOAD=/path/libtool\.so[^`]*)`", guide)
    expect(len(commands) == 2, "docs/user/guide.md, PMPI tools: not one command for each place", str(commands))
    inits = []
    for command in commands:
        file = bench.scratch / "counts"
        file.unlink(missing_ok=True)
        line = command.replace("/path/libtool.so", str(counter)).replace("larklane run", f"{bench.command} run").replace("./app", f"{program} ours")
        outcome = launch.launch(bench.mpi, 1, ["sh", "-c", f"exec {line}"], 60, {"COUNTER_FILE": str(file)})
        expect(outcome.status == 0 and "handed_on: ok" in outcome.output, f"{line}: not well", outcome.output)
        counts = dict(entry.split() for entry in file.read_text().splitlines())
        inits.append(int(counts.get("MPI_Psend_init", 0)))
    expect(inits[0] == 0 < inits[1], "calls seen after us and before us", str(inits))


def cases():
    return [(placed, "mpich5")] + [(handed_on, name) for name in ("mpich5", "openmpi5", "mpich4")]


if __name__ == "__main__":
    sys.exit(main(cases, Bench, __doc__))
