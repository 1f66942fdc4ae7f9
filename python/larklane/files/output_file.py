"""The only writer of files that a user keeps: each write is complete, or leaves the old file.

The content goes to NAME.part in the same folder, is synchronised with the disk and replaces the file. A failed or interrupted
write leaves nothing behind.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

PART = ".part"
FULL = (errno.ENOSPC, errno.EDQUOT)


class NotWritten(OSError):
    """A failed write, with strerror and the name of the file, not of the temporary file."""


@contextlib.contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """Open a file for its new content. A device or a pipe is written directly; for a link, the file behind it is
    replaced.

    @throws NotWritten
    """
    is_there = path.exists() and not path.is_file()
    target = path if is_there or not path.is_symlink() else path.resolve()
    part = path if is_there else target.with_name(target.name + PART)
    try:
        if not is_there:
            part.unlink(missing_ok=True)
        with part.open("wb" if is_there else "xb") as file:
            yield file
            file.flush()
            if not is_there:
                os.fsync(file.fileno())
        if not is_there:
            part.replace(target)
    except BaseException as error:  # including ^C
        if not is_there:
            with contextlib.suppress(OSError):
                part.unlink()
        if not isinstance(error, OSError):
            raise
        raise NotWritten(error.errno, f"not written: {error.strerror}", str(path)) from error


def write(path: Path, content: bytes | str) -> None:
    """@throws NotWritten"""
    with whole(path) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)


def make_folder(folder: Path) -> None:
    """@throws NotWritten"""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotWritten(error.errno, f"not written: {error.strerror}", str(error.filename)) from error


def try_folder(folder: Path) -> None:
    """Create the folder and check that it accepts files, before anything is measured.

    @throws NotWritten
    """
    make_folder(folder)
    attempt = folder / f".larklane-{os.getpid()}"
    try:
        write(attempt, b"\n")
    except NotWritten as error:
        raise NotWritten(error.errno, error.strerror, str(folder)) from error
    attempt.unlink()


def problem(error: OSError, elsewhere: str) -> str:
    """@return text for users: the file, the reason, and a remedy if a write failed. `elsewhere` is like "name another folder with --out"."""
    if not isinstance(error, NotWritten):
        return f"{error.filename}: {error.strerror}"
    free = "free space there, or " if error.errno in FULL else ""
    return f"{error.filename}: {error.strerror}; remedy: {free}{elsewhere}"
