#!/usr/bin/env python3
"""Boot a guest that has a Soft-RoCE device, rxe0, and run commands in it, one after the other; each argument is a line for bash.

The guest (QEMU, emulated in software) sees the host's files, which it can't change: its writes are gone when it is off. /tmp, /run
and /dev/shm are its own. The commands start in the current folder, as root, on a host named `guest`.

  python3 tests/rdma/guest.py ibv_devinfo '.deps/mpich/bin/mpiexec -n 2 hostname'

Exit status: that of the first command that failed; 125 if the guest did not get so far, 77 if there is no guest (scripts/dev/setup.py
makes it, from packages).
"""

import argparse
import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

import prepare

BOOT_LIMIT_S = 240  # usually 10 to 20
GRACE_S = 30  # for a command that is killed after its limit
NOT_REACHED, TIMED_OUT = 125, 124
MEMORY_MIB = 2048
CPUS = max(2, min(4, os.cpu_count() or 2))


@dataclasses.dataclass(frozen=True)
class Command:
    """`text` is for bash; it is killed after `limit_s` seconds."""

    name: str
    text: str
    limit_s: int = 60


@dataclasses.dataclass(frozen=True)
class Result:
    """How a command ended: `status` as the shell would see it (124 after its limit), NOT_REACHED if the guest never came to its end."""

    command: Command
    status: int
    output: str
    seconds: float


@dataclasses.dataclass(frozen=True)
class Boot:
    """`ready_s`: seconds until the first command could begin; None: the guest never got there."""

    results: list[Result]
    console: str
    seconds: float
    ready_s: float | None


def problem() -> str:
    """@return why there is no guest here; empty: there is one"""
    if not prepare.prepared():
        return f"nothing in {prepare.FOLDER} (python3 scripts/dev/setup.py)"
    missing = [name for name in ("qemu-system-x86_64", "setpriv", "rdma") if not shutil.which(name, path=prepare.PATH)]
    return f"no {', '.join(missing)}" if missing else ""


def _hidden(folder: pathlib.Path) -> list[str]:
    """The files that the commands need and would not see: they lie where the guest has a file system of its own."""
    wanted = {str(path.resolve()) for path in (prepare.ROOT, prepare.DEPS, folder)}
    return sorted(path for path in wanted if path.startswith(("/tmp/", "/run/", "/dev/shm/")))


def _qemu(share: str, folder: pathlib.Path, memory_mib: int) -> list[str]:
    words = ["console=ttyS0", "quiet", "panic=-1", "mitigations=off", "nokaslr", "audit=0", "tsc=reliable", "no_timer_check",
             f"guest={prepare.HERE / 'guest.sh'}", f"keep={','.join(_hidden(folder))}"]
    files = {"host": "path=/,readonly=on", "share": f"path={share}"}
    disks = [word for tag, where in files.items() for word in (
        "-fsdev", f"local,id={tag},{where},security_model=none,multidevs=remap",
        "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}")]
    # setpriv: it does not outlive this process, however that ends.
    return ["setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-machine", "q35",
            "-m", str(memory_mib), "-smp", str(CPUS), "-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot",
            "-kernel", str(prepare.FOLDER / "vmlinuz"), "-initrd", str(prepare.FOLDER / "initramfs"), *disks,
            "-append", " ".join(words)]


def _wait(process: subprocess.Popen, console: pathlib.Path, limit_s: float) -> None:
    """Until it is off; no longer than `limit_s` from when it is ready."""
    deadline = time.monotonic() + BOOT_LIMIT_S
    is_ready = False
    while process.poll() is None and time.monotonic() < deadline:
        if not is_ready and "guest: ready" in console.read_text(errors="replace"):
            is_ready = True
            deadline = time.monotonic() + limit_s
        time.sleep(0.1)
    process.kill()
    process.wait()


def _result(share: pathlib.Path, number: int, command: Command) -> Result:
    status, seconds = NOT_REACHED, 0.0
    with contextlib.suppress(OSError, ValueError):
        status, began, ended = (float(word) for word in (share / f"{number}.end").read_text().split())
        seconds = ended - began
    output = share / f"{number}.out"
    return Result(command, int(status), output.read_text(errors="replace") if output.exists() else "", seconds)


def boot(commands: Sequence[Command], memory_mib: int = MEMORY_MIB, folder: pathlib.Path | None = None) -> Boot:
    """Runs all `commands` in one guest, in `folder`, even after failed ones."""
    folder = folder or pathlib.Path.cwd()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="larklane-guest-") as share:
        place = pathlib.Path(share)
        (place / "folder").write_text(f"{folder}\n")
        (place / "commands").write_text("".join(f"{number} {c.limit_s}\n" for number, c in enumerate(commands)))
        for number, command in enumerate(commands):
            (place / f"{number}.sh").write_text(command.text + "\n")
        console = place / "console"
        with open(console, "wb") as log:
            process = subprocess.Popen(_qemu(share, folder, memory_mib), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                       env={**os.environ, "PATH": prepare.PATH})
        try:
            _wait(process, console, sum(command.limit_s + GRACE_S for command in commands) + GRACE_S)
        finally:
            process.kill()
        text = console.read_text(errors="replace")
        ready = re.search(r"guest: ready ([\d.]+)", text)
        results = [_result(place, number, command) for number, command in enumerate(commands)]
        return Boot(results, text, time.monotonic() - began, float(ready[1]) if ready else None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=300, metavar="SECONDS", help="for each command (300)")
    parser.add_argument("--memory", type=int, default=MEMORY_MIB, metavar="MIB", help=f"({MEMORY_MIB})")
    parser.add_argument("--console", action="store_true", help="show what the kernel said, too")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    why = problem()
    if why:
        print(f"guest: {why}", file=sys.stderr)
        return prepare.SKIP
    outcome = boot([Command(text, text, args.limit) for text in args.command], args.memory)
    if args.console or outcome.ready_s is None:
        print(outcome.console)
    for result in outcome.results:
        print(f"--- {result.command.name}\n{result.output}", end="")
        print(f"--- status {result.status}, {result.seconds:.1f} s")
    print(f"ready after {outcome.ready_s} s, off after {outcome.seconds:.1f} s")
    return next((result.status for result in outcome.results if result.status), 0)


if __name__ == "__main__":
    sys.exit(main())
