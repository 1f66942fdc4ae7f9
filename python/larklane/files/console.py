"""Standard streams of this package's commands: texts are escaped, and a failed write sets the exit status.

`python3 -m larklane.NAME` ends in run().
"""

import contextlib
import errno
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import NoReturn, TextIO

from larklane.files.input_file import show

FAILED = 1


class Console(io.TextIOWrapper):
    """A standard stream. Control characters but line ends and tabs are escaped: texts may come from a file, a name or the environment.

    A failed write is kept in `failure` and raises nothing: the command still has to write its files.
    """

    failure: OSError | None = None

    def write(self, text: str) -> int:
        self._attempt(lambda: super(Console, self).write(show(text)))
        return len(text)

    def flush(self) -> None:
        self._attempt(super().flush)

    def _attempt(self, action: Callable[[], object]) -> None:
        if self.failure:
            return
        try:
            action()
        except OSError as error:
            self.failure = error
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())  # for the flush at Python's exit


def _console(stream: TextIO | None, number: int) -> Console:
    if stream is None:  # closed before this process started
        made = Console(open(os.devnull, "wb"), errors="backslashreplace")  # noqa: SIM115  open as long as the process
        made.failure = OSError(errno.EBADF, os.strerror(errno.EBADF))
        return made
    is_line = stream.isatty() or number == 2
    stream.flush()
    return Console(os.fdopen(os.dup(stream.fileno()), "wb"), encoding="utf-8", errors="backslashreplace", line_buffering=is_line)


def clear_line() -> None:
    """Clear the current line of a terminal on standard error, so that the next text replaces it."""
    if sys.stderr.isatty():
        sys.stderr.flush()
        sys.stderr.buffer.write(b"\r\033[K")
        sys.stderr.buffer.flush()


class Stopped(KeyboardInterrupt):
    """A signal stopped the command; the only argument is its number."""


class _Stops:
    """Handler of SIGINT, SIGTERM and SIGHUP. Signals that were ignored at the start stay ignored."""

    is_held = False
    pending = 0

    def take(self, number: int, _: object) -> None:
        if not self.is_held:
            raise Stopped(number)
        self.pending = number


_stops = _Stops()


@contextlib.contextmanager
def unstopped() -> Iterator[None]:
    """Defer signals: Stopped is raised at the end of the block, when the caller knows the process that it starts."""
    _stops.is_held = True
    try:
        yield
    finally:
        _stops.is_held = False
        number, _stops.pending = _stops.pending, 0
    if number:
        raise Stopped(number)


def status_of(stop: KeyboardInterrupt) -> int:
    """@return the exit status after a signal, as in a shell"""
    return 128 + int(stop.args[0] if stop.args else signal.SIGINT)


def run(main: Callable[[list[str]], int]) -> NoReturn:
    """End the process with the status of main(), or with FAILED if that is 0 and its output could not be written."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _stops.take)
    out, sys.stderr = _console(sys.stdout, 1), _console(sys.stderr, 2)
    sys.stdout = out
    status: int | str | None
    try:
        status = main(sys.argv[1:])
    except SystemExit as end:  # of argparse
        status = end.code
    except KeyboardInterrupt as stop:
        print("larklane: stopped", file=sys.stderr)
        status = status_of(stop)
    out.flush()
    if out.failure and not isinstance(out.failure, BrokenPipeError):  # a reader that closes the pipe is no failure
        print(f"larklane: standard output: {out.failure.strerror}", file=sys.stderr)
        status = status or FAILED
    sys.exit(status)
