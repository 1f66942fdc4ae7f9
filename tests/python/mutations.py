"""Seeded damage of a file, as by a disk, an editor or an enemy."""

import copy
import os
import random
from collections.abc import Iterator
from typing import Any

PIECES = (b"\n", b"=", b'"', b"0", b"-1", b"1e999", b"NaN", b"Infinity", b"-Infinity", b"\x1b[2J", b"[[[", b"}}}", b"\xff\xfe", b"\xc2\x9b",
          b"9" * 30, b"null", b"true", b"\0" * 8, b"\xff" * 8, b"4294967296", b'{"a":', b'"\\ud800"', b"[]", b"{}", b'""', b"0.5")


def mutated(data: bytes, seed: int) -> bytes:
    """One to four changes. The same seed and data give the same."""
    chance = random.Random(seed)
    made = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(0, len(made))
        length = min(chance.randint(0, 24), len(made) - at)
        what = chance.randrange(6)
        if what == 0 and at < len(made):
            made[at] ^= 1 << chance.randrange(8)
        elif what == 1:
            del made[at : at + length]
        elif what == 2:
            made[at:at] = chance.choice(PIECES)
        elif what == 3:
            made[at : at + length] = chance.choice(PIECES)
        elif what == 4:
            to = chance.randint(0, len(made))
            made[to:to] = made[at : at + length]
        elif chance.randrange(8) == 0:
            del made[at:]
    return bytes(made)


VALUES = (None, True, -1, 0, 1, 2**70, 1e308, -0.5, float("inf"), float("nan"), "", "x", "\x1b[2J", "\ud800", [], {}, [[]], [None], [1], {"a": 1}, [{}])


def mutated_json(value: Any, seed: int) -> Any:
    """A copy in which one to three values are others, are missing, or are there twice."""
    chance = random.Random(seed)
    made = copy.deepcopy(value)
    for _ in range(chance.randint(1, 3)):
        node, depth = made, chance.randint(1, 9)
        while isinstance(node, (dict, list)) and node:
            key = chance.choice(list(node) if isinstance(node, dict) else range(len(node)))
            depth -= 1
            if depth > 0 and isinstance(node[key], (dict, list)) and node[key]:
                node = node[key]
                continue
            what = chance.randrange(4)
            if what == 0:
                del node[key]
            elif what == 1 and isinstance(node, list):
                node.append(copy.deepcopy(node[key]))
            else:
                node[key] = copy.deepcopy(chance.choice(VALUES))
            break
    return made


def seeds(count: int) -> Iterator[int]:
    """1 to `count`; or as many from the seed in LARKLANE_SEED."""
    first = int(os.environ.get("LARKLANE_SEED", "1"))
    yield from range(first, first + count)
