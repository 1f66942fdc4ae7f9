"""The only reader of files that a user names, and the escaping of their texts.

A regular file, or a link to one, is read whole if its size is within the limit of its kind. A pipe, a device or a folder is refused
before any byte is read.
"""

import errno
import json
import os
import re
import stat
from pathlib import Path
from typing import Any

# Largest file of each kind, in bytes. A sample of a record takes some 20 bytes, so the limit is ten million samples; as Python objects they
# take ten times as much memory. A record of a profile has 48 bytes and becomes an object of some 300 bytes: 7 GB for a rank's largest file.
RECORD_BYTES_MAX = 256 << 20
PROFILE_BYTES_MAX = 1 << 30
TEXT_BYTES_MAX = 16 << 20  # reports of other tools, as mpiP's
# Control characters of C0 and C1, characters that reorder or end a line, and bytes that are not UTF-8.
HIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
HIDDEN_IN_LINES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
SHOWN_MAX = 200


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    short = {9: "\\t", 10: "\\n", 13: "\\r"}.get(code)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8, as Python represents it
        code -= 0xDC00
    return short or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def show(text: str) -> str:
    """Lines without control characters, for a terminal."""
    return HIDDEN_IN_LINES.sub(_escape, text)


def printable(text: object, most: int = SHOWN_MAX) -> str:
    """One line without control characters; a text of more than `most` characters ends in its length."""
    whole = str(text)
    shown = HIDDEN.sub(_escape, whole[:most])
    return shown if len(whole) <= most else f"{shown}... ({len(whole)} characters)"


def _error(number: int, what: str, path: Path) -> OSError:
    return OSError(number, what, str(path))


def read_bytes(path: Path, most: int) -> bytes:
    """@throws OSError  with strerror and filename: missing, no regular file, or more than `most` bytes"""
    try:
        mode = os.stat(path).st_mode  # opening a device or a pipe may already affect it, or its writer
        if stat.S_ISDIR(mode):
            raise _error(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(mode):
            raise _error(errno.EINVAL, "it is no regular file", path)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except ValueError as error:  # a NUL in the name
        raise _error(errno.EINVAL, str(error), path) from error
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):  # the file has been replaced since
            raise _error(errno.EINVAL, "it is no regular file", path)
        data = file.read(most + 1) if about.st_size <= most else None
    if data is None or len(data) > most:
        raise _error(errno.EFBIG, f"it has more than {most} bytes", path)
    return data


def read_json(path: Path) -> Any:
    """@throws OSError  as read_bytes()
    @throws ValueError  no JSON: with the place, or why
    """
    text = read_bytes(path, RECORD_BYTES_MAX).decode("utf-8")  # UnicodeDecodeError is a ValueError
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
